// The control messages of a session between the manager and its nodes, and the types of all control
// messages. wire/codec.h makes bytes of them. Whoever receives one has to check it: it comes from
// another process.
//
// The manager sends ConfigureMemory to its memory nodes and ConfigureCompute to its compute nodes,
// and each answers with Configured. For every step it then sends one order to each node that takes
// part, and gets a StepResult from the compute side (wire/step_messages.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/attention_window.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/layers_inside.h"
#include "base/status.h"
#include "transport/modelled/modelled_fabric.h"
#include "wire/settings.h"

namespace lamina {

// The frame types of transport/control_channel.h. The values are part of the format.
enum class MessageType : uint16_t {
  kConfigureMemory = 16,   // manager -> memory node: ConfigureMemory
  kConfigureCompute = 17,  // manager -> compute node: ConfigureCompute
  kConfigured = 18,        // node -> manager: Configured
  kWeightsProgress = 19,   // compute node -> manager, while weights load: WeightsProgress
  kMemoryOrder = 20,       // manager -> memory node, for each step that it takes part in
  kComputeOrder = 21,      // manager -> compute node, for each step
  kStepResult = 22,        // compute node -> manager
  kStatsRequest = 23,      // manager -> memory node: StatsRequest
  kStats = 24,             // memory node -> manager: MemoryStats
  // manager -> compute node, if there are several, when all are configured: ConnectCompute,
  // answered with Configured
  kConnectCompute = 25,
  kLosePeer = 26,   // manager -> compute node: LosePeer
  kPeerState = 27,  // compute node -> manager: PeerState
  // memory node -> manager, when it has got an order that says how many are inside: LayersTold
  kLayersTold = 28,
  kTraceQuery = 30,   // manager -> compute node, while it writes a trace: TraceQuery
  kTraceAnswer = 31,  // compute node -> manager: TraceAnswer
  // engine_messages.h
  kOpenFront = 40,         // front -> manager: OpenFront, answered with FrontOpened
  kFrontOpened = 41,       // manager -> front: FrontOpened
  kSubmitRequest = 42,     // front -> manager: SubmitRequest, answered with RequestSubmitted
  kRequestSubmitted = 43,  // manager -> front: RequestSubmitted
  kAbortRequest = 44,      // front -> manager: AbortRequest
  kStopContinuation = 45,  // front -> manager: StopContinuation
  kRequestEvents = 46,     // manager -> front: RequestEvents
  kEngineStatus = 47,      // manager -> front: EngineStatus
};

// The type of the frame that a message travels in.
constexpr uint16_t FrameType(MessageType type) { return static_cast<uint16_t>(type); }

// Shape of the model's attention. All layers have the same shape, except for their windows.
struct AttentionSpec {
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  float scale = 0;
  DType kv_dtype = DType::kF32;
  DType wire_dtype =
      DType::kF32;  // of q and attention output between the nodes; not for K and V only
  // Scaled scores s become soft_cap * tanh(s / soft_cap); 0: they are not capped.
  float soft_cap = 0;
  // By layer. Empty: rows attend to all tokens in every layer.
  std::vector<AttentionWindow> windows = {};

  friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
};

struct SessionLimits {
  int32_t max_num_seqs = 0;            // most decode rows of one step
  int32_t max_num_batched_tokens = 0;  // most rows of one step
  int64_t max_model_len = 0;           // most tokens of one sequence
  milliseconds peer_timeout{};         // how long a node waits for another inside a step
  int32_t num_batches = 0;             // most steps in flight at a time, one of each batch
  // How long the only compute node waits for a memory node before it goes on without its rows; 0:
  // for as long as peer_timeout.
  milliseconds suspect_after{};
};

// What nodes of both roles are told at the beginning of a session.
struct ConfigureNode {
  uint64_t epoch = 0;  // of the manager's session; messages of another epoch are dropped
  NodeId node;
  std::string node_name;
  AttentionSpec attention;  // memory node: with the heads that this node gets
  SessionLimits limits;
  // Memory node: to offer to compute nodes. Compute node: to reach memory nodes by. Best first, and
  // none of them is kAuto.
  std::vector<TransportKind> fabrics;
  // kSessionTokenBytes random bytes that only members of the session know. Whoever connects to the
  // data path must show them. Empty if there are no memory nodes.
  std::string session_token;
  Switch payload_checksum = Switch::kAuto;  // see NeedsPayloadChecksum in wire_format.h
  // The network between nodes on one machine that is modelled; nullopt: none is.
  std::optional<ModelledLink> modelled_link;
  bool overlap = false;                      // decode messages come in two parts; see wire_format.h
  PollingMode polling = PollingMode::kHost;  // transport.polling of the cluster file
  // Opens no session. Memory node: Configured says whether one could be opened now. Compute node:
  // loads the weights, which stay for a while.
  bool prepare_only = false;
};

// A sequence's tokens on a memory node: K and V of the first so many are written in all layers.
struct HeldSequence {
  SequenceId sequence;
  int64_t num_tokens = 0;
};

// The slots that hold K and V of a sequence's first tokens, in all layers.
struct LeftSequence {
  SequenceId sequence;
  std::vector<TokenSlot> slots;
};

// What a manager that is gone has left in a memory node's KV.
struct LeftKv {
  uint64_t manager = 0;  // ConfigureMemory::manager_id of its session; 0: there is nothing
  std::vector<LeftSequence> sequences = {};  // as that manager numbered them, ascending
};

struct ConfigureMemory : ConfigureNode {
  // Configured::kv_id of an earlier session whose KV the manager goes on with; 0: of none.
  uint64_t kv_id = 0;
  // What of that KV is kept: everything else is dropped.
  std::vector<HeldSequence> held = {};
  // How long the node keeps the KV when the manager's connection has ended, unless another manager
  // wants the node.
  milliseconds keep_for{};
  // Who numbers the sequences of the session, in all sessions of its life; 0: nobody is to find
  // them when it is gone.
  uint64_t manager_id = 0;
  // Differs if K and V do: of another model, or of other heads of it.
  uint64_t kv_content = 0;
  // With kv_id 0: the manager is to hear what another one has left in the KV (Configured::left),
  // whose K and V then stay in their slots. Who needs them, and that nobody else gets the slots, is
  // the manager's matter: the node forgets these sequences with the first message of the session.
  bool takes_over = false;
};

// How a compute node reaches a memory node.
struct MemoryNodeAddress {
  NodeId node;
  std::string name;
  std::string offers;  // Configured::offers of the node
  // Nodes that hold different kv_heads of the same tokens are a group: the id of its first node, by
  // which routes name the group.
  NodeId group;
  // Of each token the node holds kv_heads [first_kv_head, first_kv_head + num_kv_heads).
  int32_t first_kv_head = 0;
  int32_t num_kv_heads = 0;
};

// Which part of the model a compute node runs: compute node stage * num_ranks + rank, counted from
// 0, has this part. The default is the whole model.
struct ModelPart {
  int32_t num_stages = 1;
  int32_t stage = 0;
  int32_t num_ranks = 1;
  int32_t rank = 0;

  friend bool operator==(const ModelPart&, const ModelPart&) = default;
};

struct ConfigureCompute : ConfigureNode {
  std::string model;  // checkpoint directory on the compute node's host
  LoadFormat load_format = LoadFormat::kAuto;
  uint64_t dummy_seed = 0;
  std::vector<MemoryNodeAddress> memory_nodes;  // empty: attention stays on the compute node
  int64_t local_kv_tokens = 0;  // without memory nodes: token slots on the compute node
  // There are several compute nodes: offer a data path to the others. ConnectCompute follows.
  bool joins_others = false;
  ModelPart part;
};

// How a compute node reaches another.
struct ComputeNodeAddress {
  NodeId node;
  std::string name;
  std::string offers;  // Configured::offers of the node
};

struct ConnectCompute {
  uint64_t epoch = 0;
  // All compute nodes, including the receiver, in an order that is the same for all receivers.
  std::vector<ComputeNodeAddress> nodes;
};

// The manager has lost a memory node. The compute node gives it up too, and waits no longer for
// what may still come over a data path that is not broken on its side.
struct LosePeer {
  uint64_t epoch = 0;
  NodeId node;          // ignored if it is none of the receiver's memory nodes or is lost already
  std::string message;  // why
};

// What a compute node finds out about a memory node apart from the results of steps, and tells
// before its next result. Rows of a suspended node get no token and do not fail.
struct PeerState {
  enum class State {
    kSuspended,  // it is late, and may still answer
    kResumed,    // it was suspended, and has answered everything that was sent to it
    kLost,       // it was suspended, and has not done so within the peer timeout
  };

