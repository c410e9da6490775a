#include "memory_node/modelled_kv_device.h"

#include <gtest/gtest.h>

#include "memory_node/memory_node.h"

namespace lamina {
namespace {

constexpr SequenceId kSequence{7};
constexpr StepId kStep{3};

// 1 GB/s and plenty of FLOP/s: attention takes a nanosecond per byte.
DeviceSpec SlowMemory() {
  DeviceSpec device;
  device.bf16_tflops = 1000;
  device.bandwidth_gb_per_s = 1;
  device.mfu = {{1, 1.0}};
  return device;
}

TEST(ModelledKvDevice, TablesAreKeptAndCounted) {
  ModelledKvDevice device(SlowMemory(), DType::kBF16, 100);
  const std::vector<TokenSlot> slots = {4, 5, 99};
  ASSERT_TRUE(device.cache().Append(kSequence, 0, slots, kStep).ok());
  EXPECT_EQ(device.cache().used_tokens(), 3);
  EXPECT_EQ(device.cache().num_sequences(), 1);
  const Result<std::span<const TokenSlot>> readable = device.cache().Readable(0, kSequence, 2);
  ASSERT_TRUE(readable.ok());
  EXPECT_EQ(std::vector<TokenSlot>(readable->begin(), readable->end()),
            (std::vector<TokenSlot>{4, 5}));
  device.cache().Release(kSequence);
  EXPECT_EQ(device.cache().used_tokens(), 0);
  EXPECT_EQ(device.cache().Readable(0, kSequence, 1).status().code(), StatusCode::kNotFound);
  device.cache().Release(kSequence);
}

TEST(ModelledKvDevice, OrdersThatContradictTheTablesAreRefused) {
  ModelledKvDevice device(SlowMemory(), DType::kBF16, 100);
  const std::vector<TokenSlot> slot = {4}, beyond = {100};
  EXPECT_EQ(device.cache().Append(kSequence, 1, slot, kStep).code(), StatusCode::kCorrupt)
      << "a table starts at position 0";
  EXPECT_EQ(device.cache().Append(kSequence, 0, beyond, kStep).code(), StatusCode::kCorrupt);
  EXPECT_EQ(device.cache().num_sequences(), 0);
  ASSERT_TRUE(device.cache().Append(kSequence, 0, slot, kStep).ok());
  EXPECT_EQ(device.cache().Readable(0, kSequence, 2).status().code(), StatusCode::kCorrupt);
  EXPECT_TRUE(device.cache().WriteRaw(0, kSequence, 0, nullptr, nullptr, kStep).ok())
      << "the values are never read";
  EXPECT_EQ(device.cache().WriteRaw(0, kSequence, 1, nullptr, nullptr, kStep).code(),
            StatusCode::kCorrupt);
  EXPECT_EQ(device.cache().WriteRaw(0, SequenceId{8}, 0, nullptr, nullptr, kStep).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(device.cache().WriteRaw(0, kSequence, 0, nullptr, nullptr, StepId{2}).code(),
            StatusCode::kNotFound)
      << "late";
}

TEST(ModelledKvDevice, AttentionTakesTheTimeOfItsBytes) {
  const AttentionShape shape{.num_heads = 4, .num_kv_heads = 4, .head_dim = 64, .scale = 1};
  ModelledKvDevice device(SlowMemory(), DType::kBF16, 100'000);
  const std::vector<TokenSlot> slots(10'000);
  // Nothing is read or written.
  const KvQuery row{.q = nullptr, .slots = slots, .out = nullptr, .lse = nullptr};
  const std::vector<KvQuery> rows = {row, row};
  const TimePoint start = Clock::now();
  device.Attend(shape, 0, DType::kF16, rows);
  EXPECT_GE(Clock::now() - start, FromSeconds(2 * 10'000 * 2 * 256 * 2 * 1e-9))
      << "20000 tokens, k and v, 256 elements, 2 bytes";
}

TEST(ModelledKvDevice, ANodeWithMoreMemoryThanItsDeviceDoesNotStart) {
  MemoryNodeOptions options;
  DeviceSpec device = SlowMemory();
  device.memory_bytes = 1 << 30;
  options.device = device;
  options.memory_bytes = 1 << 30;
  EXPECT_TRUE(MemoryNode::Create(options).ok());
  options.memory_bytes += 1;
  EXPECT_EQ(MemoryNode::Create(options).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lamina
