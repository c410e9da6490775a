#include "compute_node/compute_node.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>

#include "base/backoff.h"
#include "base/log.h"
#include "base/printable.h"
#include "compute_node/local_attention.h"
#include "compute_node/make_compute_device.h"
#include "compute_node/remote_attention.h"
#include "compute_node/step_context.h"
#include "transport/posix.h"
#include "transport/secret_file.h"
#include "transport/tls_context.h"

namespace lamina {
namespace {

// Of the control channel; then slices have their turn, whoever floods the other.
constexpr int kEventsPerTurn = 64;
constexpr auto kConnectTimeout = std::chrono::seconds(20);
// The longest sleep of the loop.
constexpr auto kHouseKeeping = std::chrono::seconds(1);
constexpr auto kProgressInterval = milliseconds(200);
constexpr auto kLinger = std::chrono::seconds(1);
constexpr auto kKeepModel = std::chrono::seconds(60);
// What a cluster's file may ask for (manager/cluster_config.cc): buffers are made for so many rows.
constexpr int kMaxSequences = 65536;
constexpr int kMaxTokensOfStep = 1 << 20;
constexpr int64_t kMaxModelLen = std::numeric_limits<int32_t>::max();  // positions have 32 bits
constexpr size_t kRecordsPerAnswer = 4096;  // 160 kB: tens of microseconds in which no slice runs

DType FromProto(control::KvDType dtype) {
  switch (dtype) {
    case control::KV_DTYPE_BFLOAT16: return DType::kBF16;
    case control::KV_DTYPE_FLOAT16: return DType::kF16;
    case control::KV_DTYPE_FP8: return DType::kF8;
    default: return DType::kF32;
  }
}

// What messages hold is laid out by the manager's words, what fills them by the model.
Status CheckAttention(const control::AttentionSpec& spec, const LoadedModel& model) {
  if (spec.wire_dtype() == control::KV_DTYPE_FP8)
    return InvalidArgument("queries and outputs cannot travel in fp8: only the KV cache has it");
  const bool has_windows = !spec.windows().empty();
  for (const Op& attention : model.sliced.attentions) {
    if ((!has_windows || spec.windows_size() == spec.num_layers()) &&
        spec.num_layers() == std::ssize(model.sliced.attentions) &&
        spec.num_heads() == attention.num_heads && spec.num_kv_heads() == attention.num_kv_heads &&
        spec.head_dim() == attention.head_dim && spec.scale() == attention.scale &&
        spec.soft_cap() == attention.soft_cap &&
        (has_windows ? spec.windows(attention.layer) : 0) == attention.window)
      continue;
    return InvalidArgument(
        fmt::format("an attention that is not the model's: {} layers, {} windows, {} heads, {} kv "
                    "heads, head_dim {}, scale {}, "
                    "soft cap {}; the model has {} layers, {} heads, {} kv heads, head_dim {}, "
                    "scale {}, soft cap {}, and a window of {} in layer {}",
                    spec.num_layers(), spec.windows_size(), spec.num_heads(), spec.num_kv_heads(),
                    spec.head_dim(), spec.scale(), spec.soft_cap(), model.sliced.attentions.size(),
                    attention.num_heads, attention.num_kv_heads, attention.head_dim,
                    attention.scale, attention.soft_cap, attention.window, attention.layer));
  }
  return OkStatus();
}

// Two requests for weights that are the same, from files that did not change, have the same.
std::string SourceOf(const control::ConfigureCompute& request) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator file(request.model(), error), end; !error && file != end;
       file.increment(error)) {
    files.push_back(fmt::format("{} {} {}", file->path().filename().string(),
                                file->is_regular_file(error) ? file->file_size(error) : 0,
                                file->last_write_time(error).time_since_epoch().count()));
  }
  std::ranges::sort(files);
  const control::ModelShare& share = request.share();
  return fmt::format("{}\n{}\n{}\n{} {} {} {}\n{}", request.model(), request.load_format(),
                     request.dummy_seed(), share.num_stages(), share.stage(), share.num_ranks(),
                     share.rank(), fmt::join(files, "\n"));
}

ModelShare FromProto(const control::ModelShare& proto) {
  return {std::max(proto.num_stages(), 1), proto.stage(), std::max(proto.num_ranks(), 1),
          proto.rank()};
}

