// The GPU as a memory node's device, against the CPU's. Without a GPU these tests run in builds
// whose kernels are emulated (docs/cuda.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include "kernels/cuda/device.h"
#include "kernels/elementwise.h"
#include "kernels/kv_rows.h"
#include "memory_node/cpu_kv_device.h"
#include "memory_node/make_kv_device.h"
#include "memory_node/memory_node.h"
#include "tests/kernels/cuda_cases.h"

namespace lamina {
namespace cuda_kv_device_test {

using ::testing::HasSubstr;

constexpr int kHeads = 4, kKvHeads = 2, kHeadDim = 16, kLayers = 2;
constexpr int64_t kWidth = kHeads * kHeadDim, kKvWidth = kKvHeads * kHeadDim;
constexpr int64_t kCapacity = 400;
constexpr AttentionShape kShape{kHeads, kKvHeads, kHeadDim, 0.25f, 0};

// Of outputs and log-sum-exps, which are about 1: sums of up to 300 products in fp32 in another
// order; rounded to 16 bits, one rounding more.
float Tolerance(DType dtype) {
  return dtype == DType::kF32 ? 2e-5f : dtype == DType::kBF16 ? 1.0f / 128 : 1.0f / 1024;
}

MemoryNodeOptions OnGpu(int64_t host_memory_bytes = 0) {
  MemoryNodeOptions options;
  options.device = CudaGpu{0};
  options.host_memory_bytes = host_memory_bytes;
  return options;
}

class CudaKvDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Result<int> count = cuda::DeviceCount(); !count.ok()) GTEST_SKIP() << count.status();
  }

  // The same KV cache on both devices.
  void Open(DType dtype, int64_t host_memory_bytes = 0) {
    dtype_ = dtype;
    const KvShape shape{kLayers, kKvHeads, kHeadDim, dtype};
    Result<std::unique_ptr<KvDevice>> gpu =
        MakeKvDevice(OnGpu(host_memory_bytes), shape, kCapacity, team_);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    devices_[0] = *MakeKvDevice(MemoryNodeOptions{}, shape, kCapacity, team_);
    devices_[1] = std::move(*gpu);
  }

  std::vector<std::byte> Random(int64_t n, DType dtype) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = normal_(random_);
    std::vector<std::byte> bytes(values.size() * ElementSize(dtype));
    ConvertFromFloat(values.data(), n, dtype, bytes.data());
    return bytes;
  }

  // A row of K or V.
  std::vector<std::byte> RandomKv() {
    const std::vector<std::byte> values = Random(kKvWidth, DType::kF32);
    std::vector<std::byte> row(static_cast<size_t>(KvRowBytes(dtype_, kKvHeads, kHeadDim)));
    PackKvRow(reinterpret_cast<const float*>(values.data()), kKvHeads, kHeadDim, dtype_,
              row.data());
    return row;
  }

  // Appends tokens to the sequence, with K and V in all layers. Every seventh slot: neighbours do
  // not follow each other.
  void AppendTokens(uint64_t sequence, int64_t first, int64_t count, uint64_t step = 1,
                    int num_layers = kLayers) {
    std::vector<TokenSlot> slots;
    for (int64_t i = 0; i < count; ++i)
      slots.push_back(static_cast<TokenSlot>(next_slot_++ * 7 % kCapacity));
    for (const auto& device : devices_)
      ASSERT_TRUE(device->cache().Append(SequenceId{sequence}, first, slots, StepId{step}).ok());
    for (int layer = 0; layer < num_layers; ++layer) {
      for (int64_t position = first; position < first + count; ++position) {
        const std::vector<std::byte> k = RandomKv(), v = RandomKv();
        for (const auto& device : devices_)
          ASSERT_TRUE(
              device->cache()
                  .WriteRaw(layer, SequenceId{sequence}, position, k.data(), v.data(), StepId{step})
                  .ok());
      }
    }
  }

  // What a row asks: the tokens [first, num_tokens) of the sequence; none for num_tokens 0.
  struct Asked {
    uint64_t sequence;
    int64_t first, num_tokens;
  };
  struct Answers {
    std::vector<std::byte> out;
    std::vector<float> lse;
  };

  // `before`: what the answers are merged with, if it is not empty.
  Answers Ask(KvDevice& device, int layer, DType dtype, const std::vector<Asked>& asked,
              const std::vector<std::byte>& q, Answers before = {}, bool wants_lse = true) {
    const size_t row_bytes = static_cast<size_t>(kWidth) * ElementSize(dtype);
    const bool merges = !before.out.empty();
    Answers answers = std::move(before);
    if (!merges) {
      answers.out.assign(asked.size() * row_bytes, std::byte{0xff});  // NaN
      answers.lse.assign(asked.size() * kHeads, std::numeric_limits<float>::quiet_NaN());
    }
    std::vector<KvQuery> rows;
    for (size_t i = 0; i < asked.size(); ++i) {
      std::span<const TokenSlot> slots;
      if (asked[i].num_tokens > 0)
        slots = device.cache()
                    .Readable(layer, SequenceId{asked[i].sequence}, asked[i].num_tokens)
                    ->subspan(static_cast<size_t>(asked[i].first));
      rows.push_back({q.data() + i * row_bytes, slots, answers.out.data() + i * row_bytes,
                      wants_lse ? &answers.lse[i * kHeads] : nullptr});
    }
    if (merges)
      device.AttendMore(kShape, layer, dtype, rows);
    else
      device.Attend(kShape, layer, dtype, rows);
    return answers;
  }

  void ExpectAlike(const Answers& got, const Answers& expected, DType dtype) {
    const auto n = static_cast<int64_t>(expected.out.size() / ElementSize(dtype));
    std::vector<float> got_out(static_cast<size_t>(n)), expected_out(got_out);
    ConvertToFloat(got.out.data(), dtype, n, got_out.data());
    ConvertToFloat(expected.out.data(), dtype, n, expected_out.data());
    for (size_t i = 0; i < expected_out.size(); ++i)
      ASSERT_NEAR(got_out[i], expected_out[i], Tolerance(dtype)) << "element " << i;
    for (size_t i = 0; i < expected.lse.size(); ++i) {
      if (std::isnan(expected.lse[i])) {  // not wanted
        ASSERT_TRUE(std::isnan(got.lse[i])) << "lse " << i;
      } else if (std::isinf(expected.lse[i])) {
        ASSERT_EQ(got.lse[i], expected.lse[i]) << "lse " << i;
      } else {
        ASSERT_NEAR(got.lse[i], expected.lse[i], 1e-4f) << "lse " << i;
      }
    }
  }

  // On both devices; returns the GPU's.
  Answers ExpectAlike(int layer, DType dtype, const std::vector<Asked>& asked,
                      bool wants_lse = true) {
    const std::vector<std::byte> q = Random(std::ssize(asked) * kWidth, dtype);
    Answers got = Ask(*devices_[1], layer, dtype, asked, q, {}, wants_lse);
    ExpectAlike(got, Ask(*devices_[0], layer, dtype, asked, q, {}, wants_lse), dtype);
    return got;
  }

  WorkerTeam team_{1};
  std::mt19937 random_{1};
  std::normal_distribution<float> normal_;
  DType dtype_ = DType::kF32;
  int64_t next_slot_ = 0;
  std::array<std::unique_ptr<KvDevice>, 2> devices_;  // the CPU's and the GPU's
};

