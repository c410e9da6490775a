#include "tests/support/virtual_engine.h"

#include <algorithm>
#include <utility>

namespace lamina::testing {

VirtualEngine::VirtualEngine(const EngineOptions& options,
                             std::shared_ptr<FakeExecutor::Shared> nodes)
    : core_(options, std::make_unique<FakeExecutor>(std::move(nodes)),
            [this](EngineCore::Event event) { events_.push_back(std::move(event)); }) {
  Settle();
}

Result<RequestId> VirtualEngine::Submit(GenerateRequest request, Engine::Sink sink) {
  Result<RequestId> id = core_.Submit(std::move(request), std::move(sink), now_);
  Settle();
  return id;
}

void VirtualEngine::Abort(RequestId request) {
  core_.Abort(request, now_);
  Settle();
}

void VirtualEngine::Stop(RequestId request, int index) {
  core_.Stop(request, index, now_);
  Settle();
}

void VirtualEngine::Reconnected(Result<std::unique_ptr<StepExecutor>> outcome) {
  core_.TakeReconnected(std::move(outcome), now_);
  Settle();
}

void VirtualEngine::Found(const std::set<NodeId>& found) {
  FoundNodes nodes;
  for (const NodeId node : found) nodes.emplace(node, "it");
  core_.TakeFound(std::move(nodes), now_);
  Settle();
}

void VirtualEngine::Settle() {
  do {
    for (; !events_.empty(); events_.pop_front()) core_.Handle(events_.front(), now_);
    EngineDecisions decisions = core_.Turn(now_);
    next_turn_ = decisions.next_turn;
    if (decisions.reconnect) reconnects.push_back(std::move(*decisions.reconnect));
    if (decisions.look_for) looks.push_back(std::move(*decisions.look_for));
    for (const Delivery& delivery : decisions.deliveries) delivery.sink(delivery.event);
  } while (!events_.empty());
}

void VirtualEngine::Advance(Clock::duration by) {
  const TimePoint end = now_ + by;
  while (next_turn_ <= end) {
    now_ = std::max(now_, next_turn_);
    Settle();
  }
  now_ = end;
  Settle();
}

void VirtualEngine::Pause(Clock::duration by) {
  now_ += by;
  Settle();
}

}  // namespace lamina::testing