void AddPaths(const std::vector<ChosenPath>& paths, control::Configured& answer) {
  for (const ChosenPath& path : paths) {
    control::DataPath& told = *answer.add_paths();
    told.set_node_id(path.node.value);
    told.set_fabric(path.fabric);
    told.set_refused(path.refused);
    told.set_through(path.through);
  }
}

AttentionShape ShapeOf(const control::AttentionSpec& spec) {
  return {spec.num_heads(), spec.num_kv_heads(), spec.head_dim(), spec.scale(), spec.soft_cap()};
}

std::vector<int64_t> WindowsOf(const control::AttentionSpec& spec) {
  return {spec.windows().begin(), spec.windows().end()};
}

// Begins to connect to the memory nodes that a configuration names. Prefill KV is kept for the
// layers of `slices`, those that run here.
Result<ConnectingAttention> StartRemoteAttention(const control::ConfigureCompute& request,
                                                 ComputeDevice& device,
                                                 std::shared_ptr<Ladder> ladder,
                                                 SliceRange slices) {
  const control::AttentionSpec& spec = request.attention();
  const int num_batches = std::max(request.limits().num_batches(), 1);
  if (request.session_token().size() != kSessionTokenBytes) {
    return InvalidArgument("session token of " + std::to_string(request.session_token().size()) +
                           " bytes, expected " + std::to_string(kSessionTokenBytes));
  }
  RemoteAttentionOptions options;
  options.epoch = request.epoch();
  options.session_token = request.session_token();
  options.payload_checksum = request.payload_checksum();
  if (!request.polling().empty()) options.polling = request.polling();
  options.self = NodeId{request.node_id()};
  options.attention = ShapeOf(spec);
  options.wire = {spec.num_heads(),
                  spec.num_kv_heads(),
                  spec.head_dim(),
                  FromProto(spec.kv_dtype()),
                  request.limits().max_num_seqs(),
                  num_batches,
                  FromProto(spec.wire_dtype()),
                  request.overlap()};
  options.num_layers = spec.num_layers();
  options.windows = WindowsOf(spec);
  options.own_layers = {slices.first, std::min(slices.end, spec.num_layers())};
  options.prefill_cache_tokens =
      num_batches * (request.limits().max_model_len() + request.limits().max_num_batched_tokens());
  options.peer_timeout = milliseconds(request.limits().peer_timeout_ms());
  std::vector<MemoryPeerAddress> peers;
  for (const control::MemoryPeer& peer : request.memory_nodes()) {
    if (peer.first_kv_head() < 0 || peer.num_kv_heads() < 1 ||
        peer.num_kv_heads() > spec.num_kv_heads() - peer.first_kv_head())
      return InvalidArgument(fmt::format("kv_heads that cannot be: {} from {} on, of {}",
                                         peer.num_kv_heads(), peer.first_kv_head(),
                                         spec.num_kv_heads()));
    peers.push_back({NodeId{peer.node_id()}, peer.node_name(), peer.offers(),
                     NodeId{peer.group_id()}, peer.first_kv_head(), peer.num_kv_heads()});
  }
  return RemoteAttention::StartConnect(options, std::move(ladder), peers, device,
                                       Deadline::After(kConnectTimeout));
}

}  // namespace

Result<std::unique_ptr<AttentionStrategy>> MakeLocalAttention(
    const control::ConfigureCompute& request, int64_t kv_capacity_tokens, ComputeDevice& device) {
  const control::AttentionSpec& spec = request.attention();
  const KvShape kv{spec.num_layers(), spec.num_kv_heads(), spec.head_dim(),
                   FromProto(spec.kv_dtype())};
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LocalKv> store,
                          device.MakeKv(ShapeOf(spec), kv, WindowsOf(spec), kv_capacity_tokens));
  return std::unique_ptr<AttentionStrategy>(std::make_unique<LocalAttention>(
      std::move(store), std::max(request.limits().num_batches(), 1)));
}

Result<std::unique_ptr<ComputeNode>> ComputeNode::Create(const NodeOptions& options) {
  ControlOptions greeting{.hello = "compute node " + options.name};
  LAMINA_ASSIGN_OR_RETURN(greeting.secret, ReadSecretFile(options.secret_file));
  LAMINA_ASSIGN_OR_RETURN(greeting.tls, TlsContext::Load(options.tls));
  std::unique_ptr<ComputeNode> node(new ComputeNode(options));
  LAMINA_ASSIGN_OR_RETURN(node->device_, MakeComputeDevice(options.device, node->team_));
  LAMINA_ASSIGN_OR_RETURN(node->control_, options.open_control(options.listen, greeting));
  return node;
}

