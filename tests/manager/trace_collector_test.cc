#include "manager/trace_collector.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace lamina {
namespace trace_collector_test {

using std::chrono::seconds;

constexpr uint64_t kEpoch = 4;
constexpr NodeId kFirst{1}, kSecond{2}, kMemory{3};

// Compute nodes that have records and answer a few at a time, from the thread that asks.
class TraceCollectorTest : public ::testing::Test {
 protected:
  TraceCollectorTest() : file_(*TraceFile::Create(path_)) {}

  struct Node {
    uint64_t clock = ClockId();
    int64_t ahead_ns = 0;
    std::vector<uint64_t> steps;  // of the records it holds
    bool silent = false, gone = false;
    int num_requests = 0;
  };

  void Start() {
    std::vector<TraceCollector::Node> nodes;
    for (const auto& [id, node] : nodes_)
      nodes.push_back({id, "compute node " + std::to_string(id.value), true});
    nodes.push_back({kMemory, "memory node m0", false});
    collector_ = std::make_unique<TraceCollector>(
        *file_, kEpoch, nodes,
        [this](NodeId id, const TraceQuery& query) { return Answer(id, query); });
    collector_->Start();
  }

  Status Answer(NodeId id, const TraceQuery& query) {
    std::lock_guard lock(mutex_);
    Node& node = nodes_.at(id);
    ++node.num_requests;
    EXPECT_EQ(query.epoch, kEpoch);
    if (node.gone) return PeerLost("gone");
    if (node.silent) return OkStatus();
    TraceAnswer answer;
    answer.epoch = kEpoch;
    answer.clock = node.clock;
    answer.asked_ns = query.sent_ns;
    answer.received_ns = NowNs() + node.ahead_ns;
    const size_t count = std::min<size_t>(2, node.steps.size());
    for (size_t i = 0; i < count; ++i) {
      const StepRecord record{.start_ns = NowNs() + node.ahead_ns,
                              .end_ns = NowNs() + node.ahead_ns + 1000,
                              .step = node.steps[i]};
      answer.records += EncodeRecords({&record, 1});
    }
    node.steps.erase(node.steps.begin(), node.steps.begin() + static_cast<std::ptrdiff_t>(count));
    answer.more = !node.steps.empty();
    answer.answered_ns = NowNs() + node.ahead_ns;
    answer.peers.push_back({kMemory, memory_error_ns_});
    collector_->Take(id, answer);
    return OkStatus();
  }

  // Step numbers of node `pid`'s events.
  std::vector<uint64_t> StepsOf(uint32_t pid) {
    std::vector<uint64_t> steps;
    for (const nlohmann::json& event : events_) {
      if (event["ph"] == "X" && event["pid"] == pid) steps.push_back(event["args"]["step"]);
    }
    return steps;
  }

  void Finish(Clock::duration within) {
    collector_->Finish(Deadline::After(within));
    ASSERT_TRUE(file_->Close().ok());
    std::ifstream file(path_);
    events_ = nlohmann::json::parse(file, nullptr, false);
    ASSERT_TRUE(events_.is_array());
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "t.json";
  std::unique_ptr<TraceFile> file_;
  std::mutex mutex_;
  std::map<NodeId, Node> nodes_;
  int64_t memory_error_ns_ = 0;
  nlohmann::json events_;
  std::unique_ptr<TraceCollector> collector_;
};

TEST_F(TraceCollectorTest, FinishFetchesWhateverIsLeft) {
  for (uint64_t step = 1; step <= 9; ++step) nodes_[kFirst].steps.push_back(step);
  Start();
  {
    std::lock_guard lock(mutex_);
    for (uint64_t step = 10; step <= 15; ++step) nodes_[kFirst].steps.push_back(step);
  }
  Finish(seconds(10));
  std::vector<uint64_t> all(15);
  for (size_t i = 0; i < all.size(); ++i) all[i] = i + 1;
  EXPECT_EQ(StepsOf(1), all);
}

TEST_F(TraceCollectorTest, TimesOfAnotherHostComeOnOurClock) {
  nodes_[kFirst].steps = nodes_[kSecond].steps = {1};
  nodes_[kSecond].clock = 77;
  nodes_[kSecond].ahead_ns = 3'600'000'000'000;
  memory_error_ns_ = 12'000;
  Start();
  Finish(seconds(10));
  ASSERT_EQ(StepsOf(1).size(), 1u);
  ASSERT_EQ(StepsOf(2).size(), 1u);
  std::vector<double> starts;
  std::vector<std::string> names;
  for (const nlohmann::json& event : events_) {
    if (event["ph"] == "X") starts.push_back(event["ts"]);
    if (event["name"] == "process_name" && event["pid"] == 3)
      names.push_back(event["args"]["name"]);
  }
  EXPECT_NEAR(starts[0], starts[1], 1e6) << "us; not an hour apart";
  EXPECT_EQ(names, (std::vector<std::string>{"memory node m0",
                                             "memory node m0 (clock estimated, +-12 us)"}));
}

TEST_F(TraceCollectorTest, ANodeThatIsGoneIsNotWaitedFor) {
  nodes_[kFirst].gone = true;
  nodes_[kSecond].steps = {1, 2, 3};
  Start();
  const TimePoint start = Clock::now();
  Finish(seconds(30));
  EXPECT_LT(SecondsSince(start), 10);
  EXPECT_EQ(StepsOf(2).size(), 3u);
  EXPECT_EQ(nodes_[kFirst].num_requests, 1);
}

TEST_F(TraceCollectorTest, ANodeThatIsSilentHoldsUpNothingButTheEnd) {
  nodes_[kFirst].silent = true;
  nodes_[kSecond].steps = {1, 2, 3};
  Start();
  const TimePoint start = Clock::now();
  Finish(milliseconds(200));
  EXPECT_GE(SecondsSince(start), 0.2);
  EXPECT_EQ(StepsOf(2).size(), 3u);
}

TEST_F(TraceCollectorTest, AnswersThatCannotBeAreDropped) {
  nodes_[kFirst].silent = true;
  Start();
  TraceAnswer answer;
  answer.epoch = kEpoch;
  answer.clock = ClockId();
  answer.records = "short";
  collector_->Take(kFirst, answer);
  answer.epoch = kEpoch + 1;
  const StepRecord record{.start_ns = 1, .end_ns = 2, .step = 1};
  answer.records = EncodeRecords({&record, 1});
  collector_->Take(kFirst, answer);
  answer.epoch = kEpoch;
  collector_->Take(kMemory, answer);  // memory nodes are not asked
  Finish(milliseconds(100));
  EXPECT_TRUE(StepsOf(1).empty());
  EXPECT_TRUE(StepsOf(3).empty());
}

}  // namespace trace_collector_test
}  // namespace lamina
