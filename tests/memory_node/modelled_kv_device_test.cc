#include "memory_node/modelled_kv_device.h"

#include <gtest/gtest.h>

#include "memory_node/memory_node.h"

namespace lamina {
namespace {

// 1 GB/s and plenty of FLOP/s: attention takes a nanosecond per byte.
DeviceSpec SlowMemory() {
  DeviceSpec device;
  device.bf16_tflops = 1000;
  device.bandwidth_gb_per_s = 1;
  device.mfu = {{1, 1.0}};
  return device;
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
