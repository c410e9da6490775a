// What "auto" in a configuration comes to.
#include "frontend/cluster_executor.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

ModelConfig Model(DType dtype) {
  ModelConfig model;
  model.dtype = dtype;
  model.num_kv_heads = 4;
  model.max_positions = 128;
  return model;
}

std::string WireDType(const std::string& setting, const std::string& device, DType dtype) {
  ClusterConfig config;
  config.nodes = {{.name = "c0", .role = NodeRole::kCompute}, {.name = "m0", .device = device}};
  config.wire_dtype = setting;
  EXPECT_TRUE(ResolveConfig(config, Model(dtype)).ok());
  return config.wire_dtype;
}

TEST(ResolveConfig, QueriesTravelInFp32UnlessADeviceIsModelled) {
  EXPECT_EQ(WireDType("auto", "cpu", DType::kBF16), "float32");
  EXPECT_EQ(WireDType("auto", "modelled:A100-40G", DType::kBF16), "bfloat16");
  EXPECT_EQ(WireDType("auto", "modelled:A100-40G", DType::kF16), "float16");
  EXPECT_EQ(WireDType("float16", "cpu", DType::kBF16), "float16");
  EXPECT_EQ(WireDType("float32", "modelled:A100-40G", DType::kBF16), "float32");
}

TEST(ResolveConfig, OverlapComesWithAModelledNetwork) {
  ClusterConfig config;
  config.nodes = {{.name = "c0", .role = NodeRole::kCompute}, {.name = "m0"}};
  ClusterConfig modelled = config;
  modelled.modelled_latency = microseconds(33);
  ASSERT_TRUE(ResolveConfig(config, Model(DType::kBF16)).ok());
  ASSERT_TRUE(ResolveConfig(modelled, Model(DType::kBF16)).ok());
  EXPECT_EQ(config.overlap, "off");
  EXPECT_EQ(modelled.overlap, "on");
}

}  // namespace
}  // namespace lamina
