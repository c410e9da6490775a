// Beam searches over an engine, each on a thread of its own: every step of every beam is a request,
// as it is for the API (api/beam_generation.h).
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "api/beam_search.h"
#include "tests/support/serving.h"

namespace lamina::testing {

class BeamStreams {
 public:
  // Searches behind the request's prompt with so many beams. `sink` gets, for each beam of a step,
  // the token that it ends in and its log-probability, and in the end every answer.
  void Start(Engine& engine, GenerateRequest request, int width, Engine::Sink sink) {
    threads_.emplace_back([&engine, request = std::move(request), width, sink = std::move(sink)] {
      const Status status = Search(engine, request, width, sink);
      for (int i = 0; i < width; ++i) {
        TokenEvent end;
        end.index = i;
        end.finish = status.ok() ? FinishReason::kLength : FinishReason::kError;
        end.error = status;
        sink(end);
      }
    });
  }
  // Waits until all have ended.
  void Join() { threads_.clear(); }

 private:
  static Status Search(Engine& engine, const GenerateRequest& request, int width,
                       const Engine::Sink& sink);
  // The likeliest tokens behind the prompt and the beam's tokens.
  static GenerateRequest Next(const GenerateRequest& request, const BeamSearch::Beam& beam,
                              int num_offered);
  static void Tell(const Engine::Sink& sink, int index, TokenId token, double logprob) {
    TokenEvent event;
    event.index = index;
    event.token = token;
    event.logprob = static_cast<float>(logprob);
    sink(event);
  }

  std::vector<std::jthread> threads_;
};

inline GenerateRequest BeamStreams::Next(const GenerateRequest& request,
                                         const BeamSearch::Beam& beam, int num_offered) {
  GenerateRequest next = GreedyRequest(request.prompt, 1);
  next.prompt.insert(next.prompt.end(), beam.tokens.begin(), beam.tokens.end());
  // Of the first step a second token proves what the prompt's row attends to, so that it is shared.
  if (beam.tokens.empty()) next.max_new_tokens = 2;
  next.ignore_eos = true;
  next.sampling.num_logprobs = num_offered;
  return next;
}

inline Status BeamStreams::Search(Engine& engine, const GenerateRequest& request, int width,
                                  const Engine::Sink& sink) {
  BeamSearch search({width, 1, false, request.max_new_tokens, {}});
  uint64_t group = 0;
  while (!search.done()) {
    std::vector<Collector> steps;
    for (const BeamSearch::Beam& beam : search.beams()) {
      GenerateRequest next = Next(request, beam, search.num_offered());
      next.prefix_group = group;
      LAMINA_ASSIGN_OR_RETURN(const RequestId id,
                              engine.Submit(std::move(next), steps.emplace_back().sink()));
      if (group == 0) group = id.value;
    }
    std::vector<std::vector<TokenLogprob>> offered;
    for (const Collector& step : steps) {
      if (!step.Wait(Deadline::After(std::chrono::seconds(60))))
        return InternalError("a step of a beam hangs");
      const Generated generated = step.results().front();
      LAMINA_RETURN_IF_ERROR(generated.error);
      offered.push_back(generated.tops.at(0));
    }
    search.Advance(offered);
    if (search.done()) break;
    for (size_t i = 0; i < search.beams().size(); ++i) {
      const BeamSearch::Beam& beam = search.beams()[i];
      Tell(sink, static_cast<int>(i), beam.tokens.back(), beam.logprob);
    }
  }
  for (size_t i = 0; i < search.answers().size(); ++i) {
    for (const TokenId token : search.answers()[i].tokens)
      Tell(sink, static_cast<int>(i), token, search.answers()[i].score);
  }
  return OkStatus();
}

}  // namespace lamina::testing
