#if LAMINA_HAS_CUDA
#include "kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>

#include "cuda_cases.h"
#include "kernel_cases.h"
#include "kernels/attention.h"
#include "kernels/reference/reference.h"

namespace lamina::cuda {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct Case {
  const char* name;
  int num_kv_heads, group, head_dim;
  DType kv_dtype;
  std::vector<int64_t> num_tokens;  // of each row's sequence
  DType q_dtype = DType::kF32, out_dtype = DType::kF32;
  float soft_cap = 0;
};

struct Outcome {
  std::vector<float> out, lse;
};

std::vector<float> Decode(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / ElementSize(dtype));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = reference::At(bytes.data(), dtype, static_cast<int64_t>(i));
  return values;
}

// What rounding to `dtype` may add to an error.
double Rounding(DType dtype) {
  return dtype == DType::kF32 ? 0 : dtype == DType::kBF16 ? 1.0 / 256 : 1.0 / 2048;
}

constexpr int64_t kSplit = kAttentionSplitTokens, kLong = kSplit + 44;

class CudaAttention : public CudaTest {
 protected:
  // Sequences in random slots of a slab in which everything else is NaN.
  void Build(const Case& c, float scale_of_q = 2.0f) {
    shape_ = {c.num_kv_heads * c.group, c.num_kv_heads, c.head_dim,
              1.0f / std::sqrt(static_cast<float>(c.head_dim)), c.soft_cap};
    const int64_t total = std::accumulate(c.num_tokens.begin(), c.num_tokens.end(), int64_t{0}),
                  capacity = total + total / 2 + 8;
    slots_.resize(static_cast<size_t>(capacity));
    std::iota(slots_.begin(), slots_.end(), TokenSlot{0});
    std::shuffle(slots_.begin(), slots_.end(), std::mt19937(11));
    const auto slab_size = static_cast<size_t>(capacity * c.num_kv_heads * c.head_dim);
    std::vector<float> k = RandomFloats(slab_size, 1), v = RandomFloats(slab_size, 2);
    for (int64_t s = total; s < capacity; ++s) {
      for (int h = 0; h < c.num_kv_heads; ++h) {
        const auto at = static_cast<std::ptrdiff_t>(
            (h * capacity + slots_[static_cast<size_t>(s)]) * c.head_dim);
        std::fill_n(k.begin() + at, c.head_dim, NAN);
        std::fill_n(v.begin() + at, c.head_dim, NAN);
      }
    }
    if (HasScales(c.kv_dtype)) {
      scales_.resize(2 * slab_size / static_cast<size_t>(c.head_dim));
      k_ = EncodeWithScales(k, c, 0);
      v_ = EncodeWithScales(v, c, 1);
    } else {
      scales_.clear();
      k_ = Encode(k, c.kv_dtype);
      v_ = Encode(v, c.kv_dtype);
    }
    device_slots_ = Upload(slots_);
    host_kv_ = {.head_stride = capacity * c.head_dim,
                .slot_stride = c.head_dim,
                .dtype = c.kv_dtype,
                .scale_head_stride = 2 * capacity,
                .scale_slot_stride = 2};
    UploadKv();
    q_ = Encode(RandomFloats(c.num_tokens.size() * RowFloats(), 5, scale_of_q), c.q_dtype);
    q_dtype_ = c.q_dtype;
    out_dtype_ = c.out_dtype;
    rows_.clear();
    int64_t first = 0;
    for (const int64_t n : c.num_tokens) {
      rows_.push_back({first, n});
      first += n;
    }
  }

  // The scales become part k_or_v of scales_.
  std::vector<std::byte> EncodeWithScales(const std::vector<float>& values, const Case& c,
                                          size_t k_or_v) {
    std::vector<std::byte> codes(values.size());
    const auto head_dim = static_cast<size_t>(c.head_dim);
    for (size_t i = 0; i < values.size() / head_dim; ++i) {
      scales_[2 * i + k_or_v] = reference::RoundWithScale(&values[i * head_dim], c.head_dim,
                                                          c.kv_dtype, &codes[i * head_dim]);
    }
    return codes;
  }

  // After a change of k_, v_ or scales_.
  void UploadKv() {
    device_k_ = Upload(k_);
    device_v_ = Upload(v_);
    host_kv_.k = k_.data();
    host_kv_.v = v_.data();
    if (!scales_.empty()) host_kv_.v_scales = (host_kv_.k_scales = scales_.data()) + 1;
    device_kv_ = host_kv_;
    device_kv_.k = device_k_.data();
    device_kv_.v = device_v_.data();
    if (scales_.empty()) return;
    device_scales_ = Upload(scales_);
    device_kv_.k_scales = device_scales_.as<float>();
    device_kv_.v_scales = device_kv_.k_scales + 1;
  }

