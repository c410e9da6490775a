// What answers have to be: the bits that the model gives in one process which nothing disturbs,
// held against the reference model (tests/support/oracle_model.h), which shares no code with it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "manager/engine_core.h"
#include "model/model_config.h"
#include "tests/sim/scenario.h"
#include "tests/support/oracle_model.h"
#include "tests/support/tiny_checkpoint.h"

namespace lamina::sim {

// A continuation of kMostNewTokens tokens, as if no token ended the text.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  // So many of the first tokens are chosen clearly. The one behind them is not: where sums have
  // another order it may be another one, and so may all that follow.
  size_t num_clear = 0;
};

// The model of all simulations of a process, and its answers, each computed once. Thread: one at a
// time.
class Expected {
 public:
  // Writes the model into a temporary folder. Errors are those of loading it.
  static Result<std::unique_ptr<Expected>> Create();

  const std::string& model_dir() const { return checkpoint_.dir(); }
  const ModelConfig& model() const { return model_; }

  // Continuation `index` of the request. kInternal if the reference model disagrees. Borrowed from
  // this.
  const Result<Answer>& Of(const PlannedRequest& request, int index);

 private:
  using Key = std::tuple<std::vector<TokenId>, bool, uint64_t>;

  Expected();
  Result<Answer> Compute(const PlannedRequest& request, uint64_t seed);
  // Also sets num_clear. `seed`: of the continuation.
  Status Check(const PlannedRequest& request, uint64_t seed, Answer& answer) const;

  const TinyCheckpoint checkpoint_;
  ModelConfig model_;
  OracleModel oracle_;
  std::vector<EngineCore::Event> events_;
  std::unique_ptr<EngineCore> engine_;
  std::map<Key, Result<Answer>> answers_;
};

}  // namespace lamina::sim
