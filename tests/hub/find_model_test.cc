#include "hub/find_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";
constexpr char kOther[] = "76543210fedcba9876543210fedcba9876543210";

class FindModelTest : public ::testing::Test {
 protected:
  // Files of a snapshot as links to blobs, as Hugging Face's tools write them.
  void Cache(const std::string& owner_and_name, const std::string& commit,
             const std::string& revision, const std::vector<std::string>& files) {
    const std::string repository = cache_.root() + "/models--" + owner_and_name,
                      snapshot = repository + "/snapshots/" + commit;
    fs::create_directories(repository + "/blobs");
    fs::create_directories(snapshot);
    for (const std::string& file : files) {
      const std::string blob = repository + "/blobs/" + fs::path(file).filename().string();
      WriteFile(blob, "{}");
      fs::create_directories(fs::path(snapshot + "/" + file).parent_path());
      fs::create_symlink(
          fs::path(blob).lexically_relative(fs::path(snapshot + "/" + file).parent_path()),
          snapshot + "/" + file);
    }
    if (revision.empty()) return;
    fs::create_directories(fs::path(repository + "/refs/" + revision).parent_path());
    WriteFile(repository + "/refs/" + revision, commit);
  }
  std::string Snapshot(const std::string& owner_and_name, const std::string& commit) const {
    return cache_.root() + "/models--" + owner_and_name + "/snapshots/" + commit;
  }

  const TemporaryFolder folder_;
  const HubCache cache_{folder_ / "hub"};
};

TEST_F(FindModelTest, WhatExistsIsAPath) {
  const std::string current = fs::current_path();
  fs::create_directories(folder_ / "org/name");
  fs::current_path(folder_.path());
  Cache("org--name", kCommit, "main", {"config.json"});
  const Result<std::string> found = FindModel("org/name", cache_);
  fs::current_path(current);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, "org/name");
}

TEST_F(FindModelTest, AFileNamesModelsBesideItOrInTheCache) {
  const std::string file = folder_ / "configs/cluster.yaml";
  fs::create_directories(folder_ / "configs/org/here");
  Cache("org--here", kCommit, "main", {"config.json"});
  Cache("org--cached", kCommit, "main", {"config.json"});
  const auto find = [&](const std::string& model) {
    const Result<std::string> found = FindModelBeside(file, model, cache_);
    return found.ok() ? *found : "error: " + found.status().message();
  };
  EXPECT_EQ(find("org/here"), folder_ / "configs/org/here");
  EXPECT_EQ(find("../configs/org/here"), folder_ / "configs/org/here");
  EXPECT_EQ(find(folder_ / "configs/org/here"), folder_ / "configs/org/here");
  EXPECT_EQ(find("org/cached"), Snapshot("org--cached", kCommit));
  EXPECT_EQ(find("../models/m"), folder_ / "models/m");
  EXPECT_EQ(find("/no/such"), "/no/such");
  EXPECT_THAT(find("org/nowhere"), HasSubstr("lamina pull org/nowhere"));
}

TEST_F(FindModelTest, WhatIsNoNameIsLeftToWhoOpensIt) {
  for (const std::string model :
       {"nothing", "./no/such", "/no/such", "../no", "no/such.gguf", ""}) {
    const Result<std::string> found = FindModel(model, cache_);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, model);
  }
}

TEST_F(FindModelTest, ANameIsLookedUpInTheCache) {
  Cache("org--name", kCommit, "main", {"config.json"});
  Cache("org--name", kOther, "refs/pr/1", {"config.json"});
  for (const auto& [name, commit] :
       {std::pair("org/name", kCommit), std::pair("org/name@main", kCommit),
        std::pair("org/name@refs/pr/1", kOther),
        std::pair("org/name@76543210fedcba9876543210fedcba9876543210", kOther)}) {
    const Result<std::string> found = FindModel(name, cache_);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, Snapshot("org--name", commit));
  }
}

TEST_F(FindModelTest, SaysWhatToTypeIfItIsNotThere) {
  Cache("org--name", kCommit, "main", {"config.json"});
  for (const std::string name : {"other/name", "org/name@v2", "org/name-2:Q4_K_M"}) {
    const Status status = FindModel(name, cache_).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr("lamina pull " + name));
    EXPECT_THAT(status.message(), HasSubstr(cache_.root()));
  }
}

