#include "cli/other_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OtherNames, WhatMeansTheSameIsTaken) {
  EXPECT_THAT(*WithOurNames({"serve", "--model", "dir", "--dtype", "auto", "-c", "4k",
                             "--enable-auto-tool-choice", "--kv-cache-dtype=fp8"}),
              ElementsAre("serve", "dir", "--max-model-len", "4k", "--kv-dtype=fp8"));
  EXPECT_THAT(*WithOurNames({"serve", "-m", "dir", "--alias", "m", "--dtype=auto"}),
              ElementsAre("serve", "dir", "--served-model-name", "m"));
  EXPECT_THAT(*WithOurNames({"serve", "dir", "--embedding", "--rerank", "--runner", "auto"}),
              ElementsAre("serve", "dir"));
  EXPECT_THAT(*WithOurNames({"complete", "-p", "Once", "-n", "5", "--temp", "0"}),
              ElementsAre("complete", "Once", "--max-tokens", "5", "--temperature", "0"));
}

TEST(OtherNames, OtherCommandsAndWhatFollowsTwoDashesStay) {
  EXPECT_THAT(*WithOurNames({"tokenize", "-m", "x"}), ElementsAre("tokenize", "-m", "x"));
  EXPECT_THAT(*WithOurNames({"complete", "--", "-p"}), ElementsAre("complete", "--", "-p"));
  EXPECT_TRUE(WithOurNames({})->empty());
}

TEST(OtherNames, WhatHasNoCounterpartIsAnswered) {
  const auto answer = [](const std::vector<std::string>& arguments) {
    return WithOurNames(arguments).status().message();
  };
  EXPECT_THAT(answer({"serve", "x", "--gpu-memory-utilization", "0.9"}), HasSubstr("--memory"));
  EXPECT_THAT(answer({"serve", "x", "--gpu-memory-utilization=0.9"}), HasSubstr("--memory"));
  EXPECT_THAT(answer({"serve", "-m", "x", "-ngl", "99"}), HasSubstr("--device cuda:0"));
  EXPECT_THAT(answer({"serve", "x", "--dtype", "float16"}), HasSubstr("--kv-dtype"));
  EXPECT_THAT(answer({"serve", "x", "--dtype"}), HasSubstr("--kv-dtype"));
  EXPECT_THAT(answer({"chat", "-m", "x"}), HasSubstr("lamina serve"));
  EXPECT_THAT(answer({"serve", "x", "--task", "embed"}), HasSubstr("/v1/embeddings"));
  EXPECT_THAT(answer({"serve", "x", "--pooling", "mean"}), HasSubstr("last token"));
}

}  // namespace
}  // namespace lamina