  // The scale of K (0) or V (1) of a kv_head and the t-th of all tokens, in scales_.
  float& ScaleOf(int64_t t, size_t k_or_v, int64_t kv_head = 0) {
    return scales_[static_cast<size_t>(kv_head * host_kv_.scale_head_stride) +
                   slots_[static_cast<size_t>(t)] * 2 + k_or_v];
  }

  // Makes K or V of kv_head 0 of the t-th token NaN on the device.
  void PoisonOnDevice(size_t t, size_t k_or_v) {
    if (!scales_.empty()) {
      FillOnDevice(device_scales_.as<float>() + slots_[t] * 2 + k_or_v, 0xff, sizeof(float),
                   stream());
      return;
    }
    const size_t bytes = static_cast<size_t>(shape_.head_dim) * ElementSize(host_kv_.dtype);
    const DeviceBuffer& slab = k_or_v == 0 ? device_k_ : device_v_;
    FillOnDevice(slab.as<std::byte>() + slots_[t] * bytes, 0xff, bytes, stream());
  }

  size_t RowFloats() const { return static_cast<size_t>(shape_.num_heads * shape_.head_dim); }
  std::vector<RowTokens> rows() const { return rows_; }

  // Row i has the q of row q_of[i]. The scratch is for `scratch_rows` rows, or for all.
  Outcome Run(const std::vector<RowTokens>& rows, const std::vector<size_t>& q_of,
              int64_t scratch_rows = 0, bool rows_share_slots = false) {
    EXPECT_TRUE(CheckAttention(shape_, device_kv_).ok());
    const size_t row_bytes = RowFloats() * ElementSize(q_dtype_);
    std::vector<std::byte> q;
    AttentionBatch batch;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto from = q_.begin() + static_cast<std::ptrdiff_t>(q_of[i] * row_bytes);
      q.insert(q.end(), from, from + static_cast<std::ptrdiff_t>(row_bytes));
      batch.max_tokens = std::max(batch.max_tokens, rows[i].num_tokens);
    }
    const DeviceBuffer device_q = Upload(q), device_rows = Upload(rows);
    batch.q = device_q.data();
    batch.q_dtype = q_dtype_;
    batch.slots = device_slots_.as<TokenSlot>();
    batch.rows = device_rows.as<RowTokens>();
    batch.num_rows = std::ssize(rows);
    batch.out_dtype = out_dtype_;
    batch.rows_share_slots = rows_share_slots;
    const DeviceBuffer lse = Poisoned<float>(rows.size() * static_cast<size_t>(shape_.num_heads));
    batch.lse = lse.as<float>();
    const std::vector<std::byte> out =
        OutputOf<std::byte>(rows.size() * RowFloats() * ElementSize(out_dtype_), [&](std::byte* y) {
          batch.out = y;
          const DeviceBuffer scratch = Poisoned<std::byte>(AttentionScratchBytes(
              shape_, scratch_rows == 0 ? std::ssize(rows) : scratch_rows, batch.max_tokens));
          Attention(shape_, device_kv_, batch, scratch, stream());
          EXPECT_TRUE(stream().Synchronize().ok()) << stream().Synchronize();
        });
    return {Decode(out, out_dtype_), Download<float>(lse)};
  }

  Outcome Expected(const std::vector<RowTokens>& rows, const std::vector<size_t>& q_of) {
    const std::vector<float> q = Decode(q_, q_dtype_);
    Outcome expected = {std::vector<float>(rows.size() * RowFloats()),
                        std::vector<float>(rows.size() * static_cast<size_t>(shape_.num_heads))};
    std::vector<AttentionRow> host_rows;
    for (size_t i = 0; i < rows.size(); ++i) {
      host_rows.push_back({&q[q_of[i] * RowFloats()], slots_.data() + rows[i].first_slot,
                           rows[i].num_tokens, &expected.out[i * RowFloats()],
                           &expected.lse[i * static_cast<size_t>(shape_.num_heads)]});
    }
    reference::Attention(shape_, host_kv_, host_rows);
    return expected;
  }

  void ExpectClose(const Outcome& got, const Outcome& expected, double tolerance) {
    EXPECT_LT(LargestError(got.out, expected.out), tolerance + Rounding(out_dtype_));
    for (size_t i = 0; i < got.lse.size(); ++i) {
      if (expected.lse[i] == kNothing) {
        EXPECT_EQ(got.lse[i], kNothing);
      } else {
        EXPECT_NEAR(got.lse[i], expected.lse[i], tolerance * (1 + std::abs(expected.lse[i])));
      }
    }
  }

  void ExpectMatchesReference(const Case& c) {
    SCOPED_TRACE(c.name);
    Build(c);
    std::vector<size_t> q_of(c.num_tokens.size());
    std::iota(q_of.begin(), q_of.end(), size_t{0});
    ExpectClose(Run(rows_, q_of), Expected(rows_, q_of), 1e-5);
  }

  AttentionShape shape_;
  std::vector<TokenSlot> slots_;
  std::vector<std::byte> k_, v_, q_;
  std::vector<float> scales_;  // [kv_heads, slots, 2 (K, V)], if the type has some
  DType q_dtype_{}, out_dtype_{};
  DeviceBuffer device_k_, device_v_, device_scales_, device_slots_;
  KvView host_kv_, device_kv_;
  std::vector<RowTokens> rows_;
};