TEST_F(CudaKvDeviceTest, AttentionIsThatOfTheCpu) {
  for (const DType kv_dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF8, DType::kI8Scaled, DType::kF8Scaled}) {
    SCOPED_TRACE(DTypeName(kv_dtype));
    const DType dtype = IsForKvOnly(kv_dtype) ? DType::kBF16 : kv_dtype;  // of the queries
    next_slot_ = 0;
    Open(kv_dtype);
    AppendTokens(1, 0, 290);  // more than one split
    AppendTokens(2, 0, 3);
    for (int layer = 0; layer < kLayers; ++layer) {
      ExpectAlike(layer, DType::kF32,
                  {{1, 0, 290}, {2, 0, 3}, {1, 280, 290}, {2, 0, 0}, {1, 0, 1}});
      ExpectAlike(layer, dtype, {{2, 1, 3}, {1, 0, 257}});
    }
    // As the rows of a prompt.
    ExpectAlike(0, dtype,
                {{1, 0, 30}, {1, 0, 31}, {1, 0, 32}, {1, 2, 33}, {1, 0, 31}, {1, 0, 290}});
    ExpectAlike(
        1, DType::kF32,
        {{2, 0, 1}, {2, 0, 2}, {2, 0, 0}, {2, 0, 3}, {1, 250, 251}, {1, 251, 280}, {1, 0, 252}});
    ExpectAlike(0, dtype, {{2, 0, 3}}, /*wants_lse=*/false);
    ExpectAlike(0, dtype, {});
  }
}

