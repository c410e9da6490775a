// The emulation of a GPU must find the mistakes that it is there for: each is made here once.
#if LAMINA_CUDA_EMULATED
#include "kernels/cuda/emulation/simt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/emulation/runtime.h"

namespace lamina::cuda::emulation {
namespace {

using ::testing::HasSubstr;

constexpr unsigned kAll = 0xffffffffu;

float* SharedFloats() { return reinterpret_cast<float*>(coordinates.shared); }

// Runs a kernel of one block in `order`.
std::string RunBlock(unsigned threads, size_t shared_bytes, const std::function<void()>& thread,
                     uint64_t order = 0) {
  SetOrder(order);
  std::string failure = RunGrid(dim3(1), dim3(threads), shared_bytes, thread);
  SetOrder(0);
  return failure;
}

TEST(Emulation, RunsEveryThreadOfEveryBlockOnce) {
  for (uint64_t order : {0, 1, 2}) {
    std::vector<int> runs(2 * 3 * 4 * 5 * 6 * 7);
    SetOrder(order);
    EXPECT_EQ(RunGrid(dim3(2, 3, 4), dim3(5, 6, 7), 0,
                      [&] {
                        const unsigned block =
                            blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
                        const unsigned thread =
                            threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
                        ++runs[block * 5 * 6 * 7 + thread];
                      }),
              "");
    EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
  }
  SetOrder(0);
}

TEST(Emulation, ABarrierOrdersSharedMemory) {
  for (uint64_t order = 0; order < 20; ++order) {
    std::vector<float> y(100);
    EXPECT_EQ(RunBlock(
                  100, 400,
                  [&] {
                    const unsigned i = threadIdx.x;
                    SharedFloats()[i] = static_cast<float>(i);
                    __syncthreads();
                    y[i] = SharedFloats()[99 - i];
                    __syncthreads();
                    SharedFloats()[i] = -1;
                  },
                  order),
              "");
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], static_cast<float>(99 - i));
  }
}

TEST(Emulation, AMissingBarrierShows) {
  for (uint64_t order : {0, 1, 2}) {
    std::vector<float> y(100);
    EXPECT_EQ(RunBlock(
                  100, 400,
                  [&] {
                    const unsigned i = threadIdx.x;
                    SharedFloats()[i] = static_cast<float>(i);
                    y[i] = SharedFloats()[99 - i];
                  },
                  order),
              "");
    EXPECT_TRUE(std::any_of(y.begin(), y.end(), [](float v) { return std::isnan(v); }))
        << "order " << order;
  }
}

// Threads read what others overwrite: in their order all is well, so only a shuffled one shows it.
TEST(Emulation, OverwritingBeforeABarrierShowsInAShuffledOrder) {
  const auto wrong = [](uint64_t order) {
    int count = 0;
    EXPECT_EQ(RunBlock(
                  64, 64 * 4,
                  [&] {
                    const unsigned i = threadIdx.x;
                    SharedFloats()[i] = 1;
                    __syncthreads();
                    for (unsigned j = i; j < 64; ++j) count += SharedFloats()[j] != 1;
                    SharedFloats()[i] = 2;
                  },
                  order),
              "");
    return count;
  };
  EXPECT_EQ(wrong(0), 0);
  EXPECT_GT(wrong(1), 0);
  EXPECT_GT(wrong(2), 0);
}

TEST(Emulation, SharedMemoryBeginsAsNaNInEveryBlock) {
  int num_nan = 0;
  EXPECT_EQ(RunGrid(dim3(3), dim3(32), 128,
                    [&] {
                      num_nan += std::isnan(SharedFloats()[threadIdx.x]);
                      SharedFloats()[threadIdx.x] = 0;
                    }),
            "");
  EXPECT_EQ(num_nan, 3 * 32);
}

