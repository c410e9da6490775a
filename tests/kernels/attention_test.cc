#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "kernel_cases.h"
#include "kernels/reference/reference.h"
#include "kernels/token_slab.h"

namespace lamina {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

struct Case {
  int num_kv_heads, group, head_dim;
  DType dtype;
  std::vector<int64_t> num_tokens;  // of each row's sequence
  float soft_cap = 0;
};

std::string Name(const Case& c) {
  return std::string(DTypeName(c.dtype)) + " kv_heads " + std::to_string(c.num_kv_heads) +
         " group " + std::to_string(c.group) + " head_dim " + std::to_string(c.head_dim);
}

struct Outcome {
  std::vector<float> out, lse;
};

// Overwrites a slot in all layers with NaN, so that a read of freed or unwritten memory shows.
void Poison(TokenSlab& slab, TokenSlot slot) {
  const KvShape& shape = slab.shape();
  const int64_t row_bytes = KvRowBytes(shape.dtype, shape.num_kv_heads, shape.head_dim);
  const std::vector<std::byte> nan(static_cast<size_t>(row_bytes), std::byte{0xff});
  for (int layer = 0; layer < shape.num_layers; ++layer)
    slab.WriteRaw(layer, slot, nan.data(), nan.data());
}

// Sequences in random slots of a slab in which everything else is NaN.
class Scene {
 public:
  explicit Scene(const Case& c, float scale_of_q = 2.0f) : c_(c) {
    const int64_t total = std::accumulate(c.num_tokens.begin(), c.num_tokens.end(), int64_t{0});
    const int64_t capacity = total + total / 2 + 8;
    slab_ = TokenSlab::Create({2, c.num_kv_heads, c.head_dim, c.dtype}, capacity).value();
    for (TokenSlot s = 0; s < static_cast<TokenSlot>(capacity); ++s) Poison(*slab_, s);
    std::vector<TokenSlot> slots(static_cast<size_t>(capacity));
    std::iota(slots.begin(), slots.end(), TokenSlot{0});
    std::shuffle(slots.begin(), slots.end(), std::mt19937(11));
    const auto width = static_cast<size_t>(c.num_kv_heads * c.head_dim);
    size_t used = 0;
    for (int64_t n : c.num_tokens) {
      sequences_.emplace_back(slots.begin() + static_cast<int64_t>(used),
                              slots.begin() + static_cast<int64_t>(used) + n);
      for (int64_t t = 0; t < n; ++t, ++used) {
        const auto seed = static_cast<uint32_t>(used);
        slab_->Write(1, slots[used], RandomFloats(width, seed * 2 + 1).data(),
                     RandomFloats(width, seed * 2 + 2).data());
      }
    }
    shape_ = {c.num_kv_heads * c.group, c.num_kv_heads, c.head_dim,
              1.0f / std::sqrt(static_cast<float>(c.head_dim)), c.soft_cap};
    q_ = RandomFloats(c.num_tokens.size() * RowFloats(), 5, scale_of_q);
  }

  size_t RowFloats() const { return static_cast<size_t>(shape_.num_heads * shape_.head_dim); }
  size_t NumHeads() const { return static_cast<size_t>(shape_.num_heads); }
  const AttentionShape& shape() const { return shape_; }
  TokenSlab& slab() const { return *slab_; }
  const std::vector<TokenSlot>& slots(size_t row) const { return sequences_[row]; }
  const float* q(size_t row) const { return &q_[row * RowFloats()]; }

  // Rows that look at `num_tokens[i]` tokens of sequence `sequence[i]` with the q of `sequence[i]`.
  Outcome Run(WorkerTeam* team, const std::vector<size_t>& sequence,
              const std::vector<int64_t>& num_tokens) const {
    Outcome r = {std::vector<float>(sequence.size() * RowFloats(), NAN),
                 std::vector<float>(sequence.size() * NumHeads(), NAN)};
    std::vector<AttentionRow> rows;
    for (size_t i = 0; i < sequence.size(); ++i) {
      rows.push_back({q(sequence[i]), sequences_[sequence[i]].data(), num_tokens[i],
                      &r.out[i * RowFloats()], &r.lse[i * NumHeads()]});
    }
    if (team == nullptr) {
      reference::Attention(shape_, slab_->View(1), rows);
    } else {
      Attention(shape_, slab_->View(1), rows, *team);
    }
    return r;
  }