TEST_F(CudaKvDeviceTest, MoreTokensAreMergedIntoWhatStandsThere) {
  Open(DType::kBF16);
  AppendTokens(1, 0, 40);
  AppendTokens(2, 0, 12);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<std::byte> q = Random(2 * kWidth, dtype);
    std::array<Answers, 2> parts;
    for (size_t i = 0; i < 2; ++i) {
      // The second row begins with nothing.
      parts[i] = Ask(*devices_[i], 1, dtype, {{1, 0, 30}, {2, 0, 0}}, q);
      parts[i] = Ask(*devices_[i], 1, dtype, {{1, 30, 40}, {2, 0, 12}}, q, std::move(parts[i]));
    }
    ExpectAlike(parts[1], parts[0], dtype);
    ExpectAlike(parts[1], Ask(*devices_[1], 1, dtype, {{1, 0, 40}, {2, 0, 12}}, q), dtype);
  }
}

// What the GPU was told of slots in earlier layers and steps is used again only while it is true.
TEST_F(CudaKvDeviceTest, TablesThatChangeAreSeen) {
  Open(DType::kF32);
  for (uint64_t step = 1; step <= 12; ++step) {
    AppendTokens(1, static_cast<int64_t>(step) - 1, 1, step);
    const auto tokens = static_cast<int64_t>(step);
    for (int layer = 0; layer < kLayers; ++layer)
      ExpectAlike(layer, DType::kF32, {{1, 0, tokens}, {1, tokens - 1, tokens}});
  }
  // Another sequence in the same slots, of the same length.
  for (const auto& device : devices_) device->cache().Release(SequenceId{1});
  next_slot_ = 0;
  AppendTokens(2, 0, 12, 13);
  ExpectAlike(0, DType::kF32, {{2, 0, 12}, {2, 11, 12}});
}

// Rows that were collected for a sequence that is gone do not overwrite those of the sequence that
// has its slots now.
TEST_F(CudaKvDeviceTest, ASlotHasWhatWasWrittenLast) {
  Open(DType::kBF16);
  AppendTokens(1, 0, 5);  // never attended to
  for (const auto& device : devices_) device->cache().Release(SequenceId{1});
  EXPECT_EQ(devices_[1]->cache().num_sequences(), 0);
  next_slot_ = 0;
  AppendTokens(2, 0, 5, 2);
  ExpectAlike(1, DType::kF32, {{2, 0, 5}});
}