TEST(Emulation, FindsABarrierThatAThreadLeavesOut) {
  for (uint64_t order : {0, 1, 2}) {
    const std::string failure = RunBlock(
        64, 0,
        [] {
          if (threadIdx.x != 5) __syncthreads();
        },
        order);
    EXPECT_THAT(failure, HasSubstr("waits for the block at cuda_emulation_test.cc:"));
    EXPECT_THAT(failure, HasSubstr("thread (5, 0, 0) of block (0, 0, 0) has ended"));
  }
}

TEST(Emulation, FindsBarriersInDifferentPlaces) {
  const std::string failure = RunBlock(64, 0, [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  });
  EXPECT_THAT(failure, HasSubstr("thread (0, 0, 0) of block (0, 0, 0) waits for the block at"));
  EXPECT_THAT(failure,
              HasSubstr("while thread (32, 0, 0) of block (0, 0, 0) waits for the block at"));
}

TEST(Emulation, FindsShufflesThatLackALane) {
  const auto shuffle_in = [](unsigned lanes, unsigned mask) {
    return RunBlock(32, 0, [=] {
      if (threadIdx.x < lanes) __shfl_xor_sync(mask, 1.0f, 1);
    });
  };
  EXPECT_EQ(shuffle_in(32, kAll), "");
  EXPECT_EQ(shuffle_in(16, 0xffff), "");
  EXPECT_THAT(shuffle_in(31, kAll), HasSubstr("waits for the lanes 0xffffffff"));
  EXPECT_THAT(shuffle_in(32, 0xffff), HasSubstr("is not in the mask of its own warp function"));
  EXPECT_THAT(shuffle_in(3, 0x7), HasSubstr("reads lane 3, which is not in the mask"));
  EXPECT_THAT(RunBlock(16, 0, [] { __syncwarp(); }), HasSubstr("waits for the lanes"));
}

TEST(Emulation, FindsWarpsThatWaitInDifferentPlaces) {
  const std::string failure = RunBlock(32, 0, [] {
    if (threadIdx.x < 16) {
      __syncwarp();
    } else {
      __syncwarp();
    }
  });
  EXPECT_THAT(failure, HasSubstr("waits for the lanes 0xffffffff at"));
}

TEST(Emulation, LanesExchangeValues) {
  for (uint64_t order : {0, 1, 2, 3}) {
    std::vector<unsigned> turned(64), first(64), ballot(64);
    std::vector<double> big(64);
    EXPECT_EQ(RunBlock(
                  64, 0,
                  [&] {
                    const unsigned i = threadIdx.x;
                    turned[i] = __shfl_xor_sync(kAll, i, 5);
                    first[i] = __shfl_sync(kAll, i, 0);
                    big[i] = __shfl_sync(kAll, i + 0.5, 31);
                    ballot[i] = __ballot_sync(kAll, i % 3 == 0);
                    EXPECT_TRUE(__any_sync(kAll, i == 7 || i == 50));
                    EXPECT_EQ(__any_sync(kAll, i == 50), i >= 32);
                  },
                  order),
              "");
    for (unsigned i = 0; i < 64; ++i) {
      EXPECT_EQ(turned[i], i ^ 5);
      EXPECT_EQ(first[i], i / 32 * 32);
      EXPECT_EQ(big[i], i / 32 * 32 + 31.5);
      unsigned expected = 0;
      for (unsigned lane = 0; lane < 32; ++lane)
        expected |= unsigned{(i / 32 * 32 + lane) % 3 == 0} << lane;
      EXPECT_EQ(ballot[i], expected);
    }
  }
}

TEST(Emulation, AtomicSumsCountEveryThreadOnce) {
  for (uint64_t order : {0, 1, 2}) {
    unsigned sum = 0xfffffff0u;  // and on beyond 2^32
    std::vector<unsigned> before(64);
    EXPECT_EQ(RunBlock(
                  64, 0,
                  [&] {
                    before[threadIdx.x] = atomicAdd(&sum, 1);
                    __syncthreads();
                    EXPECT_EQ(sum, 48u);
                  },
                  order),
              "");
    std::sort(before.begin(), before.end(), [](unsigned a, unsigned b) { return a + 16 < b + 16; });
    for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(before[i], i - 16);
  }
}

