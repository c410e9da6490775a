// Control connections that are being made, for callers that do not wait.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/control_channel.h"

namespace lamina {

// One that is being made. Destroying it gives up. Thread: one owner.
class ControlConnecting {
 public:
  virtual ~ControlConnecting() = default;

  // The connection or why there is none, as ConnectControl returns it; nullopt while it is being
  // made. REQUIRES: there was no outcome before.
  virtual std::optional<Result<std::unique_ptr<ControlConnection>>> Poll() = 0;
};

// Makes a connection to `address`; gives up at `latest`. `on_change` is called once, when there is
// an outcome, from any thread.
using StartConnecting = std::function<std::unique_ptr<ControlConnecting>(
    const std::string& address, const ControlOptions& options, TimePoint latest,
    std::function<void()> on_change)>;

// A StartConnecting: ConnectControl on a thread of its own.
std::unique_ptr<ControlConnecting> StartConnectControl(const std::string& address,
                                                       const ControlOptions& options,
                                                       TimePoint latest,
                                                       std::function<void()> on_change);

}  // namespace lamina
