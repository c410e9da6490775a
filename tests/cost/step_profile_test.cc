// Step profiles: what is between measured times, and files.
#include "cost/step_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Decode times are 1 + 0.1 rows + 0.001 context, times `slow` for the interval.
std::vector<StepTime> Decoding(int interval, double slow) {
  std::vector<StepTime> times;
  for (const double rows : {1, 4, 16}) {
    for (const double context : {100, 500})
      times.push_back({false, interval, rows, context, slow * (1 + 0.1 * rows + 0.001 * context)});
  }
  return times;
}

TEST(StepProfile, IsLinearBetweenMeasuredTimesAndBeyondTheLast) {
  const Result<StepProfile> profile = StepProfile::Of(Decoding(0, 1));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_DOUBLE_EQ(profile->DecodeSeconds(0, 4, 100), 1.5);
  EXPECT_DOUBLE_EQ(profile->DecodeSeconds(0, 10, 100), 2.1);
  EXPECT_DOUBLE_EQ(profile->DecodeSeconds(0, 2, 300), 1.5);
  EXPECT_DOUBLE_EQ(profile->DecodeSeconds(0, 40, 900), 1 + 4 + 0.9) << "beyond";
  EXPECT_DOUBLE_EQ(profile->DecodeSeconds(0, 0.5, 10), 1.2) << "below it stays the same";
  EXPECT_FALSE(profile->has_prefill());
}

TEST(StepProfile, AnIntervalThatWasNotMeasuredHasTheTimesOfTheNextSmallerOne) {
  std::vector<StepTime> times;
  for (const auto& [interval, slow] : {std::pair(0, 1.0), std::pair(2, 3.0), std::pair(8, 2.0)})
    std::ranges::copy(Decoding(interval, slow), std::back_inserter(times));
  const Result<StepProfile> profile = StepProfile::Of(times);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_THAT(profile->intervals(), ElementsAre(2, 8, 0)) << "0 has the least outside";
  const double alone = profile->DecodeSeconds(0, 1, 100);
  EXPECT_DOUBLE_EQ(profile->DecodeSeconds(2, 1, 100), 3 * alone);
  EXPECT_DOUBLE_EQ(profile->DecodeSeconds(5, 1, 100), 3 * alone);
  EXPECT_DOUBLE_EQ(profile->DecodeSeconds(8, 1, 100), 2 * alone);
  EXPECT_DOUBLE_EQ(profile->DecodeSeconds(9, 1, 100), 2 * alone);
}

TEST(StepProfile, TimesOfPromptsAreApart) {
  std::vector<StepTime> times = Decoding(0, 1);
  times.push_back({true, 0, 64, 0, 2});
  times.push_back({true, 0, 256, 0, 5});
  const Result<StepProfile> profile = StepProfile::Of(times);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_DOUBLE_EQ(profile->PrefillSeconds(0, 160, 0), 3.5);
  EXPECT_DOUBLE_EQ(profile->PrefillSeconds(0, 448, 1000), 8) << "one context was measured";
}

TEST(StepProfile, SaysWhatIsMissing) {
  EXPECT_THAT(StepProfile::Of({}).status().message(), HasSubstr("no times of decode steps"));
  std::vector<StepTime> times = Decoding(3, 1);
  times.pop_back();
  EXPECT_THAT(StepProfile::Of(times).status().message(),
              HasSubstr("no time of the decode step of 16 rows, context 500, interval 3"));
  times = Decoding(3, 1);
  times.push_back(times.front());
  EXPECT_THAT(StepProfile::Of(times).status().message(),
              HasSubstr("two times of the decode step of 1 rows, context 100, interval 3"));
}

TEST(StepProfile, AFileIsReadAsItWasWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/steps.csv";
  std::vector<StepTime> times = Decoding(4, 0.125);
  times.push_back({true, 0, 64, 0, 0.25});
  std::ofstream(path) << "# of a test\n" << StepProfile::ToCsv(times);
  const Result<StepProfile> profile = StepProfile::Load(path);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_DOUBLE_EQ(profile->DecodeSeconds(4, 16, 500), 0.125 * 3.1);
  EXPECT_DOUBLE_EQ(profile->PrefillSeconds(0, 64, 0), 0.25);
}

TEST(StepProfile, NamesTheLineThatIsWrong) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/steps.csv";
  const auto error_of = [&](const std::string& text) {
    std::ofstream(path) << text;
    return StepProfile::Load(path).status().message();
  };
  const std::string header = "step,interval,rows,context,seconds\n";
  EXPECT_THAT(error_of("rows,seconds\n1,2\n"), HasSubstr("steps.csv:1: expected the columns"));
  for (const char* line :
       {"decode,0,1,100", "decode,0,0,100,1", "decode,-1,1,100,1", "decode,0,1,100,0",
        "decode,0,1,100,nan", "other,0,1,100,1", "decode,0,1,100,1,2", "decode,x,1,100,1"})
    EXPECT_THAT(error_of(header + line + "\n"), HasSubstr("steps.csv:2: expected a measurement"))
        << line;
  EXPECT_THAT(error_of(header), HasSubstr("steps.csv: there are no times of decode steps"));
  EXPECT_THAT(StepProfile::Load("/nowhere").status().message(),
              HasSubstr("`lamina bench record CLUSTER.yaml` measures one"));
}

}  // namespace
}  // namespace lamina
