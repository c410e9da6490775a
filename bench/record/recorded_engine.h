// An engine whose steps are recorded, and the requests that it is given.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "bench/record/step_recorder.h"
#include "manager/cluster_config.h"
#include "manager/serving_engine.h"
#include "model/model_config.h"

namespace lamina {

struct RecordedEngine {
  std::unique_ptr<ServingEngine> engine;
  StepRecorder* recorder = nullptr;  // the engine's

  // Connects to nodes that run. `prompts_appear`: as PrefilledExecutor's. Borrows the observer,
  // which may be null. REQUIRES: ResolveConfig accepted the config.
  static Result<RecordedEngine> Connect(const ClusterConfig& config, const ModelConfig& model,
                                        bool prompts_appear, EngineObserver* observer = nullptr);
};

// Of so many tokens, which ends with its last one. Requests of different numbers do not begin
// alike.
GenerateRequest DummyRequest(int64_t prompt, int64_t max_new_tokens, uint64_t number,
                             const ModelConfig& model);

}  // namespace lamina
