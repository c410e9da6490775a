#include "compute_node/remote_attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/backoff.h"
#include "base/log.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"

namespace lamina {
namespace {

// Polling before a wait inside a step sleeps: a reply of a small batch takes tens of microseconds.
constexpr auto kPatience = microseconds(200);

std::string Milliseconds(Clock::duration duration) {
  return std::to_string(std::chrono::duration_cast<milliseconds>(duration).count()) + " ms";
}

}  // namespace

Result<std::unique_ptr<RemoteAttention>> RemoteAttention::Create(const RemoteAttentionOptions& options, std::unique_ptr<Ladder> ladder,
                                                                 const std::vector<MemoryPeerAddress>& peers, ComputeDevice& device,
                                                                 Deadline deadline) {
  const KvShape shape{options.num_layers, options.wire.num_kv_heads, options.wire.head_dim, options.wire.kv_dtype};
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LocalKv> prefill, device.MakeKv(options.attention, shape, options.prefill_cache_tokens));
  std::unique_ptr<RemoteAttention> attention(new RemoteAttention(options, std::move(ladder), std::move(prefill)));
  for (const MemoryPeerAddress& peer : peers) LAMINA_RETURN_IF_ERROR(attention->Connect(peer, deadline));
  return attention;
}

RemoteAttention::RemoteAttention(const RemoteAttentionOptions& options, std::unique_ptr<Ladder> ladder, std::unique_ptr<LocalKv> prefill)
    : options_(options), ladder_(std::move(ladder)), prefill_(std::move(prefill)) {
  for (int64_t slot = options.prefill_cache_tokens; slot > 0; --slot) free_slots_.push_back(static_cast<TokenSlot>(slot - 1));
}

Status RemoteAttention::Connect(const MemoryPeerAddress& address, Deadline deadline) {
  Peer peer;
  peer.node = address.node;
  peer.group = address.group;
  peer.name = address.name;
  peer.wire = options_.wire;
  peer.wire.num_kv_heads = address.num_kv_heads;
  peer.wire.num_heads = address.num_kv_heads * options_.attention.group();
  peer.first_kv_head = address.first_kv_head;
  const DataHello hello{options_.epoch, options_.self.value, options_.session_token};
  const EndpointOptions endpoint{peer.wire.compute_window_bytes(), hello.Encode()};
  Result<Path> connected = ladder_->Connect(address.offers, endpoint, deadline);
  if (!connected.ok()) return connected.status().WithContext("data path to memory node " + address.name);
  LAMINA_ASSIGN_OR_RETURN(peer.decode_buffer, connected->fabric->Allocate(peer.wire.decode_area_bytes()));
  for (std::unique_ptr<Buffer>& buffer : peer.push_buffers) {
    LAMINA_ASSIGN_OR_RETURN(buffer, connected->fabric->Allocate(peer.wire.push_area_bytes()));
  }
  peer.endpoint = std::move(connected->endpoint);
  peer.path = {address.node, std::string(connected->fabric->name()), RefusalText(connected->refused)};
  peer.payload_checksum = NeedsPayloadChecksum(options_.payload_checksum, peer.path.fabric);
  LAMINA_LOG_INFO("data path to memory node {}: {}{}", peer.name, peer.path.fabric,
                  peer.path.refused.empty() ? "" : "; not used: " + peer.path.refused);
  if (peer.endpoint->peer_window_bytes() < peer.wire.memory_window_bytes()) {
    return InternalError("memory node " + address.name + " offers a window of " + std::to_string(peer.endpoint->peer_window_bytes()) +
                         " bytes, expected " + std::to_string(peer.wire.memory_window_bytes()));
  }
  peers_.push_back(std::move(peer));
  return OkStatus();
}

