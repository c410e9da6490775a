#include "memory_node/memory_node.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/backoff.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/units.h"
#include "memory_node/make_kv_device.h"
#include "transport/crypto.h"
#include "transport/posix.h"
#include "transport/secret_file.h"
#include "transport/tls_context.h"
#include "wire/codec.h"

namespace lamina {
namespace {

// Most events of the control channel that are handled before the data path has its turn: who floods
// the one does not stop the other.
constexpr int kEventsPerTurn = 64;
// More notifications than a correct compute node can have waiting: one for each area, one for a
// link, and one more for each first part of a decode message, since the next may come while the
// last, which was read together with its second part, is still in the queue.
constexpr size_t kMostNotifications = 4 * kMaxBatches;
static_assert(kMostNotifications > 3 * kMaxBatches + kPushSlots + 1);
// The longest sleep of the loop.
constexpr auto kHouseKeeping = std::chrono::seconds(1);
// How often to look for replies of the device that are to be posted: the device wakes nobody.
constexpr auto kDeviceInterval = std::chrono::microseconds(100);
// How often to look for new peers. It takes system calls, for which messages of the peers that are
// here should not wait.
constexpr auto kAcceptInterval = std::chrono::milliseconds(1);

Status CheckShape(const AttentionSpec& spec, const SessionLimits& limits) {
  if (spec.wire_dtype == DType::kF8)
    return InvalidArgument("queries and outputs cannot travel in fp8: only the KV cache has it");
  const bool ok = spec.num_layers > 0 && spec.num_layers <= 1024 && spec.num_kv_heads > 0 &&
                  spec.num_heads > 0 && spec.num_heads <= 1024 &&
                  spec.num_heads % spec.num_kv_heads == 0 && spec.head_dim > 0 &&
                  spec.head_dim <= 256 && spec.head_dim % 8 == 0 && limits.max_num_seqs > 0 &&
                  limits.max_num_seqs <= 65536 && limits.num_batches <= kMaxBatches &&
                  spec.soft_cap >= 0 && std::isfinite(spec.soft_cap) &&
                  (spec.windows.empty() || std::ssize(spec.windows) == spec.num_layers) &&
                  std::ranges::all_of(spec.windows, [](int64_t window) { return window >= 0; });
  if (ok) return OkStatus();
  return InvalidArgument(
      fmt::format("attention shape not supported: {} layers, {} windows, {} heads, {} kv heads, "
                  "head_dim {}, soft cap {}, "
                  "{} sequences in {} batches; head_dim must be a multiple of 8 up to 256 and kv "
                  "heads must divide heads",
                  spec.num_layers, spec.windows.size(), spec.num_heads, spec.num_kv_heads,
                  spec.head_dim, spec.soft_cap, limits.max_num_seqs, limits.num_batches));
}

ScoreRules RulesOf(const AttentionSpec& spec) { return {spec.scale, spec.soft_cap, spec.windows}; }

}  // namespace

Result<std::unique_ptr<MemoryNode>> MemoryNode::Create(const MemoryNodeOptions& options) {
  LAMINA_RETURN_IF_ERROR(
      CheckKvDevice(options.device, options.memory_bytes, options.host_memory_bytes));
  ControlOptions greeting{.hello = "memory node " + options.name};
  LAMINA_ASSIGN_OR_RETURN(greeting.secret, ReadSecretFile(options.secret_file));
  LAMINA_ASSIGN_OR_RETURN(greeting.tls, TlsContext::Load(options.tls));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ControlPort> control,
                          options.open_control(options.listen, greeting));
  return std::unique_ptr<MemoryNode>(new MemoryNode(options, std::move(control)));
}

MemoryNode::MemoryNode(const MemoryNodeOptions& options, std::unique_ptr<ControlPort> control)
    : options_(options),
      control_(std::move(control)),
      team_(std::holds_alternative<HostCpu>(options.device) ? options.num_threads : 1,
            options.pin_threads) {}

MemoryNode::~MemoryNode() = default;

void MemoryNode::Stop() {
  departure_.AskNow();
  stop_wake_.Signal();
}

void MemoryNode::Leave() {
  if (departure_.Ask()) stop_wake_.Signal();
}

bool MemoryNode::Run() {
  team_.PinOwner();
  Backoff backoff(PollingPatience(options_.device));
  while (!departure_.IsDue(session_ != nullptr, stop_wake_)) {
    if (Turn(Clock::now()))
      backoff.Reset();
    else if (session_ == nullptr || backoff.Idle())
      Sleep();
  }
  const bool cut = session_ != nullptr;
  EndSession("this node is stopping");
  return !cut;
}

