#include "manager/remote_engine.h"

#include <fmt/format.h>
#include <poll.h>

#include <chrono>
#include <utility>
#include <vector>

#include "manager/control_options.h"

namespace lamina {
namespace {

// Of whoever waits for the first connection, to see whether it is still wanted.
constexpr auto kLookForManager = std::chrono::milliseconds(20);

// Whether a later try may succeed though nobody changes how this front is set up.
bool MayPass(const Status& status) { return status.code() != StatusCode::kInvalidArgument; }

}  // namespace

Result<RemoteEngineOptions> RemoteEngineOptions::Of(const ClusterConfig& config, int64_t vocab_size,
                                                    const std::string& who) {
  RemoteEngineOptions options;
  options.requests.model = config.served_name;
  options.requests.vocab_size = vocab_size;
  options.requests.give_up_after = config.start_timeout;
  options.link.manager = config.FrontAddress();
  LAMINA_ASSIGN_OR_RETURN(options.link.control, ControlOptionsOf(config, who));
  return options;
}

Result<std::unique_ptr<RemoteEngine>> RemoteEngine::Connect(
    const RemoteEngineOptions& options, const std::function<bool()>& interrupted) {
  std::unique_ptr<RemoteEngine> engine(new RemoteEngine(options));
  const Deadline deadline = Deadline::After(options.requests.give_up_after);
  while (true) {
    {
      MutexLock lock(engine->mutex_);
      if (engine->requests_.facts()) {
        engine->facts_ = *engine->requests_.facts();
        return engine;
      }
      const Status& refused = engine->link_.refused();
      if (!refused.ok() && !MayPass(refused)) return refused;
      if (deadline.Passed()) {
        return TimedOut(fmt::format(
            "no manager takes requests at {}: {}. Does `lamina serve` run with this cluster file?",
            options.link.manager, refused.ok() ? "nothing answers" : refused.message()));
      }
    }
    if (interrupted()) return TryAgain("interrupted");
    std::this_thread::sleep_for(kLookForManager);
  }
}

RemoteEngine::RemoteEngine(const RemoteEngineOptions& options)
    : requests_(options.requests, Clock::now()),
      link_(
          options.link, requests_, [this] { wake_.Signal(); }, Clock::now()) {
  thread_ = std::thread([this] { Loop(); });
}

RemoteEngine::~RemoteEngine() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.Signal();
  thread_.join();
}

Result<RequestId> RemoteEngine::Submit(GenerateRequest request, Sink sink) {
  MutexLock lock(mutex_);
  Result<RequestId> id = requests_.Submit(std::move(request), std::move(sink), Clock::now());
  if (id.ok()) wake_.Signal();
  return id;
}

void RemoteEngine::Abort(RequestId request) {
  MutexLock lock(mutex_);
  requests_.Abort(request, Clock::now());
  wake_.Signal();
}

void RemoteEngine::Stop(RequestId request, int index) {
  MutexLock lock(mutex_);
  requests_.Stop(request, index, Clock::now());
  wake_.Signal();
}

EngineStatus RemoteEngine::status() {
  MutexLock lock(mutex_);
  return requests_.status();
}

void RemoteEngine::Loop() {
  while (true) {
    std::vector<Delivery> deliveries;
    TimePoint next;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      link_.Turn(Clock::now());
      deliveries = requests_.TakeDeliveries();
      next = link_.next_turn();
    }
    for (const Delivery& delivery : deliveries) delivery.sink(delivery.event);
    pollfd wait{wake_.fd(), POLLIN, 0};
    poll(&wait, 1, Deadline(next).RemainingMs());
    wake_.Clear();
  }
}

}  // namespace lamina
