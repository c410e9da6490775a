// When a daemon that was asked to leave does so.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/inbox.h"

namespace lamina {

// How long a node goes on for its manager after it was asked to leave: as long as the manager waits
// for its streams by default, and a moment for it to say goodbye.
inline constexpr auto kNodeDrainTimeout = std::chrono::seconds(12);

class Departure {
 public:
  // `patience`: for how long whoever uses the daemon may go on after Ask.
  explicit Departure(Clock::duration patience) : patience_(patience) {}

  // At once, or as soon as nobody uses the daemon. Ask returns false if that was known. Whoever
  // asks for something new signals the owner's WakeFd after it. Thread: any, also in a signal
  // handler.
  void AskNow() { wish_.store(Wish::kNow); }
  bool Ask();
  bool IsAsked() const { return wish_.load() != Wish::kStay; }

  // Whether the owner is to leave now. `in_use`: somebody would notice. Clears `wake`, which woke
  // the owner up, when it takes note of a wish that has to wait. Thread: owner.
  bool IsDue(bool in_use, WakeFd& wake);

 private:
  enum class Wish { kStay, kWhenUnused, kNow };

  const Clock::duration patience_;
  std::atomic<Wish> wish_{Wish::kStay};
  std::optional<Deadline> latest_;  // since the owner has noticed
};

// SIGTERM and SIGINT are somebody else's.
void IgnoreLeaveSignals();

// `run`, which serves until `stop`, or some time after `leave`, and says whether it left well.
// SIGTERM and the first SIGINT call `leave`, a second SIGINT (Ctrl-C) calls `stop`; a second
// SIGTERM says nothing new: programs such as `timeout` send it to a process and to its group. With
// `leave_with_stdin` only the end of this process's stdin calls `stop`, and to leave then is well.
// Returns the exit status. REQUIRES: at most once per process.
int RunUntilAsked(bool leave_with_stdin, void (*leave)(), void (*stop)(),
                  const std::function<bool()>& run);

}  // namespace lamina
