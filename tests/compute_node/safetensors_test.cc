#include "compute_node/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A file with this header and `data_bytes` bytes 0, 1, 2, ...
std::string File(const std::string& header, size_t data_bytes) {
  std::string file;
  for (size_t b = 0; b < 8; ++b) file.push_back(static_cast<char>(header.size() >> (8 * b)));
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<char>(i));
  return file;
}

Result<std::vector<SafetensorsEntry>> ParseHeader(const std::string& file) {
  return ParseSafetensorsHeader(std::as_bytes(std::span(file.data(), file.size())));
}

const char kTwoTensors[] =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[6,14]},"a":{"dtype":"BF16","shape":[1,3],"data_offsets":[0,6]}}   )";

TEST(SafetensorsHeaderTest, ReadsEntriesInTheOrderOfTheirData) {
  const auto entries = ParseHeader(File(kTwoTensors, 14));
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2u);
  const size_t data_start = 8 + std::strlen(kTwoTensors);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[0].dtype, "BF16");
  EXPECT_THAT((*entries)[0].shape, ::testing::ElementsAre(1, 3));
  EXPECT_EQ((*entries)[0].offset, data_start);
  EXPECT_EQ((*entries)[0].size_bytes, 6u);
  EXPECT_EQ((*entries)[1].name, "b");
  EXPECT_EQ((*entries)[1].offset, data_start + 6);
}

TEST(SafetensorsHeaderTest, ScalarsEmptyTensorsAndEmptyFilesAreAllowed) {
  EXPECT_TRUE(ParseHeader(File("{}", 0)).ok());
  const auto entries = ParseHeader(File(
      R"({"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"e":{"dtype":"F16","shape":[0,5],"data_offsets":[0,0]}})",
      8));
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_EQ(entries->size(), 2u);
}

struct BadHeader {
  const char* header;
  size_t data_bytes;
  const char* says;
};

class BadHeaderTest : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaderTest, IsRejected) {
  const auto entries = ParseHeader(File(GetParam().header, GetParam().data_bytes));
  ASSERT_FALSE(entries.ok());
  EXPECT_EQ(entries.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(entries.status().message(), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadHeaderTest,
    ::testing::Values(
        BadHeader{"", 0, "does not begin with '{'"}, BadHeader{" {}", 0, "does not begin with '{'"},
        BadHeader{"[]", 0, "does not begin with '{'"}, BadHeader{"{", 0, "syntax error"},
        BadHeader{"{} x", 0, "syntax error"}, BadHeader{"{\"\xff\":{}}", 0, "syntax error"},
        BadHeader{
            R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
            2, R"(duplicate key "a")"},
        BadHeader{R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
                  R"(duplicate key "dtype", at "a")"},
        BadHeader{R"({"__metadata__":{"x":"1","x":"2"}})", 0,
                  R"(duplicate key "x" in __metadata__)"},
        BadHeader{R"({"__metadata__":{"x":1}})", 0, "a number where none may stand"},
        BadHeader{R"({"__metadata__":"x"})", 0, "a string where none may stand"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "leaving a hole"},
        BadHeader{
            R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
            3, "leaving a hole"},
        BadHeader{
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            3, "overlapping"},
        BadHeader{
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
            2, "overlapping"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3,
                  "but the file holds 3"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3, "cut short"},
        BadHeader{R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,2]}})", 2, "needs 4 bytes"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", 2, "do not hold"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", 4,
                  "overflows"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                  "overflows"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1,
                  "a dimension overflows"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})", 1,
                  "cut short"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,99999999999999999999]}})", 1,
                  "no 64-bit integer"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1,
                  "a negative number"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1,
                  "no 64-bit integer"},
        BadHeader{R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1,
                  "a number where none may stand"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1,
                  "an array where none may stand"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1,
                  "exactly two numbers"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1,
                  "exactly two numbers"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1]}})", 1, "is missing"},
        BadHeader{R"({"a":{}})", 0, "is missing"},
        BadHeader{R"({"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,1]}})", 1,
                  R"(unknown dtype "Q4")"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"extra":1}})", 1,
                  R"(unknown key "extra")"},
        BadHeader{R"({"a":{"dtype":null,"shape":[1],"data_offsets":[0,1]}})", 1,
                  "null where none may stand"},
        BadHeader{R"({"a":{"dtype":{},"shape":[1],"data_offsets":[0,1]}})", 1,
                  "an object where none may stand"},
        BadHeader{R"({"a":true})", 0, "a boolean where none may stand"}));

