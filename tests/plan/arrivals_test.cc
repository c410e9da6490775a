#include "plan/workload/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "plan/workload/length_distribution.h"
#include "plan/workload/random_stream.h"

namespace lamina {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> Times(int64_t count, const ArrivalOptions& options) {
  Result<std::vector<double>> times = MakeArrivals(count, options);
  EXPECT_TRUE(times.ok()) << times.status();
  return times.ok() ? *times : std::vector<double>{};
}

double GapCv(const std::vector<double>& times) {
  double sum = 0, squares = 0, previous = 0;
  for (const double time : times) {
    sum += time - previous;
    squares += (time - previous) * (time - previous);
    previous = time;
  }
  const double mean = sum / static_cast<double>(times.size());
  return std::sqrt(std::max(0.0, squares / static_cast<double>(times.size()) - mean * mean)) / mean;
}

// Literals: tests/plan/workload_golden.py.
TEST(RandomStream, HasTheBitsOfTheStandardsGenerator) {
  RandomStream random(7, 1);
  EXPECT_EQ(random.Bits(), 0x5f7405314e4b80dbu);
  EXPECT_EQ(random.Bits(), 0xefa9d156ec497e7bu);
  EXPECT_EQ(random.Bits(), 0xa7de648e79922e5du);
}

TEST(RandomStream, BetweenReachesBothEndsEvenly) {
  RandomStream random(1, 0);
  std::array<int, 3> counts{};
  for (int i = 0; i < 30000; ++i) ++counts.at(static_cast<size_t>(random.Between(-1, 1) + 1));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);
  EXPECT_EQ(random.Between(5, 5), 5);
}

TEST(Arrivals, AreTheIndependentScripts) {
  const auto near = [](double value) { return DoubleNear(value, 1e-9); };
  EXPECT_THAT(Times(5, {.requests_per_second = 2, .seed = 0}),
              ElementsAre(near(0.02160669923977215), near(0.897302825243917),
                          near(1.1834790647524482), near(1.5555027202364862), near(2.5)));
  EXPECT_THAT(Times(5, {.requests_per_second = 10, .burstiness = 0.25, .seed = 42}),
              ElementsAre(near(4.302439942639825e-05), near(0.48460384865977557),
                          near(0.4848929317341155), near(0.49999895272003564), near(0.5)));
}

TEST(Arrivals, OfferExactlyTheMeanRate) {
  for (const double burstiness : {0.1, 1.0, 8.0, kInfinity}) {
    for (const uint64_t seed : {0, 1, 2}) {
      const std::vector<double> times =
          Times(1000, {.requests_per_second = 4, .burstiness = burstiness, .seed = seed});
      EXPECT_NEAR(times.back(), 250, 1e-9) << burstiness;
      EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    }
  }
}

TEST(Arrivals, VaryAsTheGammaDistributionDoes) {
  for (const double burstiness : {0.1, 0.5, 1.0, 4.0}) {
    const double expected = 1 / std::sqrt(burstiness);
    EXPECT_NEAR(GapCv(Times(200000, {.requests_per_second = 3, .burstiness = burstiness})),
                expected, expected * 0.02)
        << burstiness;
  }
  EXPECT_NEAR(GapCv(Times(1000, {.requests_per_second = 3, .burstiness = kInfinity})), 0, 1e-6);
}

TEST(Arrivals, AreAFunctionOfTheirSeed) {
  const ArrivalOptions options = {.requests_per_second = 3, .burstiness = 2, .seed = 5};
  ArrivalOptions other = options;
  other.seed = 6;
  EXPECT_EQ(Times(50, options), Times(50, options));
  EXPECT_NE(Times(50, options), Times(50, other));
}

TEST(Arrivals, WithoutARateAllComeAtOnce) { EXPECT_THAT(Times(3, {}), ElementsAre(0, 0, 0)); }

