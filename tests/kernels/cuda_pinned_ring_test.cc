#if LAMINA_HAS_CUDA
#include "kernels/cuda/host/pinned_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cuda_cases.h"

namespace lamina::cuda {
namespace cuda_pinned_ring_test {

constexpr int64_t kBytes = 256 << 10;  // long enough for a copy to take its time

class CudaPinnedRing : public CudaTest {
 protected:
  void SetUp() override {
    running_ = std::make_unique<RunningStreams>();
    CudaTest::SetUp();
  }

  // Block i is full of byte i.
  std::unique_ptr<PinnedRing> MakeRing(size_t num_blocks, int num_shared, int num_buffers) {
    PinnedRingOptions options;
    options.block_bytes.assign(num_blocks, kBytes);
    options.num_shared = num_shared;
    options.num_buffers = num_buffers;
    options.poison = true;
    std::unique_ptr<PinnedRing> ring = *PinnedRing::Create(std::move(options), stream());
    for (size_t i = 0; i < num_blocks; ++i)
      std::memset(ring->Home(i), static_cast<int>(i), static_cast<size_t>(kBytes));
    return ring;
  }

  // The byte that a block is full of where kernels find it; -1 if it is not.
  int Find(const PinnedRing& ring, size_t block) {
    std::vector<unsigned char> bytes(static_cast<size_t>(kBytes));
    CopyToHost(bytes.data(), ring.Place(block), bytes.size(), stream());
    EXPECT_TRUE(stream().Synchronize().ok());
    const bool is_full = std::ranges::all_of(bytes, [&](auto byte) { return byte == bytes[0]; });
    return is_full ? bytes[0] : -1;
  }
  int Visit(PinnedRing& ring, size_t block) {
    ring.Enter(block);
    const int found = Find(ring, block);
    ring.Leave(block);
    return found;
  }

  std::unique_ptr<RunningStreams> running_;
};

TEST_F(CudaPinnedRing, BlocksAreInTheirPlacesInAnyOrder) {
  const auto ring = MakeRing(5, 2, 2);
  for (const int block : {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 3, 3, 0, 2})
    EXPECT_EQ(Visit(*ring, static_cast<size_t>(block)), block);
}

// Otherwise the copy would bring back what was there before.
TEST_F(CudaPinnedRing, WhatIsWrittenWhileABlockComesIsNotLost) {
  const auto ring = MakeRing(2, 1, 1);
  const DeviceBuffer value = Upload(std::vector<unsigned char>(static_cast<size_t>(kBytes), 7));
  EXPECT_EQ(Visit(*ring, 0), 0);  // the other one is on its way
  EXPECT_FALSE(ring->BeginWrite(0));
  ASSERT_TRUE(ring->BeginWrite(1));
  CopyOnDevice(ring->Place(1), value.data(), value.size_bytes(), stream());
  EXPECT_EQ(Visit(*ring, 1), 7);
}

TEST_F(CudaPinnedRing, BlocksThatStayAreCopiedOnce) {
  const auto ring = MakeRing(5, 2, 5);
  const auto round = [&] {
    const int64_t before = ring->bytes_copied();
    for (int block = 0; block < 5; ++block)
      EXPECT_EQ(Visit(*ring, static_cast<size_t>(block)), block);
    return (ring->bytes_copied() - before) / kBytes;
  };
  round();
  EXPECT_EQ(round(), 5);
  ring->SetOutside({false, true, true, false, true});
  round();
  EXPECT_EQ(round(), 2);  // one of the three has a buffer to itself
  ring->SetOutside(std::vector<bool>(5, false));
  round();
  EXPECT_EQ(round(), 0);
  ring->SetOutside({true, true, false, true, true});
  round();
  EXPECT_EQ(round(), 4);
}

TEST_F(CudaPinnedRing, MoreThanThereIsIsRefused) {
  PinnedRingOptions options;
  options.block_bytes = {int64_t{1} << 50};
  EXPECT_EQ(PinnedRing::Create(std::move(options), stream()).status().code(),
            StatusCode::kOutOfSpace);
}

}  // namespace cuda_pinned_ring_test
}  // namespace lamina::cuda
#endif
