#include "gguf/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "gguf/gguf_vocabulary.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

TEST(GgufPathTest, NamesOfFilesAndShards) {
  EXPECT_TRUE(IsGgufPath("a/b.gguf"));
  EXPECT_FALSE(IsGgufPath("a/b.gguf/"));
  EXPECT_FALSE(IsGgufPath(".gguf"));
  EXPECT_FALSE(IsGgufPath("models/tiny-stories"));
  EXPECT_EQ(GgufModelName("/m/Llama-3.2-1B-Q4_K_M.gguf"), "Llama-3.2-1B-Q4_K_M");
  EXPECT_EQ(GgufModelName("m-00002-of-00003.gguf"), "m");
  EXPECT_EQ(GgufModelName("m-0002-of-00003.gguf"), "m-0002-of-00003");
  EXPECT_EQ(GgufModelName("m-00004-of-00003.gguf"), "m-00004-of-00003");
  EXPECT_THAT(GgufShardPaths("x/m.gguf"), ElementsAre("x/m.gguf"));
  EXPECT_THAT(
      GgufShardPaths("x/m-00002-of-00003.gguf"),
      ElementsAre("x/m-00001-of-00003.gguf", "x/m-00002-of-00003.gguf", "x/m-00003-of-00003.gguf"));
  EXPECT_THAT(GgufShardPaths("x/m-00001-of-99999.gguf"), ElementsAre("x/m-00001-of-99999.gguf"));
}

class GgufShardsTest : public ::testing::Test {
 protected:
  std::string Path(int i) const {
    return folder_ / ("m-0000" + std::to_string(i + 1) + "-of-00002.gguf");
  }
  // Of two shards with one tensor each.
  static GgufWriter Shard(int i, uint32_t count = 2, uint32_t tensors = 2) {
    GgufWriter writer;
    if (i == 0) writer.AddString("general.name", "m");
    writer.AddRaw("split.no", 2, GgufWriter::Bytes(static_cast<uint16_t>(i)));
    writer.AddRaw("split.count", 2, GgufWriter::Bytes(static_cast<uint16_t>(count)));
    writer.AddInt32("split.tensors.count", static_cast<int32_t>(tensors));
    writer.AddTensor(i == 0 ? "a" : "b", {1}, 0, i == 0 ? "aaaa" : "bbbb");
    return writer;
  }
  Status Open() const { return GgufModel::Open(Path(0)).status(); }

  TemporaryFolder folder_;
};

TEST_F(GgufShardsTest, AreOneModel) {
  for (const int i : {0, 1}) WriteFile(Path(i), Shard(i).File());
  for (const int named : {0, 1}) {
    const auto model = GgufModel::Open(Path(named));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(static_cast<char>((*model)->Tensor("a")->data.front()), 'a');
    EXPECT_EQ(static_cast<char>((*model)->Tensor("b")->data.front()), 'b');
    EXPECT_EQ((*model)->Tensor("c"), nullptr);
    EXPECT_NE((*model)->Value("general.name"), nullptr) << "the first shard's";
  }
}

TEST_F(GgufShardsTest, ThatDoNotBelongTogetherAreRefused) {
  WriteFile(Path(0), Shard(0).File());
  EXPECT_EQ(Open().code(), StatusCode::kNotFound);
  EXPECT_THAT(Open().message(), HasSubstr(Path(1)));
  WriteFile(Path(1), Shard(0).File());
  EXPECT_THAT(Open().message(), AllOf(HasSubstr(Path(1)), HasSubstr("tensor a is in another")));
  WriteFile(Path(1), Shard(1, 3).File());
  EXPECT_THAT(Open().message(), AllOf(HasSubstr(Path(1)), HasSubstr("split.count is 3")));
  WriteFile(Path(1), Shard(2).File());
  EXPECT_THAT(Open().message(), HasSubstr("split.no is 2, expected 1"));
  WriteFile(Path(1), Shard(1, 2, 5).File());
  EXPECT_THAT(Open().message(), HasSubstr("split.tensors.count is 5, expected 2"));
  WriteFile(Path(1), GgufWriter().File());
  EXPECT_THAT(Open().message(), HasSubstr("no split.count"));
  // One of several, under another name.
  const std::string alone = folder_ / "alone.gguf";
  WriteFile(alone, Shard(0).File());
  EXPECT_THAT(GgufModel::Open(alone).status().message(), HasSubstr("split.count is 2, expected 1"));
}

