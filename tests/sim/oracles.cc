#include "tests/sim/oracles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lamina::sim {
namespace {

constexpr TokenId kEndOfText = 2;
// Where sums have another order.
constexpr float kRounding = 1e-3F;
// Less than the timeouts in cluster_options.cc, by what nodes take for everything else.
constexpr auto kBorneFor = milliseconds(150);
// Chunks of a prompt come with nothing, of which a few sequences may have several each; a row whose
// memory node is late comes with nothing once.
constexpr int kMostInVain = 40;

// Nothing is gone with it, it only comes later, or twice.
bool OnlyDelays(FaultKind kind) {
  switch (kind) {
    case FaultKind::kPause:
    case FaultKind::kCutData:
    case FaultKind::kCutControl:
    case FaultKind::kIsolate:
    case FaultKind::kDuplicate:
    case FaultKind::kDelay: return true;
    default: return false;
  }
}

}  // namespace

// As long as sequences fail that have lost KV: with their memory node, which closed (kPeerLost) or
// was silent (kTimeout), or with a message to it (kCorrupt); and all of them in an outage.
StreamOracle::StreamOracle(const PlannedRequest& request, std::vector<const Answer*> expected,
                           bool exact)
    : request_(request),
      expected_(std::move(expected)),
      exact_(exact),
      streams_(static_cast<size_t>(request.n)) {}

size_t StreamOracle::LengthOf(int index) const {
  const auto most = static_cast<size_t>(request_.max_new_tokens);
  if (request_.ignore_eos) return most;
  for (size_t i = 0; i < most; ++i) {
    if (TokenAt(index, i) == kEndOfText) return i + 1;
  }
  return most;
}

std::string StreamOracle::Take(const TokenEvent& event) {
  if (event.index < 0 || event.index >= request_.n)
    return fmt::format("continuation {} of {}", event.index, request_.n);
  Stream& stream = streams_[static_cast<size_t>(event.index)];
  if (stream.over) return fmt::format("continuation {} goes on after its end", event.index);
  std::string wrong = event.token ? TakeToken(stream, event) : "";
  if (wrong.empty() && event.finish) wrong = TakeEnd(stream, event);
  return wrong;
}

std::string StreamOracle::TakeToken(Stream& stream, const TokenEvent& event) {
  const size_t position = stream.told++;
  if (!IsClear(event.index, stream.told)) return "";
  if (position >= LengthOf(event.index))
    return fmt::format("token {} is {}, behind the end of the answer", position, *event.token);
  const Answer& answer = *expected_[static_cast<size_t>(event.index)];
  if (*event.token != answer.tokens[position])
    return fmt::format("token {} is {} instead of {}", position, *event.token,
                       answer.tokens[position]);
  const float expected = answer.logprobs[position];
  const bool right =
      exact_ ? event.logprob == expected : std::fabs(event.logprob - expected) < kRounding;
  if (!right)
    return fmt::format("log-probability of token {} is {} instead of {}", position, event.logprob,
                       expected);
  if (event.first != (position == 0))
    return fmt::format("token {} is told as {}the first", position, event.first ? "" : "not ");
  return "";
}

std::string StreamOracle::TakeEnd(Stream& stream, const TokenEvent& event) {
  stream.over = true;
  ++num_over_;
  if (*event.finish == FinishReason::kError) {
    failed_ = true;
    return "failed: " + event.error.ToString();
  }
  if (*event.finish == FinishReason::kAbort) return aborted_ ? "" : "aborted by nobody";
  if (!IsClear(event.index, stream.told)) return "";
  const size_t length = LengthOf(event.index);
  if (stream.told != length) return fmt::format("ends after {} of {} tokens", stream.told, length);
  const bool stops = !request_.ignore_eos && TokenAt(event.index, length - 1) == kEndOfText;
  if (stops != (*event.finish == FinishReason::kStop)) return "ends for another reason";
  return "";
}

int StreamOracle::num_tokens() const {
  return std::accumulate(streams_.begin(), streams_.end(), 0, [](int sum, const Stream& stream) {
    return sum + static_cast<int>(stream.told);
  });
}

int StreamOracle::fewest_tokens() const {
  return static_cast<int>(std::ranges::min_element(streams_, {}, &Stream::told)->told);
}

bool IsBorne(const Scenario& scenario) {
  Clock::duration late{};
  for (const Fault& fault : scenario.faults) {
    if (!OnlyDelays(fault.kind)) return false;
    late += fault.lasts;
  }
  return late < kBorneFor;
}

bool LosesMessages(const Scenario& scenario) {
  return std::ranges::any_of(scenario.faults, [](const Fault& fault) {
    return fault.kind == FaultKind::kLoseNotification;
  });
}

std::string StepOracle::Take(const StepResult& result) {
  for (const FailedSequence& failed : result.failed) {
    const StatusCode code = failed.why.code();
    const bool with_its_node = code == StatusCode::kPeerLost || code == StatusCode::kTimeout;
    if (!with_its_node && !loses_messages_)
      return fmt::format("step {}: a row of sequence {} has failed although nothing was lost: {}",
                         result.step.value, failed.sequence.value, failed.why.ToString());
  }
  const bool in_vain = result.sampled.empty() && result.failed.empty();
  num_in_vain_ = in_vain ? num_in_vain_ + 1 : 0;
  if (num_in_vain_ <= kMostInVain) return "";
  return fmt::format("{} steps in a row have come to nothing", num_in_vain_);
}

std::string FindLeak(const EngineStatus& status) {
  std::string held;
  const SchedulerStats& scheduler = status.scheduler;
  if (scheduler.num_running + scheduler.num_waiting > 0)
    held +=
        fmt::format(" {} sequences run and {} wait;", scheduler.num_running, scheduler.num_waiting);
  for (const NodeUse& pool : scheduler.nodes) {
    if (pool.used_tokens + pool.num_sequences > 0)
      held += fmt::format(" {} slots of pool {} are owned by {} sequences;", pool.used_tokens,
                          pool.id.value, pool.num_sequences);
  }
  for (const NodeStatus& node : status.nodes) {
    if (node.stored_tokens + node.stored_sequences > 0)
      held += fmt::format(" {} stores {} tokens of {} sequences;", node.name, node.stored_tokens,
                          node.stored_sequences);
  }
  return held;
}

std::string FindStrayConnection(const Scenario& scenario, const std::set<std::string>& standing_by,
                                const SimNetwork& data, size_t num_control) {
  const size_t num_nodes =
      scenario.compute_nodes().size() + scenario.memory_nodes().size() + scenario.standbys().size();
  std::string stray;
  if (num_control != num_nodes)
    stray += fmt::format(" {} control connections to {} nodes;", num_control, num_nodes);
  const auto is_compute = [](const std::string& node) { return node.front() != 'm'; };
  for (const auto& [ends, count] : data.endpoints()) {
    const auto& [own, peer] = ends;
    const bool both_serve = !standing_by.contains(own) && !standing_by.contains(peer);
    const int expected = both_serve && (is_compute(own) || is_compute(peer)) ? 1 : 0;
    // With a standby it may be another rank now than when it was joined to that memory node.
    const bool may_be_none =
        !scenario.standbys().empty() && scenario.shape.tensor_parallel_size > 1;
    if (count != expected && !(may_be_none && count == 0))
      stray += fmt::format(" {} endpoints of {} to {};", count, own, peer);
  }
  return stray;
}

}  // namespace lamina::sim