  // Every row over all of its sequence.
  Outcome RunAll(WorkerTeam* team) const {
    std::vector<size_t> sequence(c_.num_tokens.size());
    std::iota(sequence.begin(), sequence.end(), size_t{0});
    return Run(team, sequence, c_.num_tokens);
  }

 private:
  Case c_;
  AttentionShape shape_;
  std::unique_ptr<TokenSlab> slab_;
  std::vector<std::vector<TokenSlot>> sequences_;
  std::vector<float> q_;
};

std::vector<std::pair<CpuIsa, DType>> IsasAndKvDTypes() {
  std::vector<std::pair<CpuIsa, DType>> pairs;
  for (CpuIsa isa : SupportedIsas()) {
    for (DType dtype : kKvDTypes) pairs.emplace_back(isa, dtype);
  }
  return pairs;
}

std::vector<float> Slice(const std::vector<float>& v, size_t begin, size_t n) {
  return {v.begin() + static_cast<int64_t>(begin), v.begin() + static_cast<int64_t>(begin + n)};
}

void ExpectCloseToOracle(const Case& c) {
  SCOPED_TRACE(Name(c));
  const Scene scene(c);
  const Outcome expected = scene.RunAll(nullptr);
  WorkerTeam team(2);
  Outcome first;
  for (CpuIsa isa : SupportedIsas()) {
    SCOPED_TRACE(CpuIsaName(isa));
    const WithIsa with(isa);
    const Outcome got = scene.RunAll(&team);
    EXPECT_LT(LargestError(got.out, expected.out), 1e-5);
    for (size_t i = 0; i < got.lse.size(); ++i) {
      if (expected.lse[i] == kNone) {
        EXPECT_EQ(got.lse[i], kNone);
      } else {
        EXPECT_NEAR(got.lse[i], expected.lse[i], 1e-5 * (1 + std::abs(expected.lse[i])));
      }
    }
    if (first.out.empty()) first = got;
    EXPECT_TRUE(SameBits(got.out, first.out) && SameBits(got.lse, first.lse))
        << "differs from the scalar kernels";
  }
}

TEST(Attention, IsCloseToADoublePrecisionOracleForEveryLength) {
  for (DType dtype : kKvDTypes)
    ExpectCloseToOracle({2, 4, 64, dtype, {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000}});
}

TEST(Attention, IsCloseToTheOracleForEveryGroup) {
  for (int group : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 71}) {
    for (DType dtype : {DType::kBF16, DType::kF8, DType::kI8Scaled, DType::kF8Scaled})
      ExpectCloseToOracle({2, group, 32, dtype, {70, 3}});
  }
}

TEST(Attention, IsCloseToTheOracleForEveryHeadDim) {
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (int group : {1, 3, 8}) {
      ExpectCloseToOracle({1, group, head_dim, kAllDTypes[head_dim / 8 % 3], {67}});
      for (DType dtype : {DType::kF8, DType::kI8Scaled, DType::kF8Scaled})
        ExpectCloseToOracle({1, group, head_dim, dtype, {67}});
    }
  }
}

TEST(Attention, IsCloseToTheOracleForGroupsOfWideHeads) {
  for (int head_dim : {64, 80, 96, 128, 256}) {
    for (int group : {2, 4, 5, 7, 8, 11, 16}) {
      ExpectCloseToOracle({1, group, head_dim, kAllDTypes[(head_dim / 16 + group) % 3], {131, 33}});
      for (DType dtype : {DType::kF8, DType::kI8Scaled, DType::kF8Scaled})
        ExpectCloseToOracle({1, group, head_dim, dtype, {131, 33}});
    }
  }
}