void RemoteAttention::BeginStep(StepId step, std::span<const AttentionWork> rows) {
  step_ = step;
  rows_ = rows;
  failures_.clear();
  traffic_ = {};
  first_prefill_ =
      static_cast<size_t>(std::find_if(rows.begin(), rows.end(), [](const AttentionWork& row) { return row.prefill; }) - rows.begin());
  for (Peer& peer : peers_) {
    peer.decode_rows.clear();
    peer.prefill_rows.clear();
    peer.wants_lse = false;
  }
  for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
    const AttentionWork& row = rows[static_cast<size_t>(i)];
    AddRow(i, row.node);
    for (const NodeId node : row.also_on) AddRow(i, node);
  }
  BeginPrefill(rows.subspan(first_prefill_));
}

// Also rows that have failed get their number: the nodes that live count them.
void RemoteAttention::AddRow(int row, NodeId node) {
  const AttentionWork& work = rows_[static_cast<size_t>(row)];
  bool found = false;
  for (Peer& peer : peers_) {
    if (peer.group != node) continue;
    found = true;
    if (peer.lost) {
      FailRow(row, PeerLost("memory node " + peer.name + " is lost: " + peer.why));
    } else if (work.prefill) {
      peer.prefill_rows.push_back(row);
    } else {
      peer.decode_rows.push_back({row, node == work.node, work.also_on.empty()});
      peer.wants_lse |= !work.also_on.empty();
    }
  }
  if (!found) FailRow(row, PeerLost("no such memory node"));
}

void RemoteAttention::BeginPrefill(std::span<const AttentionWork> rows) {
  for (const AttentionWork& row : rows) {
    if (failures_.contains(row.sequence)) continue;
    Status status = free_slots_.empty() ? InternalError("the prefill cache is full") : OkStatus();
    if (status.ok()) status = prefill_->Append(row.sequence, row.position, {&free_slots_.back(), 1}, step_);
    if (!status.ok()) {
      failures_.emplace(row.sequence, std::move(status));
      continue;
    }
    prefill_slots_[row.sequence].push_back(free_slots_.back());
    free_slots_.pop_back();
  }
}

void RemoteAttention::Start(int layer, const float* q, const float* k, const float* v, float* out) {
  q_ = q;
  k_ = k;
  v_ = v;
  out_ = out;
  lse_.assign(first_prefill_ * static_cast<size_t>(options_.attention.num_heads), -std::numeric_limits<float>::infinity());
  for (Peer& peer : peers_) {
    if (!peer.lost && !peer.decode_rows.empty()) SendDecode(peer, layer);
  }
  if (first_prefill_ == rows_.size()) return;
  for (Peer& peer : peers_) {
    if (!peer.lost && !peer.prefill_rows.empty()) PushPrefill(peer, layer);
  }
  const size_t q_width = options_.wire.q_row_bytes() / 4, kv_width = options_.wire.kv_row_bytes() / 4;
  prefill_->Attend(layer, step_, rows_.subspan(first_prefill_), q + first_prefill_ * q_width, k + first_prefill_ * kv_width,
                   v + first_prefill_ * kv_width, out + first_prefill_ * q_width, failures_);
}

void RemoteAttention::Finish(int layer) {
  const TimePoint start = Clock::now();
  for (Peer& peer : peers_) {
    if (!peer.asked) continue;
    if (WaitFor(peer, layer, "the attention output", [&] { return peer.replied; })) ReadReply(peer, layer);
    peer.asked = false;
  }
  traffic_.wait_us += std::chrono::duration_cast<microseconds>(Clock::now() - start).count();
}

void RemoteAttention::EndStep() {
  for (const AttentionWork& row : rows_.subspan(first_prefill_)) {
    if (row.last_chunk || failures_.contains(row.sequence)) Release(row.sequence);
  }
  rows_ = {};
}

void RemoteAttention::Release(SequenceId sequence) {
  prefill_->Release(sequence);
  const auto found = prefill_slots_.find(sequence);
  if (found == prefill_slots_.end()) return;
  free_slots_.insert(free_slots_.end(), found->second.rbegin(), found->second.rend());
  prefill_slots_.erase(found);
}

