// From token ids to token ids: what the API server talks to. The engine owns the scheduler and
// drives steps on the nodes; it knows no text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/node_role.h"
#include "base/sampling_params.h"
#include "base/status.h"
#include "manager/node_state.h"
#include "scheduler/scheduler.h"
#include "wire/step_times.h"

namespace lamina {

// The seed of one continuation. Those of a client's request share no random numbers with each
// other, nor with those of another seed, however near: the first continuation of the first prompt
// has the seed itself, each other one a hash of it and of both numbers, and no two of one seed's
// hashes are equal. REQUIRES: prompt_index and continuation are below 2^32.
uint64_t ChoiceSeed(uint64_t seed, uint64_t prompt_index, uint64_t continuation);

// One request: a prompt and n independent continuations of it.
struct GenerateRequest {
  std::vector<TokenId> prompt;  // at least one token
  int n = 1;
  // Not 0: with others of this number it goes where the KV of its beginning is, however many are
  // there.
  uint64_t prefix_group = 0;
  int64_t max_new_tokens = 16;  // prompt + max_new_tokens <= max_model_len
  bool ignore_eos = false;
  std::vector<TokenId> stop_tokens;  // besides the model's end-of-sequence tokens
  uint64_t prompt_index = 0;         // among the prompts that a client sent together
  // Seed: of the client's request, see ChoiceSeed. `banned` is filled by the engine.
  SamplingParams sampling;
};

enum class FinishReason { kStop, kLength, kAbort, kError };

// What comes back, one call per token and continuation, and one last call with `finish` set (it may
// carry a token too).
struct TokenEvent {
  int index = 0;                 // which of the n continuations
  std::optional<TokenId> token;  // an end-of-sequence or stop token is reported here as well
  float logprob = 0;             // if asked for
  int rank = 0;
  std::vector<TokenLogprob> top;
  std::optional<FinishReason> finish;
  std::optional<TokenId> stop_token;  // which one ended it, for kStop
  Status error;                       // for kError: what the client is told
  bool first = false;                 // the first token of this continuation
  // With the first one: prompt tokens whose KV was there from an earlier request.
  int64_t num_cached = 0;
};

// How a compute node reaches another node.
struct DataPathStatus {
  std::string from;    // the compute node's name
  std::string fabric;  // in use: "shm"
  // What the fabric goes through, if its name does not say so: "tcp/eth0"; else "".
  std::string through;
  std::string refused;  // fabrics that were passed over, with the reasons; "" if none
};

// A memory or compute node as `lamina cluster status` shows it.
struct NodeStatus {
  NodeId id;
  std::string name;
  NodeRole role = NodeRole::kCompute;
  std::string address;
  NodeState state = NodeState::kReady;
  std::string detail;    // why it is lost or suspended, else ""
  std::string kv_heads;  // memory nodes: "0..3", those that it holds; "" if all
  // Compute nodes: "layers 0..15", the part of the model that it has; "" if all.
  std::string holds;
  int64_t weight_bytes = 0;  // compute nodes: of the weights that it has
  // The fabric in use; of several paths the worst one's, of shm, verbs, ucx, tcp the last.
  std::string transport;
  // What was passed over for that path, with the reasons; "" if nothing was.
  std::string transport_refused;
  int64_t capacity_tokens = 0;
  int64_t used_tokens = 0;  // as the scheduler counts
  int num_sequences = 0;
  int64_t stored_tokens = 0;  // memory nodes: as the node itself counted when it was last asked
  int64_t stored_sequences = 0;
  int64_t stale_messages = 0;              // late or duplicate messages that it dropped
  int64_t attention_us = 0;                // memory nodes: spent on attention so far
  StepTimes times = {};                    // what its time in steps went into
  std::vector<DataPathStatus> paths = {};  // of each compute node that connects to it
};

struct EngineStatus {
  bool serving = false;       // requests are answered; if not, they wait, unless given_up
  bool stands_still = false;  // they wait too: nodes have been connected anew for some time
  bool given_up = false;      // nothing will be answered any more, and new requests are refused
  int num_rebuilding = 0;     // sequences whose KV was lost and that have got no token since
  std::string detail;         // why not, or why they wait
  std::vector<NodeStatus> nodes;
  std::vector<NodeStatus> standbys;  // compute nodes without a place; they have no id
  SchedulerStats scheduler;
};

// Observes the engine for metrics. Called on the engine's thread; must not block. All times in
// seconds.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  struct Finished {
    FinishReason reason = FinishReason::kStop;
    int64_t prompt_tokens = 0, output_tokens = 0;
    double queue = 0, prefill = 0, decode = 0, e2e = 0;
  };
  virtual void OnFirstToken(double time_to_first_token) = 0;
  virtual void OnNextToken(double since_last) = 0;
  virtual void OnFinished(const Finished& finished) = 0;
  struct Step {
    int64_t num_decode = 0;
    int64_t num_prefill_tokens = 0;
    double total = 0, attention_wait = 0;
    int64_t bytes_to_memory = 0, bytes_from_memory = 0;
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
