#include "transport/control_connecting.h"

#include <atomic>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace lamina {
namespace {

class ConnectingOnThread : public ControlConnecting {
 public:
  ConnectingOnThread(const std::string& address, ControlOptions options, TimePoint latest,
                     std::function<void()> on_change) {
    options.interrupted = [this, asked = std::move(options.interrupted)] {
      return given_up_ || (asked != nullptr && asked());
    };
    thread_ = std::thread(
        [this, address, options = std::move(options), latest, on_change = std::move(on_change)] {
          auto outcome = ConnectControl(address, options, Deadline(latest));
          {
            MutexLock lock(mutex_);
            outcome_ = std::move(outcome);
          }
          on_change();
        });
  }

  ~ConnectingOnThread() override {
    given_up_ = true;
    thread_.join();
  }

  std::optional<Result<std::unique_ptr<ControlConnection>>> Poll() override {
    MutexLock lock(mutex_);
    return std::exchange(outcome_, std::nullopt);
  }

 private:
  std::atomic<bool> given_up_ = false;
  Mutex mutex_;
  std::optional<Result<std::unique_ptr<ControlConnection>>> outcome_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ControlConnecting> StartConnectControl(const std::string& address,
                                                       const ControlOptions& options,
                                                       TimePoint latest,
                                                       std::function<void()> on_change) {
  return std::make_unique<ConnectingOnThread>(address, options, latest, std::move(on_change));
}

}  // namespace lamina
