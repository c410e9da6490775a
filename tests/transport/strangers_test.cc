#include "transport/strangers.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TimePoint At(int ms) { return TimePoint() + milliseconds(ms); }

TEST(OriginOf, IsTheHostOrTheNetwork) {
  EXPECT_EQ(OriginOf("10.0.0.1:7000"), "10.0.0.1");
  EXPECT_EQ(OriginOf("[::ffff:10.0.0.1]:7000"), "10.0.0.1") << "as sockets for both kinds give it";
  EXPECT_EQ(OriginOf("[2001:db8:1:2:3:4:5:6]:7000"), OriginOf("[2001:db8:1:2::1]:1"));
  EXPECT_NE(OriginOf("[2001:db8:1:2::1]:7000"), OriginOf("[2001:db8:1:3::1]:7000"));
  EXPECT_EQ(OriginOf("a pipe"), "a pipe");
}

TEST(WhoMakesRoom, TheEldestOfTheLargestOrigin) {
  EXPECT_EQ(WhoMakesRoom({}), std::nullopt);
  const std::vector<Stranger> strangers = {{"a", At(1)}, {"b", At(2)}, {"b", At(3)}, {"c", At(4)}};
  EXPECT_EQ(WhoMakesRoom(strangers), 1u);
}

TEST(WhoMakesRoom, OfEqualOriginsTheOneThatCameFirst) {
  const std::vector<Stranger> strangers = {{"b", At(1)}, {"a", At(2)}, {"a", At(3)}, {"b", At(4)}};
  EXPECT_EQ(WhoMakesRoom(strangers), 0u);
}

struct Entry {
  std::string origin;
  TimePoint since;
  bool known = false;
};

TEST(FindRoom, SparesWhoHasJustComeAndWhoIsKnown) {
  std::list<Entry> entries = {{"a", Clock::now(), false}};
  EXPECT_EQ(FindRoom(entries), entries.end());
  entries.front().since -= kLeastPatience;
  EXPECT_EQ(FindRoom(entries), entries.begin());
  entries.front().known = true;
  EXPECT_EQ(FindRoom(entries, [](const Entry& entry) { return !entry.known; }), entries.end());
}

}  // namespace
}  // namespace lamina