TEST(SafetensorsHeaderTest, EveryPrefixOfAFileIsRejected) {
  const std::string file = File(kTwoTensors, 14);
  for (size_t length = 0; length < file.size(); ++length)
    EXPECT_EQ(ParseHeader(file.substr(0, length)).status().code(), StatusCode::kCorrupt) << length;
}

TEST(SafetensorsHeaderTest, AnAbsurdLengthIsRejectedBeforeAnythingIsRead) {
  std::string file = File("{}", 0);
  for (size_t b = 0; b < 8; ++b) file[b] = '\xff';
  EXPECT_EQ(ParseHeader(file).status().code(), StatusCode::kCorrupt);
}

class SafetensorsTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << bytes;
  }
  void WriteIndex(const nlohmann::json& weight_map) {
    Write("model.safetensors.index.json", nlohmann::json{{"weight_map", weight_map}}.dump());
  }
  Status OpenStatus() const { return Checkpoint::Open(dir_).status(); }

  const TemporaryFolder folder_;
  const std::string dir_ = folder_.path();
};

TEST_F(SafetensorsTest, FindGivesDtypeShapeAndBytes) {
  Write("model.safetensors", File(kTwoTensors, 14));
  const auto file = SafetensorsFile::Open(dir_ + "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const Result<TensorView> b = (*file)->Find("b");
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(b->dtype, DType::kF32);
  EXPECT_THAT(b->shape, ::testing::ElementsAre(2));
  ASSERT_EQ(b->data.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(std::to_integer<size_t>(b->data[i]), 6 + i);
}

TEST_F(SafetensorsTest, FilesThatCannotBeReadAreNamed) {
  const std::string path = dir_ + "/x.safetensors";
  EXPECT_EQ(SafetensorsFile::Open(path).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(dir_).status().code(), StatusCode::kInvalidArgument);
  Write("x.safetensors", "");
  EXPECT_EQ(SafetensorsFile::Open(path).status().code(), StatusCode::kCorrupt);
  Write("x.safetensors", "short");
  const Status status = SafetensorsFile::Open(path).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr(path));
}

TEST_F(SafetensorsTest, FindNamesTensorFileAndShapes) {
  Write("model.safetensors", File(kTwoTensors, 14));
  const auto checkpoint = Checkpoint::Open(dir_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->size_bytes(), 14);
  const std::vector<int64_t> right = {1, 3}, wrong = {3, 1}, longer = {1, 3, 1};
  EXPECT_TRUE((*checkpoint)->Find("a", right).ok());
  const Status mismatch = (*checkpoint)->Find("a", wrong).status();
  EXPECT_EQ(mismatch.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(mismatch.message(), AllOf(HasSubstr("tensor a"), HasSubstr("model.safetensors"),
                                        HasSubstr("[1, 3]"), HasSubstr("[3, 1]")));
  EXPECT_EQ((*checkpoint)->Find("a", longer).status().code(), StatusCode::kInvalidArgument);
  const Status missing = (*checkpoint)->Find("c", right).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(),
              AllOf(HasSubstr("tensor c"), HasSubstr("model.safetensors"), HasSubstr("[1, 3]")));
}

TEST_F(SafetensorsTest, DtypesWithoutAKernelAreRefusedOnlyWhenAskedFor) {
  Write("model.safetensors",
        File(R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8));
  const auto checkpoint = Checkpoint::Open(dir_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const std::vector<int64_t> shape = {1};
  EXPECT_EQ((*checkpoint)->Find("ids", shape).status().code(), StatusCode::kUnimplemented);
}

TEST_F(SafetensorsTest, ShardsMustLieInsideTheDirectory) {
  Write("part.safetensors", File(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  const std::string nul("part\0.safetensors", 17);
  const std::vector<std::string> outside = {"../part.safetensors", "x/../../part.safetensors",
                                            dir_ + "/part.safetensors", "", nul};
  for (const std::string& path : outside) {
    WriteIndex({{"a", path}});
    EXPECT_EQ(OpenStatus().code(), StatusCode::kCorrupt) << path;
    EXPECT_THAT(OpenStatus().message(), HasSubstr("tensor a"));
  }
  WriteIndex({{"a", 1}});
  EXPECT_EQ(OpenStatus().code(), StatusCode::kCorrupt);
  WriteIndex({{"a", "part.safetensors"}});
  EXPECT_TRUE(OpenStatus().ok()) << OpenStatus();
}

TEST_F(SafetensorsTest, AnIndexThatDisagreesWithItsShardsIsRejected) {
  Write("part.safetensors", File(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  WriteIndex({{"b", "part.safetensors"}});
  EXPECT_EQ(OpenStatus().code(), StatusCode::kCorrupt);
  EXPECT_THAT(OpenStatus().message(), AllOf(HasSubstr("tensor b"), HasSubstr("part.safetensors")));
  WriteIndex({{"a", "gone.safetensors"}});
  EXPECT_THAT(OpenStatus().message(), HasSubstr("gone.safetensors"));
  Write("model.safetensors.index.json", R"({"weight_map": []})");
  EXPECT_THAT(OpenStatus().message(), HasSubstr("weight_map"));
  Write("model.safetensors.index.json", "{");
  EXPECT_FALSE(OpenStatus().ok());
}

TEST_F(SafetensorsTest, AllMissingShardsAreNamed) {
  nlohmann::json map;
  for (int i = 0; i < 12; ++i)
    map["t" + std::to_string(i)] =
        "part-" + std::string(i < 10 ? "0" : "") + std::to_string(i) + ".safetensors";
  WriteIndex(map);
  Write("part-03.safetensors",
        File(R"({"t3":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  EXPECT_EQ(OpenStatus().code(), StatusCode::kNotFound);
  EXPECT_THAT(
      OpenStatus().message(),
      AllOf(HasSubstr("names 12 files, of which 11 are not there: part-00.safetensors, part-01"),
            HasSubstr("part-08.safetensors and 3 more"), Not(HasSubstr("part-03"))));
}

TEST_F(SafetensorsTest, OnlyAPickleSaysHowToConvertIt) {
  EXPECT_EQ(OpenStatus().code(), StatusCode::kNotFound);
  EXPECT_THAT(OpenStatus().message(), HasSubstr(dir_));
  Write("pytorch_model.bin", "x");
  EXPECT_EQ(OpenStatus().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(OpenStatus().message(),
              AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("save_pretrained")));
}

TEST(CheckpointTest, ShardedAndSingleHoldTheSameTensors) {
  const TinyCheckpoint single({}), sharded({.num_shards = 3});
  const auto a = Checkpoint::Open(single.dir());
  const auto b = Checkpoint::Open(sharded.dir());
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ((*a)->size_bytes(), (*b)->size_bytes());
  const auto file = SafetensorsFile::Open(single.dir() + "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->entries().size(), 3u + 9u * 3u);
  for (const SafetensorsEntry& entry : (*file)->entries()) {
    const Result<TensorView> left = (*a)->Find(entry.name, entry.shape);
    const Result<TensorView> right = (*b)->Find(entry.name, entry.shape);
    ASSERT_TRUE(left.ok()) << left.status();
    ASSERT_TRUE(right.ok()) << right.status();
    EXPECT_TRUE(
        std::equal(left->data.begin(), left->data.end(), right->data.begin(), right->data.end()))
        << entry.name;
  }
}

TEST(CheckpointTest, ReadsTheShippedModel) {
  const auto checkpoint = Checkpoint::Open(SourcePath("/models/tiny-stories"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const std::vector<int64_t> shape = {1024, 256};
  const Result<TensorView> head = (*checkpoint)->Find("lm_head.weight", shape);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->dtype, DType::kBF16);
  EXPECT_EQ(head->data.size(), 1024u * 256u * 2u);
}

}  // namespace
}  // namespace lamina
