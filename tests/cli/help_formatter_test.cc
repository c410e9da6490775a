#include "cli/help_formatter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(HelpFormatter, SaysInWordsWhatAnOptionTakes) {
  EXPECT_EQ(PlainOptionText(" INT:INT in [0 - 1024]=0"), " INT 0 to 1024 (default: 0)");
  EXPECT_EQ(PlainOptionText(" FLOAT:FLOAT in [0.1 - 10]"), " FLOAT 0.1 to 10");
  EXPECT_EQ(PlainOptionText(" INT:NONNEGATIVE=0"), " INT 0 or more (default: 0)");
  EXPECT_EQ(PlainOptionText(" UINT:POSITIVE=10 (Env:LAMINA_N)"),
            " UINT above 0 (default: 10) (Env:LAMINA_N)");
  EXPECT_EQ(PlainOptionText(" TEXT:{auto,on,off}=auto"), " auto|on|off (default: auto)");
  EXPECT_EQ(PlainOptionText(" TEXT=http://127.0.0.1:8000"),
            " TEXT (default: http://127.0.0.1:8000)");
  EXPECT_EQ(PlainOptionText(" TEXT ..."), " TEXT ...");
  EXPECT_EQ(PlainOptionText(""), "");
}

TEST(HelpFormatter, CommandsHaveItFromTheProgram) {
  CLI::App app("A program", "program");
  app.formatter(HelpFormatter());
  int number = 3;
  app.add_subcommand("work", "Does it")
      ->add_option("--number", number, "How often")
      ->check(CLI::Range(1, 9))
      ->capture_default_str();
  EXPECT_THAT(app.get_subcommand("work")->help(),
              AllOf(HasSubstr("INT 1 to 9 (default: 3)"), Not(HasSubstr("in ["))));
}

}  // namespace
}  // namespace lamina