TEST(Attention, IsCloseToTheOracleForLongContexts) {
  for (DType dtype : kKvDTypes) ExpectCloseToOracle({1, 8, 32, dtype, {5000, 257, 1, 2049, 3}});
}

TEST(Attention, IsCloseToTheOracleWithCappedScores) {
  for (DType dtype : kKvDTypes) {
    for (int group : {1, 3, 8})
      ExpectCloseToOracle({2, group, 40, dtype, {0, 1, 17, 33, 256, 700}, /*soft_cap=*/0.5f});
  }
}

TEST(Attention, CapsMatter) {
  const Case plain = {1, 2, 64, DType::kF32, {100}};
  Case capped = plain;
  capped.soft_cap = 0.5f;
  WorkerTeam team(1);
  EXPECT_GT(LargestError(Scene(plain, 20).RunAll(&team).out, Scene(capped, 20).RunAll(&team).out),
            0.01);
}

TEST(InWindow, IsTheLastTokensOfThoseThereAre) {
  const std::vector<TokenSlot> slots = {5, 3, 9, 4};
  const auto in = [&](int64_t size, bool chunked = false) {
    const std::span<const TokenSlot> last = InWindow(slots, {size, chunked});
    return std::vector<TokenSlot>(last.begin(), last.end());
  };
  EXPECT_EQ(in(0), slots);
  EXPECT_EQ(in(1), std::vector<TokenSlot>({4}));
  EXPECT_EQ(in(3), std::vector<TokenSlot>({3, 9, 4}));
  EXPECT_EQ(in(4), slots);
  EXPECT_EQ(in(100), slots);
  EXPECT_EQ(in(3, true), std::vector<TokenSlot>({4})) << "the first of its chunk";
  EXPECT_EQ(in(2, true), std::vector<TokenSlot>({9, 4}));
  EXPECT_EQ(in(4, true), slots);
}

// Scores of several hundred: exp must not overflow, and one token takes nearly all weight.
TEST(Attention, SurvivesLargeScores) {
  const Scene scene({1, 2, 64, DType::kF32, {300}}, 1000.0f);
  WorkerTeam team(1);
  for (CpuIsa isa : SupportedIsas()) {
    const WithIsa with(isa);
    EXPECT_LT(LargestError(scene.RunAll(&team).out, scene.RunAll(nullptr).out), 1e-3);
  }
}

TEST(Attention, ARowDoesNotDependOnItsBatchOrTheTeam) {
  for (DType dtype : kKvDTypes) {
    const Case c = {2, 3, 40, dtype, {1, 200, 0, 64, 130, 1000, 31}};
    const Scene scene(c);
    for (CpuIsa isa : SupportedIsas()) {
      const WithIsa with(isa);
      WorkerTeam one(1);
      const Outcome all = scene.RunAll(&one);
      for (size_t i = 0; i < c.num_tokens.size(); ++i) {
        const Outcome alone = scene.Run(&one, {i}, {c.num_tokens[i]});
        EXPECT_TRUE(SameBits(alone.out, Slice(all.out, i * scene.RowFloats(), scene.RowFloats())))
            << "row " << i;
        EXPECT_TRUE(SameBits(alone.lse, Slice(all.lse, i * scene.NumHeads(), scene.NumHeads())))
            << "row " << i;
      }
      for (int workers = 2; workers <= 4; ++workers) {
        WorkerTeam team(workers);
        EXPECT_TRUE(SameBits(scene.RunAll(&team).out, all.out)) << workers << " workers";
      }
    }
  }
}

