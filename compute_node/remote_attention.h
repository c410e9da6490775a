// Attention on memory nodes: q, k and v of decoding rows go to the nodes that hold their KV, the output comes back; prefill is computed
// here and its KV pushed to them layer by layer.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "compute_node/attention_backend.h"
#include "compute_node/compute_device.h"
#include "splitter/wire_format.h"
#include "transport/ladder.h"

namespace lamina {

struct RemoteAttentionOptions {
  uint64_t epoch = 0;
  std::string session_token;              // shown to the memory nodes
  std::string payload_checksum = "auto";  // NeedsPayloadChecksum
  NodeId self;
  AttentionShape attention;
  WireShape wire;
  int num_layers = 0;
  int64_t prefill_cache_tokens = 0;  // room for the prompts of one step and the one that is partly prefilled
  Clock::duration peer_timeout = std::chrono::seconds(10);
};

struct MemoryPeerAddress {
  NodeId node;
  std::string name;
  std::string offers;  // of its Ladder
  NodeId group;        // how routes name it: the first node of those that hold the same tokens
  int first_kv_head = 0;
  int num_kv_heads = 0;
};

// Thread: one owner.
class RemoteAttention : public AttentionBackend {
 public:
  // Connects to every memory node before `deadline`; the error names the one that could not be reached.
  static Result<std::unique_ptr<RemoteAttention>> Create(const RemoteAttentionOptions& options, std::unique_ptr<Ladder> ladder,
                                                         const std::vector<MemoryPeerAddress>& peers, ComputeDevice& device,
                                                         Deadline deadline);

  void BeginStep(StepId step, std::span<const AttentionWork> rows) override;
  void Start(int layer, const float* q, const float* k, const float* v, float* out) override;
  void Finish(int layer) override;
  void EndStep() override;
  void Release(SequenceId sequence) override;
  const Failures& failures() const override { return failures_; }
  std::vector<LostNode> TakeLostNodes() override;
  Traffic traffic() const override { return traffic_; }
  std::vector<ChosenPath> paths() const override;

 private:
  struct DecodeRow {
    int row = 0;          // index into rows_
    bool stores = false;  // the node gets the token's K and V
    bool whole = false;   // no other node has tokens of the sequence
  };
  // Rows of the step that live on one memory node, in the order's order: the row numbers of wire messages index these lists.
  struct Peer {
    NodeId node;
    NodeId group;
    std::string name;
    WireShape wire;         // with the heads that it holds
    int first_kv_head = 0;  // of these
    std::unique_ptr<Buffer> decode_buffer;
    std::array<std::unique_ptr<Buffer>, kPushSlots> push_buffers;
    std::unique_ptr<Endpoint> endpoint;  // after its buffers: it goes first
    ChosenPath path;
    bool payload_checksum = false;
    uint32_t decode_number = 0;  // of the last decode message
    std::array<uint32_t, kPushSlots> push_number{};
    std::array<bool, kPushSlots> push_busy{};
    std::vector<DecodeRow> decode_rows;
    std::vector<int> prefill_rows;  // indices into rows_
    bool wants_lse = false;         // some decode rows are not whole
    bool asked = false;             // a decode message of this layer is out and its reply was not read
    bool replied = false;           // the reply is in the window
    bool lost = false;
    bool told = false;  // TakeLostNodes has reported it
    std::string why;
  };

  RemoteAttention(const RemoteAttentionOptions& options, std::unique_ptr<Ladder> ladder, std::unique_ptr<LocalKv> prefill);

  Status Connect(const MemoryPeerAddress& address, Deadline deadline);
  void AddRow(int row, NodeId node);
  void BeginPrefill(std::span<const AttentionWork> rows);
  void SendDecode(Peer& peer, int layer);
  void PushPrefill(Peer& peer, int layer);
  void PushRows(Peer& peer, int layer, size_t first, size_t count);
  void ReadReply(Peer& peer, int layer);
  void TakeReply(Peer& peer, const ReceivedMessage& reply);
  float* OutOf(const Peer& peer, int row) const;  // where its heads of the row's output go
  void MergeRow(const Peer& peer, int row, const float* out, const float* lse);
  bool Progress();
  bool TakeNotification(Peer& peer, const Notification& notification);  // false if it is none that a memory node sends
  template <typename Done>
  bool WaitFor(Peer& peer, int layer, const char* what, Done done);
  void Lose(Peer& peer, const std::string& why);
  void FailRow(int row, const Status& status);
  void FailDecodeRows(const Peer& peer, const Status& status);
  MessageHeader Header(const Notification& announced, int layer, size_t first_row, size_t num_rows) const;

  const RemoteAttentionOptions options_;
  const std::unique_ptr<Ladder> ladder_;
  std::vector<Peer> peers_;
  const std::unique_ptr<LocalKv> prefill_;  // KV of prompts while they are computed
  std::vector<TokenSlot> free_slots_;       // of prefill_
  std::unordered_map<SequenceId, std::vector<TokenSlot>> prefill_slots_;

  StepId step_;
  std::span<const AttentionWork> rows_;
  size_t first_prefill_ = 0;  // rows_[first_prefill_..] are prefill
  const float* q_ = nullptr;
  const float* k_ = nullptr;
  const float* v_ = nullptr;
  float* out_ = nullptr;
  std::vector<float> lse_;  // [decode rows, num_heads] of what is merged in out_ so far
  Failures failures_;
  Traffic traffic_;
};

}  // namespace lamina
