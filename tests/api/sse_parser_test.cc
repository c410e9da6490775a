#include "api/sse_parser.h"

#include <gtest/gtest.h>

#include <vector>

namespace lamina {
namespace {

std::vector<std::string> Parse(const std::vector<std::string>& pieces) {
  std::vector<std::string> events;
  SseParser parser([&](std::string_view data) {
    events.emplace_back(data);
    return true;
  });
  for (const std::string& piece : pieces) {
    const Result<bool> more = parser.Feed(piece);
    EXPECT_TRUE(more.ok() && *more) << more.status();
  }
  return events;
}

using Events = std::vector<std::string>;

TEST(SseParser, DataOfEachEvent) {
  EXPECT_EQ(Parse({"data: {\"a\":1}\n\ndata: [DONE]\n\n"}), (Events{"{\"a\":1}", "[DONE]"}));
}

TEST(SseParser, EveryLineEnd) {
  EXPECT_EQ(Parse({"data: a\r\n\r\ndata: b\r\rdata: c\n\n"}), (Events{"a", "b", "c"}));
}

TEST(SseParser, CutsAnywhere) {
  const std::string text = "data: one\r\n\r\n: comment\nevent: x\ndata: two\ndata:three\n\n";
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      EXPECT_EQ(Parse({text.substr(0, i), text.substr(i, j - i), text.substr(j)}),
                (Events{"one", "two\nthree"}))
          << i << " " << j;
    }
  }
}

TEST(SseParser, WhatIsNotDataIsSkipped) {
  EXPECT_EQ(Parse({": ping\n\nid: 3\nretry: 5\n\ndatabase: x\n\ndata\n\ndata:  two spaces\n\n"}),
            (Events{"", " two spaces"}));
}

TEST(SseParser, AnUnfinishedEventIsNotDelivered) {
  EXPECT_EQ(Parse({"data: a\n\ndata: b\n"}), (Events{"a"}));
}

TEST(SseParser, StopsWhenToldSo) {
  int num_events = 0;
  SseParser parser([&](std::string_view) { return ++num_events < 2; });
  const Result<bool> more = parser.Feed("data: a\n\ndata: b\n\ndata: c\n\n");
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_FALSE(*more);
  EXPECT_EQ(num_events, 2);
}

TEST(SseParser, EventsAndLinesMayHaveSoManyBytes) {
  for (const auto& [text, fits] : std::vector<std::pair<std::string, bool>>{
           {"data: 23456789\n\n", true},
           {"data:  234567890\n\n", false},  // a line of 16
           {"data: a234567890", false},      // ... that has no end yet
           {": 3456789012345\n", true},      // of a comment
           {"data: 234\ndata: 6789012\n\n", true},
           {"data: 234\ndata: 678901234567\n", false}}) {
    SseParser parser([](std::string_view) { return true; }, /*max_event_bytes=*/15);
    const Result<bool> more = parser.Feed(text);
    EXPECT_EQ(more.status().code(), fits ? StatusCode::kOk : StatusCode::kOutOfSpace) << text;
  }
  SseParser endless([](std::string_view) { return true; }, /*max_event_bytes=*/15);
  Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) status = endless.Feed("data\n").status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace) << "line ends count";
}

}  // namespace
}  // namespace lamina
