// How a daemon leaves: who may ask it to, when it does so, and what SIGTERM, SIGINT and the end of
// stdin mean to it.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/inbox.h"

namespace lamina {

// How long a node goes on for its manager after it was asked to leave: as long as the manager by
// default waits for its streams to end, and a little more, in which the manager closes the session.
inline constexpr auto kNodeDrainTimeout = std::chrono::seconds(12);

// Decides when a daemon that was asked to leave does so. The daemon's loop is the owner: it asks
// IsDue in each round, and sleeps on fd().
class Departure {
 public:
  // `patience` is how long those who use the daemon may go on after Ask.
  explicit Departure(Clock::duration patience) : patience_(patience) {}

  // AskNow: leave at once. Ask: leave as soon as nobody uses the daemon; does nothing if it was
  // asked to leave before. Thread: any, also in a signal handler.
  void AskNow();
  void Ask();
  // Whether there was a call of either. Thread: any.
  const std::atomic<bool>& asked() const { return asked_; }

  // Whether the owner has to leave now. `in_use` says whether anybody uses the daemon. Thread:
  // owner.
  bool IsDue(bool in_use);
  // Readable when there is a call of either that IsDue has not yet answered. Thread: owner.
  int fd() const { return wake_.fd(); }

 private:
  enum class Wish { kStay, kWhenUnused, kNow };

  const Clock::duration patience_;
  std::atomic<Wish> wish_{Wish::kStay};
  std::atomic<bool> asked_{false};
  WakeFd wake_;
  std::optional<Deadline> latest_;  // for leaving; set when the owner notices the wish
};

// Ignores SIGTERM and SIGINT, for a process that another one stops.
void IgnoreLeaveSignals();

// Calls `run`, which must serve until `stop` is called, or until some time after `leave`, and
// return whether the daemon left in good order. SIGTERM and the first SIGINT call `leave`, further
// SIGINTs (Ctrl-C) call `stop`. A second SIGTERM asks for nothing new, since programs such as
// `timeout` send it to a process and to its group. With `leave_with_stdin` both signals are
// ignored, the end of this process's stdin calls `stop`, and that is leaving in good order. Returns
// the exit status. REQUIRES: called at most once per process.
int RunUntilAsked(bool leave_with_stdin, void (*leave)(), void (*stop)(),
                  const std::function<bool()>& run);

}  // namespace lamina
