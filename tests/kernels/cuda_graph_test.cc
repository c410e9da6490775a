// Recorded work against the same work asked for piece by piece.
#include "kernels/cuda/device.h"

#if LAMINA_HAS_CUDA
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/linear.h"

namespace lamina::cuda {
namespace {

using ::testing::HasSubstr;

class CudaGraph : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Result<int> count = DeviceCount(); !count.ok()) GTEST_SKIP() << count.status();
    ASSERT_TRUE(UseDevice(0).ok());
    stream_ = Stream::Create().value();
    buffer_ = DeviceBuffer::Create(2 * kN * sizeof(float)).value();
    x_ = buffer_.as<float>();
    y_ = x_ + kN;
  }

  void Put(float value) {
    const std::vector<float> values(kN, value);
    CopyToDevice(x_, values.data(), kN * sizeof(float), *stream_);
    ASSERT_TRUE(stream_->Synchronize().ok());
  }
  std::vector<float> Get(const float* from) {
    std::vector<float> values(kN);
    CopyToHost(values.data(), from, kN * sizeof(float), *stream_);
    EXPECT_TRUE(stream_->Synchronize().ok());
    return values;
  }

  static constexpr int64_t kN = 1000;
  std::unique_ptr<Stream> stream_;
  DeviceBuffer buffer_;
  float *x_ = nullptr, *y_ = nullptr;
};

TEST_F(CudaGraph, ReplaysInOrderWithWhatStandsThereThen) {
  Put(1);
  const auto work = [&] {
    Scale(x_, 3, kN, y_, *stream_);
    Add(x_, y_, kN, y_, *stream_);
    CopyOnDevice(x_, y_, kN * sizeof(float), *stream_);
  };
  work();
  EXPECT_EQ(Get(x_), std::vector<float>(kN, 4));
  const Result<std::unique_ptr<Graph>> graph = Graph::Record(*stream_, work);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Get(x_), std::vector<float>(kN, 4)) << "recording does nothing";
  Put(2);
  (*graph)->Replay(*stream_);
  EXPECT_EQ(Get(x_), std::vector<float>(kN, 8));
  (*graph)->Replay(*stream_);
  (*graph)->Replay(*stream_);
  EXPECT_EQ(Get(x_), std::vector<float>(kN, 128));
}

TEST_F(CudaGraph, LinearLayersAreRecordedToo) {
  constexpr int64_t kRows = 3, kIn = 40, kOut = 24;
  const DeviceBuffer weights = DeviceBuffer::Create(kIn * kOut * sizeof(BF16)).value();
  const DeviceBuffer values = DeviceBuffer::Create(kIn * kOut * sizeof(float)).value();
  std::vector<float> host(kIn * kOut);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i % 17) / 16 - 0.5f;
  CopyToDevice(values.data(), host.data(), host.size() * sizeof(float), *stream_);
  ConvertFromFloat(values.as<float>(), kIn * kOut, DType::kBF16, weights.data(), *stream_);
  const auto linear = Linear::Create({kRows, kIn, kOut}, LinearPrecision::kSplit, *stream_).value();
  const auto work = [&] {
    linear->Run({weights.data(), DType::kBF16, kOut, kIn}, x_, kRows, nullptr, y_);
  };
  Put(0.75f);
  work();
  const std::vector<float> expected = Get(y_);
  const Result<std::unique_ptr<Graph>> graph = Graph::Record(*stream_, work);
  ASSERT_TRUE(graph.ok()) << graph.status();
  FillOnDevice(y_, 0xff, kN * sizeof(float), *stream_);
  (*graph)->Replay(*stream_);
  const std::vector<float> replayed = Get(y_);
  for (size_t i = 0; i < kRows * kOut; ++i) ASSERT_EQ(replayed[i], expected[i]) << i;
}

TEST_F(CudaGraph, WhatCannotBeRecordedIsAnErrorAndTheStreamGoesOn) {
  Put(1);
  const Result<std::unique_ptr<Graph>> waits = Graph::Record(*stream_, [&] {
    Scale(x_, 2, kN, x_, *stream_);
    (void)stream_->Synchronize();
  });
  ASSERT_FALSE(waits.ok());
  EXPECT_THAT(waits.status().message(), HasSubstr("capturing"));
  EXPECT_EQ(Get(x_), std::vector<float>(kN, 1));
  const Result<std::unique_ptr<Graph>> graph =
      Graph::Record(*stream_, [&] { Scale(x_, 2, kN, x_, *stream_); });
  ASSERT_TRUE(graph.ok()) << graph.status();
  (*graph)->Replay(*stream_);
  EXPECT_EQ(Get(x_), std::vector<float>(kN, 2));
}

TEST_F(CudaGraph, AStreamThatHasFailedRecordsNothing) {
  stream_->Fail(InternalError("earlier"));
  EXPECT_THAT(Graph::Record(*stream_, [] {}).status().message(), HasSubstr("earlier"));
  EXPECT_THAT(stream_->Synchronize().message(), HasSubstr("earlier"));
}

}  // namespace
}  // namespace lamina::cuda
#endif
