// A run of a scenario's requests in which something happens to nodes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/beam_streams.h"
#include "tests/e2e/recovery_scenarios.h"
#include "tests/support/serving.h"

namespace lamina::testing {

using std::chrono::seconds;

// Requests of a scenario, and what they get when nothing happens. A fatal failure ends the test.
class RecoveryRun : public ::testing::Test {
 protected:
  // Serves, and lets the requests run once undisturbed. `create`: Serving::Create or
  // CreateWithManager.
  using Create = Result<std::unique_ptr<Serving>> (*)(const Deployment& deployment);
  void Serve(Scenario scenario, Create create = Serving::Create);
  // Submits them anew, and returns at the scenario's moment. Before a last chunk it stops the
  // process of `victim`, so that no chunk that it has a part in comes to an end. `memory_node` is
  // one that has a prompt then.
  void BringToTheMoment(const std::string& victim, const std::string& memory_node);
  // Each request has ended as if nothing had happened, and nothing is left of them anywhere.
  void ExpectWhole();

  Engine& engine() { return *serving_->engine; }
  LocalCluster& cluster() { return *serving_->cluster; }
  // REQUIRES: it is a process of its own.
  ManagerProcess& manager() { return *serving_->manager; }
  const Scenario& scenario() const { return scenario_; }

  NodeStatus Node(const std::string& name) {
    const EngineStatus status = engine().status();
    for (const std::vector<NodeStatus>* nodes : {&status.nodes, &status.standbys}) {
      for (const NodeStatus& node : *nodes) {
        if (node.name == name) return node;
      }
    }
    return {};
  }
  bool AwaitState(const std::string& name, NodeState state,
                  Deadline deadline = Deadline::After(seconds(30))) {
    return AwaitTrue([&] { return Node(name).state == state; }, deadline);
  }
  void Send(const std::string& name, int signal) {
    const Status sent = cluster().Kill(name, signal);
    ASSERT_TRUE(sent.ok()) << sent;
  }
  void Restart(const std::string& name) {
    const Status started = cluster().Restart(name);
    ASSERT_TRUE(started.ok()) << started;
  }
  // Lets time pass in which nothing is done to the nodes.
  static void Leave(Clock::duration time) {
    const Deadline end = Deadline::After(time);
    AwaitTrue([&] { return end.Passed(); }, Deadline::After(time + seconds(5)));
  }
  bool AnyUnderWay() const {
    return std::ranges::any_of(collectors_, [](const Collector& collector) {
      return !collector.Wait(Deadline::After(Clock::duration::zero()));
    });
  }
  // Whether both long prompts are. Each is on another memory node, and one of them comes first.
  bool PromptsArePrefilled() const {
    return std::ranges::none_of(
        std::span(collectors_).subspan(kStreamsBesides),
        [](const Collector& collector) { return collector.results()[0].tokens.empty(); });
  }
  int64_t num_started_tokens() { return engine().status().scheduler.num_started_tokens; }

 private:
  void Start(const Deployment& deployment);
  void Submit(std::span<const GenerateRequest> requests);
  void AwaitTokens(size_t count) {
    for (const Collector& collector : collectors_)
      ASSERT_TRUE(collector.WaitForTokens(count, Deadline::After(seconds(60))));
  }
  void ExpectSame(const Generated& got, const Generated& expected) const;

