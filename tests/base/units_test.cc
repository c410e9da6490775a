#include "base/units.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lamina {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(Units, ReadsSizes) {
  EXPECT_EQ(ParseSize("0").value(), 0);
  EXPECT_EQ(ParseSize("1000").value(), 1000);
  EXPECT_EQ(ParseSize("32k").value(), 32'000);
  EXPECT_EQ(ParseSize("2M").value(), 2'000'000);
  EXPECT_EQ(ParseSize("3GB").value(), 3'000'000'000);
  EXPECT_EQ(ParseSize("16KiB").value(), 16'384);
  EXPECT_EQ(ParseSize("512MiB").value(), 536'870'912);
  EXPECT_EQ(ParseSize("4 GiB").value(), int64_t{4} << 30);
  EXPECT_EQ(ParseSize("1.5GiB").value(), int64_t{3} << 29);
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", "MiB", "-1", "+1", "4 gib", "4Gib", "1e9", "0x10", "1..5GiB",
                           "1.2.3k", "4GiBx", " 4GiB", "99999999TiB", "nan", "."}) {
    EXPECT_EQ(ParseSize(text).status().code(), StatusCode::kInvalidArgument) << "'" << text << "'";
  }
  EXPECT_EQ(ParseSize("4 gib").status().message(),
            "'4 gib' is not a size: expected a number such as 512MiB, 4GiB, 32k or 1000");
}

TEST(Units, ReadsDurations) {
  EXPECT_EQ(ParseDuration("10s").value(), seconds(10));
  EXPECT_EQ(ParseDuration("500ms").value(), milliseconds(500));
  EXPECT_EQ(ParseDuration("250us").value(), microseconds(250));
  EXPECT_EQ(ParseDuration("1.5s").value(), milliseconds(1500));
  EXPECT_EQ(ParseDuration("2m").value(), minutes(2));
  EXPECT_EQ(ParseDuration("1h").value(), hours(1));
}

TEST(Units, RefusesWhatIsNoDuration) {
  for (const char* text : {"", "10", "s", "-1s", "10 seconds", "10S", "1e3s", "9000h"}) {
    EXPECT_EQ(ParseDuration(text).status().code(), StatusCode::kInvalidArgument)
        << "'" << text << "'";
  }
}

TEST(Units, FormatGigabytesRoundsToTenths) {
  EXPECT_EQ(FormatGigabytes(40'000'000'000), "40.0 GB");
  EXPECT_EQ(FormatGigabytes(26'031'882'240), "26.0 GB");
  EXPECT_EQ(FormatGigabytes(960'000'000), "1.0 GB");
  EXPECT_EQ(FormatGigabytes(1), "0.0 GB");
}

TEST(Units, WhatFormatSizeWritesParseSizeReads) {
  EXPECT_EQ(FormatSize(int64_t{256} << 20), "256MiB");
  EXPECT_EQ(FormatSize(1000), "1000");
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1024},
                              (int64_t{3} << 29), (int64_t{7} << 40), (int64_t{1} << 52) + 1}) {
    EXPECT_EQ(ParseSize(FormatSize(bytes)).value(), bytes) << FormatSize(bytes);
  }
}

TEST(Units, FormatsDurationsForPeople) {
  EXPECT_EQ(FormatDuration(milliseconds(250)), "250ms");
  EXPECT_EQ(FormatDuration(milliseconds(1500)), "1.5s");
  EXPECT_EQ(FormatDuration(seconds(10)), "10s");
  EXPECT_EQ(FormatDuration(seconds(120)), "2m");
  EXPECT_EQ(FormatDuration(seconds(125)), "2m 5s");
}

}  // namespace
}  // namespace lamina
