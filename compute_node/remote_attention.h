// Attention on memory nodes: q, k and v of decoding rows go to the nodes that hold their KV, the
// output comes back; prefill is computed here and its KV pushed to them layer by layer.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "compute_node/attention_backend.h"
#include "compute_node/compute_device.h"
#include "compute_node/memory_peer.h"
#include "splitter/model_share.h"
#include "transport/ladder.h"
#include "wire/wire_format.h"

namespace lamina {

struct RemoteAttentionOptions {
  uint64_t epoch = 0;
  std::string session_token;              // shown to the memory nodes
  std::string payload_checksum = "auto";  // NeedsPayloadChecksum
  std::string polling = "host";           // control::ConfigureCompute's
  NodeId self;
  AttentionShape attention;
  std::vector<int64_t> windows = {};  // as control::AttentionSpec's
  WireShape wire;                     // of a node that holds all heads
  int num_layers = 0;
  SliceRange own_layers = {};  // whose q, k and v are computed here; empty: all
  // Room for the prompts of every batch's step and the one that is partly prefilled.
  int64_t prefill_cache_tokens = 0;
  Clock::duration peer_timeout = std::chrono::seconds(10);
};

// Thread: one owner.
class RemoteAttention : public AttentionBackend {
 public:
  // Connects to every memory node before `deadline`; the error names the one that could not be
  // reached. Borrows the device.
  static Result<std::unique_ptr<RemoteAttention>> Create(
      const RemoteAttentionOptions& options, std::shared_ptr<Ladder> ladder,
      const std::vector<MemoryPeerAddress>& addresses, ComputeDevice& device, Deadline deadline);

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
  void Release(SequenceId sequence) override;
  void GiveUp() override;
  const Failures& failures(int batch) const override {
    return batches_[static_cast<size_t>(batch)].failures;
  }
  std::vector<LostNode> TakeLostNodes() override;
  Traffic traffic(int batch) const override { return batches_[static_cast<size_t>(batch)].traffic; }
  std::vector<ChosenPath> paths() const override;

 private:
  struct DecodeRow {
    int row = 0;          // index into the batch's rows
    bool stores = false;  // the node gets the token's K and V
    bool whole = false;   // no other node has tokens of the sequence
  };
  // Rows of a step that live on one memory node, in the order's order: the row numbers of wire
  // messages index these lists.
  struct PeerRows {
    std::vector<DecodeRow> decode;
    // Their indices into the batch's rows, and of those that store.
    std::vector<int> decode_rows, stored_rows;
    std::vector<int> prefill;  // indices into the batch's rows
    bool wants_lse = false;    // some decode rows are not whole
    // The decode message that was posted last; 0: it is not timed.
    int64_t posted_ns = 0;
    bool on_our_clock = true;
    // Over the node's DeviceLink: how far the layer's message is.
    enum class Linked { kIdle, kPosted, kAwaited } linked = Linked::kIdle;
    // The host wants to know how it turned out.
    bool fetches = false;
    // The outputs of whole rows are unpacked, or will be.
    bool taken = false;
  };
  struct Batch {
    int number = 0;
    StepId step;
    std::span<const AttentionWork> rows;
    size_t first_prefill = 0;       // rows[first_prefill..] are prefill
    std::vector<PeerRows> by_peer;  // as peers_
    std::vector<int> partial;       // decode rows that several nodes attend for, ascending
    Failures failures;
    Traffic traffic;

    // Of the layer that is computed.
    int layer = 0;
    bool sent_queries = false;
    const float *q = nullptr, *k = nullptr, *v = nullptr;
    float* out = nullptr;
    // [partial rows, num_heads, head_dim] and [partial rows, num_heads], on this host.
    std::vector<float> merged, lse;
    TimePoint started = TimePoint::max();  // of waiting here, until Finish
    // When it was first asked for: before that if another compute node asked.
    TimePoint posted{};
  };
  struct Peer {
    std::unique_ptr<MemoryPeer> connection;
    int64_t waited_us = 0;  // of the link's that were counted
    bool failed = false;    // its rows were failed after it was lost
    bool told = false;      // TakeLostNodes has reported it
  };

  RemoteAttention(const RemoteAttentionOptions& options, std::shared_ptr<Ladder> ladder,
                  std::unique_ptr<LocalKv> prefill, ComputeDevice& device);

  void AddRow(Batch& batch, int row, NodeId node);
  void BeginLayer(Batch& batch, int layer, float* out) const;
  void SendRows(Batch& batch, NodeId taker, const float* q, const float* k, const float* v);
  void BeginPrefill(Batch& batch);
  // What concerns the node, of q or output.
  RowParts HeadsOf(size_t peer, std::span<const int> rows) const;
  RowParts KvHeadsOf(size_t peer, std::span<const int> rows) const;  // likewise, of k or v
  void MarkPosted(PeerRows& rows) const;
  void SendQueries(Batch& batch, size_t peer, NodeId taker);
  void SendDecode(Batch& batch, size_t peer, NodeId taker);
  template <typename Post>
  void Send(Batch& batch, size_t peer, NodeId taker, const char* what, size_t payload_bytes,
            Post post);
  void PostByLink(Batch& batch, size_t peer, std::span<const PackedParts> qkv);
  void AwaitByLink(Batch& batch, size_t peer);
  void EndByLink(Batch& batch, size_t peer);
  void TakeByLink(Batch& batch, size_t peer);
  bool RunsAhead(const Batch& batch) const;
  bool Carrying() const;  // links have messages that this host is to post
  bool Fetching(const Batch& batch) const;
  void PushPrefill(Batch& batch, size_t peer);
  void PushRows(Batch& batch, size_t peer, size_t first, size_t count);
  void ReadReply(Batch& batch, size_t peer);
  size_t OutputBytes(const Batch& batch, size_t from) const;  // of its reply
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
  const std::shared_ptr<Ladder> ladder_;  // also of the paths to other compute nodes
  std::vector<Peer> peers_;
  std::vector<Batch> batches_;
  std::vector<AskedNode> asked_;            // by StartFor
  const std::unique_ptr<LocalKv> prefill_;  // KV of prompts while they are computed
  std::vector<TokenSlot> free_slots_;       // of prefill_
  std::unordered_map<SequenceId, std::vector<TokenSlot>> prefill_slots_;
  std::vector<float> part_;  // scratch: a row's output from one of several nodes
};

}  // namespace lamina
