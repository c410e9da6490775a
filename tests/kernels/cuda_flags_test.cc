#if LAMINA_HAS_CUDA
#include "kernels/cuda/flags.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/kernels/cuda_cases.h"

namespace lamina::cuda {
namespace {

using std::chrono::seconds;

class CudaFlags : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    other_stream_ = Stream::Create().value();
    waits_ = Waits::Create(stream()).value();
    other_waits_ = Waits::Create(stream()).value();
    flags_ = DeviceBuffer::Create(2 * sizeof(Flag)).value();
    FillOnDevice(flags_.data(), 0, flags_.size_bytes(), stream());
    ASSERT_TRUE(stream().Synchronize().ok());
  }

  Flag* flag(int i) const { return flags_.as<Flag>() + i; }

  const RunningStreams running_;
  std::unique_ptr<Stream> other_stream_;
  std::unique_ptr<Waits> waits_, other_waits_;
  DeviceBuffer flags_;
};

TEST_F(CudaFlags, WhatIsAskedForAheadSeesWhatWasWrittenBeforeTheFlag) {
  constexpr size_t kBytes = 100'000;
  constexpr int kRounds = 20;
  const DeviceBuffer there = DeviceBuffer::Create(kBytes).value(),
                     back = DeviceBuffer::Create(kBytes).value();
  const DeviceBuffer seen = DeviceBuffer::Create(kRounds * kBytes).value();
  // The other stream gives back what it is given; all of it is asked for before anything is there.
  for (uint64_t round = 1; round <= kRounds; ++round) {
    other_waits_->Await(flag(0), round, 0, seconds(20), *other_stream_);
    CopyOnDevice(back.data(), there.data(), kBytes, *other_stream_);
    other_waits_->Raise(flag(1), {round}, *other_stream_);
  }
  for (uint64_t round = 1; round <= kRounds; ++round) {
    FillOnDevice(there.data(), static_cast<unsigned char>(round), kBytes, stream());
    waits_->Raise(flag(0), {round}, stream());
    waits_->Await(flag(1), round, 0, seconds(20), stream());
    CopyOnDevice(seen.as<std::byte>() + (round - 1) * kBytes, back.data(), kBytes, stream());
  }
  const std::vector<unsigned char> got = Download<unsigned char>(seen);
  ASSERT_TRUE(other_stream_->Synchronize().ok());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], 1 + i / kBytes) << "byte " << i % kBytes << " of round " << i / kBytes;
  EXPECT_FALSE(waits_->log().gave_up);
  EXPECT_FALSE(other_waits_->log().gave_up);
}

TEST_F(CudaFlags, AFlagThatIsThereAlreadyIsNotWaitedFor) {
  other_waits_->Raise(flag(0), {7, 0, 3, 99}, *other_stream_);
  ASSERT_TRUE(other_stream_->Synchronize().ok());
  for (const uint64_t number : {1, 6, 7}) waits_->Await(flag(0), number, 0, {}, stream());
  const std::vector<Flag> flags = Download<Flag>(flags_);
  EXPECT_FALSE(waits_->log().gave_up);
  EXPECT_EQ(flags[0].number, 7u);
  EXPECT_EQ(flags[0].status, 3u);
  EXPECT_EQ(flags[0].detail, 99u);
}

TEST_F(CudaFlags, AWaitEndsAfterItsTimeAndNothingIsWaitedForOrRaisedAfterwards) {
  const TimePoint start = Clock::now();
  waits_->Await(flag(0), 1, 0, milliseconds(50), stream());
  for (uint64_t number = 2; number < 10; ++number)
    waits_->Await(flag(0), number, 0, seconds(60), stream());
  waits_->Raise(flag(1), {1}, stream());
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_GE(Clock::now() - start, milliseconds(50));
  EXPECT_LT(Clock::now() - start, seconds(30));
  EXPECT_TRUE(waits_->log().gave_up);
  EXPECT_EQ(Download<Flag>(flags_)[1].number, 0u);
  EXPECT_FALSE(other_waits_->log().gave_up);  // others are not concerned
}

TEST_F(CudaFlags, TheHostEndsAWaitAndTheDeviceCanBeUsedFurther) {
  waits_->Await(flag(0), 1, 0, seconds(600), stream());
  const Result<std::unique_ptr<Event>> behind = Event::Create();
  (*behind)->Record(stream());
  EXPECT_FALSE((*behind)->Reached());
  const TimePoint told = Clock::now();
  waits_->GiveUp();
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_LT(Clock::now() - told, seconds(5));
  EXPECT_TRUE(waits_->log().gave_up);
  FillOnDevice(flags_.data(), 1, flags_.size_bytes(), stream());
  EXPECT_EQ(Download<Flag>(flags_)[1].status, 0x01010101u);
}

TEST_F(CudaFlags, AFlagAboutSomethingElseIsNotTaken) {
  other_waits_->Raise(flag(0), {3, 1234, 0, 0}, *other_stream_);
  ASSERT_TRUE(other_stream_->Synchronize().ok());
  waits_->Await(flag(0), 3, 1234, seconds(20), stream());
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_FALSE(waits_->log().gave_up);
  waits_->Await(flag(0), 3, 1235, seconds(20), stream());
  waits_->Raise(flag(1), {1}, stream());
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_TRUE(waits_->log().gave_up);
  EXPECT_EQ(Download<Flag>(flags_)[1].number, 0u);
}

TEST_F(CudaFlags, TimesAreThoseOfWaitingAndOfWorkBehindIt) {
  const TimePoint start = Clock::now();
  waits_->Await(flag(0), 1, 0, seconds(20), stream());
  std::this_thread::sleep_for(milliseconds(30));
  other_waits_->Raise(flag(0), {1}, *other_stream_);
  other_waits_->Raise(flag(0), {2}, *other_stream_);  // behind no wait: no work is counted
  waits_->Raise(flag(1), {1}, stream());
  ASSERT_TRUE(stream().Synchronize().ok());
  ASSERT_TRUE(other_stream_->Synchronize().ok());
  const auto elapsed_ns =
      static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
  const WaitLog log = waits_->log();
  EXPECT_GE(log.waited_ns, 15'000'000u);
  EXPECT_LE(log.waited_ns + log.worked_ns, elapsed_ns + 1'000'000u);
  EXPECT_EQ(other_waits_->log().worked_ns, 0u);
}

}  // namespace
}  // namespace lamina::cuda
#endif
