#include "kernels/cpu/prefault.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <limits>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/huge_memory.h"
#include "kernels/token_slab.h"

namespace lamina {
namespace {

constexpr size_t kPage = 4096, kStrips = 5, kStripBytes = 1237 * kPage + 100;

class PrefaultTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = kStrips * kStripBytes, kPages = (kBytes + kPage - 1) / kPage;

  ~PrefaultTest() override { UnmapHuge(memory_, kBytes); }

  size_t NumPages() const {
    std::vector<unsigned char> there(kPages);
    EXPECT_EQ(mincore(memory_, kBytes, there.data()), 0);
    size_t count = 0;
    for (const unsigned char page : there) count += page & 1;
    return count;
  }

  bool WaitForPages(size_t count) const {
    const Deadline deadline = Deadline::After(std::chrono::seconds(60));
    while (NumPages() < count && !deadline.Passed()) std::this_thread::yield();
    return NumPages() >= count;
  }

  std::byte* const memory_ = static_cast<std::byte*>(MapHuge(kBytes));
};

TEST_F(PrefaultTest, PagesComeAsFarAsToldAndBytesStayAsTheyAre) {
  Prefault prefault(memory_, kStrips, kStripBytes);
  prefault.Reach(kPage);
  ASSERT_TRUE(WaitForPages(kStrips));
  ASSERT_LT(NumPages(), kPages);
  prefault.Reach(2 * kStripBytes);
  for (size_t at = 0; at < kBytes; at += 999) memory_[at] = std::byte(at % 251);
  EXPECT_TRUE(WaitForPages(kPages));
  for (size_t at = 0; at < kBytes; ++at)
    ASSERT_EQ(memory_[at], std::byte(at % 999 == 0 ? at % 251 : 0)) << at;
}

TEST_F(PrefaultTest, TakesNothingFromAMachineThatHasLittleLeft) {
  Prefault prefault(memory_, kStrips, kStripBytes, std::numeric_limits<int64_t>::max());
  prefault.Reach(kStripBytes);
  const Deadline deadline = Deadline::After(std::chrono::seconds(60));
  while (!prefault.has_ended() && !deadline.Passed()) std::this_thread::yield();
  EXPECT_TRUE(prefault.has_ended());
  EXPECT_EQ(NumPages(), 0u);
}

TEST(TokenSlab, HasPagesAheadOfTheSlotsThatAreWritten) {
  // 32 MiB for each layer, K or V, and head.
  const KvShape shape{.num_layers = 1, .num_kv_heads = 2, .head_dim = 64, .dtype = DType::kF32};
  constexpr int64_t kCapacity = (int64_t{32} << 20) / 256;
  const auto slab = TokenSlab::Create(shape, kCapacity).value();
  const auto has_page = [&](int64_t slot) {
    const KvView view = slab->View(0);
    unsigned char there = 0;
    const auto at = reinterpret_cast<uintptr_t>(view.v) + static_cast<uintptr_t>(slot * 256);
    EXPECT_EQ(mincore(reinterpret_cast<void*>(at / kPage * kPage), 1, &there), 0);
    return (there & 1) == 1;
  };
  const auto comes = [&](int64_t slot) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(60));
    while (!has_page(slot) && !deadline.Passed()) std::this_thread::yield();
    return has_page(slot);
  };
  constexpr int64_t kSlotsOfPage = (int64_t{2} << 20) / 256;
  slab->StartPrefault();
  EXPECT_TRUE(comes(kSlotsOfPage - 1));
  EXPECT_FALSE(has_page(2 * kSlotsOfPage)) << "what nobody is near to takes no memory";
  const std::vector<float> row(128, 1.0f);
  slab->Write(0, kSlotsOfPage / 2 + 5, row.data(), row.data());
  EXPECT_TRUE(comes(3 * kSlotsOfPage / 2 - 1));
  EXPECT_FALSE(has_page(3 * kSlotsOfPage));
  slab->Write(0, kCapacity - 1, row.data(), row.data());
  EXPECT_TRUE(comes(kCapacity - kSlotsOfPage));
}

}  // namespace
}  // namespace lamina