bool MemoryNode::Turn(TimePoint now) {
  bool busy = HandleControl();
  if (session_ == nullptr) return busy;
  if (now >= next_accept_) busy |= AcceptPeers(now);
  for (ComputePeer& peer : session_->peers) busy |= PollPeer(peer);
  std::erase_if(session_->peers, [](const ComputePeer& peer) { return peer.lost; });
  return busy;
}

TimePoint MemoryNode::wake_at(TimePoint now) const {
  const AheadAttention* const ahead = session_ != nullptr ? session_->service->ahead() : nullptr;
  if (ahead != nullptr && ahead->carries()) return now + kDeviceInterval;
  return now + kHouseKeeping;
}

void MemoryNode::Sleep() {
  const std::array<int, 2> fds = {control_->fd(), stop_wake_.fd()};
  const Deadline latest(wake_at(Clock::now()));
  if (session_ != nullptr) return session_->ladder->Sleep(fds, latest);
  std::array<pollfd, 2> polls = {pollfd{fds[0], POLLIN, 0}, pollfd{fds[1], POLLIN, 0}};
  WaitForAnyFd(polls, latest);
}

bool MemoryNode::HandleControl() {
  bool any = false;
  for (int i = 0; i < kEventsPerTurn; ++i) {
    std::optional<ControlEvent> event = control_->TryPop();
    if (!event) break;
    any = true;
    const bool current = session_ != nullptr && session_->connection == event->connection;
    switch (event->kind) {
      case ControlEvent::Kind::kConnected:
        if (const auto rest = connected_lines_.Admit())
          LAMINA_LOG_INFO("{} connected{}", control_->PeerName(event->connection), *rest);
        break;
      case ControlEvent::Kind::kFrame: HandleFrame(event->connection, event->frame); break;
      case ControlEvent::Kind::kLost:
        if (current) EndSession(event->status.message());
        control_->Close(event->connection);
        break;
    }
  }
  return any;
}

void MemoryNode::HandleFrame(uint64_t connection, const ControlFrame& frame) {
  const bool current = session_ != nullptr && session_->connection == connection;
  switch (static_cast<MessageType>(frame.type)) {
    case MessageType::kConfigureMemory: Configure(connection, frame.payload); return;
    case MessageType::kMemoryOrder: {
      if (!current) break;
      const Result<MemoryOrder> order = Decode<MemoryOrder>(frame.payload);
      if (!order.ok() || order->epoch != session_->epoch) break;
      session_->service->Apply(*order);
      return;
    }
    case MessageType::kStatsRequest: {
      if (!current) break;
      Send(connection, MessageType::kStats, Encode(session_->service->stats()));
      return;
    }
    default: break;
  }
  if (const auto rest = dropped_lines_.Admit())
    LAMINA_LOG_WARN("dropped a control message of type {} from {}: malformed or not expected now{}",
                    frame.type, control_->PeerName(connection), *rest);
  if (!current) control_->Close(connection);  // it would only fill the log
}

void MemoryNode::Configure(uint64_t connection, const std::string& payload) {
  const Result<Configured> outcome = Serve(connection, payload);
  if (outcome.ok()) return Send(connection, MessageType::kConfigured, Encode(*outcome));
  const Status status = outcome.status().WithContext("memory node " + options_.name);
  Configured answer;
  answer.status = Status(status.code(), Briefly(status.message()));  // it may quote the request
  if (const auto rest = refused_lines_.Admit())
    LAMINA_LOG_ERROR("{}{}", answer.status.ToString(), *rest);
  Send(connection, MessageType::kConfigured, Encode(answer));
}

Result<Configured> MemoryNode::Serve(uint64_t connection, const std::string& payload) {
  if (session_ != nullptr)  // before it is parsed, which takes memory
    return TryAgain("it serves " + control_->PeerName(session_->connection) + " already");
  const Result<ConfigureMemory> request = Decode<ConfigureMemory>(payload);
  if (!request.ok())
    return InvalidArgument("the Configure message cannot be parsed: " + request.status().message());
  if (request->prepare_only) {
    LAMINA_LOG_DEBUG("{} asked whether this node is free", control_->PeerName(connection));
    return Configured();
  }
  control_->Keep(connection);  // while its memory is taken others may connect, however many
  Result<Configured> opened = Open(*request);
  if (opened.ok()) {
    session_->connection = connection;
    control_->Serve(connection);
    LAMINA_LOG_INFO("ready for {}: {} token slots, data paths offered: {}",
                    control_->PeerName(connection), opened->capacity_tokens, opened->offers);
  } else {
    control_->Keep(0);
  }
  return opened;
}