TEST(GgufModelTest, FilesThatCannotBeReadAreNamed) {
  const TemporaryFolder folder;
  const std::string path = folder / "m.gguf";
  const auto message = [&] { return GgufModel::Open(path).status().message(); };
  EXPECT_EQ(GgufModel::Open(path).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(message(), HasSubstr(path));
  std::filesystem::create_directory(path);
  EXPECT_EQ(GgufModel::Open(path).status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(), HasSubstr(path));
  std::filesystem::remove(path);
  WriteFile(path, "");
  EXPECT_THAT(message(), HasSubstr(path + " is empty"));
  WriteFile(path, "{\"a\": 1}");
  EXPECT_THAT(message(), AllOf(HasSubstr(path), HasSubstr("not a GGUF file")));
}

class GgufVocabularyTest : public ::testing::Test {
 protected:
  Result<GgufVocabulary> Read() {
    const std::string path = folder_ / "m.gguf";
    WriteFile(path, writer_.File());
    model_ = *GgufModel::Open(path);
    return GgufVocabulary::Read(*model_);
  }
  void ExpectError(const std::string& says) {
    const Status status = Read().status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("m.gguf"), HasSubstr(says)));
  }

  TemporaryFolder folder_;
  GgufWriter writer_;
  std::unique_ptr<GgufModel> model_;
};

TEST_F(GgufVocabularyTest, EndsOfTurnAreFoundByKeyAndByName) {
  writer_.AddStrings("tokenizer.ggml.tokens", {"a", "<|im_end|>", "<|eot_id|>", "stop", "eos"});
  writer_.AddInts("tokenizer.ggml.token_type", {1, 3, 1, 3, 3});
  writer_.AddUint32("tokenizer.ggml.eos_token_id", 4);
  writer_.AddUint32("tokenizer.ggml.eot_token_id", 3);
  writer_.AddUint32("tokenizer.ggml.padding_token_id", ~uint32_t{0});
  const auto vocabulary = Read();
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  EXPECT_EQ(vocabulary->eos, 4);
  EXPECT_FALSE(vocabulary->padding);
  EXPECT_FALSE(vocabulary->bos);
  EXPECT_THAT(vocabulary->further_eos, ElementsAre(3, 1)) << "<|eot_id|> is no control token here";
}

TEST_F(GgufVocabularyTest, AFileWithoutTokens) {
  writer_.AddString("tokenizer.ggml.model", "llama");
  EXPECT_EQ(Read().status().code(), StatusCode::kNotFound);
}

TEST_F(GgufVocabularyTest, ListsOfAnotherLength) {
  writer_.AddStrings("tokenizer.ggml.tokens", {"a", "b"});
  writer_.AddFloats("tokenizer.ggml.scores", {1});
  ExpectError("tokenizer.ggml.scores: expected 2 elements");
}

TEST_F(GgufVocabularyTest, ListsOfAnotherType) {
  writer_.AddStrings("tokenizer.ggml.tokens", {"a", "b"});
  writer_.AddInts("tokenizer.ggml.merges", {1, 2});
  ExpectError("tokenizer.ggml.merges: expected an array of strings");
}

TEST_F(GgufVocabularyTest, IdsBeyondTheTokens) {
  writer_.AddStrings("tokenizer.ggml.tokens", {"a", "b"});
  writer_.AddUint32("tokenizer.ggml.bos_token_id", 2);
  ExpectError("tokenizer.ggml.bos_token_id: expected an id below 2");
}

}  // namespace
}  // namespace lamina
