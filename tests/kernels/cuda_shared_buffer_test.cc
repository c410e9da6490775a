#if LAMINA_HAS_CUDA
#include "kernels/cuda/shared_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/kernels/cuda_cases.h"

#if LAMINA_CUDA_EMULATED
#include "kernels/cuda/emulation/runtime.h"
#endif

namespace lamina::cuda {
namespace {

using ::testing::HasSubstr;

class CudaSharedBuffer : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    Result<std::unique_ptr<SharedBuffer>> made = SharedBuffer::Create(kBytes);
    if (made.status().code() == StatusCode::kUnimplemented) GTEST_SKIP() << made.status();
    ASSERT_TRUE(made.ok()) << made.status();
    made_ = std::move(*made);
  }

  std::vector<unsigned char> Read(const std::byte* device, size_t bytes) {
    std::vector<unsigned char> read(bytes);
    CopyToHost(read.data(), device, bytes, stream());
    EXPECT_TRUE(stream().Synchronize().ok());
    return read;
  }

  static constexpr size_t kBytes = 100'000;
  const RunningStreams running_;
  std::unique_ptr<SharedBuffer> made_;
};

TEST_F(CudaSharedBuffer, WhoMapsItSeesTheSameBytesAlsoWhenItsMakerIsGone) {
  ASSERT_GE(made_->size_bytes(), kBytes);
  Result<std::unique_ptr<SharedBuffer>> mapped =
      SharedBuffer::Map(made_->descriptor(), made_->size_bytes());
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_NE((*mapped)->data(), made_->data());
  EXPECT_EQ((*mapped)->descriptor(), -1);
  FillOnDevice(made_->data(), 17, kBytes, stream());
  EXPECT_EQ(Read((*mapped)->data(), kBytes), std::vector<unsigned char>(kBytes, 17));
  FillOnDevice((*mapped)->data(), 18, kBytes, stream());
  EXPECT_EQ(Read(made_->data(), kBytes), std::vector<unsigned char>(kBytes, 18));
  made_.reset();
  EXPECT_EQ(Read((*mapped)->data(), kBytes), std::vector<unsigned char>(kBytes, 18));
}

TEST_F(CudaSharedBuffer, WhatIsNoSuchMemoryIsRefused) {
  EXPECT_EQ(SharedBuffer::Map(-1, made_->size_bytes()).status().code(),
            StatusCode::kInvalidArgument);
  const int event = eventfd(0, EFD_CLOEXEC);
  EXPECT_EQ(SharedBuffer::Map(event, made_->size_bytes()).status().code(),
            StatusCode::kInvalidArgument);
  close(event);
  const Result<std::unique_ptr<SharedBuffer>> larger =
      SharedBuffer::Map(made_->descriptor(), 2 * made_->size_bytes());
  EXPECT_EQ(larger.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(larger.status().message(), HasSubstr(std::to_string(2 * made_->size_bytes()) +
                                                   " bytes of shared device memory"));
}

TEST_F(CudaSharedBuffer, DevicesHaveNamesOfTheirOwn) {
  const int count = DeviceCount().value();
  for (int i = 1; i < count; ++i) EXPECT_NE(IdOfDevice(0).value(), IdOfDevice(i).value());
  EXPECT_EQ(IdOfDevice(0).value(), IdOfDevice(0).value());
  EXPECT_FALSE(IdOfDevice(count).ok());
}

#if LAMINA_CUDA_EMULATED
TEST_F(CudaSharedBuffer, NothingIsSharedWhereStreamsAreLazy) {
  emulation::SetStreamsRunAhead(false);
  EXPECT_EQ(SharedBuffer::Create(kBytes).status().code(), StatusCode::kUnimplemented);
}
#endif

}  // namespace
}  // namespace lamina::cuda
#endif
