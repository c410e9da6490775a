#include "wire/wire_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace lamina {
namespace {

std::vector<std::byte> Message(MessageKind kind, size_t payload_bytes, bool checksum = true) {
  std::vector<std::byte> area(sizeof(MessageHeader) + payload_bytes + 32, std::byte{0x5a});
  const MessageHeader header =
      Seal({.kind = kind, .epoch = 3, .step = 4, .layer = 5, .first_row = 6, .num_rows = 7},
           std::span(area).subspan(sizeof(MessageHeader), payload_bytes), checksum);
  std::memcpy(area.data(), &header, sizeof(header));
  return area;
}

TEST(WireFormat, RoundTrip) {
  for (const size_t payload_bytes : {size_t{0}, size_t{1}, size_t{4096}}) {
    const std::vector<std::byte> area = Message(MessageKind::kPush, payload_bytes);
    const Result<ReceivedMessage> message = Open(area, MessageKind::kPush, true);
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_EQ(message->header.epoch, 3u);
    EXPECT_EQ(message->header.step, 4u);
    EXPECT_EQ(message->header.layer, 5u);
    EXPECT_EQ(message->header.first_row, 6u);
    EXPECT_EQ(message->header.num_rows, 7u);
    EXPECT_EQ(message->payload.size(), payload_bytes);
  }
}

TEST(WireFormat, EveryFlippedBitOfHeaderAndPayloadIsNoticed) {
  const std::vector<std::byte> good = Message(MessageKind::kDecode, 40);
  // Behind the payload stands the rest of the area, which may be anything.
  for (size_t byte = 0; byte < sizeof(MessageHeader) + 40; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> bad = good;
      bad[byte] ^= std::byte{static_cast<unsigned char>(1u << bit)};
      EXPECT_EQ(Open(bad, MessageKind::kDecode, true).status().code(), StatusCode::kCorrupt)
          << "byte " << byte << " bit " << bit;
    }
  }
}

TEST(WireFormat, PayloadsHaveAChecksumWhereItIsAskedFor) {
  const std::vector<std::byte> without = Message(MessageKind::kPush, 40, false);
  EXPECT_TRUE(Open(without, MessageKind::kPush, false).ok());
  const Status refused = Open(without, MessageKind::kPush, true).status();
  EXPECT_EQ(refused.code(), StatusCode::kCorrupt);
  EXPECT_NE(refused.message().find("has no checksum"), std::string::npos) << refused;
  for (size_t byte = 0; byte < sizeof(MessageHeader); ++byte) {  // the header always has one
    std::vector<std::byte> bad = without;
    bad[byte] ^= std::byte{0x10};
    EXPECT_EQ(Open(bad, MessageKind::kPush, false).status().code(), StatusCode::kCorrupt)
        << "byte " << byte;
  }
  std::vector<std::byte> damaged = Message(MessageKind::kPush, 40);
  damaged[sizeof(MessageHeader) + 7] ^= std::byte{1};
  EXPECT_EQ(Open(damaged, MessageKind::kPush, false).status().code(), StatusCode::kCorrupt)
      << "one that is there is looked at";
}

TEST(WireFormat, WhichFabricsNeedAChecksum) {
  for (const char* fabric : {"tcp", "shm", "ucx", "verbs"}) {
    EXPECT_TRUE(NeedsPayloadChecksum(Switch::kOn, fabric));
    EXPECT_FALSE(NeedsPayloadChecksum(Switch::kOff, fabric));
    EXPECT_EQ(NeedsPayloadChecksum(Switch::kAuto, fabric), std::string_view(fabric) == "tcp");
  }
}

TEST(WireFormat, NotificationRoundTrip) {
  for (const MessageKind kind :
       {MessageKind::kDecode, MessageKind::kPush, MessageKind::kReply, MessageKind::kPushDone,
        MessageKind::kContext, MessageKind::kQueries, MessageKind::kPartialSum, MessageKind::kLink,
        MessageKind::kAlive}) {
    for (const uint32_t number : {1u, 0xffffffu}) {
      const std::optional<Notification> notification =
          Notification::Unpack(Notification{kind, 0, number}.Pack());
      ASSERT_TRUE(notification);
      EXPECT_EQ(notification->kind, kind);
      EXPECT_EQ(notification->number, number);
    }
  }
  EXPECT_EQ(
      Notification::Unpack(Notification{MessageKind::kPushDone, kPushSlots - 1, 5}.Pack())->slot,
      uint32_t{kPushSlots - 1});
  EXPECT_FALSE(Notification::Unpack(0)) << "no kind";
  EXPECT_FALSE(Notification::Unpack(10u << 28)) << "no such kind";
  EXPECT_FALSE(Notification::Unpack(Notification{MessageKind::kPush, kPushSlots, 1}.Pack()))
      << "no such slot";
  EXPECT_EQ(
      Notification::Unpack(Notification{MessageKind::kReply, kMaxBatches - 1, 5}.Pack())->slot,
      uint32_t{kMaxBatches - 1});
  EXPECT_EQ(Notification::Next(0xffffff), 0u) << "24 bits";
}

