// The engine on a thread: an EngineCore, the clock, and the procedures that wait for nodes.
//
// Everything that is decided is in engine_core.h. This thread gives it what has come in, makes the
// calls of sinks that it asks for, gives a turn to connecting nodes anew and to looking for lost
// ones (reconnect.h), and sleeps until the next turn. It waits for nodes nowhere else, so requests
// are taken, aborted and told of while nodes are being connected.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/inbox.h"
#include "base/mutex.h"
#include "manager/engine.h"
#include "manager/engine_core.h"
#include "manager/engine_options.h"
#include "manager/reconnect.h"
#include "manager/step_executor.h"

namespace lamina {

// `reconnects` and `looks_for_nodes` follow from the functions.
struct ServingEngineOptions : EngineOptions {
  Reconnect reconnect = nullptr;
  LookForNodes look = nullptr;

  // REQUIRES: ResolveConfig accepted `config`.
  static ServingEngineOptions Of(const ClusterConfig& config, const ModelConfig& model) {
    return {EngineOptions::Of(config, model)};
  }
};

class ServingEngine : public Engine {
 public:
  // Takes the scheduler's policies; null: FIFO, and least loaded or spread as the options say.
  ServingEngine(const ServingEngineOptions& options, std::unique_ptr<StepExecutor> executor,
                std::unique_ptr<QueuePolicy> queue = nullptr,
                std::unique_ptr<PlacementPolicy> placement = nullptr);
  ~ServingEngine() override;

  Result<RequestId> Submit(GenerateRequest request, Sink sink) override;
  void Abort(RequestId request) override;
  void Stop(RequestId request, int index) override;
  EngineStatus status() override;
  int64_t max_model_len() const override { return options_.scheduler.max_model_len; }
  std::span<const TokenId> eos_tokens() const override { return options_.eos_tokens; }

  // Not ok once nothing will be served any more: why. Thread: any.
  Status given_up();

 private:
  void Loop();
  void TurnTasks(TimePoint now);
  void TakeEvents() REQUIRES(mutex_);
  void BeginTasks(EngineDecisions& decisions);

  const ServingEngineOptions options_;
  WakeFd wake_;
  std::atomic<bool> tasks_changed_ = false;  // a turn of the tasks is worth while
  const ReconnectMeans means_;
  Inbox<EngineCore::Event> events_;
  Mutex mutex_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  // Goes before events_, into which the threads of its executor push.
  EngineCore core_ GUARDED_BY(mutex_);
  // The engine's thread, and the destructor.
  Task<Reconnected> reconnecting_;  // makes the next executor
  Task<FoundNodes> looking_;        // for nodes that are lost, while others serve
  std::thread thread_;
};

}  // namespace lamina