  uint64_t epoch = 0;
  NodeId node;
  State state = State::kSuspended;
  std::string message;  // why; empty with kResumed
  // Counts this compute node's suspensions, from 1; all states of one have its number.
  uint64_t suspension = 0;
};

// The fabric that was chosen for one pair of nodes.
struct DataPath {
  NodeId node;          // at the other end
  std::string fabric;   // its name: "shm"
  std::string refused;  // better fabrics that were not used, and why; "" if none
  // What the fabric goes through, if its name does not say so (for ucx "tcp/eth0"), and whether
  // devices poll for messages.
  std::string through;
};

// A node's answer to ConfigureMemory, ConfigureCompute and ConnectCompute.
struct Configured {
  Status status = {};  // ok: the node is ready
  // Token slots of a memory node, or of a compute node that computes all attention itself.
  int64_t capacity_tokens = 0;
  std::string offers = {};   // where the node's fabrics listen; see transport/ladder.h
  int64_t weight_bytes = 0;  // compute node
  // Compute node: the paths to the memory nodes; in the answer to ConnectCompute, those to the
  // compute nodes before it in the list.
  std::vector<DataPath> paths = {};
  // Compute node whose interval (ComputeOrder::offload_interval) is not fixed: the largest that it
  // has memory for; 0: all weights find room.
  int32_t largest_interval = 0;
  // A node with a KV cache of which as many layers have a place as orders say: what may be, and how
  // many have one. All have when it has just been made.
  std::optional<ElasticKv> elastic_kv = {};
  int32_t layers_inside = 0;
  std::string holds = {};  // compute node with a part of the model: a description of it, for people
  // Memory node: which KV this is. That of the order, if the node still had it, or one that was
  // never used, and is empty. Never 0.
  uint64_t kv_id = 0;
  // Of ConfigureMemory::held: those of which it does not have so many tokens. They are dropped.
  std::vector<SequenceId> missing = {};
  LeftKv left = {};  // with ConfigureMemory::takes_over
};

struct WeightsProgress {
  int64_t loaded_bytes = 0;
  int64_t total_bytes = 0;
};

struct StatsRequest {
  uint64_t epoch = 0;
};

// A memory node's answer to StatsRequest.
struct MemoryStats {
  uint64_t epoch = 0;
  int64_t capacity_tokens = 0;
  int64_t used_tokens = 0;  // slots in the tables of its sequences
  int64_t num_sequences = 0;
  // These count since the node was configured, over all layers.
  int64_t attention_rows = 0;
  int64_t attention_us = 0;        // time spent on these rows
  int64_t stale_messages = 0;      // dropped, because of another epoch or an old step
  int64_t attention_messages = 0;  // messages that the rows came in
  int64_t attended_tokens = 0;     // tokens that the rows attended to
};

// Of a memory node's KV cache.
struct LayersTold {
  uint64_t epoch = 0;
  LayersInside inside = {};
};

struct TraceQuery {
  uint64_t epoch = 0;
  int64_t sent_ns = 0;  // by the manager's clock
};

// How well a compute node knows the clock of a memory node.
struct PeerClock {
  NodeId node;
  int64_t error_ns = 0;  // the largest possible error of its times; 0: both have the same clock
};

// The oldest records of a compute node that no earlier answer contained.
struct TraceAnswer {
  uint64_t epoch = 0;
  uint64_t clock = 0;       // ClockId of base/clock_offset.h
  int64_t asked_ns = 0;     // TraceQuery::sent_ns
  int64_t received_ns = 0;  // when the query came, by the node's clock
  int64_t answered_ns = 0;  // when this answer was sent, by the node's clock
  std::string records;      // StepRecords of step_times.h, without gaps
  uint64_t num_lost = 0;    // records overwritten since the last answer, before they were asked for
  bool more = false;        // there are records behind these
  std::vector<PeerClock> peers;
};

}  // namespace lamina
