#include "manager/serving_engine.h"

#include <poll.h>

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
  options_.stop.request_stop();
  thread_.join();
  if (reconnecting_.joinable()) reconnecting_.join();
  if (looking_.joinable()) looking_.join();
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
    EngineDecisions decisions;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      TakeWhatCame();
      decisions = core_.Turn(Clock::now());
    }
    if (decisions.reconnect) BeginReconnecting(std::move(*decisions.reconnect));
    if (decisions.look_for) BeginLooking(std::move(*decisions.look_for));
    for (const Delivery& delivery : decisions.deliveries) delivery.sink(delivery.event);
    std::array<pollfd, 2> polls = {pollfd{events_.fd(), POLLIN, 0}, pollfd{wake_.fd(), POLLIN, 0}};
    poll(polls.data(), polls.size(), Deadline(decisions.next_turn).RemainingMs());
    if ((polls[1].revents & POLLIN) != 0) wake_.Clear();
  }
}

void ServingEngine::TakeWhatCame() {
  if (reconnected_) {
    reconnecting_.join();
    core_.TakeReconnected(*std::exchange(reconnected_, std::nullopt), Clock::now());
  }
  if (found_) {
    looking_.join();
    core_.TakeFound(*std::exchange(found_, std::nullopt), Clock::now());
  }
  while (std::optional<EngineCore::Event> event = events_.TryPop())
    core_.Handle(*event, Clock::now());
}

// Ends the executor of before, with its connections, and makes the next one on a thread of its own,
// because both wait for nodes.
void ServingEngine::BeginReconnecting(ReconnectTask task) {
  reconnecting_ = std::thread([this, task = std::move(task)]() mutable {
    task.before.reset();
    std::set<NodeId> answer;
    Deadline until(task.until);
    if (options_.look != nullptr && !task.doubtful.empty())
      answer = options_.look(task.doubtful, until, options_.stop.get_token());
    for (const auto& [node, why] : task.doubtful) {
      if (!answer.contains(node)) task.left_out.emplace(node, why);
    }
    // Only weights take that long to load, and now they are there.
    if (!answer.empty() && until.Passed()) until = Deadline::After(options_.give_up_after);
    Result<std::unique_ptr<StepExecutor>> after = options_.reconnect(task.left_out, until);
    MutexLock lock(mutex_);
    reconnected_ = std::move(after);
    wake_.Signal();
  });
}

// While others serve: nobody waits for a node that does not answer.
void ServingEngine::BeginLooking(std::map<NodeId, std::string> lost) {
  looking_ = std::thread([this, lost = std::move(lost)] {
    std::set<NodeId> found =
        options_.look(lost, Deadline(TimePoint::max()), options_.stop.get_token());
    MutexLock lock(mutex_);
    found_ = std::move(found);
    wake_.Signal();
  });
}

}  // namespace lamina