// Copies that nobody waited for have not happened, or happened at once.
TEST(Emulation, AsynchronousCopiesAreLateOrEarly) {
  const std::vector<float> from(4 * 32, 1.0f);
  const auto sum_after = [&](uint64_t order, int groups) {
    float sum = 0;
    EXPECT_EQ(RunBlock(
                  32, 2 * 512,
                  [&] {
                    const unsigned i = threadIdx.x;
                    StartCopy(SharedFloats() + 4 * i, &from[4 * i], 16);
                    CommitCopies();
                    StartCopy(SharedFloats() + 128 + 4 * i, &from[4 * i], 16);
                    CommitCopies();
                    WaitForCopies(groups);
                    for (unsigned j = 0; j < 4; ++j)
                      sum += SharedFloats()[4 * i + j] + SharedFloats()[128 + 4 * i + j];
                  },
                  order),
              "");
    return sum;
  };
  EXPECT_TRUE(std::isnan(sum_after(0, 2)));
  EXPECT_TRUE(std::isnan(sum_after(0, 1)));
  EXPECT_EQ(sum_after(0, 0), 256);
  EXPECT_EQ(sum_after(1, 2), 256);
}

TEST(Emulation, RefusesWhatHardwareDoes) {
  EXPECT_EQ(RefusedLaunch(dim3(1 << 20, 65535, 65535), dim3(1024), 227 << 10), "");
  EXPECT_THAT(RefusedLaunch(dim3(0), dim3(32), 0), HasSubstr("grid.x 0"));
  EXPECT_THAT(RefusedLaunch(dim3(1, 65536), dim3(32), 0), HasSubstr("grid.y 65536"));
  EXPECT_THAT(RefusedLaunch(dim3(1), dim3(0), 0), HasSubstr("block.x 0"));
  EXPECT_THAT(RefusedLaunch(dim3(1), dim3(512, 3), 0), HasSubstr("threads per block 1536"));
  EXPECT_THAT(RefusedLaunch(dim3(1), dim3(1, 1, 65), 0), HasSubstr("block.z 65"));
  EXPECT_THAT(RefusedLaunch(dim3(1), dim3(32), (227 << 10) + 1), HasSubstr("shared memory"));
}

TEST(Emulation, AStreamDoesItsWorkWhenSomebodyWaits) {
  ASSERT_TRUE(UseDevice(0).ok());
  const std::unique_ptr<Stream> stream = Stream::Create().value();
  const DeviceBuffer buffer = DeviceBuffer::Create(4).value();
  const float one = 1;
  float back = 0;
  CopyToDevice(buffer.data(), &one, 4, *stream);
  CopyToHost(&back, buffer.data(), 4, *stream);
  EXPECT_EQ(back, 0);
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(back, 1);
}

TEST(Emulation, EventsOrderStreams) {
  ASSERT_TRUE(UseDevice(0).ok());
  const std::unique_ptr<Stream> first = Stream::Create().value(), second = Stream::Create().value();
  const std::unique_ptr<Event> event = Event::Create().value();
  EXPECT_TRUE(event->Reached());
  const DeviceBuffer buffer = DeviceBuffer::Create(4).value();
  const float one = 1;
  float back = 0;
  CopyToDevice(buffer.data(), &one, 4, *first);
  event->Record(*first);
  EXPECT_FALSE(event->Reached());
  event->HoldBack(*second);
  CopyToHost(&back, buffer.data(), 4, *second);
  ASSERT_TRUE(second->Synchronize().ok());
  EXPECT_EQ(back, 1);
  EXPECT_TRUE(event->Reached());
  event->Record(*first);
  EXPECT_TRUE(event->Wait().ok());
}

