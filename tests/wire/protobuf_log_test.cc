#include "wire/protobuf_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "base/log.h"
#include "wire/control.pb.h"

namespace lamina {
namespace {

// A text that is no UTF-8, in the field for a model's path.
constexpr std::string_view kNoUtf8 = "\x3a\x01\xff";

std::string ToldWhileParsing() {
  testing::internal::CaptureStderr();
  control::ConfigureCompute request;
  EXPECT_FALSE(request.ParseFromArray(kNoUtf8.data(), static_cast<int>(kNoUtf8.size())));
  spdlog::default_logger()->flush();
  return testing::internal::GetCapturedStderr();
}

TEST(ProtobufLog, GoesToTheLogForWhoAsksForDetails) {
  InitLogging("test");
  TakeProtobufLog();
  EXPECT_EQ(ToldWhileParsing(), "");
  spdlog::set_level(spdlog::level::debug);
  EXPECT_THAT(ToldWhileParsing(),
              ::testing::HasSubstr(
                  " test] protobuf: String field 'lamina.control.ConfigureCompute.model'"));
  spdlog::set_level(spdlog::level::info);
}

}  // namespace
}  // namespace lamina