std::vector<LostNode> RemoteAttention::TakeLostNodes() {
  std::vector<LostNode> lost;
  for (Peer& peer : peers_) {
    if (peer.lost && !peer.told) lost.push_back({peer.node, peer.name + ": " + peer.why});
    peer.told = peer.lost;
  }
  return lost;
}

std::vector<AttentionBackend::ChosenPath> RemoteAttention::paths() const {
  std::vector<ChosenPath> paths;
  for (const Peer& peer : peers_) paths.push_back(peer.path);
  return paths;
}

MessageHeader RemoteAttention::Header(const Notification& announced, int layer, size_t first_row, size_t num_rows) const {
  return {.kind = announced.kind,
          .epoch = options_.epoch,
          .step = step_.value,
          .layer = static_cast<uint32_t>(layer),
          .first_row = static_cast<uint32_t>(first_row),
          .num_rows = static_cast<uint32_t>(num_rows),
          .number = announced.number};
}

void RemoteAttention::SendDecode(Peer& peer, int layer) {
  const size_t q_bytes = peer.wire.q_row_bytes(), kv_bytes = peer.wire.kv_row_bytes();
  const std::span<std::byte> area = peer.decode_buffer->bytes();
  std::byte* end = area.data() + sizeof(MessageHeader);
  const auto append = [&](const float* rows, int width, int first, int row, size_t bytes) {
    std::memcpy(end, rows + int64_t{row} * width * options_.attention.head_dim + int64_t{first} * options_.attention.head_dim, bytes);
    end += bytes;
  };
  const int num_heads = options_.attention.num_heads, num_kv_heads = options_.attention.num_kv_heads;
  for (const DecodeRow& row : peer.decode_rows) append(q_, num_heads, peer.first_kv_head * options_.attention.group(), row.row, q_bytes);
  for (const float* rows : {k_, v_}) {
    for (const DecodeRow& row : peer.decode_rows) {
      if (row.stores) append(rows, num_kv_heads, peer.first_kv_head, row.row, kv_bytes);
    }
  }
  const std::span<std::byte> message = area.first(static_cast<size_t>(end - area.data()));
  peer.decode_number = Notification::Next(peer.decode_number);
  const Notification announced{MessageKind::kDecode, 0, peer.decode_number};
  MessageHeader header = Header(announced, layer, 0, peer.decode_rows.size());
  header.flags = peer.wants_lse ? kWantsLse : 0;
  header = Seal(header, message.subspan(sizeof(MessageHeader)), peer.payload_checksum);
  std::memcpy(area.data(), &header, sizeof(header));
  const WriteOp write{message, 0};
  peer.replied = false;
  Status posted;
  WaitFor(peer, layer, "room to send q, k and v", [&] {
    posted = peer.endpoint->Post({&write, 1}, announced.Pack(), 0);
    return posted.code() != StatusCode::kTryAgain;
  });
  if (!posted.ok()) return Lose(peer, posted.message());
  peer.asked = true;
  traffic_.sent_bytes += static_cast<int64_t>(message.size());
}

void RemoteAttention::PushPrefill(Peer& peer, int layer) {
  for (size_t first = 0; first < peer.prefill_rows.size() && !peer.lost; first += kMaxPushRows) {
    PushRows(peer, layer, first, std::min<size_t>(kMaxPushRows, peer.prefill_rows.size() - first));
  }
}

