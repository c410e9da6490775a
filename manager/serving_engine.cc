#include "manager/serving_engine.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lamina {
namespace {

ServingEngineOptions Complete(ServingEngineOptions options) {
  options.reconnects = options.reconnect != nullptr;
  options.looks_for_nodes = options.look != nullptr;
  return options;
}

}  // namespace

ServingEngine::ServingEngine(const ServingEngineOptions& options,
                             std::unique_ptr<StepExecutor> executor,
                             std::unique_ptr<QueuePolicy> queue,
                             std::unique_ptr<PlacementPolicy> placement)
    : options_(Complete(options)),
      means_{.reconnect = options.reconnect,
             .look = options.look,
             .after_weights = options.give_up_after,
             .on_change =
                 [this] {
                   tasks_changed_ = true;
                   wake_.Signal();
                 }},
      core_(
          options_, std::move(executor),
          [this](EngineCore::Event event) { events_.Push(std::move(event)); }, std::move(queue),
          std::move(placement)) {
  thread_ = std::thread([this] { Loop(); });
}

ServingEngine::~ServingEngine() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.Signal();
  thread_.join();
}

Result<RequestId> ServingEngine::Submit(GenerateRequest request, Sink sink) {
  MutexLock lock(mutex_);
  Result<RequestId> id = core_.Submit(std::move(request), std::move(sink), Clock::now());
  if (id.ok()) wake_.Signal();
  return id;
}

void ServingEngine::Abort(RequestId request) {
  MutexLock lock(mutex_);
  core_.Abort(request, Clock::now());
  wake_.Signal();
}

void ServingEngine::Stop(RequestId request, int index) {
  MutexLock lock(mutex_);
  core_.Stop(request, index, Clock::now());
  wake_.Signal();
}

EngineStatus ServingEngine::status() {
  MutexLock lock(mutex_);
  return core_.status(Clock::now());
}

Status ServingEngine::given_up() {
  MutexLock lock(mutex_);
  return core_.given_up();
}

void ServingEngine::Loop() {
  while (true) {
    TurnTasks(Clock::now());
    EngineDecisions decisions;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      TakeEvents();
      decisions = core_.Turn(Clock::now());
    }
    BeginTasks(decisions);
    for (const Delivery& delivery : decisions.deliveries) delivery.sink(delivery.event);
    const TimePoint next = std::min({decisions.next_turn, reconnecting_.next(), looking_.next()});
    std::array<pollfd, 2> polls = {pollfd{events_.fd(), POLLIN, 0}, pollfd{wake_.fd(), POLLIN, 0}};
    poll(polls.data(), polls.size(), Deadline(next).RemainingMs());
    if ((polls[1].revents & POLLIN) != 0) wake_.Clear();
  }
}

// Without the lock: a turn may read certificates, and say on a terminal how far it is.
void ServingEngine::TurnTasks(TimePoint now) {
  if (!tasks_changed_.exchange(false) && now < std::min(reconnecting_.next(), looking_.next()))
    return;
  std::optional<Reconnected> reconnected = reconnecting_.Turn(now);
  std::optional<FoundNodes> found = looking_.Turn(now);
  MutexLock lock(mutex_);
  if (reconnected) core_.TakeReconnected(*std::move(reconnected), Clock::now());
  if (found) core_.TakeFound(*std::move(found), Clock::now());
}

void ServingEngine::TakeEvents() {
  while (std::optional<EngineCore::Event> event = events_.TryPop())
    core_.Handle(*event, Clock::now());
}

void ServingEngine::BeginTasks(EngineDecisions& decisions) {
  if (decisions.reconnect) {
    reconnecting_.Start(Clock::now(), [&](Turns& turns) {
      return ReconnectByTurns(turns, *std::move(decisions.reconnect), means_);
    });
  }
  // While others serve: nobody waits for a node that does not answer.
  if (decisions.look_for) {
    looking_.Start(Clock::now(), [&](Turns& turns) {
      return means_.look(turns, *std::move(decisions.look_for), TimePoint::max(), means_.on_change);
    });
  }
}

}  // namespace lamina
