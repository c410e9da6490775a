// What "auto" in a configuration comes to.
#include "manager/cluster_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manager/resolve_config.h"

namespace lamina {
namespace {

ModelConfig Model(DType dtype) {
  ModelConfig model;
  model.dtype = dtype;
  model.num_kv_heads = 4;
  model.max_positions = 128;
  return model;
}

DTypeSetting WireDType(DTypeSetting setting, const std::string& device, DType dtype) {
  ClusterConfig config;
  config.nodes = {{.name = "c0", .role = NodeRole::kCompute}, {.name = "m0", .device = device}};
  config.wire_dtype = setting;
  EXPECT_TRUE(ResolveConfig(config, Model(dtype)).ok());
  return config.wire_dtype;
}

TEST(ResolveConfig, QueriesTravelInFp32UnlessADeviceIsModelled) {
  EXPECT_EQ(WireDType(std::nullopt, "cpu", DType::kBF16), DType::kF32);
  EXPECT_EQ(WireDType(std::nullopt, "modelled:A100-40G", DType::kBF16), DType::kBF16);
  EXPECT_EQ(WireDType(std::nullopt, "modelled:A100-40G", DType::kF16), DType::kF16);
  EXPECT_EQ(WireDType(DType::kF16, "cpu", DType::kBF16), DType::kF16);
  EXPECT_EQ(WireDType(DType::kF32, "modelled:A100-40G", DType::kBF16), DType::kF32);
}

TEST(ResolveConfig, TheKvCacheIsInTheModelsDtypeUnlessOneIsNamed) {
  const auto resolved = [](DTypeSetting setting, DType dtype) {
    ClusterConfig config;
    config.nodes = {{.name = "c0", .role = NodeRole::kCompute}, {.name = "m0"}};
    config.kv_dtype = setting;
    EXPECT_TRUE(ResolveConfig(config, Model(dtype)).ok());
    return config.kv_dtype;
  };
  EXPECT_EQ(resolved(std::nullopt, DType::kF16), DType::kF16);
  EXPECT_EQ(resolved(DType::kF8, DType::kF16), DType::kF8);
}

TEST(ResolveConfig, KvBytesAreThoseOfTheDtype) {
  ModelConfig model = Model(DType::kBF16);
  model.num_layers = 3;
  model.num_heads = 8;
  model.head_dim = 16;
  EXPECT_EQ(KvBytesPerToken(model, DType::kF32), 2 * 3 * 4 * 16 * 4);
  EXPECT_EQ(KvBytesPerToken(model, DType::kF16), 2 * 3 * 4 * 16 * 2);
  EXPECT_EQ(KvBytesPerToken(model, std::nullopt), 2 * 3 * 4 * 16 * 2);
  EXPECT_EQ(KvBytesPerToken(model, DType::kF8), 2 * 3 * 4 * 16);
  EXPECT_EQ(KvBytesPerToken(model, DType::kI8Scaled), 2 * 3 * 4 * (16 + 4));
}

// Ranks share the heads of a token too, though nobody has set kv_head_parallel.
TEST(ResolveConfig, NodesThatShareHeadsHaveAsManyLayersInsideAtAllTimes) {
  for (const auto& [ranks, parallel] : {std::pair(1, 1), {2, 1}, {1, 2}}) {
    ClusterConfig config;
    const OffloadOptions elastic = {.expansion = 2, .is_auto = true, .folder = "/x"};
    for (int i = 0; i < ranks; ++i)
      config.nodes.push_back({.name = "c" + std::to_string(i), .role = NodeRole::kCompute});
    for (int i = 0; i < 2; ++i)
      config.nodes.push_back({.name = "m" + std::to_string(i), .offload = elastic});
    config.tensor_parallel_size = ranks;
    config.kv_head_parallel = parallel;
    ModelConfig model = Model(DType::kBF16);
    model.num_heads = 8;
    const Status resolved = ResolveConfig(config, model);
    if (ranks * parallel == 1) {
      EXPECT_TRUE(resolved.ok()) << resolved;
    } else {
      EXPECT_EQ(resolved.code(), StatusCode::kUnimplemented) << resolved;
      EXPECT_THAT(resolved.message(), ::testing::HasSubstr("memory node 'm0'"));
    }
  }
}

TEST(ResolveConfig, OverlapComesWithAModelledNetwork) {
  ClusterConfig config;
  config.nodes = {{.name = "c0", .role = NodeRole::kCompute}, {.name = "m0"}};
  ClusterConfig modelled = config;
  modelled.modelled_latency = microseconds(33);
  ASSERT_TRUE(ResolveConfig(config, Model(DType::kBF16)).ok());
  ASSERT_TRUE(ResolveConfig(modelled, Model(DType::kBF16)).ok());
  EXPECT_EQ(config.overlap, Switch::kOff);
  EXPECT_EQ(modelled.overlap, Switch::kOn);
}

}  // namespace
}  // namespace lamina
