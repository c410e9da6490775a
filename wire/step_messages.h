// The control messages of a step: the orders that the manager sends to the nodes that take part,
// the result that comes back, and what compute nodes tell each other about the step. wire/codec.h
// makes bytes of them. Whoever receives one has to check it: it comes from another process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/layers_inside.h"
#include "base/sampling_params.h"
#include "base/status.h"
#include "wire/step_times.h"

namespace lamina {

// A decode row. It attends to the `num_stored` tokens of `sequence` that this node has, and to the
// new token if that is to be stored here, in `slot`.
struct DecodeRow {
  SequenceId sequence;
  int64_t num_stored = 0;
  std::optional<TokenSlot> slot;  // nullopt: the new token is stored on another node
  int64_t position = 0;           // of the new token in its sequence
  // A step before has ordered the same token, and did not complete: what this node has of the
  // sequence from that token on is dropped before it is stored.
  bool again = false;
};

// Part of a prefill: behind the `num_stored` tokens of `sequence` that this node has, further
// tokens are stored in `slots`.
struct PrefillChunk {
  SequenceId sequence;
  int64_t num_stored = 0;
  std::vector<TokenSlot> slots = {};
  // Position in the sequence of the token in the first slot; the others follow it.
  int64_t first_position = 0;
};

// The slot table of `sequence` starts with `slots`, which already hold K and V of its first tokens
// because other sequences begin with the same ones.
struct SharedPrefix {
  SequenceId sequence;
  std::vector<TokenSlot> slots = {};
};

// A memory node's part of a step. MessageHeader::first_row of the data path counts the rows in the
// order of this message: `decode` for decode messages, the tokens of all chunks of `prefill`, one
// after the other, for pushes.
struct MemoryOrder {
  uint64_t epoch = 0;
  StepId step;
  uint32_t batch = 0;
  std::vector<SequenceId> released;  // sequences to forget before the step
  std::vector<SharedPrefix> shared;  // take effect before the rows
  std::vector<DecodeRow> decode;
  std::vector<PrefillChunk> prefill;
  // K and V of the chunks are not pushed but made up where they are stored, for benchmarks of
  // decoding.
  bool dummy_prefill = false;
  // Of the KV cache so many layers have a place from now on, see Configured::elastic_kv; 0: as it
  // is. Answered with LayersTold.
  int32_t layers_inside = 0;
};

// Sent with a sequence's first work, also with the first one after a preemption.
struct NewSequence {
  SequenceId sequence;
  SamplingParams sampling;
  std::vector<TokenId> tokens;  // the prompt, and what was generated before a preemption
  int32_t num_prompt_tokens = 0;
};

// The part of a work that one memory node gets, or one group of nodes that hold different kv_heads.
struct WorkPart {
  // The memory node, or the first of its group; the compute node's own id if attention stays there.
  NodeId node;
  int32_t num_tokens = 0;  // how many of the work's tokens are stored there
  // Only if attention stays on the compute node: where K and V of these tokens go, and
  // SharedPrefix::slots.
  std::vector<TokenSlot> slots = {};
  std::vector<TokenSlot> shared = {};
};

// Tokens of one sequence that a step computes.
struct ComputeWork {
  SequenceId sequence;
  // Prefill: where the tokens go, in their order. Decode: every node that has tokens of the
  // sequence after the step.
  std::vector<WorkPart> route;
  int64_t first_position = 0;  // of the first token in the sequence
  std::vector<TokenId> tokens;
  bool prefill = false;
  // The last token's logits choose the sequence's next token; where its sampling parameters say so
  // (embeds), nothing is chosen, and the hidden state is told.
  bool sample = false;
  bool ends_prefill = false;  // the node need not keep K and V of the sequence's prefill after it
};

// A compute node's part of a step.
struct ComputeOrder {
  uint64_t epoch = 0;
  StepId step;
  uint32_t batch = 0;
  std::vector<SequenceId> released;  // sequences to forget before the step
  std::vector<NewSequence> new_sequences;
  std::vector<ComputeWork> work;
  // Of n compute nodes that each have the whole model, node (batch + k) mod n runs slice k if this
  // is true; node batch mod n runs all slices if it is false.
  bool rotates = false;
  // MemoryOrder::dummy_prefill. Prefill work is not computed, and it is in the order only if this
  // node holds the KV.
  bool dummy_prefill = false;
  // Of every so many slices in a row the weights of the last lie outside from now on, on nodes
  // where that is not fixed; 0: none do. nullopt: as it is.
  std::optional<int32_t> offload_interval = {};
  // Of this node's own KV cache so many layers have a place from now on, see
  // Configured::elastic_kv; 0: as it is.
  int32_t layers_inside = 0;
  bool no_times = false;  // do not time this step; only to measure what timing costs
};

// The next token of a sequence.
struct NewToken {
  SequenceId sequence;
  SampledToken chosen;
};

// How likely tokens of a sequence's prompt were, one behind the other.
struct ScoredTokens {
  SequenceId sequence;
  int64_t first_position = 0;  // of the first one in the sequence, at least 1
  std::vector<TokenScore> tokens = {};
};

// The hidden state of the last token of a sequence's prompt, which the logits are made of.
struct EmbeddedPrompt {
  SequenceId sequence;
  std::vector<float> values = {};  // [ModelConfig::state_size()], not normalised, all finite
};

// Whether a sequence that has failed may go on when it is started again from its tokens.
enum class FailureCause {
  // It may not: what failed is the request's own, or would be ordered in the same way again. Its
  // logits are not numbers, nothing is left to choose from, its orders contradict themselves.
  kRequest,
  // It may: its KV, or what a node knows of it, is gone or may be wrong, or the step that it needs
  // was refused. All of that is made anew when it starts.
  kKvLost,
};

// A sequence that got no token in a step, or whose prefill failed, and why.
struct FailedSequence {
  SequenceId sequence;
  Status why;
  FailureCause cause = FailureCause::kRequest;
};

// A memory node, or another compute node, that a compute node has lost.
struct LostNode {
  NodeId node;
  std::string message;
};

// A memory node that a compute node has suspended, and without which a step has gone on.
struct SuspendedNode {
  NodeId node;
  NodeId by;                // the compute node
  uint64_t suspension = 0;  // PeerState::suspension

