#include "bench/recovery/stream_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace lamina::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TokenEvent Token(TokenId token, std::optional<FinishReason> finish = std::nullopt) {
  TokenEvent event;
  event.token = token;
  event.finish = finish;
  return event;
}

TokenEvent Finish(FinishReason reason, Status error = OkStatus()) {
  TokenEvent event;
  event.finish = reason;
  event.error = std::move(error);
  return event;
}

TEST(StreamLog, HasWhatCameOfEachRequest) {
  StreamLog log(2);
  const TimePoint now = Clock::now();
  for (const size_t stream : {0, 1}) log.Begin(stream, now);
  EXPECT_EQ(log.last_token(), TimePoint{});
  log.Take(0, Token(7));
  log.Take(0, Token(8, FinishReason::kLength));
  log.Take(1, Finish(FinishReason::kError, PeerLost("m0 is gone")));
  EXPECT_GE(log.last_token(), now);
  EXPECT_THAT(log.AwaitEnded(now), ElementsAre(0u, 1u));
  EXPECT_THAT(log.AwaitEnded(now), IsEmpty()) << "each once";
  log.Begin(0, now);
  log.Refuse(0, "too much", now);
  log.Finish(1, now);
  const std::vector<StreamRecord> streams = log.TakeStreams();
  ASSERT_EQ(streams.size(), 2u);
  ASSERT_EQ(streams[0].requests.size(), 2u);
  EXPECT_THAT(streams[0].requests[0].tokens, ElementsAre(7, 8));
  EXPECT_EQ(streams[0].requests[0].times.size(), 2u);
  EXPECT_TRUE(streams[0].requests[0].ended.has_value());
  EXPECT_EQ(streams[0].requests[0].error, "");
  EXPECT_EQ(streams[0].requests[1].error, "too much");
  EXPECT_FALSE(streams[0].done.has_value());
  EXPECT_THAT(streams[1].requests[0].error, ::testing::HasSubstr("m0 is gone"));
  EXPECT_EQ(streams[1].done, now);
}

TEST(StreamLog, ARequestThatTheRunCutsOffHasNotEnded) {
  StreamLog log(1);
  log.Begin(0, Clock::now());
  log.Take(0, Token(7));
  log.Take(0, Finish(FinishReason::kAbort));
  EXPECT_THAT(log.AwaitEnded(Clock::now()), IsEmpty());
  const std::vector<StreamRecord> streams = log.TakeStreams();
  EXPECT_FALSE(streams[0].requests[0].ended.has_value());
  EXPECT_EQ(streams[0].requests[0].error, "");
}

TEST(StreamLog, AWaitEndsWhenARequestDoes) {
  StreamLog log(1);
  log.Begin(0, Clock::now());
  std::jthread engine([&log] { log.Take(0, Token(7, FinishReason::kLength)); });
  EXPECT_THAT(log.AwaitEnded(Clock::now() + std::chrono::seconds(30)), ElementsAre(0u));
}

}  // namespace
}  // namespace lamina::testing
