#include "bench/record/recorded_engine.h"

#include <algorithm>
#include <utility>

#include "bench/synthetic_prompt.h"
#include "manager/cluster_executor.h"
#include "manager/prefilled_executor.h"

namespace lamina {

Result<RecordedEngine> RecordedEngine::Connect(const ClusterConfig& config,
                                               const ModelConfig& model, bool prompts_appear,
                                               EngineObserver* observer) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<StepExecutor> nodes,
                          ClusterExecutor::Connect(config, model, {}));
  ServingEngineOptions options = ServingEngineOptions::Of(config, model);
  if (prompts_appear) {
    nodes = std::make_unique<PrefilledExecutor>(std::move(nodes));
    options.scheduler.max_num_batched_tokens = 1 << 20;
  }
  // Prompts that begin alike would not be computed.
  options.scheduler.prefix_caching = false;
  options.scheduler.max_queued = std::max(options.scheduler.max_queued, config.max_num_seqs);
  options.eos_tokens.clear();
  options.observer = observer;
  auto recorder = std::make_unique<StepRecorder>(std::move(nodes));
  RecordedEngine recorded;
  recorded.recorder = recorder.get();
  recorded.engine = std::make_unique<ServingEngine>(options, std::move(recorder));
  return recorded;
}

GenerateRequest DummyRequest(int64_t prompt, int64_t max_new_tokens, uint64_t number,
                             const ModelConfig& model) {
  GenerateRequest request;
  request.prompt = SyntheticPrompt(prompt, number, model.vocab_size);
  request.max_new_tokens = max_new_tokens;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  return request;
}

}  // namespace lamina
