#include "gguf/gguf_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gguf_writer.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

// The header borrows the text.
Result<GgufHeader> Parse(const std::string& file) {
  return ParseGgufHeader(std::as_bytes(std::span(file.data(), file.size())));
}

void ExpectError(const std::string& file, StatusCode code, const std::string& says) {
  const Status status = Parse(file).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(status.message(), HasSubstr(says));
}

constexpr uint32_t kQ8_0 = 8;
constexpr uint32_t kF32 = 0;

GgufWriter OneTensor(std::vector<int64_t> shape, uint32_t type, size_t num_bytes) {
  GgufWriter writer;
  writer.AddTensor("t", std::move(shape), type, std::string(num_bytes, 'x'));
  return writer;
}

TEST(GgufHeaderTest, ReadsValuesOfEveryType) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer(version);
    writer.AddRaw("u8", 0, "\xfe");
    writer.AddRaw("i8", 1, "\xfe");
    writer.AddRaw("u16", 2, GgufWriter::Bytes(uint16_t{65534}));
    writer.AddRaw("i16", 3, GgufWriter::Bytes(int16_t{-2}));
    writer.AddUint32("u32", 4'000'000'000);
    writer.AddInt32("i32", -2);
    writer.AddFloat("f32", 0.5f);
    writer.AddBool("bool", true);
    writer.AddString("text", "na\xc3\xafve");
    writer.AddUint64("u64", ~uint64_t{0});
    writer.AddRaw("i64", 11, GgufWriter::Bytes(int64_t{-5'000'000'000}));
    writer.AddRaw("f64", 12, GgufWriter::Bytes(0.1));
    writer.AddStrings("texts", {"a", "", "bc"});
    writer.AddFloats("floats", {1, -2.5f});
    writer.AddInts("ints", {});
    const std::string file = writer.File();
    const Result<GgufHeader> header = Parse(file);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->version, version);
    const auto& values = header->values;
    EXPECT_EQ(values.size(), 15u);
    EXPECT_EQ(values.at("u8").Integer(), 254);
    EXPECT_EQ(values.at("i8").Integer(), -2);
    EXPECT_EQ(values.at("u16").Integer(), 65534);
    EXPECT_EQ(values.at("i16").Integer(), -2);
    EXPECT_EQ(values.at("u32").Integer(), 4'000'000'000);
    EXPECT_EQ(values.at("i32").Integer(), -2);
    EXPECT_EQ(values.at("f32").Real(), 0.5);
    EXPECT_EQ(values.at("bool").bytes.size(), 1u);
    EXPECT_THAT(values.at("text").Strings(), ElementsAre("na\xc3\xafve"));
    EXPECT_EQ(values.at("u64").Integer(), INT64_MAX);
    EXPECT_EQ(values.at("i64").Integer(), -5'000'000'000);
    EXPECT_EQ(values.at("f64").Real(), 0.1);
    EXPECT_THAT(values.at("texts").Strings(), ElementsAre("a", "", "bc"));
    EXPECT_EQ(values.at("floats").Real(1), -2.5);
    EXPECT_EQ(values.at("ints").count, 0u);
  }
}

TEST(GgufHeaderTest, TensorsPointIntoTheFile) {
  GgufWriter writer;
  writer.set_alignment(64);
  writer.AddUint32("general.alignment", 64);
  writer.AddTensor("a", {3}, kF32, std::string(12, 'a'));
  writer.AddTensor("b", {2, 5, 64}, kQ8_0, std::string(10 * 68, 'b') + "");
  const std::string file = writer.File();
  const Result<GgufHeader> header = Parse(file);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 2u);
  const GgufTensor& b = header->tensors[1];
  EXPECT_EQ(b.name, "b");
  EXPECT_THAT(b.shape, ElementsAre(2, 5, 64));
  EXPECT_EQ(b.num_rows(), 10);
  EXPECT_EQ(b.row_bytes(), 68u);
  const auto* const start = reinterpret_cast<const std::byte*>(file.data());
  EXPECT_EQ((b.data.data() - start) % 64, 0);
  EXPECT_EQ(header->tensors[0].data.data() + 64, b.data.data());
  EXPECT_EQ(static_cast<char>(b.data.front()), 'b');
  EXPECT_EQ(static_cast<char>(b.data.back()), 'b');
  EXPECT_EQ(b.Rows(3, 2).data(), b.data.data() + 3 * 68);
  EXPECT_EQ(b.Rows(3, 2).size(), 2u * 68);
}

TEST(GgufHeaderTest, WhatIsNoGgufFileIsSaidToBeNone) {
  ExpectError("", StatusCode::kCorrupt, "not a GGUF file");
  ExpectError("PK\x03\x04 a zip file", StatusCode::kCorrupt, "not a GGUF file");
  ExpectError(GgufWriter(1).File(), StatusCode::kUnimplemented, "GGUF version 1");
  ExpectError(GgufWriter(0x03000000).File(), StatusCode::kUnimplemented, "big-endian");
}

// Every beginning of a file is an error that says so, and so is every count that is too large.
TEST(GgufHeaderTest, FilesThatAreCutShort) {
  GgufWriter writer = OneTensor({2, 32}, kQ8_0, 68);
  writer.AddStrings("texts", {"abc", "def"});
  writer.AddFloats("floats", {1, 2});
  const std::string file = writer.File();
  ASSERT_TRUE(Parse(file).ok()) << Parse(file).status();
  const size_t padding = 32 - 68 % 32;
  for (size_t size = 4; size < file.size() - padding; ++size)
    ExpectError(file.substr(0, size), StatusCode::kCorrupt, "cut short");
}

TEST(GgufHeaderTest, CountsThatTheFileHasNoRoomFor) {
  const std::string huge = GgufWriter::Bytes(~uint64_t{0});
  const std::string version = GgufWriter::Bytes(uint32_t{3}), none(8, '\0');
  ExpectError("GGUF" + version + huge + none, StatusCode::kCorrupt, "cut short");
  ExpectError("GGUF" + version + none + huge, StatusCode::kCorrupt, "cut short");
  for (const uint32_t type : {0u, 6u, 8u, 12u}) {
    GgufWriter list;
    list.AddRaw("list", 9, GgufWriter::Bytes(type) + huge);
    ExpectError(list.File(), StatusCode::kCorrupt, "list");
  }
  GgufWriter text;
  text.AddRaw("text", 8, huge + "abc");
  ExpectError(text.File(), StatusCode::kCorrupt, "text");
  GgufWriter key;
  key.AddRaw(std::string(3, 'k'), 13, "");
  ExpectError(key.File(), StatusCode::kUnimplemented, "type 13");
}

TEST(GgufHeaderTest, MistakesAreNamedWithTheirPlace) {
  GgufWriter twice;
  twice.AddUint32("key", 1);
  twice.AddUint32("key", 2);
  ExpectError(twice.File(), StatusCode::kCorrupt, "key key is there twice");
  GgufWriter nested;
  nested.AddRaw("list", 9, GgufWriter::Bytes(uint32_t{9}) + GgufWriter::Bytes(uint64_t{0}));
  ExpectError(nested.File(), StatusCode::kUnimplemented, "array of arrays");
  for (const uint32_t alignment : {0u, 3u, 1u << 31}) {
    GgufWriter aligned;
    aligned.AddUint32("general.alignment", alignment);
    ExpectError(aligned.File(), StatusCode::kCorrupt, "general.alignment");
  }
}

TEST(GgufHeaderTest, TensorsThatCannotBe) {
  ExpectError(OneTensor({}, kF32, 0).File(), StatusCode::kCorrupt, "tensor t: 0 dimensions");
  ExpectError(OneTensor({1, 1, 1, 1, 1}, kF32, 4).File(), StatusCode::kCorrupt, "5 dimensions");
  ExpectError(OneTensor({0}, kF32, 0).File(), StatusCode::kCorrupt, "empty or overflows");
  ExpectError(OneTensor({1LL << 32, 1LL << 32}, kF32, 0).File(), StatusCode::kCorrupt, "overflows");
  ExpectError(OneTensor({1LL << 31, 1LL << 31}, kF32, 0).File(), StatusCode::kCorrupt, "overflows");
  ExpectError(OneTensor({-1}, kF32, 0).File(), StatusCode::kCorrupt, "overflows");
  ExpectError(OneTensor({33}, kQ8_0, 68).File(), StatusCode::kCorrupt,
              "rows of 33 elements, but Q8_0 has blocks of 32");
  ExpectError(OneTensor({4}, 4, 4).File(), StatusCode::kUnimplemented, "tensor type 4");
  ExpectError(OneTensor({100}, kF32, 32).File(), StatusCode::kCorrupt, "tensor t needs 400 bytes");
  GgufWriter twice = OneTensor({1}, kF32, 4);
  twice.AddTensor("t", {1}, kF32, "abcd");
  ExpectError(twice.File(), StatusCode::kCorrupt, "tensor t is there twice");
  // Its second tensor begins behind 64 bytes, and general.alignment says 128.
  GgufWriter unaligned = OneTensor({16}, kF32, 64);
  unaligned.AddTensor("u", {16}, kF32, std::string(64, 'u'));
  unaligned.AddUint32("general.alignment", 128);
  ExpectError(unaligned.File() + std::string(128, ' '), StatusCode::kCorrupt, "no multiple of 128");
}

}  // namespace
}  // namespace lamina