TEST_F(CudaAttention, MatchesTheReferenceOverTheTableOfShapes) {
  const Case kCases[] = {
      {"lengths around tile and split",
       2,
       2,
       64,
       DType::kBF16,
       {0, 1, 2, 15, 17, 33, 63, 65, 129, kSplit - 1, kSplit, kSplit + 1, 2 * kSplit + 1}},
      {"the same in fp16",
       1,
       4,
       64,
       DType::kF16,
       {0, 1, 15, 33, 65, kSplit - 1, kSplit, kSplit + 1}},
      {"the same in fp32",
       1,
       1,
       64,
       DType::kF32,
       {0, 1, 15, 33, 65, kSplit - 1, kSplit, kSplit + 1}},
      {"only empty rows", 2, 4, 64, DType::kBF16, {0, 0}},
      {"one long row", 1, 1, 32, DType::kBF16, {5000}},
      {"a 7B model's heads", 32, 1, 128, DType::kBF16, {40, 3}},
      {"a 70B model's heads", 8, 8, 128, DType::kBF16, {kLong, 17}},
      {"capped scores", 2, 4, 64, DType::kBF16, {0, 1, kLong, 65}, DType::kF32, DType::kF32, 0.5f},
      {"bf16 in and out", 2, 4, 128, DType::kBF16, {5, kLong}, DType::kBF16, DType::kBF16},
      {"fp16 in and out", 2, 4, 96, DType::kF16, {5, kLong}, DType::kF16, DType::kF16},
      {"lengths in fp8",
       2,
       2,
       64,
       DType::kF8,
       {0, 1, 2, 15, 17, 33, 63, 65, 129, kSplit - 1, kSplit, kSplit + 1, 2 * kSplit + 1}},
      {"the same on tensor cores",
       1,
       4,
       64,
       DType::kF8,
       {0, 1, 2, 15, 17, 33, 63, 65, 129, kSplit - 1, kSplit, kSplit + 1, 2 * kSplit + 1}},
      {"a 7B model's heads in fp8", 32, 1, 128, DType::kF8, {40, 3}},
      {"a 70B model's heads in fp8", 8, 8, 128, DType::kF8, {kLong, 17}},
      {"fp8 with capped scores",
       2,
       4,
       64,
       DType::kF8,
       {0, 1, kLong, 65},
       DType::kF32,
       DType::kF32,
       0.5f},
      {"fp8 with bf16 in and out", 2, 4, 96, DType::kF8, {5, kLong}, DType::kBF16, DType::kBF16},
  };
  for (const Case& c : kCases) ExpectMatchesReference(c);
}

TEST_F(CudaAttention, MatchesTheReferenceWithScales) {
  for (const DType dtype : kKvDTypesWithScales) {
    SCOPED_TRACE(DTypeName(dtype));
    const std::vector<int64_t> lengths = {
        0, 1, 2, 15, 17, 33, 63, 65, 129, kSplit - 1, kSplit, kSplit + 1, 2 * kSplit + 1};
    const Case kCases[] = {
        {"lengths", 2, 2, 64, dtype, lengths},
        {"the same in larger groups", 1, 4, 64, dtype, lengths},
        {"only empty rows", 2, 4, 64, dtype, {0, 0}},
        {"one long row", 1, 1, 32, dtype, {5000}},
        {"heads without groups", 8, 1, 128, dtype, {40, 3}},
        {"heads in groups of eight", 2, 8, 128, dtype, {kLong, 17}},
        {"capped scores", 2, 4, 64, dtype, {0, 1, kLong, 65}, DType::kF32, DType::kF32, 0.5f},
        {"bf16 in and out", 2, 4, 96, dtype, {5, kLong}, DType::kBF16, DType::kBF16},
    };
    for (const Case& c : kCases) ExpectMatchesReference(c);
  }
}

TEST_F(CudaAttention, MatchesTheReferenceForEveryHeadDim) {
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    SCOPED_TRACE(head_dim);
    ExpectMatchesReference(
        {"head_dim", 1, head_dim % 16 == 0 ? 1 : 3, head_dim, kAllDTypes[head_dim / 8 % 3], {67}});
  }
  for (int head_dim = 16; head_dim <= 256; head_dim += 16) {
    SCOPED_TRACE(head_dim);
    ExpectMatchesReference(
        {"on tensor cores", 1, 4, head_dim, head_dim % 32 == 0 ? DType::kBF16 : DType::kF16, {67}});
    ExpectMatchesReference({"fp8", 1, 2, head_dim, DType::kF8, {67}});
    ExpectMatchesReference({"fp8 on tensor cores", 1, 4, head_dim, DType::kF8, {67}});
    for (const DType dtype : kKvDTypesWithScales)
      ExpectMatchesReference({"with scales", 2, 4, head_dim, dtype, {67}});
  }
}