  Scenario scenario_;
  Create create_ = Serving::Create;
  std::unique_ptr<Serving> serving_;
  std::vector<std::vector<Generated>> expected_;  // by request
  std::vector<Collector> collectors_;
  BeamStreams beams_;  // goes first
};

inline void RecoveryRun::Serve(Scenario scenario, Create create) {
  scenario_ = std::move(scenario);
  create_ = create;
  expected_.clear();
  Deployment without_cache = scenario_.deployment;
  without_cache.prefix_caching = false;
  ASSERT_NO_FATAL_FAILURE(Start(without_cache));
  ASSERT_NO_FATAL_FAILURE(Submit(scenario_.requests));
  for (const Collector& collector : std::exchange(collectors_, {})) {
    ASSERT_TRUE(collector.Wait(Deadline::After(seconds(60))));
    expected_.push_back(collector.results());
  }
  if (scenario_.deployment.prefix_caching) Start(scenario_.deployment);
}

inline void RecoveryRun::Start(const Deployment& deployment) {
  beams_.Join();
  serving_.reset();
  Result<std::unique_ptr<Serving>> serving = create_(deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  serving_ = *std::move(serving);
}

inline void RecoveryRun::Submit(std::span<const GenerateRequest> requests) {
  for (const GenerateRequest& request : requests) {
    if (scenario_.beams > 0) {
      const Collector& collector = collectors_.emplace_back(scenario_.beams);
      beams_.Start(engine(), request, scenario_.beams, collector.sink());
      continue;
    }
    const Result<RequestId> id =
        engine().Submit(request, collectors_.emplace_back(request.n).sink());
    ASSERT_TRUE(id.ok()) << id.status();
  }
}

inline void RecoveryRun::BringToTheMoment(const std::string& victim,
                                          const std::string& memory_node) {
  const std::span<const GenerateRequest> requests = scenario_.requests;
  const Deadline deadline = Deadline::After(seconds(60));
  collectors_.clear();
  switch (scenario_.moment) {
    case Moment::kDecode:
      ASSERT_NO_FATAL_FAILURE(Submit(requests));
      ASSERT_NO_FATAL_FAILURE(AwaitTokens(scenario_.tokens_before));
      // The status of a manager comes later than the tokens, and between steps no beam is anywhere.
      if (serving_->manager != nullptr || scenario_.beams > 0) return;
      EXPECT_EQ(engine().status().scheduler.num_waiting, 0);
      EXPECT_GT(Node(memory_node).num_sequences, 0);
      return;
    case Moment::kPrefill:
      // On a busy machine the prompts may be done between two looks: then they come once more.
      while (true) {
        ASSERT_NO_FATAL_FAILURE(Submit(requests.first(kStreamsBesides)));
        ASSERT_NO_FATAL_FAILURE(AwaitTokens(3));
        ASSERT_NO_FATAL_FAILURE(Submit(requests.subspan(kStreamsBesides)));
        ASSERT_TRUE(AwaitTrue(
            [&] { return Node(memory_node).used_tokens >= kLongPrompt || !AnyUnderWay(); },
            deadline));
        if (!PromptsArePrefilled()) return;
        for (const Collector& collector : collectors_) ASSERT_TRUE(collector.Wait(deadline));
        collectors_.clear();
      }
    case Moment::kLastChunk:
      ASSERT_NO_FATAL_FAILURE(Send(victim, SIGSTOP));
      ASSERT_NO_FATAL_FAILURE(Submit(requests));
      ASSERT_TRUE(AwaitTrue([&] { return Node(memory_node).num_sequences > 0; }, deadline));
      EXPECT_TRUE(std::ranges::any_of(collectors_, [](const Collector& collector) {
        return collector.results()[0].tokens.empty();
      })) << "no chunk was under way any more";
  }
}

inline void RecoveryRun::ExpectWhole() {
  for (size_t i = 0; i < collectors_.size(); ++i) {
    ASSERT_TRUE(collectors_[i].Wait(Deadline::After(seconds(60)))) << "request " << i << " hangs";
    const std::vector<Generated> got = collectors_[i].results();
    for (size_t j = 0; j < got.size(); ++j) {
      SCOPED_TRACE("continuation " + std::to_string(j) + " of request " + std::to_string(i));
      ExpectSame(got[j], expected_[i][j]);
    }
  }
  // A node may have been lost once more after the last token.
  EXPECT_TRUE(AwaitTrue([&] { return engine().status().serving; }, Deadline::After(seconds(30))))
      << engine().status().detail;
  const EngineStatus status = engine().status();
  EXPECT_EQ(status.num_rebuilding, 0);
  // The next manager counts anew, and may have had the ends of few requests only.
  if (serving_->manager == nullptr) {
    EXPECT_EQ(status.scheduler.num_shared_tokens > 0, scenario_.deployment.prefix_caching);
  }
  EXPECT_EQ(AwaitNoTokens(engine(), Deadline::After(seconds(10))), "");
}

inline void RecoveryRun::ExpectSame(const Generated& got, const Generated& expected) const {
  EXPECT_TRUE(got.error.ok()) << got.error;
  EXPECT_EQ(got.reason, expected.reason);
  ASSERT_EQ(got.tokens, expected.tokens);
  const double tolerance = scenario_.logprob_tolerance;
  for (size_t i = 0; i < got.tokens.size(); ++i) {
    EXPECT_NEAR(got.logprobs[i], expected.logprobs[i], tolerance) << "token " << i;
    ASSERT_EQ(got.tops[i].size(), expected.tops[i].size());
    for (size_t k = 0; tolerance == 0 && k < got.tops[i].size(); ++k) {
      EXPECT_EQ(got.tops[i][k].token, expected.tops[i][k].token) << "token " << i;
      EXPECT_EQ(got.tops[i][k].logprob, expected.tops[i][k].logprob) << "token " << i;
    }
  }
}

// What happens to a node's process.
enum class Harm {
  kKilled,
  kStopped,  // for ever
  kPaused,   // for 3 s, during which nobody loses it
};

struct RecoveryCase {
  Scenario scenario;
  TransportKind transport;
  Harm harm;
  std::string victim;

  std::string Name() const {
    const char* const harms[] = {"_killed", "_stopped", "_paused_3_s"};
    return scenario.name + "_" + std::string(TransportKindName(transport)) + "_" + victim +
           harms[static_cast<int>(harm)];
  }
};

// A scenario, and the node in it that something happens to.
struct Variant {
  Scenario scenario;
  std::string victim;
};

// Every combination if the environment has LAMINA_KILL_MATRIX=full (scripts/kill_matrix.py). Else
// each scenario is run with each transport once and with each harm once, so that every transport
// meets every harm in some scenario. `variants_of`(scenario) are those that there are of it.
template <typename VariantsOf>
std::vector<RecoveryCase> RecoveryCases(VariantsOf variants_of) {
  const char* const which = std::getenv("LAMINA_KILL_MATRIX");
  const bool all_of_them = which != nullptr && std::string(which) == "full";
  std::vector<RecoveryCase> all;
  const auto add = [&](const Variant& variant, TransportKind transport, Harm harm) {
    RecoveryCase& one =
        all.emplace_back(RecoveryCase{variant.scenario, transport, harm, variant.victim});
    one.scenario.deployment.transport = transport;
    // The end of a process is noticed at once.
    if (harm == Harm::kStopped) one.scenario.deployment.peer_timeout = seconds(1);
  };
  const std::vector<TransportKind> transports = Transports();
  const std::vector<Scenario> scenarios = Scenarios();
  for (size_t i = 0; i < scenarios.size(); ++i) {
    const std::vector<Variant> variants = variants_of(scenarios[i]);
    for (size_t k = 0; k < 3; ++k) {
      const Harm harm = static_cast<Harm>(k);
      if (!all_of_them) {
        add(variants[(i / 3 + k) % variants.size()], transports[(i + k) % transports.size()], harm);
        continue;
      }
      for (const Variant& variant : variants)
        for (const TransportKind transport : transports) add(variant, transport, harm);
    }
  }
  return all;
}

// Each of `count` nodes is the victim once: m0, m1, ... if `kind` is 'm'.
inline std::vector<Variant> EachOf(const Scenario& scenario, char kind, int count) {
  std::vector<Variant> all;
  for (int i = 0; i < count; ++i) all.push_back({scenario, kind + std::to_string(i)});
  return all;
}

}  // namespace lamina::testing