TEST_F(CudaKvDeviceTest, TablesAreKeptAsOnTheCpu) {
  Open(DType::kF32);
  AppendTokens(1, 0, 4);
  const TokenSlot slot = 399;
  const std::vector<std::byte> row = Random(kKvWidth, DType::kF32);
  for (const auto& device : devices_) {
    EXPECT_EQ(device->cache().used_tokens(), 4);
    EXPECT_EQ(device->cache().capacity_tokens(), kCapacity);
    EXPECT_EQ(device->cache().Append(SequenceId{1}, 3, {&slot, 1}, StepId{2}).code(),
              StatusCode::kCorrupt);
    EXPECT_EQ(
        device->cache().WriteRaw(0, SequenceId{1}, 4, row.data(), row.data(), StepId{1}).code(),
        StatusCode::kCorrupt);
    EXPECT_EQ(
        device->cache().WriteRaw(0, SequenceId{9}, 0, row.data(), row.data(), StepId{1}).code(),
        StatusCode::kNotFound);
    EXPECT_EQ(device->cache().Readable(0, SequenceId{1}, 5).status().code(), StatusCode::kCorrupt);
    const std::span<const TokenSlot> slots = *device->cache().Readable(0, SequenceId{1}, 3);
    EXPECT_TRUE(device->cache().Share(SequenceId{5}, slots, StepId{2}).ok());
    EXPECT_TRUE(device->cache().AppendDummy(SequenceId{6}, 0, {&slot, 1}, StepId{2}).ok());
    EXPECT_TRUE(device->cache().Readable(1, SequenceId{6}, 1).ok());
    EXPECT_EQ(device->cache().num_sequences(), 3);
  }
  ExpectAlike(0, DType::kF32, {{5, 0, 3}, {1, 0, 4}});
  const Answers made_up =
      Ask(*devices_[1], 0, DType::kF32, {{6, 0, 1}}, Random(kWidth, DType::kF32));
  for (const float lse : made_up.lse) EXPECT_TRUE(std::isfinite(lse));
}

// Steps over all layers, with pushes in between, and now and then another order. `device` twice: a
// GPU that has all layers inside, and one where they take turns.
class CudaKvInTurnsTest : public CudaKvDeviceTest, public ::testing::WithParamInterface<bool> {};

