#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lamina {
namespace {

TEST(Log, AnEventIsOneLineWhoseControlCharactersAreSpelledOut) {
  testing::internal::CaptureStderr();
  InitLogging("test");
  LAMINA_LOG_ERROR(
      "{} connected",
      "m\xc3\xa4nager\n2026-01-01 error test] forged\r\x1b[2J\x7f\xc2\x9b\xe2\x80\xa8");
  spdlog::default_logger()->flush();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::EndsWith(" test] m\xc3\xa4nager\\n2026-01-01 error test] "
                                        "forged\\x0d\\x1b[2J\\x7f\\x9b\\u2028 connected\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

}  // namespace
}  // namespace lamina
