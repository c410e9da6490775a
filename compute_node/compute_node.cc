#include "compute_node/compute_node.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "base/log.h"
#include "compute_node/make_compute_device.h"
#include "wire/codec.h"

namespace lamina {

Result<std::unique_ptr<ComputeNode>> ComputeNode::Create(const NodeOptions& options,
                                                         const ComputeOffload& offload) {
  std::unique_ptr<ComputeNode> node(new ComputeNode(options));
  LAMINA_ASSIGN_OR_RETURN(node->device_, MakeComputeDevice(options.device, node->team_, offload));
  LAMINA_ASSIGN_OR_RETURN(node->managers_, ManagerChannel::Open("compute node", options));
  node->model_.emplace(*node->device_);
  return node;
}

ComputeNode::ComputeNode(const NodeOptions& options)
    : options_(options),
      team_(std::holds_alternative<DeviceSpec>(options.device) ? 1 : options.num_threads,
            options.pin_threads) {}

bool ComputeNode::Run() {
  team_.PinOwner();
  Backoff backoff(PollingPatience(options_.device));
  while (!managers_->departure().IsDue(session_ != nullptr && session_->is_open())) {
    const TimePoint now = Clock::now();
    if (Turn(now))
      backoff.Reset();
    else if (session_ == nullptr || !session_->RunsSteps(now) || backoff.Idle())
      Sleep(now);
  }
  // While it loads or connects there is no session that a stop would have to wait for.
  const Status leaving = TryAgain("this node was asked to leave");
  if (preparing_) EndPreparing(leaving);
  if (session_ != nullptr && !session_->is_open()) EndOpening(leaving);
  return session_ == nullptr;
}

bool ComputeNode::Turn(TimePoint now) {
  bool busy = model_->Turn(now);
  busy |=
      managers_->Turn({.on_frame = [this](const ManagerConnection& from,
                                          const ControlFrame& frame) { HandleFrame(from, frame); },
                       .on_lost = [this](const ManagerConnection& lost,
                                         const Status& why) { HandleLoss(lost, why); }});
  if (preparing_) ContinuePreparing();
  if (session_ != nullptr && !session_->is_open()) busy |= ContinueOpening();
  if (session_ != nullptr && session_->is_open()) busy |= session_->Turn(now);
  return busy;
}

TimePoint ComputeNode::wake_at(TimePoint now) const {
  const TimePoint latest = std::min(now + ManagerChannel::kLongestSleep, model_->wake_at());
  return session_ == nullptr ? latest : std::min(latest, session_->wake_at(now));
}

void ComputeNode::Sleep(TimePoint now) {
  if (session_ != nullptr)
    session_->Sleep(managers_->fds(), wake_at(now));
  else
    managers_->Sleep(wake_at(now));
}

ComputeSession* ComputeNode::SessionOf(const ManagerConnection& manager) const {
  return session_ != nullptr && session_->manager() == manager ? session_.get() : nullptr;
}

void ComputeNode::HandleLoss(const ManagerConnection& lost, const Status& why) {
  if (preparing_ && preparing_->manager() == lost) preparing_.reset();
  const ComputeSession* const session = SessionOf(lost);
  if (session == nullptr) return;
  LAMINA_LOG_INFO("session over{}: {}", session->is_open() ? "" : " before it began",
                  why.message());
  session_.reset();
}

void ComputeNode::HandleFrame(const ManagerConnection& from, const ControlFrame& frame) {
  if (frame.type == FrameType(MessageType::kConfigureCompute))
    return Configure(from, frame.payload);
  ComputeSession* const session = SessionOf(from);
  if (session == nullptr || !session->HandleFrame(frame)) from.Drop(frame, session != nullptr);
}

void ComputeNode::Configure(const ManagerConnection& from, const std::string& payload) {
  if (session_ != nullptr)  // before it is parsed, which takes memory
    return from.Answer(session_->manager().Occupies());
  const Result<ConfigureCompute> request = Decode<ConfigureCompute>(payload);
  if (!request.ok())
    return from.Answer(
        InvalidArgument("the Configure message cannot be parsed: " + request.status().message()));
  if (request->prepare_only && preparing_)
    return from.Answer(TryAgain("it loads a model for " + preparing_->manager().name()));
  from.Keep();  // while weights load others may connect, however many
  if (request->prepare_only) return Prepare(from, *request);
  Result<std::unique_ptr<ComputeSession>> session =
      ComputeSession::Open(*request, from, options_, *model_, *device_);
  if (!session.ok()) return from.AnswerOpening(session.status());
  session_ = *std::move(session);
  ContinueOpening();
}

void ComputeNode::Prepare(const ManagerConnection& from, const ConfigureCompute& request) {
  Result<AwaitedModel> model = AwaitedModel::Ask(*model_, request, from);
  if (!model.ok()) {
    from.Release();
    return from.Answer(model.status());
  }
  preparing_ = *std::move(model);
  ContinuePreparing();
}

void ComputeNode::ContinuePreparing() {
  if (const auto model = preparing_->Poll()) EndPreparing(model->status());
}

void ComputeNode::EndPreparing(const Status& outcome) {
  const ManagerConnection manager = preparing_->manager();
  preparing_.reset();
  if (session_ == nullptr) manager.Release();  // else another manager is kept, whose session it is
  manager.Answer(outcome.ok() ? Result<Configured>(Configured()) : outcome);
}

bool ComputeNode::ContinueOpening() {
  const std::optional<Result<Configured>> outcome = session_->ContinueOpening();
  if (outcome) EndOpening(*outcome);
  return outcome.has_value();
}

void ComputeNode::EndOpening(const Result<Configured>& outcome) {
  const ManagerConnection manager = session_->manager();
  if (!outcome.ok()) session_.reset();
  manager.AnswerOpening(outcome);
}

}  // namespace lamina
