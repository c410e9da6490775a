// Prometheus metrics: the names of vLLM, so that existing boards work, and lamina's own for steps
// and nodes.
#pragma once

#include <memory>
#include <string>

#include "manager/engine.h"

namespace lamina {

// Thread: any. The engine reports events to it; gauges are read from the engine's status when they
// are asked for. Every vllm: name carries the labels model_name and engine="0".
class Metrics final : public EngineObserver {
 public:
  explicit Metrics(const std::string& model_name);
  ~Metrics() override;

  void OnFirstToken(double time_to_first_token) override;
  void OnNextToken(double since_last) override;
  void OnFinished(const Finished& finished) override;
  void OnStep(const Step& step) override;

  // Since the start.
  struct Totals {
    double prompt_tokens = 0, output_tokens = 0, requests = 0;
  };
  Totals totals() const;

  // All metrics in the text format of Prometheus. Nodes that `status` does not name any more are
  // left out.
  std::string Serialize(const EngineStatus& status);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace lamina