TEST_F(CudaAttention, MatchesTheReferenceForEveryGroup) {
  for (int group = 1; group <= 17; ++group) {
    SCOPED_TRACE(group);
    ExpectMatchesReference({"group", 2, group, 40, kAllDTypes[group % 3], {70, 0, 290}});
    for (const DType dtype : {DType::kF8, kKvDTypesWithScales[group % 2]})
      ExpectMatchesReference({"group over 8 bits", 2, group, 16, dtype, {70, 0, 290}});
    if (group >= 4 && group % 4 < 2)
      ExpectMatchesReference({"on tensor cores",
                              2,
                              group,
                              16,
                              group % 2 == 0 ? DType::kBF16 : DType::kF16,
                              {70, 0, 290}});
  }
}

TEST_F(CudaAttention, MatchesTheReferenceForWideHeadsInGroups) {
  for (const int head_dim : {96, 128, 256}) {
    for (const DType dtype : kKvDTypes)
      ExpectMatchesReference({"wide heads", 1, 8, head_dim, dtype, {99}});
  }
}

// Scores of several hundred: exp must not overflow, and one token takes nearly all weight.
TEST_F(CudaAttention, SurvivesLargeScores) {
  Build({"large scores", 1, 2, 64, DType::kF32, {kLong}}, 1000.0f);
  ExpectClose(Run(rows(), {0}), Expected(rows(), {0}), 1e-3);
  // Two parts of 16 bits leave 2^-17 of a score.
  Build({"large scores on tensor cores", 1, 4, 64, DType::kBF16, {kLong}}, 1000.0f);
  ExpectClose(Run(rows(), {0}), Expected(rows(), {0}), 1e-2);
}

// fp16 ends at 65504: queries beyond it, and weights far below 1 that are many.
TEST_F(CudaAttention, UsesWhatFp16HasNoExponentsFor) {
  for (const DType dtype : {DType::kF16, DType::kF8}) {
    Build({"large queries", 1, 4, 64, dtype, {kLong}}, 1e5f);
    shape_.scale = 1e-6f;
    ExpectClose(Run(rows(), {0}), Expected(rows(), {0}), 1e-5);
  }

  constexpr size_t kTokens = 256, kDim = 16;
  Build({"small weights", 1, 4, kDim, DType::kF16, {kTokens}});
  shape_.scale = 1;
  std::vector<float> k(k_.size() / 2), v(v_.size() / 2), q(4 * kDim);
  // All but the first token: a weight of 2^-25 and values of 1.
  for (size_t t = 1; t < kTokens; ++t) {
    k[slots_[t] * kDim] = -17.328f;
    std::fill_n(v.begin() + static_cast<std::ptrdiff_t>(slots_[t] * kDim), kDim, 1.0f);
  }
  for (size_t head = 0; head < 4; ++head) q[head * kDim] = 1;
  k_ = Encode(k, DType::kF16);
  v_ = Encode(v, DType::kF16);
  q_ = Encode(q, DType::kF32);
  UploadKv();
  const Outcome got = Run(rows(), {0}), expected = Expected(rows(), {0});
  EXPECT_GT(expected.out[0], 7e-6f);
  EXPECT_LT(LargestError(got.out, expected.out), 1e-9);
}

// A row of one token has its V as output, and with a q that is 1 in one dim, that dim of its K as
// score.
TEST_F(CudaAttention, EveryNumberInFp8IsExact) {
  constexpr size_t kDim = 256;
  std::vector<float> expected(kDim);
  for (size_t d = 0; d < kDim; ++d)
    expected[d] = d % 128 == 127 ? 0 : ToFloat(F8{static_cast<uint8_t>(d)});
  for (const size_t group : {2, 4}) {
    SCOPED_TRACE(group);
    Build({"all numbers", 1, static_cast<int>(group), kDim, DType::kF8, {1}});
    shape_.scale = 1;
    k_ = Encode(std::vector<float>(k_.size(), NAN), DType::kF8);
    for (size_t d = 0; d < kDim; ++d) k_[slots_[0] * kDim + d] = std::byte{ToF8(expected[d]).bits};
    device_k_ = Upload(k_);
    device_kv_.k = device_kv_.v = device_k_.data();
    std::vector<float> q(kDim * kDim);  // a head for each dim
    for (size_t d = 0; d < kDim; ++d) q[d * kDim + d] = 1;
    q_ = Encode(q, DType::kF32);
    std::vector<size_t> q_of(kDim / group);
    std::iota(q_of.begin(), q_of.end(), size_t{0});
    const Outcome got = Run(std::vector<RowTokens>(q_of.size(), {0, 1}), q_of);
    for (size_t i = 0; i < got.out.size(); ++i) ASSERT_EQ(got.out[i], expected[i % kDim]) << i;
    ASSERT_EQ(got.lse, expected);
  }
}