void MemoryNode::Send(uint64_t connection, MessageType type, std::string message) {
  const Status sent = control_->Send(connection, FrameType(type), std::move(message));
  if (sent.ok()) return;
  if (const auto rest = unsent_lines_.Admit()) LAMINA_LOG_WARN("{}{}", sent.message(), *rest);
}

Result<Configured> MemoryNode::Open(const ConfigureMemory& request) {
  const AttentionSpec& spec = request.attention;
  LAMINA_RETURN_IF_ERROR(CheckShape(spec, request.limits));
  const KvShape shape{spec.num_layers, spec.num_kv_heads, spec.head_dim, spec.kv_dtype};
  const int64_t capacity = options_.memory_bytes / shape.bytes_per_token();
  if (capacity < 1) {
    return OutOfSpace("--memory " + std::to_string(options_.memory_bytes) +
                      " bytes is less than one token's KV (" +
                      std::to_string(shape.bytes_per_token()) + " bytes)");
  }
  if (request.session_token.size() != kSessionTokenBytes) {
    return InvalidArgument("session token of " + std::to_string(request.session_token.size()) +
                           " bytes, expected " + std::to_string(kSessionTokenBytes));
  }
  auto session = std::make_unique<Session>();
  session->epoch = request.epoch;
  session->token = request.session_token;
  session->payload_checksum = request.payload_checksum;
  session->wire = {spec.num_heads,
                   spec.num_kv_heads,
                   spec.head_dim,
                   shape.dtype,
                   request.limits.max_num_seqs,
                   std::max(request.limits.num_batches, 1),
                   spec.wire_dtype,
                   request.overlap};
  const auto window_bytes = static_cast<int64_t>(session->wire.memory_window_bytes());
  LAMINA_RETURN_IF_ERROR(CheckHostMemory(
      window_bytes, fmt::format("a compute node's messages of {} sequences in {} batches",
                                session->wire.max_rows, session->wire.num_batches)));
  LAMINA_ASSIGN_OR_RETURN(
      std::unique_ptr<KvDevice> device,
      MakeKvDevice(options_.device, shape, capacity, options_.host_memory_bytes, team_));
  session->service = std::make_unique<AttentionService>(session->wire, RulesOf(spec), request.epoch,
                                                        std::move(device));
  session->opens_to_nics = request.polling == PollingMode::kDevice;
  if (request.polling != PollingMode::kHost) {
    Result<std::unique_ptr<AheadAttention>> ahead = session->service->MakeAheadAttention();
    if (ahead.ok())
      session->offered = std::move(*ahead);
    else
      LAMINA_LOG_INFO("this host polls for messages, not the device: {}", ahead.status().message());
  }
  LAMINA_ASSIGN_OR_RETURN(session->ladder, options_.open_ladder(FabricNames(request.fabrics)));
  if (request.modelled_link) session->ladder->Model(*request.modelled_link);
  LAMINA_RETURN_IF_ERROR(session->ladder->Listen(control_->host()));
  Configured answer;
  answer.capacity_tokens = capacity;
  answer.offers = session->ladder->offers();
  session_ = std::move(session);
  return answer;
}

bool MemoryNode::AcceptPeers(TimePoint now) {
  next_accept_ = now + kAcceptInterval;
  Session& session = *session_;
  EndpointOptions options{
      session.wire.memory_window_bytes(), DataHello{session.epoch, 0, ""}.Encode(),
      [this](const std::string& hello) { return IsMember(DataHello::Decode(hello)); }};
  if (session.offered != nullptr) options.device_window = session.offered->window();
  if (!session.opens_to_nics) options.device_window.data = nullptr;
  Result<Path> path = session.ladder->Accept(options);
  if (!path.ok()) {
    if (path.status().code() == StatusCode::kTryAgain) return false;
    if (const auto rest = accept_lines_.Admit())
      LAMINA_LOG_WARN("accepting a compute node: {}{}", path.status().ToString(), *rest);
    return false;
  }
  const std::optional<DataHello> hello = DataHello::Decode(path->endpoint->peer_hello());
  if (!IsMember(hello)) return true;
  const std::string peer_name = path->endpoint->peer_name();
  Result<std::unique_ptr<Lanes>> lanes =
      Lanes::Create(*path->fabric, std::move(path->endpoint), ReplyLanes(session.wire),
                    DecodeLanes(session.wire), {session.epoch, session.payload_checksum});
  if (!lanes.ok()) {
    LAMINA_LOG_WARN("refused a compute node at {}: {}", peer_name, lanes.status().ToString());
    return true;
  }
  LAMINA_LOG_INFO("a compute node connected over {} from {}", path->fabric->name(), peer_name);
  ComputePeer& peer = session.peers.emplace_back();
  peer.lanes = std::move(*lanes);
  peer.node = NodeId{hello->node_id};
  return true;
}