// A prompt's rows in chunks of any size and each row alone, as in decoding, give the same bits.
// Tokens that a row does not attend to are NaN in the alone case, so a stray read shows too.
TEST(Attention, PrefillInChunksEqualsDecode) {
  constexpr int64_t kTokens = 150;
  for (const auto& [group, head_dim, dtype] :
       {std::tuple(1, 8, DType::kBF16), std::tuple(4, 32, DType::kBF16),
        std::tuple(8, 64, DType::kBF16), std::tuple(1, 56, DType::kF8),
        std::tuple(5, 40, DType::kF8), std::tuple(1, 56, DType::kI8Scaled),
        std::tuple(5, 40, DType::kI8Scaled), std::tuple(2, 64, DType::kF8Scaled)}) {
    Scene scene({2, group, head_dim, dtype, {kTokens}});
    WorkerTeam team(2);
    std::vector<int64_t> lengths(kTokens);
    std::iota(lengths.begin(), lengths.end(), int64_t{1});
    for (CpuIsa isa : SupportedIsas()) {
      const WithIsa with(isa);
      const Outcome whole = scene.Run(&team, std::vector<size_t>(kTokens, 0), lengths);
      for (int64_t chunk : {1, 7, 64}) {
        for (int64_t begin = 0; begin < kTokens; begin += chunk) {
          const int64_t n = std::min(chunk, kTokens - begin);
          const std::vector<int64_t> part(lengths.begin() + begin, lengths.begin() + begin + n);
          const Outcome got =
              scene.Run(&team, std::vector<size_t>(static_cast<size_t>(n), 0), part);
          const size_t at = static_cast<size_t>(begin) * scene.RowFloats();
          ASSERT_TRUE(SameBits(got.out, Slice(whole.out, at, got.out.size())))
              << "chunk " << chunk << " at " << begin;
        }
      }
    }
  }
}

TEST(Attention, ARowNeverReadsTokensBeyondItsOwn) {
  WorkerTeam team(1);
  for (const auto& [isa, dtype] : IsasAndKvDTypes()) {
    Scene scene({1, 2, 64, dtype, {100}});
    const WithIsa with(isa);
    const Outcome before = scene.Run(&team, {0}, {70});
    for (int64_t t = 70; t < 100; ++t) Poison(scene.slab(), scene.slots(0)[static_cast<size_t>(t)]);
    // Together with a row that does read them, and whose result is therefore NaN.
    const Outcome both = scene.Run(&team, {0, 0}, {70, 100});
    EXPECT_TRUE(SameBits(before.out, Slice(both.out, 0, scene.RowFloats())));
    EXPECT_TRUE(std::isnan(both.out.back()));
  }
}

TEST(Attention, NaNInKShowsInTheOutput) {
  WorkerTeam team(1);
  for (const auto& [isa, dtype] : IsasAndKvDTypes()) {
    Scene scene({1, 1, 40, dtype, {90}});
    Poison(scene.slab(), scene.slots(0)[80]);
    const WithIsa with(isa);
    for (float x : scene.RunAll(&team).out) EXPECT_TRUE(std::isnan(x));
  }
}

// Attention over a single token is its v: every FP8 there is, at every place in a row, and those of
// both signs of NaN; for one head, and for as many as share what is widened.
TEST(Attention, ReadsEveryF8) {
  constexpr int kHeadDim = 56;  // a first and a second of 32, a 16 and an 8
  auto slab = TokenSlab::Create({1, 1, kHeadDim, DType::kF8}, 256).value();
  WorkerTeam team(1);
  for (TokenSlot slot = 0; slot < 256; ++slot) {
    std::vector<F8> k(kHeadDim), v(kHeadDim);
    for (size_t d = 0; d < v.size(); ++d) v[d].bits = static_cast<uint8_t>(slot + d);
    slab->WriteRaw(0, slot, k.data(), v.data());
    for (const int heads : {1, 5}) {
      for (const CpuIsa isa : SupportedIsas()) {
        const WithIsa with(isa);
        const std::vector<float> q(static_cast<size_t>(heads) * kHeadDim, 1.0f);
        std::vector<float> out(q.size());
        const AttentionRow row = {q.data(), &slot, 1, out.data(), nullptr};
        Attention({heads, 1, kHeadDim, 1, 0}, slab->View(0), {&row, 1}, team);
        for (size_t i = 0; i < out.size(); ++i) {
          const F8 stored = v[i % kHeadDim];
          const float expected = ToFloat(stored);
          if (std::isnan(expected)) {
            EXPECT_TRUE(std::isnan(out[i])) << CpuIsaName(isa) << " of " << int{stored.bits};
          } else {
            EXPECT_EQ(out[i], expected) << CpuIsaName(isa) << " of " << int{stored.bits};
          }
        }
      }
    }
  }
}

