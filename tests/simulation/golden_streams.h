// A cluster in virtual time that continues golden prompts, for tests that do something to its nodes
// meanwhile.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/expect_golden.h"
#include "tests/support/virtual_cluster.h"

namespace lamina::testing {

inline Deployment Plain() {
  Deployment deployment;
  deployment.kv_dtype = DType::kF32;
  return deployment;
}

class GoldenStreams : public ::testing::Test {
 protected:
  // A turn of the compute node c0 takes so long.
  void Connect(const Deployment& deployment, Clock::duration turn = {}) {
    Result<VirtualClusterOptions> options = VirtualCluster::OptionsOf(deployment);
    ASSERT_TRUE(options.ok()) << options.status();
    if (turn != Clock::duration::zero())
      options->turn_takes = [turn](const std::string& who) {
        return who == "c0" ? turn : Clock::duration::zero();
      };
    Result<std::unique_ptr<VirtualCluster>> made = VirtualCluster::Create(*options);
    ASSERT_TRUE(made.ok()) << made.status();
    cluster_ = *std::move(made);
    ASSERT_TRUE(cluster_->RunUntil([&] { return cluster_->serves() || !cluster_->failure().ok(); },
                                   std::chrono::seconds(10)));
    ASSERT_TRUE(cluster_->serves()) << cluster_->failure();
    golden_.resize(std::min<size_t>(golden_.size(), 8));
    streams_.resize(golden_.size());
    for (size_t i = 0; i < golden_.size(); ++i) {
      const auto sink = [&stream = streams_[i], this](const TokenEvent& event) {
        if (event.token && !stream.tokens.empty())
          stream.longest_gap = std::max(stream.longest_gap, cluster_->now() - stream.last_token);
        stream.last_token = cluster_->now();
        if (event.token) stream.tokens.push_back(*event.token);
        stream.over |= event.finish.has_value();
        EXPECT_TRUE(event.error.ok()) << event.error;
      };
      ASSERT_TRUE(cluster_->Submit(GreedyRequest(golden_[i].prompt_ids, 96), sink).ok());
    }
  }
  // Runs until every stream has so many tokens or is over.
  void RunUntilAllHave(size_t num_tokens) {
    const auto has_them = [&](const Stream& one) {
      return one.over || one.tokens.size() >= num_tokens;
    };
    ASSERT_TRUE(cluster_->RunUntil([&] { return std::ranges::all_of(streams_, has_them); },
                                   std::chrono::seconds(600)));
  }
  void RunFor(Clock::duration time) {
    const TimePoint end = cluster_->now() + time;
    ASSERT_TRUE(cluster_->RunUntil([&] { return cluster_->now() >= end; }, 2 * time));
  }
  void ExpectGolden() {
    ASSERT_TRUE(cluster_->RunUntil([&] { return std::ranges::all_of(streams_, &Stream::over); },
                                   std::chrono::seconds(600)));
    for (size_t i = 0; i < golden_.size(); ++i)
      EXPECT_EQ(streams_[i].tokens, golden_[i].continuation_ids) << golden_[i].prompt;
    EXPECT_EQ(cluster_->status().scheduler.num_running, 0);
  }
  NodeState StateOf(const std::string& name) const {
    std::vector<NodeStatus> nodes = cluster_->status().nodes;
    for (NodeStatus& standby : cluster_->status().standbys) nodes.push_back(standby);
    return std::ranges::find(nodes, name, &NodeStatus::name)->state;
  }
  int64_t num_started_tokens() const { return cluster_->status().scheduler.num_started_tokens; }
  // Of the streams that nobody has to wait for.
  Clock::duration LongestShortGap() const {
    Clock::duration longest{};
    for (const Stream& stream : streams_) {
      if (stream.longest_gap < std::chrono::seconds(2))
        longest = std::max(longest, stream.longest_gap);
    }
    return longest;
  }

  struct Stream {
    std::vector<TokenId> tokens;
    TimePoint last_token{};
    Clock::duration longest_gap{};
    bool over = false;
  };
  std::vector<GoldenPrompt> golden_ = GoldenPrompts();
  std::vector<Stream> streams_;
  std::unique_ptr<VirtualCluster> cluster_;
};

}  // namespace lamina::testing
