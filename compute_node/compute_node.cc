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
#include "wire/codec.h"

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

// What messages hold is laid out by the manager's words, what fills them by the model.
Status CheckAttention(const AttentionSpec& spec, const LoadedModel& model) {
  if (spec.wire_dtype == DType::kF8)
    return InvalidArgument("queries and outputs cannot travel in fp8: only the KV cache has it");
  const bool has_windows = !spec.windows.empty();
  for (const Op& attention : model.sliced.attentions) {
    if ((!has_windows || std::ssize(spec.windows) == spec.num_layers) &&
        spec.num_layers == std::ssize(model.sliced.attentions) &&
        spec.num_heads == attention.num_heads && spec.num_kv_heads == attention.num_kv_heads &&
        spec.head_dim == attention.head_dim && spec.scale == attention.scale &&
        spec.soft_cap == attention.soft_cap &&
        (has_windows ? spec.windows[static_cast<size_t>(attention.layer)] : 0) == attention.window)
      continue;
    return InvalidArgument(
        fmt::format("an attention that is not the model's: {} layers, {} windows, {} heads, {} kv "
                    "heads, head_dim {}, scale {}, "
                    "soft cap {}; the model has {} layers, {} heads, {} kv heads, head_dim {}, "
                    "scale {}, soft cap {}, and a window of {} in layer {}",
                    spec.num_layers, spec.windows.size(), spec.num_heads, spec.num_kv_heads,
                    spec.head_dim, spec.scale, spec.soft_cap, model.sliced.attentions.size(),
                    attention.num_heads, attention.num_kv_heads, attention.head_dim,
                    attention.scale, attention.soft_cap, attention.window, attention.layer));
  }
  return OkStatus();
}

// Two requests for weights that are the same, from files that did not change, have the same.
std::string SourceOf(const ConfigureCompute& request) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator file(request.model, error), end; !error && file != end;
       file.increment(error)) {
    files.push_back(fmt::format("{} {} {}", file->path().filename().string(),
                                file->is_regular_file(error) ? file->file_size(error) : 0,
                                file->last_write_time(error).time_since_epoch().count()));
  }
  std::ranges::sort(files);
  const ModelPart& part = request.part;
  return fmt::format("{}\n{}\n{}\n{} {} {} {}\n{}", request.model,
                     static_cast<int>(request.load_format), request.dummy_seed, part.num_stages,
                     part.stage, part.num_ranks, part.rank, fmt::join(files, "\n"));
}

ModelShare ShareOf(const ModelPart& part) {
  return {std::max(part.num_stages, 1), part.stage, std::max(part.num_ranks, 1), part.rank};
}

AttentionShape ShapeOf(const AttentionSpec& spec) {
  return {spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.scale, spec.soft_cap};
}

// Begins to connect to the memory nodes that a configuration names. Prefill KV is kept for the
// layers of `slices`, those that run here.
Result<ConnectingAttention> StartRemoteAttention(const ConfigureCompute& request,
                                                 ComputeDevice& device,
                                                 std::shared_ptr<Ladder> ladder,
                                                 SliceRange slices) {
  const AttentionSpec& spec = request.attention;
  const int num_batches = std::max(request.limits.num_batches, 1);
  if (request.session_token.size() != kSessionTokenBytes) {
    return InvalidArgument("session token of " + std::to_string(request.session_token.size()) +
                           " bytes, expected " + std::to_string(kSessionTokenBytes));
  }
  RemoteAttentionOptions options;
  options.epoch = request.epoch;
  options.session_token = request.session_token;
  options.payload_checksum = request.payload_checksum;
  options.polling = request.polling;
  options.self = request.node;
  options.attention = ShapeOf(spec);
  options.wire = {
      spec.num_heads, spec.num_kv_heads, spec.head_dim,  spec.kv_dtype, request.limits.max_num_seqs,
      num_batches,    spec.wire_dtype,   request.overlap};
  options.num_layers = spec.num_layers;
  options.windows = spec.windows;
  options.own_layers = {slices.first, std::min(slices.end, spec.num_layers)};
  options.prefill_cache_tokens =
      num_batches * (request.limits.max_model_len + request.limits.max_num_batched_tokens);
  options.peer_timeout = request.limits.peer_timeout;
  for (const MemoryNodeAddress& peer : request.memory_nodes) {
    if (peer.first_kv_head < 0 || peer.num_kv_heads < 1 ||
        peer.num_kv_heads > spec.num_kv_heads - peer.first_kv_head)
      return InvalidArgument(fmt::format("kv_heads that cannot be: {} from {} on, of {}",
                                         peer.num_kv_heads, peer.first_kv_head, spec.num_kv_heads));
  }
  return RemoteAttention::StartConnect(options, std::move(ladder), request.memory_nodes, device,
                                       Deadline::After(kConnectTimeout));
}

}  // namespace

