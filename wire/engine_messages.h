// What an engine is asked for, and what it tells: requests and their tokens, and how its cluster
// is. The messages of a front, which has the clients, and the manager, which has the engine, are
// made of these. wire/codec.h makes bytes of them. Whoever receives one has to check it: it comes
// from another process.
//
// A front opens its connection with OpenFront, which FrontOpened answers. Then it sends
// SubmitRequest, AbortRequest and StopContinuation, with numbers for its requests that it chooses.
// The manager answers each SubmitRequest with RequestSubmitted before the first of its events, and
// sends an EngineStatus by the clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/kv_handle.h"
#include "base/node_role.h"
#include "base/node_state.h"
#include "base/sampling_params.h"
#include "base/scheduler_stats.h"
#include "base/slo.h"
#include "base/status.h"
#include "wire/step_times.h"

namespace lamina {

// What a client has of a continuation already, from an engine that is gone.
struct Told {
  std::vector<TokenId> tokens = {};
  int64_t num_cached = 0;  // TokenEvent::num_cached, which came with the first one
  bool over = false;
  // Of the engine that told the last token: memory nodes may have K and V of them under it.
  KvHandle kv = {};
  // Tokens of the prompt whose log-probabilities were told (TokenEvent::scored); all of them, if
  // they are asked for, before the first of `tokens`.
  int64_t num_scored = 0;
};

// One request: a prompt and n independent continuations of it.
struct GenerateRequest {
  std::vector<TokenId> prompt = {};  // at least one token
  int n = 1;
  // Not 0: with others of this number it goes where the KV of its beginning is, however many are
  // there.
  uint64_t prefix_group = 0;
  int64_t max_new_tokens = 16;  // prompt + max_new_tokens <= max_model_len
  bool ignore_eos = false;
  std::vector<TokenId> stop_tokens = {};  // besides the model's end-of-sequence tokens
  uint64_t prompt_index = 0;              // among the prompts that a client sent together
  // Seed: of the client's request, see ChoiceSeed. `banned` is filled by the engine.
  // If it `embeds`, `n` and `max_new_tokens` are 1, and no token comes.
  SamplingParams sampling = {};
  int priority = 0;  // smaller ones are served first, where the queue goes by it
  Slo slo = {};      // without any: what the engine has for all requests
  // Empty, or by continuation, [n]: the request goes on where an engine that is gone left it, of
  // the same model and with the same settings. What its client is told is what follows, the same
  // tokens that the other engine would have told; nothing of continuations that are over.
  std::vector<Told> told = {};
};

enum class FinishReason { kStop, kLength, kAbort, kError };

// What comes back, one call per token and continuation, and one last call with `finish` set (it may
// carry a token too). Before the first token of the first continuation come, in several calls, the
// log-probabilities of the prompt's tokens if they are asked for.
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
  SequenceId sequence = {};  // with a token: the engine's number for the continuation
  // The next tokens of the prompt, from its second one on: each comes once, whatever is computed
  // again.
  std::vector<TokenScore> scored = {};
  // Of a prompt that is only embedded (SamplingParams::embeds), with `finish`, which is kStop, and
  // `num_cached`: EmbeddedPrompt::values.
  std::vector<float> embedding = {};
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

// A front that begins: what it takes the model to be.
struct OpenFront {
  std::string model;  // the name that clients use
  int64_t vocab_size = 0;
};

// What the manager answers. With an error the connection is of no use.
struct FrontOpened {
  Status status;
  int64_t max_model_len = 0;
  std::vector<TokenId> eos_tokens = {};
  uint64_t manager_id = 0;  // of KvHandle; 0: memory nodes do not keep KV for the next manager
};

struct SubmitRequest {
  uint64_t id = 0;  // of the front; not that of a request before
  GenerateRequest request;
};

// An error is what Engine::Submit returned, and then no event of the request follows.
struct RequestSubmitted {
  uint64_t id = 0;
  Status status;
};

struct AbortRequest {
  uint64_t id = 0;
};

struct StopContinuation {
  uint64_t id = 0;
  int32_t index = 0;
};

struct RequestEvent {
  uint64_t id = 0;
  TokenEvent event;
};

// What an engine has told the requests of a front, in order.
struct RequestEvents {
  std::vector<RequestEvent> events = {};
};

}  // namespace lamina
