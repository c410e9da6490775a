#include "manager/cluster_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::ElementsAre;

TEST(ClusterSettings, WordsAreReadAsTheValuesThatPrintThem) {
  for (const std::string& word : kPipelineModes.words())
    EXPECT_EQ(PipelineModeName(kPipelineModes.Named(word).value()), word);
  for (const std::string& word : kTransportKinds.words())
    EXPECT_EQ(TransportKindName(kTransportKinds.Named(word).value()), word);
  for (const std::string& word : kSwitches.words())
    EXPECT_EQ(SwitchName(kSwitches.Named(word).value()), word);
  for (const std::string& word : kPollingModes.words())
    EXPECT_EQ(PollingModeName(kPollingModes.Named(word).value()), word);
  for (const std::string& word : kLoadFormats.words())
    EXPECT_EQ(LoadFormatName(kLoadFormats.Named(word).value()), word);
  EXPECT_FALSE(kPipelineModes.Named("sideways"));
  EXPECT_FALSE(kPipelineModes.Named(""));
}

TEST(ClusterSettings, AutoIsADtypeSettingOfItsOwn) {
  EXPECT_EQ(kKvDTypeChoices.NameOf(std::nullopt), "auto");
  ASSERT_TRUE(kKvDTypeChoices.Named("auto").has_value());
  EXPECT_FALSE(kKvDTypeChoices.Named("auto")->has_value());
  EXPECT_EQ(kKvDTypeChoices.Named("fp8").value(), DType::kF8);
  EXPECT_EQ(kKvDTypeChoices.Named("int8_per_token_head").value(), DType::kI8Scaled);
  EXPECT_EQ(kKvDTypeChoices.Named("fp8_per_token_head").value(), DType::kF8Scaled);
}

TEST(ClusterSettings, APlaceMayTakeSomeOfTheWordsInItsOwnOrder) {
  EXPECT_FALSE(kWireDTypeChoices.Named("fp8").has_value());
  EXPECT_FALSE(kWireDTypeChoices.Named("int8_per_token_head").has_value());
  EXPECT_EQ(kWireDTypeChoices.listed(), "auto | float32 | bfloat16 | float16");
  EXPECT_THAT(kPipelineModesAutoLast.words(), ElementsAre("none", "fixed", "rotational", "auto"));
}

}  // namespace
}  // namespace lamina