ComputeNode::ComputeNode(const NodeOptions& options)
    : options_(options),
      team_(std::holds_alternative<DeviceSpec>(options.device) ? 1 : options.num_threads,
            options.pin_threads) {}

void ComputeNode::Stop() {
  departure_.AskNow();
  stop_wake_.Signal();
}

void ComputeNode::Leave() {
  if (departure_.Ask()) stop_wake_.Signal();
}

bool ComputeNode::Run() {
  team_.PinOwner();
  Backoff backoff(PollingPatience(options_.device));
  while (!departure_.IsDue(session_ != nullptr, stop_wake_)) {
    const TimePoint now = Clock::now();
    if (Turn(now))
      backoff.Reset();
    else if (!RunsSteps(now) || backoff.Idle())
      Sleep(now);
  }
  // While it connects there is no session that a stop would have to wait for.
  if (opening_ != nullptr) EndOpening(TryAgain("this node was asked to leave"));
  return session_ == nullptr;
}

bool ComputeNode::Turn(TimePoint now) {
  bool busy = HandleControl();
  if (opening_ != nullptr) busy |= ContinueOpening();
  if (session_ != nullptr && session_->joining) busy |= ContinueJoining();
  if (session_ != nullptr && !session_->runner->idle()) last_under_way_ = now;
  if (RunsSteps(now)) busy |= Advance();
  if (session_ == nullptr && opening_ == nullptr && model_.loaded != nullptr &&
      now > model_.used_last + kKeepModel)
    model_ = {};
  return busy;
}

// What was posted last to another compute node may need polls to go out.
bool ComputeNode::RunsSteps(TimePoint now) const {
  if (session_ == nullptr) return false;
  return !session_->runner->idle() ||
         (session_->runner->among_several() && now <= last_under_way_ + kLinger);
}

bool ComputeNode::Advance() {
  std::vector<control::StepResult> results;
  if (!session_->runner->Advance(results)) return false;
  for (const control::StepResult& result : results)
    Send(session_->connection, control::STEP_RESULT, result);
  return true;
}

TimePoint ComputeNode::wake_at(TimePoint now) const {
  const TimePoint latest = now + kHouseKeeping;
  if (opening_ != nullptr) return std::min(latest, opening_->attention->wake_at());
  if (session_ != nullptr && session_->joining)
    return std::min(latest, session_->joining->wake_at());
  return latest;
}

void ComputeNode::Sleep(TimePoint now) {
  const std::array<int, 2> fds = {control_->fd(), stop_wake_.fd()};
  const Deadline latest(wake_at(now));
  if (opening_ != nullptr) return opening_->session->ladder->Sleep(fds, latest);
  if (session_ != nullptr && session_->joining) return session_->ladder->Sleep(fds, latest);
  if (RunsSteps(now)) return session_->runner->Sleep(fds);
  std::array<pollfd, 2> polls = {pollfd{fds[0], POLLIN, 0}, pollfd{fds[1], POLLIN, 0}};
  WaitForAnyFd(polls, latest);
}

bool ComputeNode::HandleControl() {
  bool any = false;
  for (int i = 0; i < kEventsPerTurn; ++i) {
    const std::optional<ControlEvent> event = control_->TryPop();
    if (!event) break;
    any = true;
    switch (event->kind) {
      case ControlEvent::Kind::kConnected:
        if (const auto rest = connected_lines_.Admit())
          LAMINA_LOG_INFO("{} connected{}", control_->PeerName(event->connection), *rest);
        break;
      case ControlEvent::Kind::kFrame: HandleFrame(event->connection, event->frame); break;
      case ControlEvent::Kind::kLost: HandleLoss(event->connection, event->status); break;
    }
  }
  return any;
}

void ComputeNode::HandleLoss(uint64_t connection, const Status& why) {
  if (session_ != nullptr && session_->connection == connection) {
    LAMINA_LOG_INFO("session over: {}", why.message());
    EndSession();
  }
  if (opening_ != nullptr && opening_->session->connection == connection) {
    LAMINA_LOG_INFO("session over before it began: {}", why.message());
    opening_.reset();
  }
  control_->Close(connection);
}

