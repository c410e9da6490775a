// The attention backend of a cluster with memory nodes: q, k and v of decode rows go to the nodes
// that hold their KV, and the outputs come back. Prefill attention is computed here, and its K and
// V are pushed to the memory nodes layer by layer. Message formats: wire/wire_format.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "compute_node/attention_backend.h"
#include "compute_node/compute_device.h"
#include "compute_node/memory_peer.h"
#include "compute_node/prefill_kv.h"
#include "splitter/model_share.h"
#include "transport/ladder.h"
#include "wire/wire_format.h"

namespace lamina {

struct RemoteAttentionOptions {
  uint64_t epoch = 0;
  std::string session_token;                 // to show to the memory nodes
  Switch payload_checksum = Switch::kAuto;   // see NeedsPayloadChecksum
  PollingMode polling = PollingMode::kHost;  // who waits for messages
  NodeId self;
  AttentionShape attention;
  std::vector<int64_t> windows = {};  // AttentionSpec::windows
  WireShape wire;                     // of a memory node that holds all heads
  int num_layers = 0;                 // of the model
  SliceRange own_layers = {};         // layers with q, k and v computed here; empty: all
  // Token slots for KV of prompts while they are computed, of all batches.
  int64_t prefill_cache_tokens = 0;
  Clock::duration peer_timeout = std::chrono::seconds(10);
};

// Thread: one owner.
class RemoteAttention : public AttentionBackend {
 public:
  // Connects to every memory node before `deadline`. Borrows the device. kOutOfSpace if the device
  // has no room for the prefill cache, or the host none for its slots or the messages;
  // kInvalidArgument if that cache cannot have so many tokens; other errors name the memory node
  // that could not be reached.
  static Result<std::unique_ptr<RemoteAttention>> Create(
      const RemoteAttentionOptions& options, std::shared_ptr<Ladder> ladder,
      const std::vector<MemoryNodeAddress>& addresses, ComputeDevice& device, Deadline deadline);

  void BeginStep(int batch, StepId step, std::span<const AttentionWork> rows) override;
  void Start(int batch, int layer, const float* q, const float* k, const float* v,
             float* out) override;
  std::span<const AskedNode> StartFor(NodeId taker, int batch, int layer, const float* q,
                                      const float* k, const float* v, float* out) override;
  void Expect(int batch, int layer, float* out, std::span<const AskedNode> asked) override;
  bool takes_queries_first() const override { return options_.wire.overlap; }
  void StartQueries(NodeId taker, int batch, int layer, const float* q) override;
  bool Finish(int batch) override;
  void AwaitPushes(int batch) override;
  void EndStep(int batch) override;
  void Poll() override { Progress(); }
  void Sleep(std::span<const int> fds, Deadline latest) override;
  void Release(SequenceId sequence) override { prefill_->Release(sequence); }
  void GiveUp() override;
  const Failures& failures(int batch) const override {
    return batches_[static_cast<size_t>(batch)].failures;
  }
  std::vector<LostNode> TakeLostNodes() override;
  Traffic traffic(int batch) const override { return batches_[static_cast<size_t>(batch)].traffic; }
  std::vector<DataPath> paths() const override;

 private:
  struct DecodeRow {
    int row = 0;          // index into the batch's rows
    bool stores = false;  // whether this node stores the token's K and V
    bool whole = false;   // whether no other node has tokens of the sequence
  };
  // Rows of a step with KV on one memory node, in the order of the manager's order. Row numbers in
  // wire messages are indices into `decode` and `prefill`.
  struct PeerRows {
    std::vector<DecodeRow> decode;
    // Indices into the batch's rows: of all decode rows, and of those that are stored.
    std::vector<int> decode_rows, stored_rows;
    std::vector<int> prefill;  // indices into the batch's rows
    bool wants_lse = false;    // whether some decode rows are not whole
    // When the last decode message was posted (0: not timed), and whether by this node's clock.
    int64_t posted_ns = 0;
    bool on_our_clock = true;
    // The state of the layer's message, if it goes by the node's DeviceLink.
    enum class Linked { kIdle, kPosted, kAwaited } linked = Linked::kIdle;
    // Whether the host fetches the outcome of that message.
    bool fetches = false;
    // Whether the outputs of whole rows are unpacked already, or asked to be.
    bool taken = false;
  };
  struct Batch {
    int number = 0;
    StepId step;
    std::span<const AttentionWork> rows;
    size_t first_prefill = 0;       // rows[first_prefill..] are prefill
    std::vector<PeerRows> by_peer;  // same indices as peers_
    std::vector<int> partial;       // decode rows with tokens on several nodes, ascending
    Failures failures;
    Traffic traffic;