// The same with integers, whose scale is 0.5.
TEST_F(CudaAttention, EveryIntegerIsExact) {
  constexpr size_t kDim = 256, kGroup = 4;
  Build({"all numbers", 1, kGroup, kDim, DType::kI8Scaled, {1}});
  shape_.scale = 1;
  std::vector<float> expected(kDim);
  for (size_t d = 0; d < kDim; ++d) {
    const auto code = static_cast<int8_t>(d);
    expected[d] = 0.5f * static_cast<float>(code);
    k_[slots_[0] * kDim + d] = v_[slots_[0] * kDim + d] = static_cast<std::byte>(code);
  }
  ScaleOf(0, 0) = ScaleOf(0, 1) = 0.5f;
  UploadKv();
  std::vector<float> q(kDim * kDim);  // a head for each dim
  for (size_t d = 0; d < kDim; ++d) q[d * kDim + d] = 1;
  q_ = Encode(q, DType::kF32);
  std::vector<size_t> q_of(kDim / kGroup);
  std::iota(q_of.begin(), q_of.end(), size_t{0});
  const Outcome got = Run(std::vector<RowTokens>(q_of.size(), {0, 1}), q_of);
  for (size_t i = 0; i < got.out.size(); ++i) ASSERT_EQ(got.out[i], expected[i % kDim]) << i;
  ASSERT_EQ(got.lse, expected);
}

// Scales of V that are huge, tiny, or both among the tokens of a row, in every order; weights that
// are as tiny as scales are huge; and zeros.
TEST_F(CudaAttention, ScalesMayHaveAnyMagnitude) {
  constexpr int64_t kTokens = kLong;
  // Of token t; the log of its weight is `score`.
  struct Token {
    float scale, score;
  };
  const auto at = [](int64_t t) { return static_cast<float>(t) / kTokens; };
  const std::pair<const char*, std::function<Token(int64_t)>> kCases[] = {
      {"huge",
       [](int64_t) {
         return Token{1e30f, 0};
       }},
      {"tiny",
       [](int64_t) {
         return Token{1e-30f, 0};
       }},
      {"growing",
       [&](int64_t t) {
         return Token{std::pow(10.0f, 60 * at(t) - 30), 0};
       }},
      {"shrinking",
       [&](int64_t t) {
         return Token{std::pow(10.0f, 30 - 60 * at(t)), 0};
       }},
      {"huge with tiny weights",
       [](int64_t t) {
         return t % 7 == 3 ? Token{1e30f, -69} : Token{1, 0};
       }},
      {"tiny with all the weight",
       [](int64_t t) {
         return t % 50 == 49 ? Token{1e-20f, 0} : Token{1e5f, -60};
       }},
      {"zero before others",
       [](int64_t t) {
         return Token{t < 400 ? 0 : 1e-25f, 0};
       }},
      {"zero",
       [](int64_t) {
         return Token{0, 0};
       }},
  };
  for (const DType dtype : kKvDTypesWithScales) {
    for (const auto& [name, token] : kCases) {
      SCOPED_TRACE(std::string(name) + " " + std::string(DTypeName(dtype)));
      Build({name, 1, 4, 32, dtype, {kTokens}}, 0.1f);
      shape_.scale = 1;
      std::vector<float> q = Decode(q_, DType::kF32);
      for (size_t head = 0; head < 4; ++head) q[head * 32] = 1;
      q_ = Encode(q, DType::kF32);
      for (int64_t t = 0; t < kTokens; ++t) {
        // K is (score, about 0, ...), the first a code of 64.
        std::byte* const k = &k_[slots_[static_cast<size_t>(t)] * 32];
        std::fill_n(k, 32, std::byte{0});
        k[0] = dtype == DType::kI8Scaled ? std::byte{64} : std::byte{ToF8(64).bits};
        ScaleOf(t, 0) = token(t).score / 64;
        ScaleOf(t, 1) = token(t).scale;
      }
      UploadKv();
      const Outcome got = Run(rows(), {0}), expected = Expected(rows(), {0});
      float largest = 0;
      for (const float x : expected.out) largest = std::max(largest, std::abs(x));
      for (size_t i = 0; i < got.out.size(); ++i)
        ASSERT_NEAR(got.out[i], expected.out[i], 3e-5f * largest) << i;
      ExpectClose({expected.out, got.lse}, expected, 1e-5);
    }
  }
}

