// The engine on a thread: an EngineCore, the clock, and threads for what waits for nodes.
//
// Everything that is decided is in engine_core.h. This thread gives it what has come in, makes the
// calls of sinks that it asks for, and sleeps until its next turn.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/inbox.h"
#include "base/mutex.h"
#include "manager/engine.h"
#include "manager/engine_core.h"
#include "manager/engine_options.h"
#include "manager/step_executor.h"

namespace lamina {

// `reconnects` and `looks_for_nodes` follow from the functions.
struct ServingEngineOptions : EngineOptions {
  Reconnect reconnect = nullptr;
  LookForNodes look = nullptr;
  // Of this engine; its destructor asks, and `reconnect` and `look` then wait for nobody any more.
  std::stop_source stop = {};

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
  void TakeWhatCame() REQUIRES(mutex_);
  void BeginReconnecting(ReconnectTask task);
  void BeginLooking(std::map<NodeId, std::string> lost);

  const ServingEngineOptions options_;
  WakeFd wake_;
  Inbox<EngineCore::Event> events_;
  Mutex mutex_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::optional<Result<std::unique_ptr<StepExecutor>>> reconnected_ GUARDED_BY(mutex_);
  std::optional<std::set<NodeId>> found_ GUARDED_BY(mutex_);
  // Goes before events_, into which the threads of its executor push.
  EngineCore core_ GUARDED_BY(mutex_);
  // The engine's thread, and the destructor. Both wait for nodes.
  std::thread reconnecting_;  // makes the next executor
  std::thread looking_;       // for nodes that are lost, while others serve
  std::thread thread_;
};

}  // namespace lamina
