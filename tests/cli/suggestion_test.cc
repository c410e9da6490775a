#include "cli/suggestion.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TEST(Suggestion, NearAndFarWords) {
  const std::vector<std::string> known = {"serve", "front", "complete", "chat", "cluster"};
  EXPECT_EQ(Suggestion("sevre", known), "serve");  // two letters swapped
  EXPECT_EQ(Suggestion("serv", known), "serve");
  EXPECT_EQ(Suggestion("compleet", known), "complete");
  EXPECT_EQ(Suggestion("comp", known), "complete");  // a beginning
  EXPECT_EQ(Suggestion("c", known), "");             // of three words
  EXPECT_EQ(Suggestion("fly", known), "");
  EXPECT_EQ(Suggestion("", known), "");
  EXPECT_EQ(Suggestion(std::string(100'000, 's'), known), "");
}

}  // namespace
}  // namespace lamina