TEST_F(CudaAttention, AScaleThatIsNoNumberReachesWhoAttendsToItOnly) {
  for (const DType dtype : kKvDTypesWithScales) {
    for (const size_t k_or_v : {0, 1}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + (k_or_v == 0 ? " K" : " V"));
      Build({"no number", 2, 4, 32, dtype, {kLong, 40}});
      const std::vector<RowTokens> rows = {{0, 100}, {0, 101}, {0, kLong}, {101, 400}, {kLong, 40}};
      const std::vector<size_t> q_of = {0, 0, 0, 1, 1};
      const Outcome before = Run(rows, q_of, 0, true);
      ScaleOf(100, k_or_v, /*kv_head=*/1) = NAN;
      UploadKv();
      const Outcome after = Run(rows, q_of, 0, true);
      for (size_t i = 0; i < after.out.size(); ++i) {
        const size_t row = i / RowFloats(), head = i % RowFloats() / 32;
        const bool is_nan = (row == 1 || row == 2) && head >= 4;
        ASSERT_EQ(std::isnan(after.out[i]), is_nan) << "row " << row << " head " << head;
        if (is_nan) continue;
        ASSERT_EQ(after.out[i], before.out[i]) << "row " << row << " head " << head;
      }
      for (size_t i = 0; i < after.lse.size(); ++i) {
        const bool is_nan = k_or_v == 0 && (i / 8 == 1 || i / 8 == 2) && i % 8 >= 4;
        ASSERT_EQ(std::isnan(after.lse[i]), is_nan) << i;
        if (is_nan) continue;
        ASSERT_EQ(after.lse[i], before.lse[i]) << i;
      }
    }
  }
}

TEST_F(CudaAttention, ARowDoesNotDependOnItsBatchOrTheScratch) {
  for (const auto& [group, head_dim, dtype] :
       {std::tuple(3, 40, DType::kBF16), std::tuple(4, 32, DType::kBF16),
        std::tuple(3, 16, DType::kF8), std::tuple(4, 48, DType::kF8),
        std::tuple(3, 48, DType::kI8Scaled), std::tuple(4, 32, DType::kF8Scaled)}) {
    Build({"rows", 2, group, head_dim, dtype, {1, 200, 0, 64, 600, 1000, 257}});
    const std::vector<size_t> all_q = {0, 1, 2, 3, 4, 5, 6};
    const Outcome all = Run(rows(), all_q);
    const Outcome in_pieces = Run(rows(), all_q, 2);
    EXPECT_TRUE(SameBits(in_pieces.out, all.out) && SameBits(in_pieces.lse, all.lse));
    const auto heads = static_cast<std::ptrdiff_t>(shape_.num_heads),
               width = static_cast<std::ptrdiff_t>(RowFloats());
    for (size_t i = 0; i < all_q.size(); ++i) {
      const Outcome alone = Run({rows()[i]}, {i});
      const auto row = static_cast<std::ptrdiff_t>(i);
      EXPECT_TRUE(
          SameBits(alone.out, {all.out.begin() + row * width, all.out.begin() + (row + 1) * width}))
          << "row " << i;
      EXPECT_TRUE(
          SameBits(alone.lse, {all.lse.begin() + row * heads, all.lse.begin() + (row + 1) * heads}))
          << "row " << i;
    }
  }
}

// Rows of one sequence with growing numbers of tokens are its prompt; a window begins further on.
TEST_F(CudaAttention, PromptsAndWindowsAreRowsThatShareSlots) {
  for (const DType dtype : {DType::kF16, DType::kI8Scaled, DType::kF8Scaled}) {
    Build({"prompt", 1, 2, 32, dtype, {kLong}});
    const std::vector<RowTokens> rows = {
        {0, 1}, {0, 2}, {0, 150}, {0, kLong - 1}, {0, kLong}, {200, kLong - 200}, {44, kSplit}};
    const std::vector<size_t> q_of(rows.size(), 0);
    ExpectClose(Run(rows, q_of), Expected(rows, q_of), 1e-5);
  }
}

