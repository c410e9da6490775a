// What holds in every build: also without CUDA, and without a device.
#include "kernels/cuda/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina::cuda {
namespace {

using ::testing::HasSubstr;

TEST(CudaDevice, CountsDevicesOrSaysWhyThereAreNone) {
  const Result<int> count = DeviceCount();
  if (BuiltWith().empty()) {
    EXPECT_EQ(count.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(count.status().message(), HasSubstr("built without CUDA"));
  } else if (count.ok()) {
    EXPECT_GT(*count, 0);
  } else {
    EXPECT_EQ(count.status().code(), StatusCode::kNotFound);
    EXPECT_THAT(count.status().message(), HasSubstr("no CUDA device: "));
  }
}

TEST(CudaDevice, DescribesThoseThereAreAndNoOthers) {
  const Result<int> count = DeviceCount();
  if (!count.ok()) {
    EXPECT_EQ(DescribeDevice(0).status().message(), count.status().message());
    return;
  }
  for (int device = 0; device < *count; ++device) {
    const Result<DeviceInfo> info = DescribeDevice(device);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_FALSE(info->name.empty());
    EXPECT_GT(info->free_bytes, 0);
    EXPECT_GE(info->memory_bytes, info->free_bytes);
  }
  EXPECT_EQ(DescribeDevice(-1).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(DescribeDevice(*count).status().message(),
              HasSubstr("no CUDA device " + std::to_string(*count) + "; there are 0 to "));
}

}  // namespace
}  // namespace lamina::cuda