// The rate at request i of 4 from 1 to 5 requests/s: 1, 2, 3, 4; exponentially from 1 to 16: 1, 2,
// 4, 8.
TEST(Arrivals, RampFromOneRateToAnother) {
  ArrivalOptions options = {
      .burstiness = kInfinity, .ramp = Ramp::kLinear, .ramp_start = 1, .ramp_end = 5};
  const auto near = [](double value) { return DoubleNear(value, 1e-12); };
  EXPECT_THAT(Times(4, options),
              ElementsAre(near(1), near(1.5), near(1.5 + 1.0 / 3), near(1.75 + 1.0 / 3)));
  options.ramp = Ramp::kExponential;
  options.ramp_end = 16;
  EXPECT_THAT(Times(4, options), ElementsAre(near(1), near(1.5), near(1.75), near(1.875)));
  options.burstiness = 1;
  EXPECT_NEAR(Times(4, options).back(), 1.875, 1e-12);
}

TEST(Arrivals, RefuseWhatIsNoRate) {
  EXPECT_THAT(MakeArrivals(1, {.requests_per_second = 0}).status().message(),
              HasSubstr("not positive"));
  EXPECT_THAT(MakeArrivals(1, {.requests_per_second = std::nan("")}).status().message(),
              HasSubstr("not positive"));
  EXPECT_THAT(MakeArrivals(1, {.burstiness = -1}).status().message(),
              HasSubstr("burstiness of -1"));
  EXPECT_THAT(MakeArrivals(1, {.burstiness = std::nan("")}).status().message(),
              HasSubstr("burstiness"));
  EXPECT_THAT(MakeArrivals(100, {.requests_per_second = 1, .burstiness = 1e-30}).status().message(),
              HasSubstr("burstiness of 1e-30"));
  EXPECT_THAT(MakeArrivals(5, {.requests_per_second = 1e-30}).status().message(),
              HasSubstr("more than a year"));
  EXPECT_THAT(
      MakeArrivals(1, {.ramp = Ramp::kLinear, .ramp_start = 0, .ramp_end = 3}).status().message(),
      HasSubstr("both must be positive"));
}

TEST(LengthDistribution, ReadsItsForms) {
  for (const char* text : {"512", "uniform:3:9", "lognormal:1154.7:0.96"}) {
    const Result<LengthDistribution> lengths = LengthDistribution::Parse(text);
    ASSERT_TRUE(lengths.ok()) << lengths.status();
    EXPECT_EQ(lengths->text(), text);
  }
  EXPECT_EQ(LengthDistribution::Parse("fixed:7")->text(), "7");
  EXPECT_EQ(LengthDistribution::Parse("lognormal:100")->text(), "lognormal:100:1");
  for (const char* text : {"", "0", "-3", "1.5", "fixed", "uniform:9:3", "uniform:1", "normal:3:4",
                           "lognormal:x", "1e30", "nan", "3:4"}) {
    const Status status = LengthDistribution::Parse(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr("a length of '" + std::string(text) + "'"));
  }
}

TEST(LengthDistribution, DrawsTheIndependentScripts) {
  RandomStream random(3, 2);
  const LengthDistribution lengths = LengthDistribution::LogNormal(100, 1);
  for (const int64_t expected : {97, 100, 117, 141, 346}) EXPECT_EQ(lengths.Draw(random), expected);
}

TEST(LengthDistribution, HasTheMeanAndVariationThatItNames) {
  for (const PublishedLengths& published : AllPublishedLengths()) {
    RandomStream random(11, 2);
    const double wanted = published.input.mean();
    double sum = 0;
    constexpr int kDraws = 200000;
    for (int i = 0; i < kDraws; ++i) sum += static_cast<double>(published.input.Draw(random));
    EXPECT_NEAR(sum / kDraws, wanted, wanted * 0.02) << published.name;
  }
  RandomStream random(11, 2);
  double sum = 0, squares = 0;
  constexpr int kDraws = 400000;
  const LengthDistribution lengths = LengthDistribution::LogNormal(1000, 0.5);
  for (int i = 0; i < kDraws; ++i) {
    const auto draw = static_cast<double>(lengths.Draw(random));
    sum += draw;
    squares += draw * draw;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(std::sqrt(squares / kDraws - mean * mean) / mean, 0.5, 0.01);
}

TEST(PublishedLengthsTest, AnUnknownNameListsTheKnownOnes) {
  EXPECT_TRUE(FindPublishedLengths("azure-conv").ok());
  EXPECT_THAT(FindPublishedLengths("azure").status().message(),
              HasSubstr("azure-conv, azure-code, mooncake-conv, sharegpt, alpaca"));
}

}  // namespace
}  // namespace lamina
