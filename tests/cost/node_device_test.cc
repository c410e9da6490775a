#include "cost/node_device.h"
#include "tests/support/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::HasSubstr;

const std::string kShipped = SourcePath("/configs/devices.yaml");

TEST(NodeDevice, CpuAndGpusNeedNoCatalog) {
  EXPECT_TRUE(std::holds_alternative<HostCpu>(*FindDevice("cpu", "")));
  EXPECT_EQ(std::get<CudaGpu>(*FindDevice("cuda", "")).index, 0);
  EXPECT_EQ(std::get<CudaGpu>(*FindDevice("cuda:0", "")).index, 0);
  EXPECT_EQ(std::get<CudaGpu>(*FindDevice("cuda:7", "")).index, 7);
  EXPECT_FALSE(FindModelledDevice("cpu", "")->has_value());
  EXPECT_FALSE(FindModelledDevice("cuda:1", "")->has_value());
}

TEST(NodeDevice, AModelledOneIsOfTheCatalog) {
  EXPECT_EQ(std::get<DeviceSpec>(*FindDevice("modelled:H100", kShipped)).name, "H100");
  EXPECT_EQ((*FindModelledDevice("modelled:H100", kShipped))->name, "H100");
  EXPECT_EQ(FindDevice("modelled:H100", "/nonexistent/d.yaml").status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(FindDevice("modelled:H100", "").status().message(),
            "device 'modelled:H100' needs a device catalog");
  EXPECT_THAT(FindDevice("modelled:H101", kShipped).status().message(),
              HasSubstr("it has: A100-40G, "));
}

TEST(NodeDevice, NodesWhoseHostComputesGiveTheirCoreUpSooner) {
  EXPECT_LT(PollingPatience(HostCpu{}), PollingPatience(CudaGpu{}));
  EXPECT_LT(PollingPatience(HostCpu{}), PollingPatience(DeviceSpec{}));
}

TEST(NodeDevice, OtherNamesAreRefused) {
  for (const char* name : {"", "gpu", "modelled:", "cuda:", "cuda:-1", "cuda:x", "cuda:1x",
                           "cuda: 1", "cuda:1024", "cuda:99999999999", "CPU"}) {
    EXPECT_FALSE(IsDeviceName(name)) << name;
    EXPECT_EQ(FindDevice(name, kShipped).status().code(), StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(FindDevice("gpu", kShipped).status().message(),
            "device 'gpu': expected cpu, cuda:N with the number of a GPU, or modelled:NAME with a "
            "NAME of the device catalog");
}

}  // namespace
}  // namespace lamina