TEST_F(FindModelTest, ABrokenRevisionIsNone) {
  Cache("org--name", kCommit, "main", {"config.json"});
  for (const std::string text : {"", "../..", "0123456789abcdef0123456789abcdef0123456/", "main"}) {
    WriteFile(cache_.root() + "/models--org--name/refs/main", text);
    EXPECT_EQ(FindModel("org/name", cache_).status().code(), StatusCode::kNotFound) << text;
  }
}

TEST_F(FindModelTest, GgufFilesAreChosen) {
  Cache("org--one", kCommit, "main", {"README.md", "m-Q8_0.gguf"});
  Cache("org--two", kCommit, "main",
        {"m-Q8_0.gguf", "big/m-BF16-00001-of-00002.gguf", "big/m-BF16-00002-of-00002.gguf"});
  EXPECT_EQ(FindModel("org/one", cache_).value(), Snapshot("org--one", kCommit) + "/m-Q8_0.gguf");
  EXPECT_EQ(FindModel("org/two:bf16", cache_).value(),
            Snapshot("org--two", kCommit) + "/big/m-BF16-00001-of-00002.gguf");
  EXPECT_EQ(FindModel("org/two:m-Q8_0.gguf", cache_).value(),
            Snapshot("org--two", kCommit) + "/m-Q8_0.gguf");

  const Status several = FindModel("org/two", cache_).status();
  EXPECT_EQ(several.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(several.message(), HasSubstr("BF16, Q8_0"));
  const Status absent = FindModel("org/two:Q4_0", cache_).status();
  EXPECT_EQ(absent.code(), StatusCode::kNotFound);
  EXPECT_THAT(absent.message(), HasSubstr("lamina pull org/two:Q4_0"));
}

TEST_F(FindModelTest, AnEmptySnapshotIsToBeCompleted) {
  Cache("org--name", kCommit, "main", {"README.md"});
  EXPECT_THAT(FindModel("org/name", cache_).status().message(), HasSubstr("lamina pull org/name"));
}

TEST_F(FindModelTest, TheCacheIsListed) {
  Cache("org--name", kCommit, "main", {"config.json"});
  Cache("org--name", kOther, "", {"config.json"});
  Cache("a--b", kOther, "v1", {"config.json"});
  fs::create_directories(cache_.root() + "/datasets--a--b/snapshots/" + kCommit);
  fs::create_directories(cache_.root() + "/models--..--b/snapshots/" + kCommit);
  fs::create_directories(cache_.root() + "/.locks/models--a--b");
  std::vector<std::string> names;
  for (const CachedModel& model : cache_.List()) names.push_back(model.name.text());
  EXPECT_THAT(names, ElementsAre("a/b@v1", "org/name", std::string("org/name@") + kOther));
}

// In the order in which Hugging Face's tools look.
TEST_F(FindModelTest, TheEnvironmentSaysWhereTheCacheIs) {
  const char* const kVariables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                    "XDG_CACHE_HOME", "HOME"};
  std::map<std::string, std::string> before;
  for (const char* name : kVariables) {
    if (const char* const value = std::getenv(name)) before[name] = value;
    unsetenv(name);
  }
  setenv("HOME", "/home/a", 1);
  EXPECT_EQ(HubCache::Default().root(), "/home/a/.cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/xdg", 1);
  EXPECT_EQ(HubCache::Default().root(), "/xdg/huggingface/hub");
  setenv("HF_HOME", "~/hf", 1);
  EXPECT_EQ(HubCache::Default().root(), "/home/a/hf/hub");
  setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
  EXPECT_EQ(HubCache::Default().root(), "/old");
  setenv("HF_HUB_CACHE", "/cache", 1);
  EXPECT_EQ(HubCache::Default().root(), "/cache");
  for (const char* name : kVariables) {
    unsetenv(name);
    if (before.contains(name)) setenv(name, before[name].c_str(), 1);
  }
}

}  // namespace
}  // namespace lamina
