#include "bench/recorded_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "grammar/constrained_text.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace recorded_texts_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

nlohmann::json File() {
  return {{"tokens", {"", "22", "61", "c3a9"}},
          {"cases",
           {{{"name", "words"},
             {"schema", R"({"type": "string"})"},
             {"texts", {{1, 2, 3, 1}, {1, 1}}}}}}};
}

Result<RecordedTexts> Read(const std::string& text) {
  const TemporaryFolder folder;
  WriteFile(folder / "recorded.json", text);
  return ReadRecordedTexts(folder / "recorded.json");
}

TEST(RecordedTexts, TokensAreBytesAndTextsFitTheirSchema) {
  const Result<RecordedTexts> recorded = Read(File().dump());
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  ASSERT_EQ(recorded->vocabulary->size(), 4);
  EXPECT_EQ(recorded->vocabulary->bytes(3), "\xC3\xA9");
  ASSERT_EQ(recorded->cases.size(), 1u);
  EXPECT_EQ(recorded->cases[0].name, "words");
  ASSERT_EQ(recorded->cases[0].texts.size(), 2u);
  EXPECT_THAT(recorded->cases[0].texts[0], ElementsAre(1, 2, 3, 1));
  const Result<Grammar> grammar = CompileConstraint(recorded->cases[0].constraint);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  Automata automata(recorded->vocabulary);
  Result<ConstrainedText> text = automata.Begin(grammar->ToBytes());
  ASSERT_TRUE(text.ok()) << text.status();
  const Result<NextTokens> end = text->Next(recorded->cases[0].texts[0]);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_TRUE(end->may_end);
}

TEST(RecordedTexts, WhatIsWrongIsNamedWithTheFile) {
  nlohmann::json odd = File(), letters = File(), no_texts = File(), bad_schema = File();
  odd["tokens"][2] = "616";
  letters["tokens"][2] = "6g";
  no_texts["cases"][0].erase("texts");
  bad_schema["cases"][0]["schema"] = "{";
  for (const nlohmann::json& file : {odd, letters}) {
    EXPECT_THAT(Read(file.dump()).status().message(),
                HasSubstr("recorded.json: tokens[2] is not bytes"));
  }
  for (const nlohmann::json& file : {no_texts, bad_schema, nlohmann::json({{"tokens", 7}})}) {
    const Status status = Read(file.dump()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("recorded.json: expected {\"tokens\""));
  }
  for (const int64_t token : {-1, 4, 2'000'000'000}) {
    nlohmann::json far = File();
    far["cases"][0]["texts"][1][0] = token;
    EXPECT_THAT(Read(far.dump()).status().message(), HasSubstr("words has a text with token"));
  }
  EXPECT_EQ(ReadRecordedTexts("/nowhere/recorded.json").status().code(), StatusCode::kNotFound);
}

}  // namespace recorded_texts_test
}  // namespace lamina::testing