TEST(WireFormat, RefusesAnotherKindAndAreasTooSmall) {
  const std::vector<std::byte> area = Message(MessageKind::kDecode, 40);
  EXPECT_FALSE(Open(area, MessageKind::kReply, true).ok());
  EXPECT_FALSE(Open(std::span(area).first(63), MessageKind::kDecode, true).ok());
  EXPECT_FALSE(
      Open(std::span(area).first(sizeof(MessageHeader) + 39), MessageKind::kDecode, true).ok());
}

TEST(WireFormat, AreasDoNotOverlap) {
  const WireShape shape{.num_heads = 8,
                        .num_kv_heads = 4,
                        .head_dim = 32,
                        .kv_dtype = DType::kBF16,
                        .max_rows = 5,
                        .num_batches = 3};
  EXPECT_EQ(shape.decode_offset(0), 0u);
  for (int batch = 0; batch < 2; ++batch) {
    EXPECT_EQ(shape.decode_offset(batch) + shape.decode_area_bytes(),
              shape.decode_offset(batch + 1));
    EXPECT_EQ(shape.reply_offset(batch) + shape.reply_area_bytes(), shape.reply_offset(batch + 1));
  }
  EXPECT_GE(shape.decode_area_bytes(), sizeof(MessageHeader) + 5 * (8 * 4 + (4 + 4) * 2) * 32);
  for (int slot = 0; slot + 1 < kPushSlots; ++slot)
    EXPECT_EQ(shape.push_offset(slot) + shape.push_area_bytes(), shape.push_offset(slot + 1));
  EXPECT_EQ(shape.push_offset(0), 3 * shape.decode_area_bytes());
  EXPECT_EQ(shape.memory_window_bytes(),
            shape.push_offset(kPushSlots - 1) + shape.push_area_bytes());
  EXPECT_EQ(shape.compute_window_bytes(), 3 * shape.reply_area_bytes());
  EXPECT_GE(shape.reply_area_bytes(),
            sizeof(MessageHeader) + 5 * 8 * (32 + 1) * 4 + WireShape::kMaxErrorBytes);
}

TEST(WireFormat, BothPartsOfADecodeFitItsArea) {
  const WireShape shape{.num_heads = 8,
                        .num_kv_heads = 4,
                        .head_dim = 32,
                        .kv_dtype = DType::kF32,
                        .max_rows = 31,
                        .num_batches = 2};
  for (const int batch : {0, 1}) {
    EXPECT_EQ(shape.second_part_offset(batch),
              shape.decode_offset(batch) + sizeof(MessageHeader) + 31 * shape.q_row_bytes());
    EXPECT_LE(shape.second_part_offset(batch) + shape.second_part_bytes(),
              shape.decode_offset(batch) + shape.decode_area_bytes());
  }
  EXPECT_EQ(Notification::Unpack(Notification{MessageKind::kQueries, 15, 9}.Pack())->kind,
            MessageKind::kQueries);
}

TEST(WireFormat, FailedRowsComeBackAsTheyWereWritten) {
  FailedRows failed;
  failed.Add(2, Status(StatusCode::kCorrupt, "the first reason"));
  failed.Add(0, Status(StatusCode::kNotFound, "another"));
  std::vector<std::byte> bytes(FailedRows::MaxBytes(3));
  bytes.resize(failed.Write(bytes));
  const Result<FailedRows> read = FailedRows::Read(bytes, 3);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rows, (std::vector<uint32_t>{2, 0}));
  EXPECT_EQ(read->why.code(), StatusCode::kCorrupt);
  EXPECT_EQ(read->why.message(), "the first reason");
  EXPECT_TRUE(read->Has(0) && read->Has(2) && !read->Has(1));
  failed.why = Status(StatusCode::kCorrupt, std::string(5000, 'x'));
  failed.rows = {0, 1, 2};
  std::vector<std::byte> largest(FailedRows::MaxBytes(3));
  EXPECT_EQ(failed.Write(largest), largest.size()) << "a long message is cut";
}

TEST(WireFormat, NoFailedRowsAreWrittenAndReadToo) {
  FailedRows none;
  none.why = Corrupt("broken");
  std::vector<std::byte> bytes(FailedRows::MaxBytes(0));
  bytes.resize(none.Write(bytes));
  const Result<FailedRows> read = FailedRows::Read(bytes, 3);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->rows.empty());
  EXPECT_EQ(read->why.ToString(), none.why.ToString());
}

