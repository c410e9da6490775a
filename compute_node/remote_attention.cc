#include "compute_node/remote_attention.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/backoff.h"
#include "base/log.h"
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
  peer.name = address.name;
  const DataHello hello{options_.epoch, options_.self.value, options_.session_token};
  const EndpointOptions endpoint{options_.wire.compute_window_bytes(), hello.Encode()};
  Result<Path> connected = ladder_->Connect(address.offers, endpoint, deadline);
  if (!connected.ok()) return connected.status().WithContext("data path to memory node " + address.name);
  LAMINA_ASSIGN_OR_RETURN(peer.decode_buffer, connected->fabric->Allocate(options_.wire.decode_area_bytes()));
  for (std::unique_ptr<Buffer>& buffer : peer.push_buffers) {
    LAMINA_ASSIGN_OR_RETURN(buffer, connected->fabric->Allocate(options_.wire.push_area_bytes()));
  }
  peer.endpoint = std::move(connected->endpoint);
  peer.path = {address.node, std::string(connected->fabric->name()), RefusalText(connected->refused)};
  peer.payload_checksum = NeedsPayloadChecksum(options_.payload_checksum, peer.path.fabric);
  LAMINA_LOG_INFO("data path to memory node {}: {}{}", peer.name, peer.path.fabric,
                  peer.path.refused.empty() ? "" : "; not used: " + peer.path.refused);
  if (peer.endpoint->peer_window_bytes() < options_.wire.memory_window_bytes()) {
    return InternalError("memory node " + address.name + " offers a window of " + std::to_string(peer.endpoint->peer_window_bytes()) +
                         " bytes, expected " + std::to_string(options_.wire.memory_window_bytes()));
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
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto peer = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.node == rows[i].node; });
    if (peer == peers_.end() || peer->lost) {
      failures_.emplace(rows[i].sequence,
                        PeerLost(peer == peers_.end() ? "no such memory node" : "memory node " + peer->name + " is lost: " + peer->why));
      continue;
    }
    (rows[i].prefill ? peer->prefill_rows : peer->decode_rows).push_back(static_cast<int>(i));
  }
  BeginPrefill(rows.subspan(first_prefill_));
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
  const size_t n = peer.decode_rows.size();
  const size_t q_bytes = options_.wire.q_row_bytes(), kv_bytes = options_.wire.kv_row_bytes();
  const std::span<std::byte> area = peer.decode_buffer->bytes();
  std::byte* q = area.data() + sizeof(MessageHeader);
  std::byte* k = q + n * q_bytes;
  std::byte* v = k + n * kv_bytes;
  for (size_t i = 0; i < n; ++i) {
    const auto row = static_cast<size_t>(peer.decode_rows[i]);
    std::memcpy(q + i * q_bytes, reinterpret_cast<const std::byte*>(q_) + row * q_bytes, q_bytes);
    std::memcpy(k + i * kv_bytes, reinterpret_cast<const std::byte*>(k_) + row * kv_bytes, kv_bytes);
    std::memcpy(v + i * kv_bytes, reinterpret_cast<const std::byte*>(v_) + row * kv_bytes, kv_bytes);
  }
  const std::span<std::byte> message = area.first(sizeof(MessageHeader) + n * options_.wire.decode_row_bytes());
  peer.decode_number = Notification::Next(peer.decode_number);
  const Notification announced{MessageKind::kDecode, 0, peer.decode_number};
  const MessageHeader header = Seal(Header(announced, layer, 0, n), message.subspan(sizeof(MessageHeader)), peer.payload_checksum);
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
  const int64_t width = options_.attention.num_kv_heads * options_.attention.head_dim;
  const size_t row_bytes = options_.wire.push_row_bytes();
  const std::span<std::byte> area = peer.push_buffers[slot]->bytes();
  std::byte* k = area.data() + sizeof(MessageHeader);
  std::byte* v = k + count * row_bytes;
  for (size_t i = 0; i < count; ++i) {
    const int64_t row = peer.prefill_rows[first + i];
    ConvertFromFloat(k_ + row * width, width, options_.wire.kv_dtype, k + i * row_bytes);
    ConvertFromFloat(v_ + row * width, width, options_.wire.kv_dtype, v + i * row_bytes);
  }
  const std::span<std::byte> message = area.first(sizeof(MessageHeader) + count * 2 * row_bytes);
  peer.push_number[slot] = Notification::Next(peer.push_number[slot]);
  const Notification announced{MessageKind::kPush, static_cast<uint32_t>(slot), peer.push_number[slot]};
  const MessageHeader header = Seal(Header(announced, layer, first, count), message.subspan(sizeof(MessageHeader)), peer.payload_checksum);
  std::memcpy(area.data(), &header, sizeof(header));
  const WriteOp write{message, options_.wire.push_offset(static_cast<int>(slot))};
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
    FailRows(peer.decode_rows, {static_cast<StatusCode>(reply.header.status), "memory node " + peer.name + ": " + text});
    return;
  }
  const size_t q_bytes = options_.wire.q_row_bytes();
  if (reply.payload.size() != peer.decode_rows.size() * q_bytes) return Lose(peer, "answered with another number of rows than asked");
  for (size_t i = 0; i < peer.decode_rows.size(); ++i) {
    std::memcpy(reinterpret_cast<std::byte*>(out_) + static_cast<size_t>(peer.decode_rows[i]) * q_bytes, reply.payload.data() + i * q_bytes,
                q_bytes);
  }
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
  FailRows(peer.decode_rows, status);
  FailRows(peer.prefill_rows, status);
}

void RemoteAttention::FailRows(const std::vector<int>& rows, const Status& status) {
  for (const int row : rows) failures_.emplace(rows_[static_cast<size_t>(row)].sequence, status);
}

}  // namespace lamina