Result<std::unique_ptr<AttentionStrategy>> MakeLocalAttention(const ConfigureCompute& request,
                                                              int64_t kv_capacity_tokens,
                                                              ComputeDevice& device) {
  const AttentionSpec& spec = request.attention;
  const KvShape kv{spec.num_layers, spec.num_kv_heads, spec.head_dim, spec.kv_dtype};
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LocalKv> store,
                          device.MakeKv(ShapeOf(spec), kv, spec.windows, kv_capacity_tokens));
  return std::unique_ptr<AttentionStrategy>(
      std::make_unique<LocalAttention>(std::move(store), std::max(request.limits.num_batches, 1)));
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

void ComputeNode::Stop() { departure_.AskNow(); }

void ComputeNode::Leave() { departure_.Ask(); }

bool ComputeNode::Run() {
  team_.PinOwner();
  Backoff backoff(PollingPatience(options_.device));
  while (!departure_.IsDue(session_ != nullptr)) {
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

// An order without an answer would hold up its batch for as long as the manager waits for a step.
void ComputeNode::Refuse(const ComputeOrder& order, const Status& why) {
  LAMINA_LOG_ERROR("{}", why.ToString());
  StepResult result{.epoch = order.epoch, .step = order.step, .batch = order.batch};
  for (const ComputeWork& work : order.work) result.failed.push_back({work.sequence, why});
  Send(session_->connection, MessageType::kStepResult, Encode(result));
}

bool ComputeNode::Advance() {
  std::vector<StepResult> results;
  if (!session_->runner->Advance(results)) return false;
  for (const StepResult& result : results)
    Send(session_->connection, MessageType::kStepResult, Encode(result));
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
  const std::array<int, 2> fds = {control_->fd(), departure_.fd()};
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
  switch (static_cast<MessageType>(frame.type)) {
    case MessageType::kConfigureCompute: Configure(connection, frame.payload); return;
    case MessageType::kConnectCompute:
      if (!current) break;
      JoinOthers(frame.payload);
      return;
    case MessageType::kComputeOrder: {
      if (!current) break;
      Result<ComputeOrder> order = Decode<ComputeOrder>(frame.payload);
      if (!order.ok() || order->epoch != session_->epoch) break;
      if (const Status begun = session_->runner->Begin(*std::move(order)); !begun.ok())
        Refuse(*order, begun);
      return;
    }
    case MessageType::kTraceQuery: {
      if (!current) break;
      const Result<TraceQuery> query = Decode<TraceQuery>(frame.payload);
      if (!query.ok() || query->epoch != session_->epoch) break;
      TellRecords(connection, *query);
      return;
    }
    default: break;
  }
  if (const auto rest = dropped_lines_.Admit())
    LAMINA_LOG_WARN("dropped a control message of type {} from {}: malformed or not expected now{}",
                    frame.type, control_->PeerName(connection), *rest);
  const bool opening = opening_ != nullptr && opening_->session->connection == connection;
  if (!current && !opening) control_->Close(connection);  // it would only fill the log
}

void ComputeNode::TellRecords(uint64_t connection, const TraceQuery& query) {
  TraceAnswer answer;
  answer.epoch = query.epoch;
  answer.asked_ns = query.sent_ns;
  answer.received_ns = NowNs();
  session_->runner->trace().TellRecords(kRecordsPerAnswer, answer);
  answer.answered_ns = NowNs();
  Send(connection, MessageType::kTraceAnswer, Encode(answer));
}

void ComputeNode::Configure(uint64_t connection, const std::string& payload) {
  const Session* const served = opening_ != nullptr ? opening_->session.get() : session_.get();
  if (served != nullptr)  // before it is parsed, which takes memory
    return SendConfigured(
        connection, TryAgain("it serves " + control_->PeerName(served->connection) + " already"));
  const Result<ConfigureCompute> decoded = Decode<ConfigureCompute>(payload);
  if (!decoded.ok())
    return SendConfigured(connection, InvalidArgument("the Configure message cannot be parsed: " +
                                                      decoded.status().message()));
  const ConfigureCompute& request = *decoded;
  control_->Keep(connection);  // while weights load others may connect, however many
  if (!request.prepare_only) return Open(connection, request);
  const Result<Configured> outcome = Prepare(connection, request);
  control_->Keep(0);
  SendConfigured(connection, outcome);
}

Result<Configured> ComputeNode::Prepare(uint64_t connection, const ConfigureCompute& request) {
  LAMINA_RETURN_IF_ERROR(LoadModel(connection, request));
  return Configured();
}

void ComputeNode::JoinOthers(const std::string& payload) {
  const Result<ConnectCompute> request = Decode<ConnectCompute>(payload);
  const bool expected = request.ok() && request->epoch == session_->epoch &&
                        session_->runner->idle() && !session_->joining;
  const Status begun =
      expected ? BeginJoining(*request)
               : InvalidArgument("an order to join other compute nodes that was not due");
  if (!begun.ok()) SendConfigured(session_->connection, begun);
}

Status ComputeNode::BeginJoining(const ConnectCompute& request) {
  if (session_->ladder == nullptr || session_->ladder->offers().empty())
    return InvalidArgument("this compute node offers no data path");
  ContextExchangeOptions options;
  options.epoch = session_->epoch;
  options.session_token = session_->token;
  options.payload_checksum = session_->payload_checksum;
  options.self = session_->self;
  options.num_batches = std::max(session_->limits.num_batches, 1);
  options.payload_bytes = MaxContextBytes({session_->model->sliced, session_->wire_dtype},
                                          session_->limits.max_num_batched_tokens);
  if (session_->model->share.num_ranks > 1)
    options.sum_bytes = MaxPartialSumBytes(session_->model->sliced, session_->wire_dtype,
                                           session_->limits.max_num_batched_tokens);
  options.peer_timeout = session_->limits.peer_timeout;
  const ModelShare& share = session_->model->share;
  const int place = share.stage * share.num_ranks + share.rank;
  if (!share.whole() && (std::ssize(request.nodes) != share.num_stages * share.num_ranks ||
                         request.nodes[static_cast<size_t>(place)].node != options.self))
    return InvalidArgument("an order to join " + std::to_string(request.nodes.size()) +
                           " compute nodes, which do not make up the model");
  // All wait for a way that may be cut: no longer than for a node that serves.
  const Clock::duration patience = std::min<Clock::duration>(kConnectTimeout, options.peer_timeout);
  LAMINA_ASSIGN_OR_RETURN(session_->joining,
                          ContextExchange::StartJoin(options, session_->ladder, request.nodes,
                                                     Deadline::After(patience)));
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
  Configured answer;
  answer.paths = (*others)->paths();
  session_->runner->JoinOthers(*std::move(others), session_->wire_dtype);
  SendConfigured(session_->connection, answer);
  return true;
}

void ComputeNode::SendConfigured(uint64_t connection, const Result<Configured>& outcome) {
  if (outcome.ok()) return Send(connection, MessageType::kConfigured, Encode(*outcome));
  const Status status = outcome.status().WithContext("compute node " + options_.name);
  Configured answer;
  answer.status = Status(status.code(), Briefly(status.message()));  // it may quote the request
  if (const auto rest = refused_lines_.Admit())
    LAMINA_LOG_ERROR("{}{}", answer.status.ToString(), *rest);
  Send(connection, MessageType::kConfigured, Encode(answer));
}

Status ComputeNode::LoadModel(uint64_t connection, const ConfigureCompute& request) {
  std::string source = SourceOf(request);
  if (model_.loaded != nullptr && model_.source == source) return OkStatus();
  model_ = {};  // before the next one needs its memory
  WeightOptions weights;
  weights.model_dir = request.model;
  weights.load_format = request.load_format;
  weights.dummy_seed = request.dummy_seed;
  weights.share = ShareOf(request.part);
  TimePoint last_report = Clock::now() - kProgressInterval;
  weights.on_progress = [&](int64_t loaded, int64_t total) {
    if (loaded < total && Clock::now() - last_report < kProgressInterval) return;
    last_report = Clock::now();
    Send(connection, MessageType::kWeightsProgress, Encode(WeightsProgress{loaded, total}));
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

void ComputeNode::Open(uint64_t connection, const ConfigureCompute& request) {
  if (const Status begun = BeginOpening(connection, request); !begun.ok()) {
    opening_.reset();
    control_->Keep(0);
    return SendConfigured(connection, begun);
  }
  if (opening_->attention) return;  // the turns go on with it
  Result<std::unique_ptr<AttentionStrategy>> attention =
      MakeLocalAttention(request, request.local_kv_tokens, *device_);
  EndOpening(attention.ok() ? OpenWith(*std::move(attention)) : attention.status());
}

Status ComputeNode::BeginOpening(uint64_t connection, const ConfigureCompute& request) {
  const SessionLimits& limits = request.limits;
  if (limits.max_num_seqs < 1 || limits.max_num_batched_tokens < limits.max_num_seqs ||
      limits.max_model_len < 1 || limits.max_model_len > kMaxModelLen ||
      limits.max_num_seqs > kMaxSequences || limits.max_num_batched_tokens > kMaxTokensOfStep ||
      limits.num_batches > kMaxBatches) {
    return InvalidArgument(fmt::format(
        "limits that cannot be: {} sequences, at most {}; {} tokens in a step, at "
        "least as many and at most {}; {} tokens in a "
        "sequence, at most {}; {} batches, at most {}",
        limits.max_num_seqs, kMaxSequences, limits.max_num_batched_tokens, kMaxTokensOfStep,
        limits.max_model_len, kMaxModelLen, limits.num_batches, kMaxBatches));
  }
  auto session = std::make_unique<Session>();
  session->connection = connection;
  session->epoch = request.epoch;
  session->token = request.session_token;
  session->payload_checksum = request.payload_checksum;
  session->self = request.node;
  session->limits = limits;
  session->wire_dtype = request.attention.wire_dtype;
  LAMINA_RETURN_IF_ERROR(LoadModel(connection, request));
  session->model = model_.loaded.get();
  LAMINA_RETURN_IF_ERROR(CheckAttention(request.attention, *session->model));
  opening_ = std::make_unique<Opening>(Opening{request, std::move(session), std::nullopt});
  if (request.memory_nodes.empty()) return OkStatus();
  std::shared_ptr<Ladder>& ladder = opening_->session->ladder;
  LAMINA_ASSIGN_OR_RETURN(ladder, options_.open_ladder(FabricNames(request.fabrics)));
  if (request.modelled_link) ladder->Model(*request.modelled_link);
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

void ComputeNode::EndOpening(const Result<Configured>& outcome) {
  const std::unique_ptr<Opening> opening = std::move(opening_);
  const uint64_t connection = opening->session->connection;
  if (outcome.ok()) {
    session_ = std::move(opening->session);
    control_->Serve(connection);
    LAMINA_LOG_INFO("ready for {}: {} with {} memory nodes", control_->PeerName(connection),
                    opening->request.model, opening->request.memory_nodes.size());
  } else {
    control_->Keep(0);
  }
  SendConfigured(connection, outcome);
}

// The last step of opening: from here on nothing is waited for.
Result<Configured> ComputeNode::OpenWith(std::unique_ptr<AttentionStrategy> attention) {
  const ConfigureCompute& request = opening_->request;
  Session* const session = opening_->session.get();
  Configured answer;
  if (const LoadedModel& model = *session->model; !model.share.whole()) {
    answer.holds = DescribeShare(model.sliced, model.share, model.slices());
    LAMINA_LOG_INFO("holds {} of {}: {:.1f} MB", answer.holds, request.model,
                    static_cast<double>(model.weight_bytes) * 1e-6);
  }
  answer.paths = attention->paths();
  if (request.joins_others) {
    if (session->ladder == nullptr)
      return InvalidArgument("several compute nodes need memory nodes");
    LAMINA_RETURN_IF_ERROR(session->ladder->Listen(control_->host()));
    answer.offers = session->ladder->offers();
  }
  LAMINA_ASSIGN_OR_RETURN(session->runner, StepRunner::Create(*session->model, session->limits,
                                                              std::move(attention), *device_));
  answer.capacity_tokens = request.memory_nodes.empty() ? request.local_kv_tokens : 0;
  answer.weight_bytes = session->model->weight_bytes;
  return answer;
}

void ComputeNode::Send(uint64_t connection, MessageType type, std::string message) {
  const Status sent = control_->Send(connection, FrameType(type), std::move(message));
  if (sent.ok()) return;
  if (const auto rest = unsent_lines_.Admit()) LAMINA_LOG_WARN("{}{}", sent.message(), *rest);
}

}  // namespace lamina
