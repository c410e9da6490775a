#include "compute_node/compute_session.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/printable.h"
#include "compute_node/local_attention.h"
#include "compute_node/step_context.h"
#include "node/wire_shape.h"
#include "transport/posix.h"
#include "wire/codec.h"

namespace lamina {
namespace {

constexpr auto kConnectTimeout = std::chrono::seconds(20);
constexpr auto kLinger = std::chrono::seconds(1);
// How often steps look at the time, for peers that are late and signs of life that are due.
constexpr int kLooksPerTimeout = 10;
// What a cluster's file may ask for (manager/cluster_config.cc): buffers are made for so many rows.
constexpr int kMaxSequences = 65536;
constexpr int kMaxTokensOfStep = 1 << 20;
constexpr int64_t kMaxModelLen = std::numeric_limits<int32_t>::max();  // positions have 32 bits
constexpr size_t kRecordsPerAnswer = 4096;  // 160 kB: tens of microseconds in which no slice runs

Status CheckLimits(const SessionLimits& limits) {
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
  return OkStatus();
}

// What messages hold is laid out by the manager's words, what fills them by the model.
Status CheckAttention(const AttentionSpec& spec, const LoadedModel& model) {
  const bool has_windows = !spec.windows.empty();
  for (const Op& attention : model.sliced.attentions) {
    if ((!has_windows || std::ssize(spec.windows) == spec.num_layers) &&
        spec.num_layers == std::ssize(model.sliced.attentions) &&
        spec.num_heads == attention.num_heads && spec.num_kv_heads == attention.num_kv_heads &&
        spec.head_dim == attention.head_dim && spec.scale == attention.scale &&
        spec.soft_cap == attention.soft_cap &&
        (has_windows ? spec.windows[static_cast<size_t>(attention.layer)] : AttentionWindow{}) ==
            attention.window)
      continue;
    return InvalidArgument(
        fmt::format("an attention that is not the model's: {} layers, {} windows, {} heads, {} kv "
                    "heads, head_dim {}, scale {}, "
                    "soft cap {}; the model has {} layers, {} heads, {} kv heads, head_dim {}, "
                    "scale {}, soft cap {}, and a window of {} in layer {}",
                    spec.num_layers, spec.windows.size(), spec.num_heads, spec.num_kv_heads,
                    spec.head_dim, spec.scale, spec.soft_cap, model.sliced.attentions.size(),
                    attention.num_heads, attention.num_kv_heads, attention.head_dim,
                    attention.scale, attention.soft_cap, attention.window.size, attention.layer));
  }
  return OkStatus();
}

AttentionShape ShapeOf(const AttentionSpec& spec) {
  return {spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.scale, spec.soft_cap};
}

// Begins to connect to the memory nodes that a configuration names. Prefill KV is kept for the
// layers that run here.
Result<ConnectingAttention> StartRemoteAttention(const ConfigureCompute& request,
                                                 ComputeDevice& device,
                                                 std::shared_ptr<Ladder> ladder,
                                                 const LoadedModel& model) {
  const AttentionSpec& spec = request.attention;
  const SliceRange slices = model.slices();
  RemoteAttentionOptions options;
  LAMINA_ASSIGN_OR_RETURN(options.wire, WireShapeOf(request));
  options.epoch = request.epoch;
  options.session_token = request.session_token;
  options.payload_checksum = request.payload_checksum;
  options.polling = request.polling;
  options.self = request.node;
  options.attention = ShapeOf(spec);
  options.num_layers = spec.num_layers;
  options.layers = {spec.windows, model.sinks};
  options.own_layers = {slices.first, std::min(slices.end, spec.num_layers)};
  options.prefill_cache_tokens = options.wire.num_batches * (request.limits.max_model_len +
                                                             request.limits.max_num_batched_tokens);
  options.peer_timeout = request.limits.peer_timeout;
  options.suspect_after = request.limits.suspect_after;
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
                                                              const LoadedModel& model,
                                                              int64_t kv_capacity_tokens,
                                                              ComputeDevice& device) {
  const AttentionSpec& spec = request.attention;
  const KvShape kv{spec.num_layers, spec.num_kv_heads, spec.head_dim, spec.kv_dtype};
  LAMINA_ASSIGN_OR_RETURN(
      std::unique_ptr<LocalKv> store,
      device.MakeKv(ShapeOf(spec), kv, {spec.windows, model.sinks}, kv_capacity_tokens));
  return std::unique_ptr<AttentionStrategy>(
      std::make_unique<LocalAttention>(std::move(store), std::max(request.limits.num_batches, 1)));
}

Result<std::unique_ptr<ComputeSession>> ComputeSession::Open(const ConfigureCompute& request,
                                                             const ManagerConnection& manager,
                                                             const NodeOptions& options,
                                                             KeptModel& models,
                                                             ComputeDevice& device) {
  LAMINA_RETURN_IF_ERROR(CheckLimits(request.limits));
  LAMINA_ASSIGN_OR_RETURN(const AwaitedModel model, AwaitedModel::Ask(models, request, manager));
  return std::unique_ptr<ComputeSession>(new ComputeSession(request, model, options, device));
}

ComputeSession::ComputeSession(const ConfigureCompute& request, const AwaitedModel& model,
                               const NodeOptions& options, ComputeDevice& device)
    : request_(request),
      manager_(model.manager()),
      options_(options),
      device_(device),
      awaited_(model) {}

Status ComputeSession::StartConnecting() {
  LAMINA_RETURN_IF_ERROR(CheckAttention(request_.attention, *model_));
  if (request_.memory_nodes.empty()) return OkStatus();
  LAMINA_ASSIGN_OR_RETURN(ladder_, options_.open_ladder(FabricNames(request_.fabrics)));
  if (request_.modelled_link) ladder_->Model(*request_.modelled_link);
  LAMINA_ASSIGN_OR_RETURN(connecting_, StartRemoteAttention(request_, device_, ladder_, *model_));
  return OkStatus();
}

std::optional<Result<Configured>> ComputeSession::ContinueOpening() {
  if (model_ == nullptr) {
    std::optional<Result<std::shared_ptr<const LoadedModel>>> model = awaited_.Poll();
    if (!model) return std::nullopt;
    if (!model->ok()) return model->status();
    model_ = **std::move(model);
    if (const Status started = StartConnecting(); !started.ok()) return started;
  }
  if (!connecting_) {
    Result<std::unique_ptr<AttentionStrategy>> attention =
        MakeLocalAttention(request_, *model_, request_.local_kv_tokens, device_);
    return attention.ok() ? OpenWith(*std::move(attention)) : attention.status();
  }
  Result<std::unique_ptr<RemoteAttention>> attention = connecting_->Poll();
  if (attention.status().code() == StatusCode::kTryAgain) return std::nullopt;
  connecting_.reset();
  return attention.ok() ? OpenWith(*std::move(attention)) : attention.status();
}

Result<Configured> ComputeSession::OpenWith(std::unique_ptr<AttentionStrategy> attention) {
  Configured answer;
  if (!model_->share.whole()) {
    answer.holds = DescribeShare(model_->sliced, model_->share, model_->slices());
    LAMINA_LOG_INFO("holds {} of {}: {:.1f} MB", answer.holds, request_.model,
                    static_cast<double>(model_->weight_bytes) * 1e-6);
  }
  answer.paths = attention->paths();
  if (request_.joins_others) {
    if (ladder_ == nullptr) return InvalidArgument("several compute nodes need memory nodes");
    LAMINA_RETURN_IF_ERROR(ladder_->Listen(manager_.listening_host()));
    answer.offers = ladder_->offers();
  }
  LAMINA_ASSIGN_OR_RETURN(
      runner_, StepRunner::Create(*model_, request_.limits, std::move(attention), device_));
  answer.capacity_tokens = request_.memory_nodes.empty() ? request_.local_kv_tokens : 0;
  answer.weight_bytes = model_->weight_bytes;
  answer.largest_interval = model_->largest_interval;
  if (const ElasticLayers* const layers = runner_->layers()) {
    answer.elastic_kv = layers->kv();
    answer.layers_inside = layers->inside().num_layers;
  }
  LAMINA_LOG_INFO("ready for {}: {} with {} memory nodes", manager_.name(), request_.model,
                  request_.memory_nodes.size());
  return answer;
}

bool ComputeSession::HandleFrame(const ControlFrame& frame) {
  if (!is_open()) return false;
  switch (static_cast<MessageType>(frame.type)) {
    case MessageType::kConnectCompute: JoinOthers(frame.payload); return true;
    case MessageType::kComputeOrder: return HandleOrder(frame.payload);
    case MessageType::kLosePeer: return LoseMemoryNode(frame.payload);
    case MessageType::kTraceQuery: return TellRecords(frame.payload);
    default: return false;
  }
}

bool ComputeSession::HandleOrder(const std::string& payload) {
  Result<ComputeOrder> order = Decode<ComputeOrder>(payload);
  if (!order.ok() || order->epoch != request_.epoch) return false;
  if (const Status begun = runner_->Begin(*std::move(order)); !begun.ok()) Refuse(*order, begun);
  return true;
}

// An order without an answer would hold up its batch for as long as the manager waits for a step.
// Nothing is wrong with its sequences, but this node has learnt nothing of them, and their new
// tokens get no KV.
void ComputeSession::Refuse(const ComputeOrder& order, const Status& why) {
  LAMINA_LOG_ERROR("{}", why.ToString());
  StepResult result{.epoch = order.epoch, .step = order.step, .batch = order.batch};
  for (const ComputeWork& work : order.work)
    result.failed.push_back({work.sequence, why, FailureCause::kKvLost});
  manager_.Send(MessageType::kStepResult, Encode(result));
}

bool ComputeSession::LoseMemoryNode(const std::string& payload) {
  const Result<LosePeer> lost = Decode<LosePeer>(payload);
  if (!lost.ok() || lost->epoch != request_.epoch) return false;
  runner_->LoseMemoryNode(lost->node, Briefly(lost->message));
  return true;
}

bool ComputeSession::TellRecords(const std::string& payload) {
  const Result<TraceQuery> query = Decode<TraceQuery>(payload);
  if (!query.ok() || query->epoch != request_.epoch) return false;
  TraceAnswer answer;
  answer.epoch = query->epoch;
  answer.asked_ns = query->sent_ns;
  answer.received_ns = NowNs();
  runner_->trace().TellRecords(kRecordsPerAnswer, answer);
  answer.answered_ns = NowNs();
  manager_.Send(MessageType::kTraceAnswer, Encode(answer));
  return true;
}

bool ComputeSession::Turn(TimePoint now) {
  bool busy = joining_ && ContinueJoining();
  if (!runner_->idle()) last_under_way_ = now;
  if (RunsSteps(now)) busy |= Advance();
  return busy;
}

TimePoint ComputeSession::wake_at(TimePoint now) const {
  if (connecting_) return connecting_->wake_at();
  TimePoint wakes =
      RunsSteps(now) ? now + request_.limits.peer_timeout / kLooksPerTimeout : TimePoint::max();
  if (joining_) return std::min(wakes, joining_->wake_at());
  return is_open() ? std::min(wakes, runner_->wake_at()) : wakes;
}

// What was posted last to another compute node may need polls to go out.
bool ComputeSession::RunsSteps(TimePoint now) const {
  if (!is_open()) return false;
  return !runner_->idle() || (runner_->among_several() && now <= last_under_way_ + kLinger);
}

void ComputeSession::Sleep(std::span<const int> fds, TimePoint latest) {
  if (connecting_ || joining_) return ladder_->Sleep(fds, Deadline(latest));
  if (RunsSteps(Clock::now())) return runner_->Sleep(fds);
  std::vector<pollfd> polls;
  for (const int fd : fds) polls.push_back({fd, POLLIN, 0});
  WaitForAnyFd(polls, Deadline(latest));
}

void ComputeSession::JoinOthers(const std::string& payload) {
  const Result<ConnectCompute> request = Decode<ConnectCompute>(payload);
  const bool expected =
      request.ok() && request->epoch == request_.epoch && runner_->idle() && !joining_;
  const Status begun =
      expected ? BeginJoining(*request)
               : InvalidArgument("an order to join other compute nodes that was not due");
  if (!begun.ok()) manager_.Answer(begun);
}

Status ComputeSession::BeginJoining(const ConnectCompute& request) {
  if (ladder_ == nullptr || ladder_->offers().empty())
    return InvalidArgument("this compute node offers no data path");
  ContextExchangeOptions options;
  options.epoch = request_.epoch;
  options.session_token = request_.session_token;
  options.payload_checksum = request_.payload_checksum;
  options.self = request_.node;
  options.num_batches = std::max(request_.limits.num_batches, 1);
  options.payload_bytes = MaxContextBytes({model_->sliced, request_.attention.wire_dtype},
                                          request_.limits.max_num_batched_tokens);
  if (model_->share.num_ranks > 1)
    options.sum_bytes = MaxPartialSumBytes(model_->sliced, request_.attention.wire_dtype,
                                           request_.limits.max_num_batched_tokens);
  options.peer_timeout = request_.limits.peer_timeout;
  const ModelShare& share = model_->share;
  const int place = share.stage * share.num_ranks + share.rank;
  if (!share.whole() && (std::ssize(request.nodes) != share.num_stages * share.num_ranks ||
                         request.nodes[static_cast<size_t>(place)].node != options.self))
    return InvalidArgument("an order to join " + std::to_string(request.nodes.size()) +
                           " compute nodes, which do not make up the model");
  // All wait for a way that may be cut: no longer than for a node that serves.
  const Clock::duration patience = std::min<Clock::duration>(kConnectTimeout, options.peer_timeout);
  LAMINA_ASSIGN_OR_RETURN(joining_, ContextExchange::StartJoin(options, ladder_, request.nodes,
                                                               Deadline::After(patience)));
  return OkStatus();
}

bool ComputeSession::ContinueJoining() {
  Result<std::unique_ptr<ContextExchange>> others = joining_->Poll();
  if (others.status().code() == StatusCode::kTryAgain) return false;
  joining_.reset();
  if (!others.ok()) {
    manager_.Answer(others.status());
    return true;
  }
  Configured answer;
  answer.paths = (*others)->paths();
  runner_->JoinOthers(*std::move(others), request_.attention.wire_dtype);
  manager_.Answer(answer);
  return true;
}

bool ComputeSession::Advance() {
  std::vector<StepResult> results;
  const bool any = runner_->Advance(results);
  for (PeerState& state : runner_->TakePeerStates()) {
    state.epoch = request_.epoch;
    manager_.Send(MessageType::kPeerState, Encode(state));
  }
  if (!any) return false;
  for (StepResult& result : results) {
    if (const ElasticLayers* const layers = runner_->layers())
      result.layers_inside = layers->inside();
    manager_.Send(MessageType::kStepResult, Encode(result));
  }
  return true;
}

}  // namespace lamina