// Every code of an integer, and a scale for each token.
TEST(Attention, ReadsEveryI8) {
  constexpr int kHeadDim = 56;
  auto slab = TokenSlab::Create({1, 1, kHeadDim, DType::kI8Scaled}, 256).value();
  WorkerTeam team(1);
  for (TokenSlot slot = 0; slot < 256; ++slot) {
    const float k_scale = 0.5f, v_scale = std::ldexp(1.0f, static_cast<int>(slot) % 64 - 32);
    std::vector<int8_t> k(kHeadDim + 4), v(kHeadDim + 4);
    for (size_t d = 0; d < kHeadDim; ++d) v[d] = static_cast<int8_t>(slot + d);
    std::memcpy(&k[kHeadDim], &k_scale, 4);
    std::memcpy(&v[kHeadDim], &v_scale, 4);
    slab->WriteRaw(0, slot, k.data(), v.data());
    for (const int heads : {1, 5}) {
      for (const CpuIsa isa : SupportedIsas()) {
        const WithIsa with(isa);
        const std::vector<float> q(static_cast<size_t>(heads) * kHeadDim, 1.0f);
        std::vector<float> out(q.size());
        const AttentionRow row = {q.data(), &slot, 1, out.data(), nullptr};
        Attention({heads, 1, kHeadDim, 1, 0}, slab->View(0), {&row, 1}, team);
        for (size_t i = 0; i < out.size(); ++i)
          EXPECT_EQ(out[i], static_cast<float>(v[i % kHeadDim]) * v_scale) << CpuIsaName(isa);
      }
    }
  }
}

// Whatever a peer sends as scales: sequences without such a token, and the other kv_heads, keep
// their bits, together with those that have it; and what is no number does not become one.
TEST(Attention, StrangeScalesStayWithTheirTokensAndHeads) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr int kHeadDim = 40;
  WorkerTeam team(1);
  for (const DType dtype : {DType::kI8Scaled, DType::kF8Scaled}) {
    for (const float strange : {NAN, kInf, -kInf, -1.0f, 0.0f, 1e38f}) {
      for (const bool in_v : {false, true}) {
        SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(strange));
        Scene scene({2, 3, kHeadDim, dtype, {40, 90}});
        for (const CpuIsa isa : SupportedIsas()) {
          const WithIsa with(isa);
          const Outcome before = scene.RunAll(&team);
          // Of kv_head 1 of a token of the second sequence.
          const TokenSlot slot = scene.slots(1)[70];
          const KvView view = scene.slab().View(1);
          const float* const of_kind = in_v ? view.v_scales : view.k_scales;
          float* const scale =
              const_cast<float*>(of_kind) + view.scale_head_stride + slot * view.scale_slot_stride;
          const float kept = std::exchange(*scale, strange);
          const Outcome after = scene.RunAll(&team);
          *scale = kept;
          const size_t same = scene.RowFloats() + 3 * kHeadDim;
          EXPECT_TRUE(SameBits(Slice(before.out, 0, same), Slice(after.out, 0, same)));
          const std::vector<float> changed = Slice(after.out, same, 3 * kHeadDim);
          EXPECT_FALSE(SameBits(Slice(before.out, same, 3 * kHeadDim), changed));
          if (std::isnan(strange)) {
            for (const float x : changed) EXPECT_TRUE(std::isnan(x));
          }
        }
      }
    }
  }
}