TEST_P(CudaKvInTurnsTest, GivesTheSameBits) {
  constexpr int kMoreLayers = 5;
  const auto running = GetParam() ? std::make_unique<cuda::RunningStreams>() : nullptr;
  for (const DType kv_dtype : {DType::kBF16, DType::kI8Scaled}) {
    for (const OffloadOptions& offload :
         std::vector<OffloadOptions>{{.interval = 1, .buffers = 1},
                                     {.interval = 1, .buffers = 2},
                                     {.interval = 1, .buffers = 4},
                                     {.interval = 2, .buffers = 1},
                                     {.interval = 3, .num_in_group = 2, .buffers = 1},
                                     {.expansion = 1.6}}) {
      SCOPED_TRACE(std::string(DTypeName(kv_dtype)) + " interval " +
                   std::to_string(offload.interval) + " buffers " +
                   std::to_string(offload.buffers));
      dtype_ = kv_dtype;
      next_slot_ = 0;
      MemoryNodeOptions options = OnGpu();
      options.offload = offload;
      options.offload.poison = true;
      const KvShape shape{kMoreLayers, kKvHeads, kHeadDim, kv_dtype};
      devices_ = {*MakeKvDevice(OnGpu(), shape, kCapacity, team_),
                  *MakeKvDevice(options, shape, kCapacity, team_)};
      const auto expect_same = [&](int layer, const std::vector<Asked>& asked) {
        const std::vector<std::byte> q = Random(std::ssize(asked) * kWidth, DType::kF32);
        std::array<Answers, 2> answers;
        for (size_t i = 0; i < 2; ++i) {
          answers[i] = Ask(*devices_[i], layer, DType::kF32, asked, q);
          std::vector<Asked> more = asked;
          for (Asked& row : more) row = {row.sequence, 0, std::min<int64_t>(2, row.num_tokens)};
          answers[i] = Ask(*devices_[i], layer, DType::kF32, more, q, std::move(answers[i]));
        }
        EXPECT_EQ(answers[0].out, answers[1].out) << "layer " << layer;
        EXPECT_EQ(answers[0].lse, answers[1].lse) << "layer " << layer;
      };
      int64_t next_made_up = 0;
      for (uint64_t step = 1; step <= 4; ++step) {
        AppendTokens(step, 0, 3 + static_cast<int64_t>(step), step, kMoreLayers);
        for (int layer = 0; layer < kMoreLayers; ++layer) {
          expect_same(layer, {{step, 0, 3}, {1, 1, 4}});
          if (next_made_up > 0) expect_same(layer, {{200, 0, next_made_up}});
          // What is written while the next layers are on their way.
          if (layer == 2) AppendTokens(100 + step, 0, 2, step, kMoreLayers);
          const auto slot = static_cast<TokenSlot>(next_slot_++ * 7 % kCapacity);
          for (const auto& device : devices_) {
            ASSERT_TRUE(device->cache()
                            .AppendDummy(SequenceId{200}, next_made_up, {&slot, 1}, StepId{step})
                            .ok());
          }
          ++next_made_up;
        }
      }
      for (const int layer : {3, 0, 4, 4, 1})
        expect_same(layer, {{2, 0, 5}, {104, 0, 2}, {200, 0, next_made_up}});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, CudaKvInTurnsTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? "go_on_by_themselves" : "as_late_as_they_may";
});

TEST_F(CudaKvDeviceTest, WhatCannotTakeTurnsIsRefused) {
  MemoryNodeOptions options = OnGpu(1 << 20);
  options.memory_bytes = 2 << 20;
  options.offload = {.interval = 1};
  EXPECT_THAT(MemoryNode::Create(options).status().message(), HasSubstr("give one of both"));
  options.host_memory_bytes = 0;
  EXPECT_TRUE(MemoryNode::Create(options).ok());
  options.offload.folder = "/var/tmp";
  EXPECT_THAT(MemoryNode::Create(options).status().message(), HasSubstr("leave out the folder"));
  options.offload = {.expansion = 2, .is_auto = true};
  EXPECT_THAT(MemoryNode::Create(options).status().message(), HasSubstr("cannot change yet"));
}

TEST_F(CudaKvDeviceTest, HeadsThatDoNotGoInto8BitsAreRefused) {
  for (const int head_dim : {8, 24, 40}) {
    for (const DType dtype : {DType::kF8, DType::kI8Scaled, DType::kF8Scaled}) {
      const Status made = MakeKvDevice(OnGpu(), {2, 2, head_dim, dtype}, 16, team_).status();
      EXPECT_EQ(made.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(made.message(),
                  HasSubstr("head_dim " + std::to_string(head_dim) + " over K and V in " +
                            std::string(DTypeName(dtype)) + ": CUDA kernels have multiples of 16"));
    }
    EXPECT_TRUE(MakeKvDevice(OnGpu(), {2, 2, head_dim, DType::kBF16}, 16, team_).ok());
  }
}

// Made-up K and V are about 1 in size, whatever they are rounded to.
TEST_F(CudaKvDeviceTest, MadeUpTokensHaveScales) {
  for (const DType dtype : {DType::kI8Scaled, DType::kF8Scaled}) {
    Open(dtype);
    std::vector<TokenSlot> slots(300);
    std::iota(slots.begin(), slots.end(), TokenSlot{7});
    KvDevice& gpu = *devices_[1];
    ASSERT_TRUE(gpu.cache().AppendDummy(SequenceId{1}, 0, slots, StepId{1}).ok());
    for (int layer = 0; layer < kLayers; ++layer) {
      const Answers answers = Ask(gpu, layer, DType::kF32, {{1, 299, 300}, {1, 0, 300}},
                                  Random(2 * kWidth, DType::kF32));
      std::vector<float> out(2 * kWidth);
      std::memcpy(out.data(), answers.out.data(), answers.out.size());
      float largest = 0;
      for (const float x : out) largest = std::max(largest, std::abs(x));
      EXPECT_GT(largest, 0.5f);
      EXPECT_LE(largest, 1.0f);
    }
  }
}

TEST_F(CudaKvDeviceTest, HeadsWithoutElementsAreRefused) {
  const Status made = MakeKvDevice(OnGpu(), {2, 2, 0, DType::kBF16}, 16, team_).status();
  EXPECT_EQ(made.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(made.message(), HasSubstr("2 layers and 2 kv heads of 0"));
}

TEST_F(CudaKvDeviceTest, WhatDoesNotFitIsRefusedWithBothSizes) {
  const Status made =
      MakeKvDevice(OnGpu(), {80, 32, 128, DType::kBF16}, int64_t{1} << 31, team_).status();
  EXPECT_EQ(made.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(
      made.message(),
      ::testing::ContainsRegex(
          "cuda:0 \\(.*\\) has [0-9.]+ GB free, and 2147483648 tokens of .* need 2814749.*GB"));
  MemoryNodeOptions options;
  options.device = CudaGpu{0};
  options.memory_bytes = int64_t{1} << 50;
  const Status created = MemoryNode::Create(options).status();
  EXPECT_EQ(created.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(
      created.message(),
      ::testing::ContainsRegex(
          "--memory 1125899.9 GB is more than the [0-9.]+ GB that cuda:0 \\(.*\\) has free of"));
  EXPECT_THAT(created.message(),
              HasSubstr("; --host-memory puts a part of it into the host's memory"));
  options.memory_bytes = int64_t{1} << 20;
  EXPECT_TRUE(MemoryNode::Create(options).ok());
}

TEST_F(CudaKvDeviceTest, MoreThanTheGpuHasLiesInTheHostsMemory) {
  for (const DType dtype :
       {DType::kBF16, DType::kF32, DType::kF8, DType::kI8Scaled, DType::kF8Scaled}) {
    const DType of_queries = IsForKvOnly(dtype) ? DType::kF32 : dtype;
    const int64_t layer_bytes = 2 * KvRowBytes(dtype, kKvHeads, kHeadDim) * kCapacity;
    for (const int64_t host_bytes : {int64_t{1}, layer_bytes, layer_bytes + 1, int64_t{1} << 40}) {
      SCOPED_TRACE(host_bytes);
      next_slot_ = 0;
      const int64_t before = cuda::DescribeDevice(0)->free_bytes;
      Open(dtype, host_bytes);
      const int64_t on_host = host_bytes > layer_bytes ? 2 : 1;
      const int64_t on_device = before - cuda::DescribeDevice(0)->free_bytes;
      if (cuda::BuiltWith() == "emulated on the CPU") {  // others may use a GPU meanwhile
        EXPECT_EQ(on_device, (kLayers - on_host) * layer_bytes);
      }
      AppendTokens(1, 0, 40);
      AppendTokens(2, 0, 3);
      for (int layer = 0; layer < kLayers; ++layer)
        ExpectAlike(layer, of_queries, {{1, 0, 40}, {2, 0, 3}, {1, 7, 31}});
      for (auto& device : devices_) device.reset();
    }
  }
}

TEST_F(CudaKvDeviceTest, HostMemoryIsAPartOfAGpusMemory) {
  MemoryNodeOptions options;
  options.memory_bytes = int64_t{1} << 20;
  options.host_memory_bytes = 1;
  EXPECT_EQ(MemoryNode::Create(options).status().message(),
            "--host-memory is for the KV of a GPU: --device cuda:N");
  options.device = CudaGpu{0};
  EXPECT_TRUE(MemoryNode::Create(options).ok());
  options.host_memory_bytes = options.memory_bytes + 1;
  EXPECT_THAT(MemoryNode::Create(options).status().message(),
              HasSubstr("--host-memory 0.0 GB is a part of --memory, which is 0.0 GB"));
  options.memory_bytes = int64_t{1} << 50;
  EXPECT_THAT(MemoryNode::Create(options).status().message(),
              HasSubstr("GB less --host-memory 0.0 GB is more than the "));
  options.host_memory_bytes = options.memory_bytes - 1000;
  EXPECT_TRUE(MemoryNode::Create(options).ok());
}

TEST_F(CudaKvDeviceTest, AGpuThatIsNotThereIsNamed) {
  MemoryNodeOptions options;
  options.device = CudaGpu{1000};
  options.memory_bytes = 1 << 20;
  const Status status = MemoryNode::Create(options).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("cuda:1000: no CUDA device 1000; there are 0 to "));
}

TEST(CudaKvDeviceWithout, AProgramOrAMachineWithoutCudaSaysSo) {
  const Result<int> count = cuda::DeviceCount();
  if (count.ok()) GTEST_SKIP() << "this machine has " << *count << " CUDA devices";
  MemoryNodeOptions options;
  options.device = CudaGpu{0};
  options.memory_bytes = 1 << 20;
  const Status status = MemoryNode::Create(options).status();
  EXPECT_EQ(status.code(), count.status().code());
  EXPECT_THAT(status.message(), HasSubstr("cuda:0: "));
}

}  // namespace cuda_kv_device_test
}  // namespace lamina
