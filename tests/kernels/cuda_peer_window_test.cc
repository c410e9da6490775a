#if LAMINA_HAS_CUDA
#include "kernels/cuda/host/peer_window.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/kernels/cuda_cases.h"

namespace lamina::cuda {
namespace {

using std::chrono::seconds;

constexpr size_t kArea = 4096;

// A peer's window by posts, with two lanes; the posts are collected.
class CudaPeerWindow : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    outbox_ = DeviceBuffer::Create(2 * kArea).value();
    FillOnDevice(outbox_.data(), 0, outbox_.size_bytes(), stream());
    ASSERT_TRUE(stream().Synchronize().ok());
    window_ = PeerWindow::ByPosts(outbox_.as<std::byte>(), 2).value();
    for (auto& waits : waits_) waits = Waits::Create(stream()).value();
  }

  struct Posted {
    size_t offset, bytes;
    uint64_t number;
    unsigned char first;  // of the payload
    bool operator==(const Posted&) const = default;
  };
  bool Carry() {
    const Result<bool> left =
        window_->Carry([&](std::span<const std::byte> message, size_t offset) -> Status {
          if (room_ == 0) return TryAgain();
          --room_;
          std::vector<std::byte> copy(message.size());
          const std::unique_ptr<Stream> reads = Stream::Create().value();
          CopyToHost(copy.data(), message.data(), message.size(), *reads);
          EXPECT_TRUE(reads->Synchronize().ok());
          Flag flag;
          std::memcpy(&flag, copy.data(), sizeof(flag));
          posted_.push_back({offset, message.size(), flag.number,
                             std::to_integer<unsigned char>(copy[sizeof(Flag)])});
          return OkStatus();
        });
    EXPECT_TRUE(left.ok()) << left.status();
    return left.ok() && *left;
  }
  // Message `number` of a lane: bytes with its number.
  void Send(int lane, uint64_t number, size_t bytes) {
    const size_t offset = static_cast<size_t>(lane) * kArea;
    FillOnDevice(window_->at(offset) + sizeof(Flag), static_cast<unsigned char>(number), bytes,
                 stream());
    window_->Raise({lane, offset, bytes}, {number, 5, 6, 7}, *waits_[static_cast<size_t>(lane)],
                   stream());
  }
  // Until so many were posted.
  void CarryAll(size_t count) {
    const Deadline deadline = Deadline::After(seconds(30));
    while (posted_.size() < count && !deadline.Passed()) Carry();
    EXPECT_EQ(posted_.size(), count);
  }

  const RunningStreams running_;
  DeviceBuffer outbox_;
  std::unique_ptr<PeerWindow> window_;
  std::array<std::unique_ptr<Waits>, 2> waits_;
  size_t room_ = 100;
  std::vector<Posted> posted_;
};

TEST_F(CudaPeerWindow, MessagesLeaveWhenTheirKernelsAreDoneAndNotBefore) {
  EXPECT_FALSE(window_->carries());
  DeviceBuffer gate = DeviceBuffer::Create(sizeof(Flag)).value();
  FillOnDevice(gate.data(), 0, sizeof(Flag), stream());
  ASSERT_TRUE(stream().Synchronize().ok());
  waits_[1]->Await(gate.as<Flag>(), 1, 0, seconds(30), stream());
  Send(0, 1, 100);
  EXPECT_TRUE(window_->carries());
  EXPECT_FALSE(Carry());
  EXPECT_TRUE(posted_.empty());
  const std::unique_ptr<Stream> opens = Stream::Create().value();
  const std::unique_ptr<Waits> raises = Waits::Create(*opens).value();
  raises->Raise(gate.as<Flag>(), {1}, *opens);
  CarryAll(1);
  EXPECT_EQ(posted_[0], (Posted{0, sizeof(Flag) + 100, 1, 1}));
  EXPECT_FALSE(window_->carries());
  EXPECT_FALSE(Carry());
  ASSERT_TRUE(opens->Synchronize().ok());
}

TEST_F(CudaPeerWindow, LanesGoByThemselvesAndWaitForRoom) {
  room_ = 0;
  Send(0, 1, 8);
  Send(1, 1, 16);
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_FALSE(Carry());
  EXPECT_TRUE(window_->carries());
  room_ = 100;
  CarryAll(2);
  EXPECT_EQ(posted_[0], (Posted{0, sizeof(Flag) + 8, 1, 1}));
  EXPECT_EQ(posted_[1], (Posted{kArea, sizeof(Flag) + 16, 1, 1}));
  Send(1, 2, 24);
  CarryAll(3);
  EXPECT_EQ(posted_[2], (Posted{kArea, sizeof(Flag) + 24, 2, 2}));
}

TEST_F(CudaPeerWindow, AnErrorOfAPostIsSaid) {
  Send(0, 1, 8);
  ASSERT_TRUE(stream().Synchronize().ok());
  const Result<bool> left = window_->Carry(
      [](std::span<const std::byte>, size_t) { return InvalidArgument("outside the window"); });
  EXPECT_EQ(left.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(window_->num_carried(0), 1u);
  EXPECT_EQ(window_->num_carried(1), 0u);
}

TEST_F(CudaPeerWindow, WhatStandsBehindAWaitThatWasGivenUpIsForgotten) {
  DeviceBuffer never = DeviceBuffer::Create(sizeof(Flag)).value();
  FillOnDevice(never.data(), 0, sizeof(Flag), stream());
  ASSERT_TRUE(stream().Synchronize().ok());
  waits_[0]->Await(never.as<Flag>(), 1, 0, seconds(60), stream());
  Send(0, 1, 8);
  waits_[0]->GiveUp();
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_TRUE(Carry());
  EXPECT_FALSE(window_->carries());
  EXPECT_TRUE(posted_.empty());
}

TEST_F(CudaPeerWindow, MappedMemoryIsWrittenAtOnce) {
  Result<std::unique_ptr<SharedBuffer>> shared = SharedBuffer::Create(kArea);
  if (shared.status().code() == StatusCode::kUnimplemented) GTEST_SKIP() << shared.status();
  ASSERT_TRUE(shared.ok()) << shared.status();
  FillOnDevice((*shared)->data(), 0, (*shared)->size_bytes(), stream());
  ASSERT_TRUE(stream().Synchronize().ok());
  window_ = PeerWindow::Map((*shared)->descriptor(), (*shared)->size_bytes()).value();
  Send(0, 3, 8);
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_FALSE(window_->carries());
  std::vector<std::byte> seen(sizeof(Flag) + 8);
  CopyToHost(seen.data(), (*shared)->data(), seen.size(), stream());
  ASSERT_TRUE(stream().Synchronize().ok());
  Flag flag;
  std::memcpy(&flag, seen.data(), sizeof(flag));
  EXPECT_EQ(flag.number, 3u);
  EXPECT_EQ(flag.about, 5u);
  EXPECT_EQ(seen.back(), std::byte{3});
}

}  // namespace
}  // namespace lamina::cuda
#endif
