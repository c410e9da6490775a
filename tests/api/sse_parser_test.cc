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
  for (const std::string& piece : pieces) EXPECT_TRUE(parser.Feed(piece));
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
  EXPECT_FALSE(parser.Feed("data: a\n\ndata: b\n\ndata: c\n\n"));
  EXPECT_EQ(num_events, 2);
}

}  // namespace
}  // namespace lamina