// Rows side by side that share reads of K and V: the same bits as each alone, whatever is beside
// them, and whatever stands in the tokens of later rows.
TEST_F(CudaAttention, SharedReadsDoNotChangeABit) {
  const Case kCases[] = {
      {"group 1", 2, 1, 24, DType::kBF16, {kLong, 40}},
      {"group 3", 2, 3, 24, DType::kF32, {kLong, 40}},
      {"group 12", 2, 12, 24, DType::kBF16, {kLong, 40}},
      {"bf16 on tensor cores", 2, 4, 16, DType::kBF16, {kLong, 40}},
      {"fp16 on tensor cores", 2, 5, 32, DType::kF16, {kLong, 40}},
      {"fp8", 2, 1, 16, DType::kF8, {kLong, 40}},
      {"fp8 on tensor cores", 2, 4, 48, DType::kF8, {kLong, 40}},
      {"integers with scales", 2, 2, 32, DType::kI8Scaled, {kLong, 40}},
      {"fp8 with scales", 2, 4, 48, DType::kF8Scaled, {kLong, 40}},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Build(c);
    std::vector<RowTokens> rows = {{kLong, 40}, {kLong, 0}};
    for (int64_t n : {int64_t{1}, int64_t{2}, int64_t{31}, int64_t{33}, kSplit - 1, kSplit,
                      kSplit + 1, kLong - 1})
      rows.push_back({0, n});
    rows.insert(rows.end(), {{kLong, 5}, {0, 7}, {kLong, 9}});
    PoisonOnDevice(static_cast<size_t>(kLong) - 1, 1);  // the last token, which no row has
    const std::vector<size_t> q_of(rows.size(), 0);
    const Outcome alone = Run(rows, q_of), shared = Run(rows, q_of, 0, true),
                  in_pieces = Run(rows, q_of, 5, true);
    EXPECT_TRUE(SameBits(shared.out, alone.out) && SameBits(shared.lse, alone.lse));
    EXPECT_TRUE(SameBits(in_pieces.out, alone.out) && SameBits(in_pieces.lse, alone.lse));
    ExpectClose(shared, Expected(rows, q_of), 1e-5);
    rows.push_back({0, kLong});
    const Outcome with_nan = Run(rows, std::vector<size_t>(rows.size(), 0), 0, true);
    EXPECT_TRUE(SameBits(
        {with_nan.out.begin(), with_nan.out.end() - static_cast<std::ptrdiff_t>(RowFloats())},
        alone.out));
    EXPECT_TRUE(std::isnan(with_nan.out[rows.size() * RowFloats() - RowFloats()]));
  }
}

TEST_F(CudaAttention, ARowReadsItsOwnTokensOnly) {
  for (const auto& [group, dtype] :
       {std::pair(2, DType::kBF16), std::pair(4, DType::kBF16), std::pair(2, DType::kF8),
        std::pair(4, DType::kF8), std::pair(2, DType::kI8Scaled), std::pair(4, DType::kF8Scaled)}) {
    Build({"stray reads", 1, group, 64, dtype, {100}});
    const Outcome before = Run({{0, 70}}, {0});
    for (size_t t = 70; t < 100; ++t) {
      PoisonOnDevice(t, 0);
      PoisonOnDevice(t, 1);
    }
    const Outcome after = Run({{0, 70}, {0, 71}}, {0, 0});
    EXPECT_TRUE(SameBits(
        before.out,
        {after.out.begin(), after.out.begin() + static_cast<std::ptrdiff_t>(RowFloats())}));
    EXPECT_TRUE(std::isnan(after.out.back())) << "a NaN in K or V of its own token does not show";
  }
}

TEST_F(CudaAttention, LseMayBeNull) {
  Build({"no lse", 1, 1, 64, DType::kBF16, {10, 0, kLong}});
  const DeviceBuffer q = Upload(q_), device_rows = Upload(rows_), out = Poisoned<float>(3 * 64);
  const DeviceBuffer scratch =
      DeviceBuffer::Create(AttentionScratchBytes(shape_, 3, kLong)).value();
  const AttentionBatch batch = {q.data(),
                                DType::kF32,
                                device_slots_.as<TokenSlot>(),
                                device_rows.as<RowTokens>(),
                                3,
                                kLong,
                                out.data(),
                                DType::kF32,
                                nullptr};
  Attention(shape_, device_kv_, batch, scratch, stream());
  EXPECT_LT(LargestError(Download<float>(out), Expected(rows_, {0, 1, 2}).out), 1e-5);
}

TEST_F(CudaAttention, SaysWhichShapesItCannotDo) {
  const auto refused = [](const AttentionShape& shape, const KvView& kv) {
    return CheckAttention(shape, kv).message();
  };
  const AttentionShape good = {8, 2, 128, 1, 0};
  KvView kv = {reinterpret_cast<const void*>(256), reinterpret_cast<const void*>(512), 128 * 10,
               128, DType::kBF16};
  EXPECT_EQ(refused(good, kv), "");
  EXPECT_EQ(refused({8, 2, 264, 1, 0}, kv),
            "attention with head_dim 264: CUDA kernels have multiples of 8 up to 256");
  EXPECT_EQ(refused({8, 2, 20, 1, 0}, kv),
            "attention with head_dim 20: CUDA kernels have multiples of 8 up to 256");
  EXPECT_EQ(refused({8, 3, 64, 1, 0}, kv),
            "attention with 8 heads over 3 kv heads: the second must divide the first");
  KvView in_fp8 = kv;
  in_fp8.dtype = DType::kF8;
  EXPECT_EQ(refused(good, in_fp8), "");
  for (const int head_dim : {8, 24, 40}) {
    EXPECT_EQ(refused({8, 2, head_dim, 1, 0}, in_fp8),
              "attention with head_dim " + std::to_string(head_dim) +
                  " over K and V in fp8: CUDA kernels have multiples of 16 up to 256; K and V in "
                  "bfloat16 or float16 do");
    EXPECT_EQ(refused({8, 2, head_dim, 1, 0}, kv), "");
  }
  KvView scaled = kv;
  for (const DType dtype : kKvDTypesWithScales) {
    scaled.dtype = dtype;
    EXPECT_EQ(refused(good, scaled), "");
    EXPECT_EQ(refused({8, 2, 40, 1, 0}, scaled),
              "attention with head_dim 40 over K and V in " + std::string(DTypeName(dtype)) +
                  ": CUDA kernels have multiples of 16 up to 256; K and V in bfloat16 or float16 "
                  "do");
  }
  in_fp8.slot_stride = 136;
  EXPECT_EQ(refused(good, in_fp8), "K, V and their strides must be multiples of 16 bytes");
  kv.slot_stride = 132;
  EXPECT_EQ(refused(good, kv), "K, V and their strides must be multiples of 16 bytes");
  kv.slot_stride = int64_t{1} << 31;
  EXPECT_EQ(refused(good, kv), "the slots of K and V must be less than 4 GiB apart");
}

