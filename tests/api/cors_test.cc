#include "api/cors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Cors, Origins) {
  EXPECT_THAT(*ParseOrigins("*"), ElementsAre("*"));
  EXPECT_THAT(*ParseOrigins("https://a.example, http://localhost:3000/"),
              ElementsAre("https://a.example", "http://localhost:3000"));
  EXPECT_THAT(*ParseOrigins(R"(["*", "null"])"), ElementsAre("*", "null"));
  EXPECT_THAT(*ParseOrigins(""), IsEmpty());
  for (const char* wrong :
       {"localhost", "https://", "https://a.example/x", "a,,b", "[1]", "[", "https://a b"})
    EXPECT_FALSE(ParseOrigins(wrong).ok()) << wrong;
}

TEST(Cors, AllowedOrigins) {
  EXPECT_EQ(AllowedOrigin({"https://a"}, "https://a"), "https://a");
  EXPECT_EQ(AllowedOrigin({"https://a"}, "https://a:1"), "");
  EXPECT_EQ(AllowedOrigin({"*"}, "https://a"), "*");
  EXPECT_EQ(AllowedOrigin({"*"}, ""), "");
  EXPECT_EQ(AllowedOrigin({}, "https://a"), "");
}

}  // namespace
}  // namespace lamina