void ComputeNode::HandleFrame(uint64_t connection, const ControlFrame& frame) {
  const bool current = session_ != nullptr && session_->connection == connection;
  switch (frame.type) {
    case control::CONFIGURE_COMPUTE: Configure(connection, frame.payload); return;
    case control::CONNECT_COMPUTE:
      if (!current) break;
      JoinOthers(frame.payload);
      return;
    case control::COMPUTE_ORDER: {
      control::ComputeOrder order;
      if (!current || !order.ParseFromString(frame.payload) || order.epoch() != session_->epoch)
        break;
      if (const Status begun = session_->runner->Begin(order); !begun.ok())
        LAMINA_LOG_ERROR("{}", begun.ToString());
      return;
    }
    case control::TRACE_REQUEST: {
      control::TraceRequest request;
      if (!current || !request.ParseFromString(frame.payload) || request.epoch() != session_->epoch)
        break;
      TellRecords(connection, request);
      return;
    }
    default: break;
  }
  if (const auto rest = dropped_lines_.Admit())
    LAMINA_LOG_WARN("dropped a control message of type {} from {}: malformed or not expected now{}",
                    frame.type, control_->PeerName(connection), *rest);
  if (!current) control_->Close(connection);  // it would only fill the log
}

void ComputeNode::TellRecords(uint64_t connection, const control::TraceRequest& request) {
  control::Trace answer;
  answer.set_epoch(request.epoch());
  answer.set_asked_ns(request.sent_ns());
  answer.set_received_ns(NowNs());
  session_->runner->trace().TellRecords(kRecordsPerAnswer, answer);
  answer.set_answered_ns(NowNs());
  Send(connection, control::TRACE, answer);
}

void ComputeNode::Configure(uint64_t connection, const std::string& payload) {
  control::ConfigureCompute request;
  const Session* const served = opening_ != nullptr ? opening_->session.get() : session_.get();
  if (served != nullptr)  // before it is parsed, which takes memory
    return SendConfigured(
        connection, TryAgain("it serves " + control_->PeerName(served->connection) + " already"));
  if (!request.ParseFromString(payload))
    return SendConfigured(connection, InvalidArgument("the Configure message cannot be parsed"));
  control_->Keep(connection);  // while weights load others may connect, however many
  if (!request.prepare_only()) return Open(connection, request);
  const Result<control::Configured> outcome = Prepare(connection, request);
  control_->Keep(0);
  SendConfigured(connection, outcome);
}

Result<control::Configured> ComputeNode::Prepare(uint64_t connection,
                                                 const control::ConfigureCompute& request) {
  LAMINA_RETURN_IF_ERROR(LoadModel(connection, request));
  return control::Configured();
}

void ComputeNode::JoinOthers(const std::string& payload) {
  control::ConnectCompute request;
  const bool expected = request.ParseFromString(payload) && request.epoch() == session_->epoch &&
                        session_->runner->idle() && !session_->joining;
  const Status begun =
      expected ? BeginJoining(request)
               : InvalidArgument("an order to join other compute nodes that was not due");
  if (!begun.ok()) SendConfigured(session_->connection, begun);
}

Status ComputeNode::BeginJoining(const control::ConnectCompute& request) {
  if (session_->ladder == nullptr || session_->ladder->offers().empty())
    return InvalidArgument("this compute node offers no data path");
  std::vector<ContextPeerAddress> nodes;
  for (const control::ComputePeer& node : request.nodes())
    nodes.push_back({NodeId{node.node_id()}, node.node_name(), node.offers()});
  ContextExchangeOptions options;
  options.epoch = session_->epoch;
  options.session_token = session_->token;
  options.payload_checksum = session_->payload_checksum;
  options.self = session_->self;
  options.num_batches = std::max(session_->limits.num_batches(), 1);
  options.payload_bytes = MaxContextBytes({session_->model->sliced, session_->wire_dtype},
                                          session_->limits.max_num_batched_tokens());
  if (session_->model->share.num_ranks > 1)
    options.sum_bytes = MaxPartialSumBytes(session_->model->sliced, session_->wire_dtype,
                                           session_->limits.max_num_batched_tokens());
  options.peer_timeout = milliseconds(session_->limits.peer_timeout_ms());
  const ModelShare& share = session_->model->share;
  const int place = share.stage * share.num_ranks + share.rank;
  if (!share.whole() && (request.nodes_size() != share.num_stages * share.num_ranks ||
                         nodes[static_cast<size_t>(place)].node != options.self))
    return InvalidArgument("an order to join " + std::to_string(request.nodes_size()) +
                           " compute nodes, which do not make up the model");
  // All wait for a way that may be cut: no longer than for a node that serves.
  const Clock::duration patience = std::min<Clock::duration>(kConnectTimeout, options.peer_timeout);
  LAMINA_ASSIGN_OR_RETURN(
      session_->joining,
      ContextExchange::StartJoin(options, session_->ladder, nodes, Deadline::After(patience)));
  return OkStatus();
}

