#include "cli/number_checks.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace lamina {
namespace {

// What an option for whole numbers makes of the text; nullopt: it is refused.
std::optional<int> Read(const std::string& text) {
  CLI::App app;
  int value = 0;
  app.add_option("--tokens", value)->transform(SizeAsNumber())->check(CLI::PositiveNumber);
  try {
    app.parse("--tokens=" + text);
  } catch (const CLI::ParseError&) {
    return std::nullopt;
  }
  return value;
}

TEST(NumberChecks, SizesAreNumbers) {
  EXPECT_EQ(Read("512"), 512);
  EXPECT_EQ(Read("32k"), 32'000);
  EXPECT_EQ(Read("1.5k"), 1'500);
  EXPECT_EQ(Read("2KiB"), 2'048);
  for (const char* wrong : {"1.5", "nan", "inf", "k", "-1k", "0k", "3x", "9T"})
    EXPECT_EQ(Read(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace lamina
