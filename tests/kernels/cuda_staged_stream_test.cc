#if LAMINA_HAS_CUDA
#include "kernels/cuda/host/staged_stream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace lamina::cuda {
namespace {

class CudaStagedStream : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Result<int> count = DeviceCount(); !count.ok()) GTEST_SKIP() << count.status();
    Result<std::unique_ptr<StagedStream>> stream = StagedStream::Create(0);
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = std::move(*stream);
  }

  static std::vector<uint32_t> Numbers(size_t n, uint32_t first = 0) {
    std::vector<uint32_t> numbers(n);
    std::iota(numbers.begin(), numbers.end(), first);
    return numbers;
  }

  std::vector<uint32_t> Read(const DeviceBuffer& buffer, size_t n) {
    const std::byte* const fetched = stream_->Fetch(buffer.data(), n * 4);
    EXPECT_TRUE(stream_->Synchronize().ok());
    std::vector<uint32_t> read(n);
    std::memcpy(read.data(), fetched, n * 4);
    return read;
  }

  std::unique_ptr<StagedStream> stream_;
};

TEST_F(CudaStagedStream, LargePiecesArriveWhileTheirSourceIsFreeAgain) {
  // More than all staging memory, and not a multiple of it.
  constexpr size_t kNumbers = (size_t{21} << 20) / 4 + 5;
  Result<DeviceBuffer> buffer = DeviceBuffer::Create(kNumbers * 4);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const std::vector<uint32_t> expected = Numbers(kNumbers);
  std::vector<uint32_t> source = expected;
  stream_->Copy(source.data(), kNumbers * 4, buffer->data());
  std::fill(source.begin(), source.end(), 0u);
  EXPECT_EQ(Read(*buffer, kNumbers), expected);
}

TEST_F(CudaStagedStream, ManySmallPiecesKeepTheirOrder) {
  // 16 MB through 16 MB of staging memory, with gaps.
  constexpr size_t kPieces = 40, kNumbers = 100'000;
  DeviceBuffer buffer;
  GrowTo(kNumbers * 4, *stream_, buffer);
  for (uint32_t piece = 0; piece < kPieces; ++piece) {
    std::byte* const taken = stream_->Take(kNumbers * 4);
    const std::vector<uint32_t> numbers = Numbers(kNumbers, piece);
    std::memcpy(taken, numbers.data(), kNumbers * 4);
    stream_->Upload(taken, kNumbers * 4, buffer.data());
  }
  EXPECT_EQ(Read(buffer, kNumbers), Numbers(kNumbers, kPieces - 1));
}

TEST_F(CudaStagedStream, APieceMayBeLargerThanTheStagingMemory) {
  constexpr size_t kNumbers = size_t{5} << 20;
  DeviceBuffer buffer;
  GrowTo(kNumbers * 4, *stream_, buffer);
  const uint32_t first = 7;
  stream_->Copy(&first, 4, buffer.data());
  std::byte* const taken = stream_->Take(kNumbers * 4);
  const std::vector<uint32_t> numbers = Numbers(kNumbers);
  std::memcpy(taken, numbers.data(), kNumbers * 4);
  stream_->Upload(taken, kNumbers * 4, buffer.data());
  EXPECT_EQ(Read(buffer, kNumbers), numbers);
}

TEST_F(CudaStagedStream, WhatWasFetchedStaysUntilTheNextFetchBehindAFinish) {
  DeviceBuffer small, large;
  // Together more than is there at first.
  const std::vector<uint32_t> few = Numbers(10, 3), many = Numbers(size_t{3} << 20, 9);
  GrowTo(40, *stream_, small);
  GrowTo(many.size() * 4, *stream_, large);
  stream_->Copy(few.data(), 40, small.data());
  stream_->Copy(many.data(), many.size() * 4, large.data());
  for (int round = 0; round < 2; ++round) {
    const std::byte* const a = stream_->Fetch(small.data(), 40);
    const std::byte* const b = stream_->Fetch(large.data(), many.size() * 4);
    const std::byte* const c = stream_->Fetch(small.data(), 40);
    stream_->Finish();
    EXPECT_EQ(std::memcmp(a, few.data(), 40), 0);
    EXPECT_EQ(std::memcmp(b, many.data(), many.size() * 4), 0);
    EXPECT_EQ(std::memcmp(c, few.data(), 40), 0);
  }
}

TEST_F(CudaStagedStream, NothingIsFine) {
  stream_->Copy(nullptr, 0, nullptr);
  stream_->Fetch(nullptr, 0);
  EXPECT_TRUE(stream_->Synchronize().ok());
}

TEST_F(CudaStagedStream, AGpuThatIsNotThereIsAnError) {
  EXPECT_FALSE(StagedStream::Create(1000).ok());
}

}  // namespace
}  // namespace lamina::cuda
#endif
