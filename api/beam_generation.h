// Text by beam search: in every step each beam is a request for one token and the most likely ones,
// which finds K and V of the beam in the prefix cache. The answer is sent when all is done.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "api/beam_search.h"
#include "api/generation.h"

namespace lamina {

// Choices are numbered prompt by prompt, the best `n` of each; a part is a beam of a prompt.
class BeamGeneration final : public Generation {
 public:
  // Borrows what `server` has. REQUIRES: spec.options.beam_search.
  BeamGeneration(GenerationSpec spec, const Server& server, std::shared_ptr<Exchange> exchange)
      : Generation(std::move(spec), server, std::move(exchange)) {}

  Status Start(MakeSink make_sink) override;
  bool OnEvent(int part, const TokenEvent& event) override;
  void Abort() override;

 private:
  struct Search {
    BeamSearch beams;
    std::vector<std::vector<TokenLogprob>> next;  // of each beam of the step that runs
    std::vector<RequestId> requests;              // of each beam of that step
    int num_open = 0;                             // of those
    // The step before found its beams' KV in the prefix cache.
    bool shares = false;
    uint64_t group = 0;  // GenerateRequest::prefix_group
  };

  Status Step(int prompt);  // starts it
  void Complete();
  void TakeApart(ChoiceOutput& output) const;  // its text, if the answer has a format
  void RespondError(const ApiError& error) override;

  MakeSink make_sink_;
  std::vector<Search> searches_;  // one for each prompt
};

}  // namespace lamina