    // The following belong to the layer that is computed.
    int layer = 0;
    bool sent_queries = false;
    const float *q = nullptr, *k = nullptr, *v = nullptr;
    float* out = nullptr;
    // [partial rows, num_heads, head_dim] and [partial rows, num_heads], on this host.
    std::vector<float> merged, lse;
    TimePoint started = TimePoint::max();  // when waiting began here; max() while nothing waits
    // When the first memory node was asked, which is before `started` if another compute node
    // asked.
    TimePoint posted{};
  };
  struct Peer {
    std::unique_ptr<MemoryPeer> connection;
    int64_t waited_us = 0;  // the part of the link's waited_us that is in a traffic already
    bool failed = false;    // it is lost, and its rows have failed
    bool told = false;      // it is lost, and TakeLostNodes has reported it
  };

  RemoteAttention(const RemoteAttentionOptions& options, std::shared_ptr<Ladder> ladder,
                  std::unique_ptr<PrefillKv> prefill, ComputeDevice& device);

  void AddRow(Batch& batch, int row, NodeId node);
  void BeginLayer(Batch& batch, int layer, float* out) const;
  void SendRows(Batch& batch, NodeId taker, const float* q, const float* k, const float* v);
  // The node's heads in these rows of q or output, and its kv_heads in these rows of k or v.
  RowParts HeadsOf(size_t peer, std::span<const int> rows) const;
  RowParts KvHeadsOf(size_t peer, std::span<const int> rows) const;
  void MarkPosted(PeerRows& rows) const;
  void SendQueries(Batch& batch, size_t peer, NodeId taker);
  void SendDecode(Batch& batch, size_t peer, NodeId taker);
  template <typename Post>
  void Send(Batch& batch, size_t peer, NodeId taker, const char* what, size_t payload_bytes,
            Post post);
  // A layer's message by a DeviceLink: it is posted, its reply is awaited by the device, outputs
  // are unpacked, and its outcome is looked at.
  void PostByLink(Batch& batch, size_t peer, std::span<const PackedParts> qkv);
  void AwaitByLink(Batch& batch, size_t peer);
  void EndByLink(Batch& batch, size_t peer);
  void TakeByLink(Batch& batch, size_t peer);
  // Whether the device may be given work that follows the reply before the reply is there.
  bool RunsAhead(const Batch& batch) const;
  // Whether a link has messages that this host must post.
  bool Carrying() const;
  // Whether the outcome of a message by a link is still missing.
  bool Fetching(const Batch& batch) const;
  void PushPrefill(Batch& batch, size_t peer);
  void PushRows(Batch& batch, size_t peer, size_t first, size_t count);
  void ReadReply(Batch& batch, size_t peer);
  // Bytes of outputs and log-sum-exps in the node's reply.
  size_t OutputBytes(const Batch& batch, size_t from) const;
  bool TakeFailedRows(Batch& batch, size_t from, std::span<const std::byte>& payload);
  void TakeOutputs(Batch& batch, size_t peer, std::span<const std::byte> payload);
  template <typename Take>
  void ForEachWhole(const Batch& batch, size_t peer, Take take) const;
  void MergeRows(Batch& batch, size_t peer, std::span<const std::byte> payload);
  void MergeRow(Batch& batch, size_t peer, int row, const std::byte* out, const float* lse);
  bool Progress();
  template <typename Done>
  bool WaitFor(const Batch& batch, size_t peer, const char* what, Done done);
  void LoseLate(const Batch& batch, size_t peer, const char* what);
  void FailRowsOfLost();
  static void FailRow(Batch& batch, int row, const Status& status);
  static void FailDecodeRows(Batch& batch, size_t peer, const Status& status);
  MessageHeader Header(const Batch& batch, size_t first_row, size_t num_rows) const;
  int TimesFlags(const Batch& batch) const;
  TracedWork Traced(const Batch& batch, size_t rows) const {
    return {batch.step, batch.number, batch.layer, rows};
  }
  MemoryPeer& peer(size_t index) const { return *peers_[index].connection; }

  const RemoteAttentionOptions options_;
  ComputeDevice& device_;
  const std::shared_ptr<Ladder> ladder_;  // shared with the paths to other compute nodes
  std::vector<Peer> peers_;
  std::vector<Batch> batches_;
  std::vector<AskedNode> asked_;  // the result of StartFor
  const std::unique_ptr<PrefillKv> prefill_;
  std::vector<float> part_;  // scratch: a row's output from one of several nodes
};

}  // namespace lamina