bool ComputeNode::ContinueJoining() {
  Result<std::unique_ptr<ContextExchange>> others = session_->joining->Poll();
  if (others.status().code() == StatusCode::kTryAgain) return false;
  session_->joining.reset();
  if (!others.ok()) {
    SendConfigured(session_->connection, others.status());
    return true;
  }
  control::Configured answer;
  AddPaths((*others)->paths(), answer);
  session_->runner->JoinOthers(*std::move(others), session_->wire_dtype);
  SendConfigured(session_->connection, answer);
  return true;
}

void ComputeNode::SendConfigured(uint64_t connection, const Result<control::Configured>& outcome) {
  control::Configured answer;
  if (outcome.ok()) {
    answer = *outcome;
  } else {
    const Status status = outcome.status().WithContext("compute node " + options_.name);
    answer.set_status(static_cast<uint32_t>(status.code()));
    answer.set_message(Briefly(status.message()));  // it may quote the request
    if (const auto rest = refused_lines_.Admit())
      LAMINA_LOG_ERROR("{}: {}{}", CodeName(status.code()), answer.message(), *rest);
  }
  Send(connection, control::CONFIGURED, answer);
}

Status ComputeNode::LoadModel(uint64_t connection, const control::ConfigureCompute& request) {
  std::string source = SourceOf(request);
  if (model_.loaded != nullptr && model_.source == source) return OkStatus();
  model_ = {};  // before the next one needs its memory
  WeightOptions weights;
  weights.model_dir = request.model();
  weights.load_format = request.load_format();
  weights.dummy_seed = request.dummy_seed();
  weights.share = FromProto(request.share());
  TimePoint last_report = Clock::now() - kProgressInterval;
  weights.on_progress = [&](int64_t loaded, int64_t total) {
    if (loaded < total && Clock::now() - last_report < kProgressInterval) return;
    last_report = Clock::now();
    control::LoadProgress progress;
    progress.set_loaded_bytes(loaded);
    progress.set_total_bytes(total);
    Send(connection, control::LOAD_PROGRESS, progress);
  };
  // There is no session yet that it could wait for.
  weights.interrupted = [&] { return departure_.asked().load(); };
  LAMINA_ASSIGN_OR_RETURN(model_.loaded, device_->Load(weights));
  model_.source = std::move(source);
  model_.used_last = Clock::now();
  return OkStatus();
}

void ComputeNode::EndSession() {
  session_.reset();
  model_.used_last = Clock::now();
}

void ComputeNode::Open(uint64_t connection, const control::ConfigureCompute& request) {
  if (const Status begun = BeginOpening(connection, request); !begun.ok()) {
    opening_.reset();
    control_->Keep(0);
    return SendConfigured(connection, begun);
  }
  if (opening_->attention) return;  // the turns go on with it
  Result<std::unique_ptr<AttentionStrategy>> attention =
      MakeLocalAttention(request, request.local_kv_tokens(), *device_);
  EndOpening(attention.ok() ? OpenWith(*std::move(attention)) : attention.status());
}

