#include "memory_node/memory_node.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "base/log.h"
#include "memory_node/make_kv_device.h"
#include "wire/codec.h"

namespace lamina {

Result<std::unique_ptr<MemoryNode>> MemoryNode::Create(const MemoryNodeOptions& options) {
  LAMINA_RETURN_IF_ERROR(CheckKvDevice(options));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ManagerChannel> managers,
                          ManagerChannel::Open("memory node", options));
  return std::unique_ptr<MemoryNode>(new MemoryNode(options, std::move(managers)));
}

MemoryNode::MemoryNode(const MemoryNodeOptions& options, std::unique_ptr<ManagerChannel> managers)
    : options_(options),
      managers_(std::move(managers)),
      team_(std::holds_alternative<HostCpu>(options.device) ? options.num_threads : 1,
            options.pin_threads) {}

bool MemoryNode::Run() {
  team_.PinOwner();
  Backoff backoff(PollingPatience(options_.device));
  while (!managers_->departure().IsDue(session_ != nullptr)) {
    if (Turn(Clock::now()))
      backoff.Reset();
    else if (session_ == nullptr || backoff.Idle())
      Sleep();
  }
  const bool cut = session_ != nullptr;
  if (cut) EndSession("this node is stopping");
  return !cut;
}

bool MemoryNode::Turn(TimePoint now) {
  bool busy =
      managers_->Turn({.on_frame = [this](const ManagerConnection& from,
                                          const ControlFrame& frame) { HandleFrame(from, frame); },
                       .on_lost =
                           [this](const ManagerConnection& lost, const Status& why) {
                             if (SessionOf(lost) != nullptr) EndSession(why.message());
                           }});
  if (session_ != nullptr) busy |= session_->Turn(now);
  if (kept_ && now >= kept_->until) DropKept("no manager came for it in time");
  return busy;
}

TimePoint MemoryNode::wake_at(TimePoint now) const {
  TimePoint latest = now + ManagerChannel::kLongestSleep;
  if (kept_) latest = std::min(latest, kept_->until);
  return session_ == nullptr ? latest : std::min(latest, session_->wake_at(now));
}

void MemoryNode::Sleep() {
  const TimePoint latest = wake_at(Clock::now());
  if (session_ != nullptr)
    session_->Sleep(managers_->fds(), latest);
  else
    managers_->Sleep(latest);
}

MemorySession* MemoryNode::SessionOf(const ManagerConnection& manager) const {
  return session_ != nullptr && session_->manager() == manager ? session_.get() : nullptr;
}

void MemoryNode::HandleFrame(const ManagerConnection& from, const ControlFrame& frame) {
  if (frame.type == FrameType(MessageType::kConfigureMemory)) return Configure(from, frame.payload);
  MemorySession* const session = SessionOf(from);
  if (session == nullptr || !session->HandleFrame(frame)) from.Drop(frame, session != nullptr);
}

void MemoryNode::Configure(const ManagerConnection& from, const std::string& payload) {
  if (session_ != nullptr)  // before it is parsed, which takes memory
    return from.Answer(session_->manager().Occupies());
  const Result<ConfigureMemory> request = Decode<ConfigureMemory>(payload);
  if (!request.ok())
    return from.Answer(
        InvalidArgument("the Configure message cannot be parsed: " + request.status().message()));
  if (request->prepare_only) {
    LAMINA_LOG_DEBUG("{} asked whether this node is free", from.name());
    return from.Answer(Configured());
  }
  from.Keep();  // while its memory is taken others may connect, however many
  Result<std::unique_ptr<MemorySession>> opened =
      MemorySession::Open(*request, from, options_, team_, TakeKept(*request));
  if (!opened.ok()) return from.AnswerOpening(opened.status());
  session_ = *std::move(opened);
  from.AnswerOpening(session_->opened());
}

void MemoryNode::EndSession(const std::string& why) {
  const Clock::duration keep_for = session_->keep_for();
  LAMINA_LOG_INFO("session over, KV kept for {:.1f} s: {}",
                  std::chrono::duration<double>(keep_for).count(), why);
  kept_ = Kept{session_->kv_id(), session_->attention(), {}, Clock::now() + keep_for};
  kept_->kv = MemorySession::End(std::move(session_));
}

KvState MemoryNode::TakeKept(const ConfigureMemory& request) {
  if (!kept_) return {};
  const bool named = kept_->id == request.kv_id;
  const bool taken_over = request.takes_over && request.kv_id == 0 && kept_->kv.manager != 0 &&
                          kept_->kv.content == request.kv_content;
  if (!(named || taken_over) || kept_->attention != request.attention) {
    DropKept("a manager came that does not go on with it");
    return {};
  }
  KvState kv = std::move(kept_->kv);
  kept_.reset();
  return kv;
}

void MemoryNode::DropKept(const std::string& why) {
  LAMINA_LOG_INFO("KV dropped: {}", why);
  kept_.reset();
}

}  // namespace lamina
