// What an engine is told when it is made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "cost/step_profile.h"
#include "manager/cluster_config.h"
#include "manager/engine.h"
#include "manager/node_outages.h"
#include "manager/offload_bus.h"
#include "model/model_config.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_cycle.h"

namespace lamina {

struct EngineOptions {
  SchedulerOptions scheduler;
  Pipeline pipeline;
  // Another is taken when steps show that it is faster; num_batches is then the most.
  bool chooses_pipeline = false;
  int num_compute_nodes = 1;
  int pipeline_parallel_size = 1, tensor_parallel_size = 1;  // as manager/cluster_config.h
  std::vector<TokenId> eos_tokens;
  int64_t vocab_size = 0;
  int64_t state_size = 0;  // ModelConfig's: values of the vectors that prompts are embedded as
  Clock::duration step_timeout = std::chrono::seconds(60);
  int64_t spread_tokens = 0;  // sequences of more tokens are spread over nodes; 0: none is
  QueueMode queue = QueueMode::kFifo;
  // Whether requests that wait when their first token is due fail then; if not they are served.
  bool drops_hopeless = false;
  SloRule slo;  // of requests that name no objectives
  // Of the cluster, where it is chosen for each step how much of the weights lies outside of
  // memory; null: that is not chosen.
  std::shared_ptr<const StepProfile> step_profile;
  std::optional<OffloadBus> offload_bus;  // that these nodes share, and that is looked after
  // Whether somebody connects nodes anew when the engine asks for it. If not, it gives up when a
  // compute node or the last memory node is lost.
  bool reconnects = false;
  // Whether somebody looks for lost nodes when the engine asks for it. If not, a node that is lost
  // while others serve stays so.
  bool looks_for_nodes = false;
  RetryOptions retry;
  // Of serving nothing; and what a request waits for a node that could hold it.
  Clock::duration give_up_after = std::chrono::seconds(60);
  // How often a request whose KV is lost starts again before it fails: it may be what nodes die of.
  int max_rebuilds = 3;
  // What a manager that is gone left on memory nodes is kept for so long, for clients that ask for
  // the rest: more than a front's try to connect takes.
  Clock::duration keep_left_for = std::chrono::seconds(5);
  // Of connecting nodes anew: the status says so then.
  Clock::duration stands_still_after = std::chrono::seconds(5);
  EngineObserver* observer = nullptr;  // borrowed; may be null

  // REQUIRES: ResolveConfig accepted `config`.
  static EngineOptions Of(const ClusterConfig& config, const ModelConfig& model);

  StepCycleOptions cycle() const;
  std::unique_ptr<QueuePolicy> MakeQueue() const;
  std::unique_ptr<PlacementPolicy> MakePlacement() const;
  // Whether compute nodes hold different parts of the model, so that all of them are needed.
  bool shares_model() const { return pipeline_parallel_size * tensor_parallel_size > 1; }
};

}  // namespace lamina