  friend bool operator==(const SuspendedNode&, const SuspendedNode&) = default;
};

// Sums of timed work since the last result of any batch.
struct NodeTimes {
  // A memory node, or one of several compute nodes; 0: the compute node that sends this.
  NodeId node;
  StepTimes times;
};

// What came of a step, from the compute node that ends it.
struct StepResult {
  uint64_t epoch = 0;
  StepId step = {};
  uint32_t batch = 0;
  std::vector<NewToken> sampled = {};
  // Of sequences whose sampling parameters ask for it (num_prompt_logprobs): the tokens behind
  // those that the step has computed, as far as they are of the prompt.
  std::vector<ScoredTokens> scored = {};
  // In place of a sampled token, of sequences whose sampling parameters ask for it (embeds).
  std::vector<EmbeddedPrompt> embedded = {};
  std::vector<FailedSequence> failed = {};
  std::vector<LostNode> lost_nodes = {};
  std::vector<SuspendedNode> suspended = {};
  // Between compute nodes: sequences that get no token and do not fail, because of these.
  std::vector<SequenceId> late = {};
  // Of this node's own KV cache, where orders say how many are.
  std::optional<LayersInside> layers_inside = {};
  int64_t total_us = 0;
  int64_t attention_wait_us = 0;  // waiting for memory nodes
  int64_t bytes_to_memory = 0;
  int64_t bytes_from_memory = 0;
  int64_t stale_messages = 0;  // notifications that were dropped because they came twice
  std::vector<NodeTimes> times = {};
};

// What one compute node tells the next about the step; follows a context or a partial sum.
struct StepState {
  // A memory node that will send its outputs to the receiver.
  struct Asked {
    NodeId node;
    int64_t posted_ns = 0;  // when it was asked, by the clock of the node that asked
  };

  std::optional<StepResult> so_far;  // failures, nodes that are lost or suspended, counts
  std::vector<Asked> asked;
  uint64_t clock = 0;  // ClockId of base/clock_offset.h, of the node that asked
};

}  // namespace lamina
