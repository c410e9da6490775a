#include "base/net_address.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TEST(NetAddress, OnlyIpv6GetsBrackets) {
  EXPECT_EQ(JoinHostPort("10.0.0.1", 7), "10.0.0.1:7");
  EXPECT_EQ(JoinHostPort("node-3", 7), "node-3:7");
  EXPECT_EQ(JoinHostPort("", 7), ":7");
  EXPECT_EQ(JoinHostPort("::1", 7), "[::1]:7");
  EXPECT_EQ(JoinHostPort("[::1]", 7), "[::1]:7");
}

TEST(NetAddress, AnAddressHasOneText) {
  for (const char* text : {"::1", "[::1]", "0:0:0:0:0:0:0:1", "[0000::0001]"})
    EXPECT_EQ(CanonicalHost(text), "::1") << text;
  EXPECT_EQ(CanonicalHost("FD00::00AB"), "fd00::ab");
  for (const char* text : {"10.0.0.1", "node-3", "", "[node]", "me@fd00::1", "::g"})
    EXPECT_EQ(CanonicalHost(text), text);
}

}  // namespace
}  // namespace lamina