void RemoteAttention::PushRows(Peer& peer, int layer, size_t first, size_t count) {
  const auto free_slot = [&] { return std::find(peer.push_busy.begin(), peer.push_busy.end(), false); };
  if (!WaitFor(peer, layer, "a push slot", [&] { return free_slot() != peer.push_busy.end(); })) return;
  const auto slot = static_cast<size_t>(free_slot() - peer.push_busy.begin());
  const int64_t head_dim = options_.attention.head_dim;
  const int64_t width = peer.wire.num_kv_heads * head_dim;
  const size_t row_bytes = peer.wire.push_row_bytes();
  const std::span<std::byte> area = peer.push_buffers[slot]->bytes();
  std::byte* k = area.data() + sizeof(MessageHeader);
  std::byte* v = k + count * row_bytes;
  for (size_t i = 0; i < count; ++i) {
    const int64_t at = (int64_t{peer.prefill_rows[first + i]} * options_.attention.num_kv_heads + peer.first_kv_head) * head_dim;
    ConvertFromFloat(k_ + at, width, peer.wire.kv_dtype, k + i * row_bytes);
    ConvertFromFloat(v_ + at, width, peer.wire.kv_dtype, v + i * row_bytes);
  }
  const std::span<std::byte> message = area.first(sizeof(MessageHeader) + count * 2 * row_bytes);
  peer.push_number[slot] = Notification::Next(peer.push_number[slot]);
  const Notification announced{MessageKind::kPush, static_cast<uint32_t>(slot), peer.push_number[slot]};
  const MessageHeader header = Seal(Header(announced, layer, first, count), message.subspan(sizeof(MessageHeader)), peer.payload_checksum);
  std::memcpy(area.data(), &header, sizeof(header));
  const WriteOp write{message, peer.wire.push_offset(static_cast<int>(slot))};
  Status posted;
  WaitFor(peer, layer, "room to push k and v", [&] {
    posted = peer.endpoint->Post({&write, 1}, announced.Pack(), 0);
    return posted.code() != StatusCode::kTryAgain;
  });
  if (!posted.ok()) return Lose(peer, posted.message());
  peer.push_busy[slot] = true;
  traffic_.sent_bytes += static_cast<int64_t>(message.size());
}

void RemoteAttention::ReadReply(Peer& peer, int layer) {
  const Result<ReceivedMessage> message = Open(peer.endpoint->window(), MessageKind::kReply, peer.payload_checksum);
  if (!message.ok()) return Lose(peer, message.status().ToString());
  const MessageHeader& header = message->header;
  const auto asked = std::tuple(options_.epoch, step_.value, static_cast<uint32_t>(layer), peer.decode_number);
  if (std::tuple(header.epoch, header.step, header.layer, header.number) != asked) {
    return Lose(peer, "answered step " + std::to_string(header.step) + " layer " + std::to_string(header.layer) + " when step " +
                          std::to_string(step_.value) + " layer " + std::to_string(layer) + " was asked");
  }
  TakeReply(peer, *message);
}

void RemoteAttention::TakeReply(Peer& peer, const ReceivedMessage& reply) {
  traffic_.received_bytes += static_cast<int64_t>(sizeof(MessageHeader) + reply.payload.size());
  if (reply.header.status != 0) {
    const std::string text(reinterpret_cast<const char*>(reply.payload.data()), reply.payload.size());
    return FailDecodeRows(peer, {static_cast<StatusCode>(reply.header.status), "memory node " + peer.name + ": " + text});
  }
  const size_t num_rows = peer.decode_rows.size(), num_heads = static_cast<size_t>(peer.wire.num_heads);
  const size_t width = peer.wire.q_row_bytes() / sizeof(float);
  if (reply.payload.size() != num_rows * (peer.wire.q_row_bytes() + (peer.wants_lse ? peer.wire.lse_row_bytes() : 0)))
    return Lose(peer, "answered with another number of rows than asked");
  const auto* out = reinterpret_cast<const float*>(reply.payload.data());
  const float* lse = out + num_rows * width;
  for (size_t i = 0; i < num_rows; ++i) {
    const DecodeRow& row = peer.decode_rows[i];
    if (row.whole) {
      std::memcpy(OutOf(peer, row.row), out + i * width, width * sizeof(float));
    } else {
      MergeRow(peer, row.row, out + i * width, lse + i * num_heads);
    }
  }
}

