#include "manager/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock_offset.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace trace_file_test {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr NodeId kCompute{1}, kMemory{2};

json Read(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, /*allow_exceptions=*/false);
}

StepRecord Record(StepWork work, int64_t start_ns, int64_t end_ns, uint32_t node = 0) {
  return {.start_ns = start_ns,
          .end_ns = end_ns,
          .step = 9,
          .node = node,
          .rows = 3,
          .layer = 12,
          .work = work,
          .batch = 1};
}

json Find(const json& events, const std::string& key, const std::string& value) {
  for (const json& event : events) {
    if (event.value(key, "") == value) return event;
  }
  return {};
}

TEST(TraceFile, ARecordIsAnEventOnItsNodesTrack) {
  const TemporaryFolder folder;
  const auto file = TraceFile::Create(folder / "t.json");
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->Name(kMemory, "memory node \"m0\"\n");
  const int64_t now = NowNs();
  (*file)->Add(kCompute, std::vector{Record(StepWork::kSlice, now, now + 1500),
                                     Record(StepWork::kAttention, now + 2000, now + 3000, 2)});
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_EQ((*file)->num_events(), 2);
  const json events = Read(folder / "t.json");
  ASSERT_TRUE(events.is_array());
  EXPECT_EQ(Find(events, "name", "process_name")["args"]["name"], "memory node \"m0\"\n");
  const json slice = Find(events, "cat", "slice"), attention = Find(events, "cat", "attention");
  EXPECT_EQ(slice["name"], "slice 12");
  EXPECT_EQ(slice["ph"], "X");
  EXPECT_EQ(slice["pid"], 1);
  EXPECT_EQ(slice["dur"], 1.5);
  EXPECT_EQ(slice["args"], (json{{"step", 9}, {"batch", 1}, {"layer", 12}, {"rows", 3}}));
  EXPECT_EQ(attention["pid"], 2);
  EXPECT_NEAR(attention["ts"].get<double>() - slice["ts"].get<double>(), 2.0, 0.0011);
  for (const json& event : {slice, attention}) {  // their tracks have names
    const bool named = std::ranges::any_of(events, [&](const json& other) {
      return other["name"] == "thread_name" && other["pid"] == event["pid"] &&
             other["tid"] == event["tid"];
    });
    EXPECT_TRUE(named) << event;
  }
}

TEST(TraceFile, ArrowsFollowAMessageThereAndBack) {
  const TemporaryFolder folder;
  const auto file = TraceFile::Create(folder / "t.json");
  ASSERT_TRUE(file.ok());
  const int64_t now = NowNs();
  for (int i = 0; i < 2; ++i) {
    const int64_t at = now + 1000 * i;
    (*file)->Add(kCompute, std::vector{Record(StepWork::kQWire, at, at + 10, 2),
                                       Record(StepWork::kQueue, at + 10, at + 20, 2),
                                       Record(StepWork::kAttention, at + 20, at + 30, 2),
                                       Record(StepWork::kOutputWire, at + 30, at + 40, 2)});
  }
  ASSERT_TRUE((*file)->Close().ok());
  std::map<int, std::vector<json>> arrows;
  for (const json& event : Read(folder / "t.json")) {
    if (event["ph"] == "s" || event["ph"] == "f") arrows[event["id"]].push_back(event);
  }
  ASSERT_EQ(arrows.size(), 4u);
  for (const auto& [id, ends] : arrows) {
    ASSERT_EQ(ends.size(), 2u);
    EXPECT_EQ(ends[0]["ph"], "s");
    EXPECT_EQ(ends[1]["ph"], "f");
    EXPECT_EQ(ends[0]["name"], ends[1]["name"]);
    EXPECT_LT(ends[0]["ts"], ends[1]["ts"]);
    EXPECT_EQ(ends[0]["pid"], ends[0]["name"] == "q" ? 1 : 2);
    EXPECT_EQ(ends[1]["pid"], ends[0]["name"] == "q" ? 2 : 1);
  }
}

TEST(TraceFile, APathThatCannotBeWrittenIsAnError) {
  const TemporaryFolder folder;
  const auto file = TraceFile::Create(folder / "absent/t.json");
  ASSERT_EQ(file.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(file.status().message(),
              HasSubstr("/absent/t.json cannot be written: No such file or directory"));
}

TEST(TraceFile, BytesThatGetLostAreAnError) {
  const auto file = TraceFile::Create("/dev/full");
  ASSERT_TRUE(file.ok());
  (*file)->Add(kCompute, std::vector(1000, Record(StepWork::kSlice, 1, 2)));
  EXPECT_THAT((*file)->Close().message(),
              HasSubstr("/dev/full is incomplete: No space left on device"));
}

TEST(TraceFile, AFullFileStaysReadable) {
  const TemporaryFolder folder;
  const auto file = TraceFile::Create(folder / "t.json", 2000);
  ASSERT_TRUE(file.ok());
  const std::vector<StepRecord> records(100, Record(StepWork::kSlice, 1, 2));
  (*file)->Add(kCompute, records);
  EXPECT_TRUE((*file)->full());
  const int64_t written = (*file)->num_events();
  EXPECT_LT(written, 20);
  (*file)->Add(kCompute, records);
  EXPECT_EQ((*file)->num_events(), written);
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_TRUE(Read(folder / "t.json").is_array());
}

TEST(TraceFile, WithoutRecordsItIsAnEmptyTrace) {
  const TemporaryFolder folder;
  ASSERT_TRUE((*TraceFile::Create(folder / "t.json"))->Close().ok());
  EXPECT_EQ(Read(folder / "t.json"), json::array());
}

}  // namespace trace_file_test
}  // namespace lamina