bool MemoryNode::IsMember(const std::optional<DataHello>& hello) const {
  return hello && hello->epoch == session_->epoch &&
         EqualInConstantTime(hello->session_token, session_->token);
}

bool MemoryNode::PollPeer(ComputePeer& peer) {
  const MessageKind begins = session_->wire.overlap ? MessageKind::kQueries : MessageKind::kDecode;
  const Result<Lanes::Polled> polled = peer.lanes->Poll([&](const Notification& notification) {
    peer.notifications.push_back(notification);
    if (notification.kind == begins) peer.noticed_ns[notification.slot] = NowNs();
    return notification.kind != MessageKind::kAlive &&
           peer.notifications.size() <= kMostNotifications;
  });
  if (!polled.ok()) Lose(peer, polled.status());
  for (int64_t left = peer.lanes->TakeStale(); left > 0; --left) session_->service->CountStale();
  const AheadAttention* const ahead = peer.joined ? session_->service->ahead() : nullptr;
  if (!peer.lost && ahead != nullptr && ahead->gave_up()) {
    Lose(peer, Corrupt("a message to the device did not come in time, or was about something else "
                       "than ordered"));
  }
  if (peer.lost && ahead != nullptr) session_->service->ahead()->GiveUp();
  bool busy = !polled.ok() || polled->num_events > 0;
  if (!peer.lost && peer.joined) {
    const Result<bool> left = session_->service->ahead()->Carry(peer.lanes->endpoint());
    if (!left.ok()) Lose(peer, left.status().WithContext("replies of the device"));
    busy |= !left.ok() || *left;
  }
  while (!peer.lost && !peer.notifications.empty() &&
         HandleNotification(peer, peer.notifications.front())) {
    peer.notifications.pop_front();
    busy = true;
  }
  return busy;
}

// Returns false if the message has to wait for its order.
bool MemoryNode::HandleNotification(ComputePeer& peer, const Notification& notification) {
  Session& session = *session_;
  if (notification.kind == MessageKind::kLink) {
    HandleLink(peer, notification.slot != 0);
    return true;
  }
  const auto [kind, slot, number] = notification;
  if (peer.joined && kind != MessageKind::kPush) {
    Lose(peer, Corrupt("a decode message by another way than agreed on"));
    return true;
  }
  // The first part of a decode message came behind the second, which was read together with it.
  if (kind == MessageKind::kQueries && peer.lanes->taken(kind, slot) == number) {
    session.service->CountStale();
    return true;
  }
  const Result<ReceivedMessage> message = peer.lanes->Peek(kind, slot);
  if (!message.ok()) {
    // It sees the connection close, and fails the rows that it has asked for.
    Lose(peer, message.status());
    return true;
  }
  const OrderedSteps::Timing timing = session.service->steps().TimingOf(message->header);
  if (timing == OrderedSteps::Timing::kEarly) return false;
  peer.lanes->Drop(kind, slot);
  const bool stale = timing == OrderedSteps::Timing::kStale;
  if (stale) session.service->CountStale();
  if (kind == MessageKind::kPush) {
    HandlePush(peer, *message, slot, stale);
  } else if (!stale) {
    HandleDecode(peer, *message, slot);
  }
  // The first part of a message is over with the second, also if it was never announced and nobody
  // wants the answer.
  if (session.wire.overlap && kind == MessageKind::kDecode &&
      peer.lanes->taken(MessageKind::kQueries, slot) != number)
    peer.lanes->Drop(MessageKind::kQueries, slot);
  return true;
}

// Nothing of the peer is believed any more; the endpoint goes with it.
void MemoryNode::Lose(ComputePeer& peer, const Status& why) {
  const std::string& name = peer.lanes->peer_name();
  if (why.code() == StatusCode::kPeerLost)
    LAMINA_LOG_WARN("the compute node at {} is lost: {}", name, why.message());
  else
    LAMINA_LOG_ERROR("the compute node at {} is lost: {}", name, why.ToString());
  peer.lost = true;
}

// There are never more answers in flight than areas that the compute node may fill, which is far
// below Limits::max_outstanding. So the queue is never full, and any failure means that the compute
// node is gone.
void MemoryNode::LoseUnless(ComputePeer& peer, const Status& posted) {
  if (!posted.ok()) Lose(peer, posted);
}

