// From token ids to token ids: what the API server talks to. The engine owns the scheduler and
// drives steps on the nodes; it knows no text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "wire/engine_messages.h"

namespace lamina {

// The seed of one continuation. Those of a client's request share no random numbers with each
// other, nor with those of another seed, however near: the first continuation of the first prompt
// has the seed itself, each other one a hash of it and of both numbers, and no two of one seed's
// hashes are equal. REQUIRES: prompt_index and continuation are below 2^32.
uint64_t ChoiceSeed(uint64_t seed, uint64_t prompt_index, uint64_t continuation);

// Observes the engine for metrics. Called on the engine's thread; must not block. All times in
// seconds.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  struct Finished {
    FinishReason reason = FinishReason::kStop;
    int64_t prompt_tokens = 0, output_tokens = 0;
    double decode = 0, e2e = 0;
    std::optional<double> queue, prefill;  // nullopt: only another process knows them
    // nullopt: it had no objectives, was aborted or failed.
    std::optional<SloOutcome> slo = {};
  };
  virtual void OnFirstToken(double time_to_first_token) = 0;
  virtual void OnNextToken(double since_last) = 0;
  virtual void OnFinished(const Finished& finished) = 0;
  struct Step {
    int64_t num_decode = 0;
    int64_t num_prefill_tokens = 0;
    double total = 0, attention_wait = 0;
    int64_t bytes_to_memory = 0, bytes_from_memory = 0;
    std::optional<int> offload_interval = {};  // that was ordered, where it is chosen by step
  };
  virtual void OnStep(const Step& step) = 0;
};

// Thread: any. Sinks are called on the engine's thread, in order per continuation, and must not
// block; none is called after the event with `finish` of every continuation, nor after the engine
// is destroyed.
class Engine {
 public:
  using Sink = std::function<void(const TokenEvent&)>;

  virtual ~Engine() = default;

  // Refused requests get an error here and no event: kInvalidArgument (too long, empty, token
  // outside the vocabulary), kTryAgain (overload: the caller answers 503 with Retry-After),
  // kPeerLost (nothing will be served any more).
  virtual Result<RequestId> Submit(GenerateRequest request, Sink sink) = 0;

  // Ends a request early and frees its KV everywhere. Its sink gets kAbort for each unfinished
  // continuation. Unknown ids are ignored.
  virtual void Abort(RequestId request) = 0;

  // Ends one continuation early with FinishReason::kStop (a stop string was found in its text).
  // Ignored if it is over.
  virtual void Stop(RequestId request, int index) = 0;

  virtual EngineStatus status() = 0;
  virtual int64_t max_model_len() const = 0;
  virtual std::span<const TokenId> eos_tokens() const = 0;  // end an answer
};

}  // namespace lamina
