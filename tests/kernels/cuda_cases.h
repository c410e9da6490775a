// What the tests of the CUDA kernels share. They run on a GPU, or on the emulated one, in every
// order that can show a missing barrier; a build or a machine without either skips them and says
// so.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"

#if LAMINA_CUDA_EMULATED
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/emulation/simt.h"
#endif

namespace lamina::cuda {

// Emulated streams go on by themselves while this lives, as a GPU's do.
class RunningStreams {
 public:
#if LAMINA_CUDA_EMULATED
  RunningStreams() { emulation::SetStreamsRunAhead(true); }
  ~RunningStreams() { emulation::SetStreamsRunAhead(false); }
#else
  RunningStreams() = default;
#endif
  RunningStreams(const RunningStreams&) = delete;
  RunningStreams& operator=(const RunningStreams&) = delete;
};

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<int> count = DeviceCount();
    if (!count.ok()) GTEST_SKIP() << "no CUDA device: " << count.status();
    ASSERT_TRUE(UseDevice(0).ok());
    stream_ = Stream::Create().value();
  }

  // A device's copy of host values, and back. Fresh memory of the emulated device is NaN.
  template <typename T>
  DeviceBuffer Upload(const std::vector<T>& values) {
    DeviceBuffer buffer = DeviceBuffer::Create(values.size() * sizeof(T)).value();
    CopyToDevice(buffer.data(), values.data(), buffer.size_bytes(), *stream_);
    EXPECT_TRUE(stream_->Synchronize().ok());
    return buffer;
  }
  template <typename T>
  std::vector<T> Download(const DeviceBuffer& buffer) {
    std::vector<T> values(buffer.size_bytes() / sizeof(T));
    CopyToHost(values.data(), buffer.data(), buffer.size_bytes(), *stream_);
    const Status status = stream_->Synchronize();
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

  // Memory for n elements of T, full of NaN.
  template <typename T>
  DeviceBuffer Poisoned(size_t n) {
    DeviceBuffer buffer = DeviceBuffer::Create(n * sizeof(T)).value();
    FillOnDevice(buffer.data(), 0xff, buffer.size_bytes(), *stream_);
    return buffer;
  }

  // What `run` writes into n elements that were NaN; it must be the same bits in every order of
  // threads.
  template <typename T, class F>
  std::vector<T> OutputOf(size_t n, const F& run) {
    std::vector<T> first;
    for (int order = 0; order < kNumOrders; ++order) {
      SetOrder(order);
      const DeviceBuffer y = Poisoned<T>(n);
      run(y.template as<T>());
      std::vector<T> got = Download<T>(y);
      if (order == 0) first = got;
      EXPECT_TRUE(got.size() == first.size() &&
                  (n == 0 || std::memcmp(got.data(), first.data(), n * sizeof(T)) == 0))
          << "order " << order << " gives other bits";
    }
    SetOrder(0);
    return first;
  }

  Stream& stream() { return *stream_; }

  static constexpr int kNumOrders = 3;

  static void SetOrder([[maybe_unused]] int order) {
#if LAMINA_CUDA_EMULATED
    emulation::SetOrder(static_cast<uint64_t>(order));
#endif
  }

 private:
  std::unique_ptr<Stream> stream_;
};

}  // namespace lamina::cuda
