// What must hold of every run, whatever happens in it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "manager/engine.h"
#include "tests/sim/expected.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_fabric.h"
#include "wire/step_messages.h"

namespace lamina::sim {

// One request's streams: each is a prefix of the expected answer, nothing is told twice, and each
// ends once, complete unless its client went away.
class StreamOracle {
 public:
  // Borrows both. `expected`: of each continuation. Where sums may have another order (`exact` is
  // false) log-probabilities may differ a little, and with them what is chosen narrowly.
  StreamOracle(const PlannedRequest& request, std::vector<const Answer*> expected, bool exact);

  // Returns what is wrong with the event, "" for nothing.
  std::string Take(const TokenEvent& event);
  // The client goes away.
  void Abort() { aborted_ = true; }

  bool over() const { return num_over_ == request_.n; }
  bool failed() const { return failed_; }
  // Of all continuations.
  int num_tokens() const;
  // Of the continuation that has the fewest.
  int fewest_tokens() const;

 private:
  struct Stream {
    size_t told = 0;
    bool over = false;
  };
  std::string TakeToken(Stream& stream, const TokenEvent& event);
  std::string TakeEnd(Stream& stream, const TokenEvent& event);
  // Whether the first `count` tokens can only be those of the answer.
  bool IsClear(int index, size_t count) const {
    return exact_ || count <= expected_[static_cast<size_t>(index)]->num_clear;
  }
  // How many tokens the answer has to its end.
  size_t LengthOf(int index) const;
  TokenId TokenAt(int index, size_t position) const {
    return expected_[static_cast<size_t>(index)]->tokens[position];
  }

  const PlannedRequest& request_;
  const std::vector<const Answer*> expected_;
  const bool exact_;
  std::vector<Stream> streams_;
  int num_over_ = 0;
  bool aborted_ = false, failed_ = false;
};

// Whether nodes are at most late, all faults together shorter than any timeout: then none is given
// up.
bool IsBorne(const Scenario& scenario);

// Whether a single message may go amiss, and K and V with it, while all nodes live.
bool LosesMessages(const Scenario& scenario);

// What the steps of a run come to, in the order in which the manager hears of it: rows fail only
// with their memory node, and steps get somewhere.
class StepOracle {
 public:
  explicit StepOracle(const Scenario& scenario) : loses_messages_(LosesMessages(scenario)) {}

  // Returns what is wrong with the result, "" for nothing.
  std::string Take(const StepResult& result);

 private:
  const bool loses_messages_;
  int num_in_vain_ = 0;  // results in a row that came with nothing
};

// What is still held when every stream is over, every node serves and nodes were asked for their
// counters since; "" for nothing.
std::string FindLeak(const EngineStatus& status);
// Connections that should not be there, or that are missing, when every node serves.
// `standing_by`: compute nodes that have no place.
std::string FindStrayConnection(const Scenario& scenario, const std::set<std::string>& standing_by,
                                const SimNetwork& data, size_t num_control);

}  // namespace lamina::sim