TEST(WireFormat, FailedRowsThatCannotBeAreAnError) {
  const auto read = [](const std::vector<uint32_t>& words, size_t num_rows) {
    return FailedRows::Read(std::as_bytes(std::span(words)), num_rows).status().code();
  };
  EXPECT_EQ(read({5, 1, 0}, 1), StatusCode::kOk);
  EXPECT_EQ(read({5, 1, 1}, 1), StatusCode::kCorrupt) << "no such row";
  EXPECT_EQ(read({5, 2, 0}, 2), StatusCode::kCorrupt) << "one is missing";
  EXPECT_EQ(read({5, 2, 0, 0}, 1), StatusCode::kCorrupt) << "more than there are";
  EXPECT_EQ(read({5, 0xffffffff, 0}, 0xffffffff), StatusCode::kCorrupt);
  EXPECT_EQ(read({0, 1, 0}, 1), StatusCode::kCorrupt) << "failed, but well";
  const auto last = static_cast<uint32_t>(StatusCode::kInternal);
  EXPECT_EQ(read({last, 1, 0}, 1), StatusCode::kOk);
  EXPECT_EQ(read({last + 1, 1, 0}, 1), StatusCode::kCorrupt) << "no code";
  EXPECT_EQ(read({0xffffffff, 1, 0}, 1), StatusCode::kCorrupt);
  EXPECT_EQ(read({5}, 1), StatusCode::kCorrupt);
  EXPECT_EQ(read({}, 1), StatusCode::kCorrupt);
}

TEST(WireFormat, RowsHaveTheSizesOfTheirDtypes) {
  WireShape shape{
      .num_heads = 8, .num_kv_heads = 4, .head_dim = 32, .kv_dtype = DType::kBF16, .max_rows = 5};
  EXPECT_EQ(shape.q_row_bytes(), 8u * 32 * 4) << "fp32 if nothing is said";
  EXPECT_EQ(shape.kv_row_bytes(), 4u * 32 * 2) << "as it is stored";
  EXPECT_EQ(shape.decode_row_bytes(), 8u * 32 * 4 + 2 * 4 * 32 * 2);
  const uint64_t reply = shape.reply_area_bytes();
  shape.wire_dtype = DType::kF16;
  shape.kv_dtype = DType::kF32;
  EXPECT_EQ(shape.q_row_bytes(), 8u * 32 * 2);
  EXPECT_EQ(shape.kv_row_bytes(), 4u * 32 * 4);
  EXPECT_EQ(shape.lse_row_bytes(), 8u * 4) << "always fp32";
  EXPECT_LT(shape.reply_area_bytes(), reply);
  shape.kv_dtype = DType::kF8;
  EXPECT_EQ(shape.kv_row_bytes(), 4u * 32);
  EXPECT_EQ(shape.decode_row_bytes(), 8u * 32 * 2 + 2 * 4 * 32);
  const uint64_t without_scales = shape.push_area_bytes();
  for (const DType dtype : {DType::kI8Scaled, DType::kF8Scaled}) {
    shape.kv_dtype = dtype;
    EXPECT_EQ(shape.kv_row_bytes(), 4u * (32 + 4)) << "scales travel too";
    EXPECT_EQ(shape.decode_row_bytes(), 8u * 32 * 2 + 2 * 4 * (32 + 4));
    EXPECT_GT(shape.push_area_bytes(), without_scales);
  }
}

// Headers, q, outputs and log-sum-exps are read where they stand.
TEST(WireFormat, WhatIsReadInPlaceIsAlignedHoweverNarrowKeysAndValuesAre) {
  for (const DType wire_dtype : {DType::kF32, DType::kF16}) {
    const WireShape shape{.num_heads = 3,
                          .num_kv_heads = 1,
                          .head_dim = 8,
                          .kv_dtype = DType::kF8,
                          .max_rows = 7,
                          .num_batches = 3,
                          .wire_dtype = wire_dtype,
                          .overlap = true};
    for (int batch = 0; batch < 3; ++batch) {
      EXPECT_EQ(shape.decode_offset(batch) % alignof(MessageHeader), 0u);
      EXPECT_EQ(shape.second_part_offset(batch) % alignof(MessageHeader), 0u);
    }
    for (int slot = 0; slot < kPushSlots; ++slot)
      EXPECT_EQ(shape.push_offset(slot) % alignof(MessageHeader), 0u);
    EXPECT_EQ(shape.q_row_bytes() % sizeof(float), 0u) << "log-sum-exps stand behind outputs";
    EXPECT_EQ(shape.kv_row_bytes() % 8, 0u);
  }
}

TEST(WireFormat, HelloRoundTrip) {
  const std::optional<DataHello> hello =
      DataHello::Decode(DataHello{77, 5, "sixteen bytes ok"}.Encode());
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->epoch, 77u);
  EXPECT_EQ(hello->node_id, 5u);
  EXPECT_EQ(hello->session_token, "sixteen bytes ok");
  EXPECT_EQ(DataHello::Decode(DataHello{77, 5, ""}.Encode())->session_token, "");
  EXPECT_FALSE(DataHello::Decode("short"));
  EXPECT_FALSE(DataHello::Decode(DataHello{77, 5, "seventeen bytes .."}.Encode()));
}

}  // namespace
}  // namespace lamina