// The compute node says whether its device reaches this node's device window. The answer says
// whether both windows are used; otherwise neither is.
void MemoryNode::HandleLink(ComputePeer& peer, bool wanted) {
  Session& session = *session_;
  bool joins =
      wanted && session.offered != nullptr && session.service->steps().newest() == StepId{};
  if (joins) {
    const Endpoint& endpoint = peer.lanes->endpoint();
    const DeviceWindow theirs = endpoint.peer_device_window();
    const bool is_reached = theirs.descriptor >= 0 || endpoint.posts_to_device();
    const Status joined = is_reached ? session.offered->Join(theirs)
                                     : Unimplemented("the compute node's device cannot be reached");
    if (!joined.ok())
      LAMINA_LOG_WARN("this host polls for messages, not the device: {}", joined.message());
    joins = joined.ok();
  }
  if (joins) {
    LAMINA_LOG_INFO("the device polls for messages of the compute node at {}",
                    peer.lanes->peer_name());
    session.service->Use(std::move(session.offered));
    peer.joined = true;
  }
  LoseUnless(peer, peer.lanes->Signal({MessageKind::kLink, joins ? 1u : 0u, 1}));
}

void MemoryNode::HandlePush(ComputePeer& peer, const ReceivedMessage& message, uint32_t slot,
                            bool stale) {
  AttentionService& service = *session_->service;
  service.times().BeginWork();
  if (Status stored = stale ? OkStatus() : service.Push(message);
      stored.code() == StatusCode::kCorrupt)
    LAMINA_LOG_ERROR("push: {}", stored.message());
  service.times().EndWork();
  LoseUnless(peer, peer.lanes->Acknowledge(slot));
}

// Attends, and replies to the compute node that runs the next slice.
void MemoryNode::HandleDecode(ComputePeer& peer, const ReceivedMessage& message, uint32_t slot) {
  ComputePeer* const taker = TakerOf(peer, message.header);
  if (taker == nullptr) return;
  AttentionService& service = *session_->service;
  if (message.header.kind == MessageKind::kQueries) return BeginDecode(peer, *taker, message, slot);
  service.times().Noticed(peer.noticed_ns[slot]);
  if (session_->wire.overlap) return EndDecode(peer, *taker, message, slot);
  const AttentionService::Reply reply =
      service.Decode(message, taker->lanes->payload(MessageKind::kReply, slot));
  LoseUnless(*taker,
             taker->lanes->Post(MessageKind::kReply, slot, reply.header, reply.payload_bytes));
}

MemoryNode::ComputePeer* MemoryNode::TakerOf(ComputePeer& peer, const MessageHeader& header) {
  const NodeId taker{header.reply_to};
  if (taker == NodeId{}) return &peer;
  const auto found = std::ranges::find_if(
      session_->peers, [&](const ComputePeer& p) { return p.node == taker && !p.lost; });
  if (found != session_->peers.end()) return &*found;
  // That node knows already, or will soon, that it is not connected, so nobody is answered.
  LAMINA_LOG_WARN("no compute node {} is connected to reply to", taker.value);
  return nullptr;
}

void MemoryNode::BeginDecode(ComputePeer& peer, ComputePeer& taker, const ReceivedMessage& queries,
                             uint32_t slot) {
  peer.begun[slot] =
      session_->service->Begin(queries, taker.lanes->payload(MessageKind::kReply, slot));
}

void MemoryNode::EndDecode(ComputePeer& peer, ComputePeer& taker, const ReceivedMessage& message,
                           uint32_t slot) {
  // The notification of q has not come. A peer's posts are written in order, so q is here all the
  // same.
  if (peer.lanes->taken(MessageKind::kQueries, slot) != message.header.number) {
    const Result<ReceivedMessage> queries = peer.lanes->Take(MessageKind::kQueries, slot);
    if (!queries.ok()) return Lose(peer, queries.status());
    if (queries->header.number != message.header.number)
      return Lose(peer, Corrupt("k and v of a message other than that of q"));
    BeginDecode(peer, taker, *queries, slot);
  }
  AttentionService::Begun& begun = peer.begun[slot];
  const AttentionService::Reply reply = session_->service->End(
      begun, message, taker.lanes->payload(MessageKind::kReply, slot),
      [&](size_t bytes) { return taker.lanes->PostEarly(MessageKind::kReply, slot, bytes).ok(); });
  LoseUnless(taker, taker.lanes->Post(MessageKind::kReply, slot, reply.header, reply.payload_bytes,
                                      begun.early_bytes));
}

void MemoryNode::EndSession(const std::string& why) {
  if (session_ == nullptr) return;
  LAMINA_LOG_INFO("session over, KV dropped: {}", why);
  session_.reset();
}

}  // namespace lamina
