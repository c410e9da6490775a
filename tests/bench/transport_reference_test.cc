#include "bench/transport/transport_reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::HasSubstr;

constexpr char kUcx[] =
    "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
    "20000,0.360,22.588,122.628,0.34,1000.00,44271,8155\n";

constexpr char kIbLatency[] =
    "---------------------------------------------------------------------------------------\n"
    " local address: LID 0000 QPN 0x0011 PSN 0x4d1ca OUT 0x00 RKey 0x0001e1\n"
    "---------------------------------------------------------------------------------------\n"
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
    "t_stdev[usec]   99% percentile[usec]\n"
    " 64      1000          1.78           9.51         1.82     \t       1.85        \t0.11   "
    "\t\t2.20    \t\t9.51\n";

constexpr char kIbBandwidth[] =
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    " 65536      5000             97.41              96.80  \t\t   0.184631\n";

TEST(TransportReference, ReadsUcxPerftest) {
  // The median, not the averages.
  EXPECT_DOUBLE_EQ(*ParseUcxPerftest(kUcx, TransportMeasure::kLatency), 0.36);
  EXPECT_DOUBLE_EQ(*ParseUcxPerftest(kUcx, TransportMeasure::kBandwidth), 1000.0 * 1048576 / 1e9);
}

TEST(TransportReference, ReadsIbPerftest) {
  EXPECT_DOUBLE_EQ(*ParseIbPerftest(kIbLatency, TransportMeasure::kLatency, 64), 1.82);
  EXPECT_DOUBLE_EQ(*ParseIbPerftest(kIbBandwidth, TransportMeasure::kBandwidth, 65536), 12.1);
}

TEST(TransportReference, NeverInventsAResult) {
  for (const std::string output :
       {"", "iterations,50.0_percentile_lat\n", "iterations,50.0_percentile_lat\n20,-\n",
        "[ERROR] no device\n"}) {
    EXPECT_EQ(ParseUcxPerftest(output, TransportMeasure::kLatency).status().code(),
              StatusCode::kInternal)
        << output;
  }
  EXPECT_THAT(
      ParseUcxPerftest("[ERROR] no device\n", TransportMeasure::kBandwidth).status().message(),
      HasSubstr("no device"));
  EXPECT_FALSE(ParseIbPerftest(kIbLatency, TransportMeasure::kLatency, 128).ok());   // another size
  EXPECT_FALSE(ParseIbPerftest(kIbLatency, TransportMeasure::kBandwidth, 64).ok());  // another test
  EXPECT_FALSE(ParseIbPerftest(" 64 1000 1 2 3 4\n", TransportMeasure::kLatency, 64).ok());
}

TEST(TransportReference, NamesProgramAndPackage) {
  const ReferenceProgram shm = ReferenceOf(MakeTransportCase("shm", TransportMeasure::kLatency, 8));
  EXPECT_THAT(shm.name, HasSubstr("ucp_put_lat, UCX_TLS=posix"));
  EXPECT_EQ(shm.package, "ucx-utils");
  const ReferenceProgram verbs =
      ReferenceOf(MakeTransportCase("verbs", TransportMeasure::kBandwidth, 8));
  EXPECT_EQ(verbs.program, "ib_write_bw");
  EXPECT_FALSE(HasReference("tcp"));
}

}  // namespace
}  // namespace lamina
