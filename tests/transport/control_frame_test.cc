#include "transport/control_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::HasSubstr;

std::string Encode(uint16_t type, const std::string& payload) {
  const auto header = EncodeControlHeader(type, static_cast<uint32_t>(payload.size()));
  return std::string(header.data(), header.size()) + payload;
}

TEST(ControlFrame, HeaderIsWhatTheGrammarSays) {
  EXPECT_EQ(Encode(0x1234, "abc"), std::string("LMNA\x03\x00\x34\x12\x03\x00\x00\x00"
                                               "abc",
                                               15));
}

TEST(ControlFrame, DecodesFramesInAnyPieces) {
  std::string stream;
  for (uint16_t i = 0; i < 50; ++i) stream += Encode(i, std::string(i * 37u, static_cast<char>(i)));
  for (const size_t piece : {size_t{1}, size_t{5}, size_t{12}, size_t{1000}, stream.size()}) {
    ControlFrameDecoder decoder;
    uint16_t next = 0;
    for (size_t at = 0; at < stream.size(); at += piece) {
      decoder.Append(std::string_view(stream).substr(at, piece));
      for (auto frame = decoder.Next(); frame.ok(); frame = decoder.Next()) {
        EXPECT_EQ(frame->type, next);
        EXPECT_EQ(frame->payload, std::string(next * 37u, static_cast<char>(next)));
        ++next;
      }
      EXPECT_EQ(decoder.Next().status().code(), StatusCode::kTryAgain);
    }
    EXPECT_EQ(next, 50);
  }
}

TEST(ControlFrame, MissingBytesNeverReachIntoTheNextFrame) {
  const std::string stream = Encode(20, "first") + Encode(21, "second");
  ControlFrameDecoder decoder;
  size_t at = 0;
  while (decoder.Next().status().code() == StatusCode::kTryAgain) {
    const size_t bytes = decoder.missing_bytes();
    ASSERT_GT(bytes, 0u);
    decoder.Append(std::string_view(stream).substr(at, bytes));
    at += bytes;
    if (at == Encode(20, "first").size()) break;
    ASSERT_LT(at, Encode(20, "first").size());
  }
  EXPECT_EQ(decoder.missing_bytes(), 0u);
  EXPECT_EQ(decoder.Next()->payload, "first");
}

TEST(ControlFrame, WrongMagicIsCorruptForEver) {
  ControlFrameDecoder decoder;
  decoder.Append("GET / HTTP/1.1\r\n");
  const Status status = decoder.Next().status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("0x20544547"));
  EXPECT_THAT(status.message(), HasSubstr("LMNA"));
  decoder.Append(Encode(20, "fine"));
  EXPECT_EQ(decoder.Next().status().message(), status.message());
}

TEST(ControlFrame, WrongVersionSaysWhichOnesThereAre) {
  std::string bytes = Encode(20, "x");
  bytes[4] = 9;
  ControlFrameDecoder decoder;
  decoder.Append(bytes);
  const Status status = decoder.Next().status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("version 9"));
  EXPECT_THAT(status.message(), HasSubstr("version " + std::to_string(kControlVersion)));
}

TEST(ControlFrame, TooLargeIsKnownFromTheHeader) {
  const auto header = EncodeControlHeader(20, kMaxFrameBytes + 1);
  ControlFrameDecoder decoder;
  decoder.Append({header.data(), header.size()});
  const Status status = decoder.Next().status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(kMaxFrameBytes + 1)));
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(kMaxFrameBytes)));

  const auto largest = EncodeControlHeader(20, kMaxFrameBytes);
  ControlFrameDecoder other;
  other.Append({largest.data(), largest.size()});
  EXPECT_EQ(other.Next().status().code(), StatusCode::kTryAgain);
  EXPECT_EQ(other.missing_bytes(), kMaxFrameBytes);
}

}  // namespace
}  // namespace lamina