float* RemoteAttention::OutOf(const Peer& peer, int row) const {
  const int64_t head = int64_t{row} * options_.attention.num_heads + peer.first_kv_head * options_.attention.group();
  return out_ + head * options_.attention.head_dim;
}

// Finish takes the peers in their order, so the sums do not depend on who answered first.
void RemoteAttention::MergeRow(const Peer& peer, int row, const float* out, const float* lse) {
  const auto head_dim = static_cast<size_t>(options_.attention.head_dim);
  float* const merged = OutOf(peer, row);
  float* const merged_lse =
      lse_.data() + static_cast<size_t>(row * options_.attention.num_heads + peer.first_kv_head * options_.attention.group());
  for (size_t head = 0; head < static_cast<size_t>(peer.wire.num_heads); ++head)
    MergePartial({merged + head * head_dim, head_dim}, merged_lse[head], {out + head * head_dim, head_dim}, lse[head]);
}

bool RemoteAttention::Progress() {
  bool any = false;
  for (Peer& peer : peers_) {
    if (peer.lost) continue;
    std::array<Event, 16> events;
    const size_t count = peer.endpoint->Poll(events);
    any |= count > 0;
    for (size_t i = 0; i < count && !peer.lost; ++i) {
      if (events[i].kind == Event::Kind::kPeerLost) Lose(peer, peer.endpoint->last_error());
      if (events[i].kind != Event::Kind::kNotification) continue;
      if (!TakeNotification(peer, Notification::Unpack(events[i].value).value_or(Notification{})))
        Lose(peer, "sent a notification that means nothing: " + std::to_string(events[i].value));
    }
  }
  return any;
}

bool RemoteAttention::TakeNotification(Peer& peer, const Notification& notification) {
  bool fresh = false;  // else it came twice
  if (notification.kind == MessageKind::kReply) {
    fresh = peer.asked && !peer.replied && notification.number == peer.decode_number;
    peer.replied |= fresh;
  } else if (notification.kind == MessageKind::kPushDone) {
    fresh = peer.push_busy[notification.slot] && notification.number == peer.push_number[notification.slot];
    if (fresh) peer.push_busy[notification.slot] = false;
  } else {
    return false;
  }
  if (!fresh) ++traffic_.stale_messages;
  return true;
}

// Polls until done() or the peer is lost or late; false for the latter two.
template <typename Done>
bool RemoteAttention::WaitFor(Peer& peer, int layer, const char* what, Done done) {
  if (done()) return true;
  const Deadline deadline = Deadline::After(options_.peer_timeout);
  Backoff backoff(kPatience);
  while (!peer.lost) {
    const bool progress = Progress();
    if (progress) backoff.Reset();
    if (!peer.lost && done()) return true;
    if (deadline.Passed()) {
      Lose(peer, "step " + std::to_string(step_.value) + " layer " + std::to_string(layer) + ": " + what + " did not come from " +
                     peer.endpoint->peer_name() + " over " + peer.path.fabric + " within " + Milliseconds(options_.peer_timeout));
    } else if (!progress && backoff.Idle()) {
      ladder_->Sleep({}, deadline);
    }
  }
  return false;
}

void RemoteAttention::Lose(Peer& peer, const std::string& why) {
  if (peer.lost) return;
  LAMINA_LOG_ERROR("memory node {} is lost: {}", peer.name, why);
  peer.lost = true;
  peer.why = why;
  const Status status = PeerLost("memory node " + peer.name + " is lost: " + why);
  FailDecodeRows(peer, status);
  for (const int row : peer.prefill_rows) FailRow(row, status);
}

void RemoteAttention::FailDecodeRows(const Peer& peer, const Status& status) {
  for (const DecodeRow& row : peer.decode_rows) FailRow(row.row, status);
}

void RemoteAttention::FailRow(int row, const Status& status) { failures_.emplace(rows_[static_cast<size_t>(row)].sequence, status); }

}  // namespace lamina