TEST(Emulation, AFailedKernelIsTheStreamsFailureForGood) {
  ASSERT_TRUE(UseDevice(0).ok());
  const std::unique_ptr<Stream> stream = Stream::Create().value(), other = Stream::Create().value();
  Enqueue(static_cast<cudaStream_t>(stream->handle()), [] {
    return RunGrid(dim3(1), dim3(64), 0, [] {
      if (threadIdx.x == 0) __syncthreads();
    });
  });
  const Status status = stream->Synchronize();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("has ended"));
  EXPECT_EQ(stream->Synchronize().message(), status.message());
  EXPECT_TRUE(other->Synchronize().ok());
}

TEST(Emulation, MemoryIsOneDevicesAndRunsOut) {
  ASSERT_TRUE(UseDevice(1).ok());
  const int64_t before = DescribeDevice(1).value().free_bytes;
  DeviceBuffer buffer = DeviceBuffer::Create(1000).value();
  EXPECT_EQ(DescribeDevice(1).value().free_bytes, before - 1000);
  EXPECT_TRUE(std::isnan(buffer.as<float>()[17]));
  buffer = DeviceBuffer();
  EXPECT_EQ(DescribeDevice(1).value().free_bytes, before);
  const Result<DeviceBuffer> too_much = DeviceBuffer::Create(size_t{1} << 40);
  EXPECT_EQ(too_much.status().code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(too_much.status().message(), HasSubstr("no 1048576 MiB of memory in one piece; "));
  EXPECT_EQ(DescribeDevice(2).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(UseDevice(0).ok());
}

TEST(Emulation, CopiesKnowHostFromDevice) {
  ASSERT_TRUE(UseDevice(0).ok());
  const DeviceBuffer buffer = DeviceBuffer::Create(16).value();
  char host[32] = {};
  const auto fails = [](const auto& copy) {
    const std::unique_ptr<Stream> stream = Stream::Create().value();
    copy(*stream);
    return !stream->Synchronize().ok();
  };
  EXPECT_FALSE(fails([&](Stream& s) { CopyToDevice(buffer.data(), host, 16, s); }));
  EXPECT_TRUE(fails([&](Stream& s) { CopyToDevice(host, buffer.data(), 16, s); }));
  EXPECT_TRUE(fails([&](Stream& s) { CopyToHost(buffer.data(), host, 16, s); }));
  EXPECT_TRUE(fails([&](Stream& s) { CopyOnDevice(buffer.data(), host, 16, s); }));
  EXPECT_TRUE(fails([&](Stream& s) { CopyToDevice(buffer.data(), host, 17, s); }));
  EXPECT_TRUE(fails([&](Stream& s) { FillOnDevice(host, 0, 16, s); }));
}

#ifndef __SANITIZE_ADDRESS__
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#endif

#ifdef __SANITIZE_ADDRESS__
TEST(EmulationDeathTest, SharedMemoryHasAnEnd) {
  EXPECT_DEATH(static_cast<void>(RunBlock(32, 124, [] { SharedFloats()[threadIdx.x] = 1; })),
               "heap-buffer-overflow");
}

TEST(EmulationDeathTest, DeviceMemoryHasAnEnd) {
  const DeviceBuffer buffer = DeviceBuffer::Create(124).value();
  EXPECT_DEATH(static_cast<void>(RunBlock(32, 0, [&] { buffer.as<float>()[threadIdx.x] = 1; })),
               "heap-buffer-overflow");
}

// On a thread's own stack.
TEST(EmulationDeathTest, ArraysOfAThreadHaveAnEnd) {
  EXPECT_DEATH(static_cast<void>(RunBlock(32, 0,
                                          [] {
                                            volatile float array[4] = {};
                                            const volatile unsigned i = threadIdx.x;
                                            array[i] = 1;
                                          })),
               "stack-buffer-overflow|out of bounds");
}
#endif

}  // namespace
}  // namespace lamina::cuda::emulation
#endif
