// An engine core and its loop on one thread in virtual time: what ServingEngine is in real time,
// with a test in place of its procedures.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "manager/engine_core.h"
#include "tests/support/fake_executor.h"

namespace lamina::testing {

class VirtualEngine {
 public:
  // The time begins at a day.
  VirtualEngine(const EngineOptions& options, std::shared_ptr<FakeExecutor::Shared> nodes);

  TimePoint now() const { return now_; }
  EngineCore& core() { return core_; }
  EngineStatus status() const { return core_.status(now_); }
  // When the loop would wake up next if nothing happened before.
  TimePoint next_turn() const { return next_turn_; }

  // The calls of Engine. What follows from them at once has happened when they return.
  Result<RequestId> Submit(GenerateRequest request, Engine::Sink sink);
  void Abort(RequestId request);
  void Stop(RequestId request, int index);
  void Reconnected(Result<std::unique_ptr<StepExecutor>> outcome);
  void Found(const std::set<NodeId>& found);
  // Handles the events that executors have told, and those that these lead to.
  void Settle();

  // Time passes, with a turn whenever one is due.
  void Advance(Clock::duration by);
  // The process does not run meanwhile.
  void Pause(Clock::duration by);

  // What the engine has asked for, in order; a test takes them out.
  std::deque<ReconnectTask> reconnects;
  std::deque<std::map<NodeId, std::string>> looks;

 private:
  TimePoint now_{std::chrono::hours(24)};
  TimePoint next_turn_;
  std::deque<EngineCore::Event> events_;
  EngineCore core_;
};

}  // namespace lamina::testing