Status ComputeNode::BeginOpening(uint64_t connection, const control::ConfigureCompute& request) {
  const control::Limits& limits = request.limits();
  if (limits.max_num_seqs() < 1 || limits.max_num_batched_tokens() < limits.max_num_seqs() ||
      limits.max_model_len() < 1 || limits.max_model_len() > kMaxModelLen ||
      limits.max_num_seqs() > kMaxSequences || limits.max_num_batched_tokens() > kMaxTokensOfStep ||
      limits.num_batches() > kMaxBatches) {
    return InvalidArgument(fmt::format(
        "limits that cannot be: {} sequences, at most {}; {} tokens in a step, at "
        "least as many and at most {}; {} tokens in a "
        "sequence, at most {}; {} batches, at most {}",
        limits.max_num_seqs(), kMaxSequences, limits.max_num_batched_tokens(), kMaxTokensOfStep,
        limits.max_model_len(), kMaxModelLen, limits.num_batches(), kMaxBatches));
  }
  auto session = std::make_unique<Session>();
  session->connection = connection;
  session->epoch = request.epoch();
  session->token = request.session_token();
  session->payload_checksum = request.payload_checksum();
  session->self = NodeId{request.node_id()};
  session->limits = limits;
  session->wire_dtype = FromProto(request.attention().wire_dtype());
  LAMINA_RETURN_IF_ERROR(LoadModel(connection, request));
  session->model = model_.loaded.get();
  LAMINA_RETURN_IF_ERROR(CheckAttention(request.attention(), *session->model));
  opening_ = std::make_unique<Opening>(Opening{request, std::move(session), std::nullopt});
  if (request.memory_nodes().empty()) return OkStatus();
  std::shared_ptr<Ladder>& ladder = opening_->session->ladder;
  const std::vector<std::string> fabrics(request.fabrics().begin(), request.fabrics().end());
  LAMINA_ASSIGN_OR_RETURN(ladder, options_.open_ladder(fabrics));
  if (request.has_modelled_link())
    ladder->Model({std::chrono::nanoseconds(request.modelled_link().latency_ns()),
                   request.modelled_link().bytes_per_s()});
  LAMINA_ASSIGN_OR_RETURN(
      opening_->attention,
      StartRemoteAttention(request, *device_, ladder, opening_->session->model->slices()));
  return OkStatus();
}

bool ComputeNode::ContinueOpening() {
  Result<std::unique_ptr<RemoteAttention>> attention = opening_->attention->Poll();
  if (attention.status().code() == StatusCode::kTryAgain) return false;
  EndOpening(attention.ok() ? OpenWith(*std::move(attention)) : attention.status());
  return true;
}

void ComputeNode::EndOpening(const Result<control::Configured>& outcome) {
  const std::unique_ptr<Opening> opening = std::move(opening_);
  const uint64_t connection = opening->session->connection;
  if (outcome.ok()) {
    session_ = std::move(opening->session);
    control_->Serve(connection);
    LAMINA_LOG_INFO("ready for {}: {} with {} memory nodes", control_->PeerName(connection),
                    opening->request.model(), opening->request.memory_nodes_size());
  } else {
    control_->Keep(0);
  }
  SendConfigured(connection, outcome);
}

// The last step of opening: from here on nothing is waited for.
Result<control::Configured> ComputeNode::OpenWith(std::unique_ptr<AttentionStrategy> attention) {
  const control::ConfigureCompute& request = opening_->request;
  Session* const session = opening_->session.get();
  control::Configured answer;
  if (const LoadedModel& model = *session->model; !model.share.whole()) {
    answer.set_holds(DescribeShare(model.sliced, model.share, model.slices()));
    LAMINA_LOG_INFO("holds {} of {}: {:.1f} MB", answer.holds(), request.model(),
                    static_cast<double>(model.weight_bytes) * 1e-6);
  }
  AddPaths(attention->paths(), answer);
  if (request.joins_others()) {
    if (session->ladder == nullptr)
      return InvalidArgument("several compute nodes need memory nodes");
    LAMINA_RETURN_IF_ERROR(session->ladder->Listen(control_->host()));
    answer.set_offers(session->ladder->offers());
  }
  LAMINA_ASSIGN_OR_RETURN(session->runner, StepRunner::Create(*session->model, session->limits,
                                                              std::move(attention), *device_));
  answer.set_capacity_tokens(request.memory_nodes().empty() ? request.local_kv_tokens() : 0);
  answer.set_weight_bytes(session->model->weight_bytes);
  return answer;
}

void ComputeNode::Send(uint64_t connection, control::MessageType type,
                       const google::protobuf::MessageLite& message) {
  const Status sent =
      control_->Send(connection, static_cast<uint16_t>(type), message.SerializeAsString());
  if (sent.ok()) return;
  if (const auto rest = unsent_lines_.Admit()) LAMINA_LOG_WARN("{}{}", sent.message(), *rest);
}

}  // namespace lamina
