#include "hub/gguf_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As repositories of quantized models look.
const std::vector<std::string> kPaths = {
    "README.md",
    "Model-7B-Q4_K_M.gguf",
    "Model-7B-IQ3_XXS.gguf",
    "Model-7B.Q8_0.gguf",
    "model-7b-f16.gguf",
    "BF16/Model-7B-BF16-00002-of-00002.gguf",
    "BF16/Model-7B-BF16-00001-of-00002.gguf",
    "mmproj-F16.gguf",
    "Model-7B-imatrix.gguf",
    "whole.gguf",
};

TEST(GgufChoice, OneForEachQuantization) {
  const std::vector<GgufChoice> choices = GgufChoices(kPaths);
  std::vector<std::string> labels;
  for (const GgufChoice& choice : choices) labels.push_back(choice.label);
  EXPECT_THAT(labels, ElementsAre("BF16", "IQ3_XXS", "Q4_K_M", "Q8_0", "f16", "whole"));
  EXPECT_THAT(choices[0].files, ElementsAre("BF16/Model-7B-BF16-00001-of-00002.gguf",
                                            "BF16/Model-7B-BF16-00002-of-00002.gguf"));
}

TEST(GgufChoice, IsNamedByLabelOrPath) {
  const std::vector<GgufChoice> choices = GgufChoices(kPaths);
  for (const std::string wanted : {"Q4_K_M", "q4_k_m", "Model-7B-Q4_K_M.gguf"}) {
    const Result<GgufChoice> chosen = ChooseGguf(choices, wanted, "a/b");
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_THAT(chosen->files, ElementsAre("Model-7B-Q4_K_M.gguf"));
  }
}

TEST(GgufChoice, SaysWhatThereIsToChoose) {
  const std::vector<GgufChoice> choices = GgufChoices(kPaths);
  const Status none = ChooseGguf(choices, "", "a/b").status();
  EXPECT_EQ(none.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(none.message(), HasSubstr("a/b:BF16"));
  EXPECT_THAT(none.message(), HasSubstr("IQ3_XXS, Q4_K_M, Q8_0"));
  EXPECT_THAT(ChooseGguf(choices, "Q2_K", "a/b").status().message(), HasSubstr("Q4_K_M"));
  EXPECT_THAT(ChooseGguf({}, "", "a/b").status().message(), HasSubstr("no GGUF file"));

  const std::vector<std::string> two = {"x-Q8_0.gguf", "y-Q8_0.gguf"};
  EXPECT_THAT(ChooseGguf(GgufChoices(two), "Q8_0", "a/b").status().message(),
              HasSubstr("a/b:x-Q8_0.gguf"));
}

TEST(GgufChoice, TheOnlyOneNeedsNoName) {
  const std::vector<std::string> one = {"x-Q8_0.gguf", "mmproj-x-f16.gguf"};
  const Result<GgufChoice> chosen = ChooseGguf(GgufChoices(one), "", "a/b");
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->label, "Q8_0");
}

}  // namespace
}  // namespace lamina
