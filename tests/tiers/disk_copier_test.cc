#include "tiers/disk_copier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/clock.h"
#include "base/huge_memory.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

// Memory of whole pages, as reads past the system's cache need it.
class Pages {
 public:
  explicit Pages(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)), data_(static_cast<std::byte*>(MapHuge(bytes_))) {}
  ~Pages() { UnmapHuge(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }

 private:
  const size_t bytes_;
  std::byte* const data_;
};

std::byte At(int block, int64_t i) { return std::byte((i * 31 + i / 4096 + block * 7) % 251); }

class DiskCopierTest : public ::testing::Test {
 protected:
  static constexpr int kBlocks = 3;
  static constexpr int64_t kBytes = 9 * kMiB + 4096;  // a piece of a read is 4 MiB

  void SetUp() override {
    Result<std::unique_ptr<BlockFile>> file =
        BlockFile::Create(folder_.path(), std::vector<int64_t>(kBlocks, kBytes - 100));
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = std::move(*file);
    const Pages block(kBytes);
    for (int b = 0; b < kBlocks; ++b) {
      for (int64_t i = 0; i < kBytes; ++i) block.data()[i] = At(b, i);
      // In two parts, the later one first.
      ASSERT_TRUE(file_->Write(b, kMiB, block.data() + kMiB, kBytes - kMiB).ok());
      ASSERT_TRUE(file_->Write(b, 0, block.data(), kMiB).ok());
    }
  }

  static void ExpectBlock(int block, const std::byte* bytes) {
    for (int64_t i = 0; i < kBytes; ++i) ASSERT_EQ(bytes[i], At(block, i)) << block << " " << i;
  }

  const TemporaryFolder folder_;
  std::shared_ptr<const BlockFile> file_;
};

TEST_F(DiskCopierTest, ReadsBlocksInTheOrderInWhichTheyWereBegun) {
  DiskCopier copier(file_, 0);
  const Pages first(kBytes), second(kBytes), third(kBytes);
  copier.Start(2, first.data());
  copier.Start(0, second.data());
  ASSERT_TRUE(copier.FinishOldest().ok());
  ExpectBlock(2, first.data());
  copier.Start(1, third.data());
  ASSERT_TRUE(copier.FinishOldest().ok());
  ExpectBlock(0, second.data());
  ASSERT_TRUE(copier.FinishOldest().ok());
  ExpectBlock(1, third.data());
}

TEST_F(DiskCopierTest, ReadsNoFasterThanTold) {
  DiskCopier copier(file_, 100e6);
  const Pages block(kBytes);
  const TimePoint start = Clock::now();
  copier.Start(1, block.data());
  ASSERT_TRUE(copier.FinishOldest().ok());
  EXPECT_GE(std::chrono::duration<double>(Clock::now() - start).count(), kBytes / 100e6);
}

TEST_F(DiskCopierTest, WhatWasBegunMayBeLeftUndone) {
  const Pages block(kBytes);
  DiskCopier copier(file_, 20e6);
  for (int i = 0; i < 100; ++i) copier.Start(0, block.data());
}

TEST_F(DiskCopierTest, NothingOfTheFileIsSeenInTheFolder) {
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST(BlockFile, SaysWhatIsWrongWithTheFolder) {
  const Status status = BlockFile::Create("/no/such/folder", {4096}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("/no/such/folder: No such file or directory"));
  const TemporaryFolder folder;
  const Status too_large = BlockFile::Create(folder.path(), {int64_t{1} << 55}).status();
  EXPECT_EQ(too_large.code(), StatusCode::kOutOfSpace) << too_large;
}

TEST(BlockFile, BlocksMayLieInAFileThatIsThere) {
  constexpr int64_t kPage = BlockFile::kAlignment;
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  std::string bytes(static_cast<size_t>(6 * kPage), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i / 512);
  WriteFile(path, bytes);
  const Result<std::unique_ptr<BlockFile>> file =
      BlockFile::OpenPlaces(path, "it", {{3 * kPage, 2 * kPage}, {kPage, kPage}});
  ASSERT_TRUE(file.ok()) << file.status();
  const Pages page(kPage);
  for (const auto& [block, offset, at] :
       {std::tuple(0, 0, 3), std::tuple(0, 1, 4), std::tuple(1, 0, 1)}) {
    ASSERT_TRUE((*file)->Read(block, offset * kPage, page.data(), kPage).ok());
    EXPECT_EQ(std::memcmp(page.data(), bytes.data() + at * kPage, kPage), 0) << at;
  }
  std::filesystem::resize_file(path, static_cast<size_t>(4 * kPage));
  const Status shorter = (*file)->Read(0, kPage, page.data(), kPage);
  EXPECT_THAT(shorter.message(), HasSubstr("it has become shorter than its blocks"));
  const Status too_short =
      BlockFile::OpenPlaces(path, "it", {{0, kPage}, {4 * kPage, kPage}}).status();
  EXPECT_THAT(too_short.message(), HasSubstr("it has 16384 bytes, where a block ends at 20480"));
  const Status none = BlockFile::OpenPlaces(folder / "none", "it", {{0, kPage}}).status();
  EXPECT_EQ(none.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(none.message(), HasSubstr("it cannot be opened: No such file or directory"));
}

}  // namespace
}  // namespace lamina
