// Slices as CUDA graphs. Without a GPU these tests run in builds whose kernels are emulated
// (docs/cuda.md).
#include "kernels/cuda/device.h"

#if LAMINA_HAS_CUDA
#include <gtest/gtest.h>

#include <vector>

#include "compute_node/cuda/slice_graphs.h"
#include "kernels/cuda/elementwise.h"

namespace lamina {
namespace {

class CudaSliceGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Result<int> count = cuda::DeviceCount(); !count.ok()) GTEST_SKIP() << count.status();
    ASSERT_TRUE(cuda::UseDevice(0).ok());
    stream_ = cuda::Stream::Create().value();
    buffer_ = cuda::DeviceBuffer::Create(kN * sizeof(float)).value();
    x_ = buffer_.as<float>();
  }

  void Put(float value) {
    const std::vector<float> values(kN, value);
    cuda::CopyToDevice(x_, values.data(), kN * sizeof(float), *stream_);
    ASSERT_TRUE(stream_->Synchronize().ok());
  }
  std::vector<float> Get() {
    std::vector<float> values(kN);
    cuda::CopyToHost(values.data(), x_, kN * sizeof(float), *stream_);
    EXPECT_TRUE(stream_->Synchronize().ok());
    return values;
  }

  static constexpr int64_t kN = 1000;
  std::unique_ptr<cuda::Stream> stream_;
  cuda::DeviceBuffer buffer_;
  float* x_ = nullptr;
};

TEST_F(CudaSliceGraphs, SlicesAreLaunchedOnceThenRecordedThenReplayed) {
  SliceGraphs graphs;
  int launches = 0;
  const auto run = [&](const OpRange& range, int64_t rows) {
    graphs.Run(range, rows, *stream_, [&] {
      ++launches;
      cuda::Scale(x_, static_cast<float>(rows), kN, x_, *stream_);
    });
  };
  Put(1);
  for (int i = 0; i < 4; ++i) run({0, 0, 5}, 2);
  EXPECT_EQ(Get(), std::vector<float>(kN, 16));
  EXPECT_EQ(launches, 2) << "by hand and for the record";
  Put(1);
  for (int i = 0; i < 3; ++i) run({0, 0, 5}, 4);  // other rows
  for (int i = 0; i < 3; ++i) run({1, 0, 5}, 2);  // another slice
  for (int i = 0; i < 2; ++i) run({1, 5, 9}, 2);  // its second part
  run({0, 0, 5}, 2);
  EXPECT_EQ(Get(), std::vector<float>(kN, 64 * 8 * 4 * 2));
  EXPECT_EQ(launches, 8);
}

TEST_F(CudaSliceGraphs, SlicesThatCannotBeRecordedAreLaunchedEachTime) {
  SliceGraphs graphs;
  int launches = 0;
  Put(1);
  for (int i = 0; i < 5; ++i) {
    graphs.Run({0, 0, 1}, 1, *stream_, [&] {
      ++launches;
      cuda::Scale(x_, 2, kN, x_, *stream_);
      (void)stream_->Synchronize();
    });
  }
  EXPECT_EQ(Get(), std::vector<float>(kN, 32));
  EXPECT_EQ(launches, 6) << "and once in vain";
}

TEST(SliceGraphs, RowsAreFilledUpToAFewNumbers) {
  EXPECT_EQ(SliceGraphs::FilledRows(1, 512), 1);
  EXPECT_EQ(SliceGraphs::FilledRows(3, 512), 4);
  EXPECT_EQ(SliceGraphs::FilledRows(3, 3), 3) << "no more than there is memory for";
  EXPECT_EQ(SliceGraphs::FilledRows(17, 512), 24);
  EXPECT_EQ(SliceGraphs::FilledRows(256, 512), 256);
  EXPECT_EQ(SliceGraphs::FilledRows(257, 512), std::nullopt);
  for (int64_t rows = 17; rows <= 256; ++rows) {
    const int64_t filled = SliceGraphs::FilledRows(rows, 1024).value();
    EXPECT_GE(filled, rows);
    EXPECT_LE(static_cast<double>(filled), 1.5 * static_cast<double>(rows)) << rows;
  }
}

}  // namespace
}  // namespace lamina
#endif
