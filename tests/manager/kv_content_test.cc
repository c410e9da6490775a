#include "manager/kv_content.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

class KvContentTest : public ::testing::Test {
 protected:
  KvContentTest() {
    config_.model_path = folder_ / "";
    WriteFile(folder_ / "config.json", "{}");
    WriteFile(folder_ / "model.safetensors", "weights");
    node_.num_kv_heads = 4;
  }
  uint64_t Content() const { return KvContent(config_, node_); }

  const TemporaryFolder folder_;
  ClusterConfig config_;
  Member node_;
};

TEST_F(KvContentTest, IsTheSameOfTheSame) {
  EXPECT_EQ(Content(), Content());
  EXPECT_NE(Content(), 0u);
}

TEST_F(KvContentTest, IsAnotherOfOtherHeads) {
  const uint64_t all = Content();
  node_.first_kv_head = 2;
  EXPECT_NE(Content(), all);
}

TEST_F(KvContentTest, IsAnotherOfWeightsThatTakeTheirPlace) {
  const uint64_t before = Content();
  WriteFile(folder_ / "model.safetensors", "stronger");
  const uint64_t longer = Content();
  EXPECT_NE(longer, before);
  std::filesystem::last_write_time(
      folder_ / "model.safetensors",
      std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_NE(Content(), longer) << "of the same size";
}

TEST_F(KvContentTest, IsAnotherOfAnotherConfiguration) {
  const auto time = std::filesystem::last_write_time(folder_ / "config.json");
  const uint64_t before = Content();
  WriteFile(folder_ / "config.json", "[]");
  std::filesystem::last_write_time(folder_ / "config.json", time);
  EXPECT_NE(Content(), before);
}

TEST_F(KvContentTest, IsAnotherOfAGgufFileThatTakesItsPlace) {
  config_.model_path = folder_ / "m.gguf";
  WriteFile(config_.model_path, "weights");
  const uint64_t before = Content();
  WriteFile(folder_ / "config.json", "[]");
  EXPECT_EQ(Content(), before) << "what stands beside it does not matter";
  WriteFile(config_.model_path, "stronger");
  EXPECT_NE(Content(), before);
}

TEST_F(KvContentTest, AFolderThatIsNotThereHasOneToo) {
  config_.model_path = folder_ / "nowhere";
  EXPECT_NE(Content(), 0u);
}

}  // namespace
}  // namespace lamina::testing