TEST(Attention, LseMayBeNull) {
  const Scene scene({1, 1, 16, DType::kF32, {5}});
  const Outcome expected = scene.RunAll(nullptr);
  std::vector<float> out(16);
  const AttentionRow row = {scene.q(0), scene.slots(0).data(), 5, out.data(), nullptr};
  WorkerTeam team(1);
  Attention(scene.shape(), scene.slab().View(1), {&row, 1}, team);
  EXPECT_LT(LargestError(out, expected.out), 1e-5);
}

// Attention over [0, split) merged with attention over [split, n) is attention over [0, n).
TEST(MergePartial, PartsMergeToTheWhole) {
  const int64_t n = 200;
  const Scene scene({1, 2, 32, DType::kF32, {n}});
  WorkerTeam team(1);
  const Outcome whole = scene.RunAll(nullptr);
  for (int64_t split : {1, 63, 64, 100, 199}) {
    Outcome a = scene.Run(&team, {0}, {split});
    std::vector<float> out_b(scene.RowFloats()), lse_b(scene.NumHeads());
    const AttentionRow rest = {scene.q(0), scene.slots(0).data() + split, n - split, out_b.data(),
                               lse_b.data()};
    Attention(scene.shape(), scene.slab().View(1), {&rest, 1}, team);
    for (size_t h = 0; h < scene.NumHeads(); ++h) {
      MergePartial({&a.out[h * 32], 32}, a.lse[h], {&out_b[h * 32], 32}, lse_b[h]);
    }
    EXPECT_LT(LargestError(a.out, whole.out), 1e-5) << "split " << split;
    EXPECT_LT(LargestError(a.lse, whole.lse), 1e-5) << "split " << split;
  }
}

TEST(MergePartial, NothingIsTheIdentity) {
  const std::vector<float> some = {1.5f, -2.0f}, nothing = {0, 0};
  std::vector<float> a = some;
  float lse = 3.25f;
  MergePartial(a, lse, nothing, kNone);
  EXPECT_TRUE(SameBits(a, some));
  EXPECT_EQ(lse, 3.25f);
  a = nothing;
  lse = kNone;
  MergePartial(a, lse, some, 3.25f);
  EXPECT_TRUE(SameBits(a, some));
  EXPECT_EQ(lse, 3.25f);
  MergePartial(a, lse, nothing, kNone);
  EXPECT_EQ(lse, 3.25f);
}

TEST(MergePartial, Commutes) {
  const std::vector<float> x = RandomFloats(64, 1), y = RandomFloats(64, 2);
  for (float lse_y : {-200.0f, -1.0f, 0.5f, 90.0f}) {
    std::vector<float> xy = x, yx = y;
    float lse_xy = 0.25f, lse_yx = lse_y;
    MergePartial(xy, lse_xy, y, lse_y);
    MergePartial(yx, lse_yx, x, 0.25f);
    EXPECT_TRUE(SameBits(xy, yx));
    EXPECT_EQ(lse_xy, lse_yx);
  }
}

TEST(AddSink, IsAKeyOfItsScoreWithoutAValue) {
  const std::vector<float> x = RandomFloats(64, 1);
  for (const float sink : {-200.0f, -1.0f, 0.25f, 3.0f, 90.0f, 1e30f}) {
    const float lse = 0.25f;
    const double weight = std::exp(double{lse}) / (std::exp(double{lse}) + std::exp(double{sink}));
    std::vector<float> out = x;
    AddSink(out, lse, sink);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(out[i], x[i] * weight, 1e-6 * std::abs(x[i])) << sink;
    // As it is merged where outputs come in parts.
    std::vector<float> merged(64, 0.0f);
    float merged_lse = sink;
    MergePartial(merged, merged_lse, x, lse);
    EXPECT_EQ(out, merged) << sink;  // bit for bit, but for the sign of zeros
  }
}

TEST(AddSink, OfNoKeysNothingIsLeft) {
  std::vector<float> out(8, 0.0f);
  AddSink(out, kNone, -3.0f);
  EXPECT_TRUE(SameBits(out, std::vector<float>(8, 0.0f)));
}

}  // namespace
}  // namespace lamina