TEST_F(CudaAttention, TooLittleScratchIsAFailure) {
  Build({"no scratch", 1, 1, 64, DType::kBF16, {kLong}});
  const AttentionBatch batch = {nullptr, DType::kF32, nullptr,     nullptr, 1,
                                kLong,   nullptr,     DType::kF32, nullptr};
  const std::unique_ptr<Stream> other = Stream::Create().value();
  Attention(shape_, device_kv_, batch, DeviceBuffer(), *other);
  EXPECT_EQ(other->Synchronize().code(), StatusCode::kInternal);
}

// Attention over two parts of the tokens, merged, is attention over all.
TEST_F(CudaAttention, PartialsOfDisjointTokensMerge) {
  for (const DType dtype : kAllDTypes) {
    Build({"partials", 2, 2, 40, DType::kBF16, {kLong}, DType::kF32, dtype});
    const std::vector<RowTokens> first = {{0, 100}, {0, 0}, {0, kLong}, {0, 0}},
                                 second = {{100, kLong - 100}, {0, kLong}, {0, 0}, {0, 0}};
    const std::vector<RowTokens> all = {{0, kLong}, {0, kLong}, {0, kLong}, {0, 0}};
    const std::vector<size_t> q_of(4, 0);
    const Outcome a = Run(first, q_of), b = Run(second, q_of);
    const DeviceBuffer out = Upload(Encode(a.out, dtype)), lse = Upload(a.lse),
                       more = Upload(Encode(b.out, dtype)), more_lse = Upload(b.lse);
    MergePartials({out.data(), dtype, lse.as<float>(), more.data(), dtype, more_lse.as<float>()}, 4,
                  shape_.num_heads, shape_.head_dim, stream());
    ExpectClose({Decode(Download<std::byte>(out), dtype), Download<float>(lse)},
                Expected(all, q_of), 1e-5 + Rounding(dtype));
  }
}

// An out that was never written counts for nothing if its lse says so.
TEST_F(CudaAttention, MergingIntoNothingIgnoresWhatStandsThere) {
  const DeviceBuffer out = Poisoned<float>(8), lse = Upload(std::vector<float>{kNothing});
  const DeviceBuffer more = Upload(RandomFloats(8, 1)), more_lse = Upload(std::vector<float>{0.5f});
  MergePartials(
      {out.data(), DType::kF32, lse.as<float>(), more.data(), DType::kF32, more_lse.as<float>()}, 1,
      1, 8, stream());
  EXPECT_LT(LargestError(Download<float>(out), RandomFloats(8, 1)), 1e-6);
  EXPECT_NEAR(Download<float>(lse)[0], 0.5f, 1e-6);
}

TEST_F(CudaAttention, SinksTakeTheirShare) {
  constexpr int kRows = 3, kHeads = 4, kDim = 24;
  const std::vector<float> x = RandomFloats(kRows * kHeads * kDim, 1),
                           sinks = {-90.0f, -1.0f, 2.0f, 200.0f};
  std::vector<float> lse = RandomFloats(kRows * kHeads, 2), expected = x;
  lse[5] = kNothing;
  for (size_t head = 0; head < lse.size(); ++head) {
    const std::span<float> out = std::span(expected).subspan(head * kDim, kDim);
    if (head == 5) std::ranges::fill(out, 0.0f);
    lamina::AddSink(out, lse[head], sinks[head % kHeads]);
  }
  const DeviceBuffer out = Upload(x), device_lse = Upload(lse), device_sinks = Upload(sinks);
  AddSinks(out.as<float>(), device_lse.as<float>(), device_sinks.as<float>(), kRows, kHeads, kDim,
           stream());
  EXPECT_LT(LargestError(Download<float>(out), expected), 1e-6);
}

}  // namespace
}  // namespace lamina::cuda
#endif
