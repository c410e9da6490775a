#include "base/departure.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include "base/log.h"

namespace lamina {
namespace {

// Set before the handlers that read them.
void (*on_leave)() = nullptr;
void (*on_stop)() = nullptr;
std::atomic<int> interrupted{0};

// Drops what comes on stdin before its end.
void AwaitEndOfStdin() {
  std::array<char, 256> dropped;
  ssize_t got = 1;
  while (got > 0 || (got < 0 && errno == EINTR))
    got = read(STDIN_FILENO, dropped.data(), dropped.size());
}

}  // namespace

void Departure::AskNow() {
  wish_.store(Wish::kNow);
  asked_.store(true);
  wake_.Signal();
}

void Departure::Ask() {
  Wish none = Wish::kStay;
  asked_.store(true);
  // Does not weaken an earlier AskNow.
  if (wish_.compare_exchange_strong(none, Wish::kWhenUnused)) wake_.Signal();
}

bool Departure::IsDue(bool in_use) {
  const Wish wish = wish_.load();
  if (wish == Wish::kStay) return false;
  if (wish == Wish::kNow || !in_use) return true;
  if (!latest_) {
    LAMINA_LOG_INFO(
        "asked to leave: goes on until the manager's session is over, for at most {:.0f} s",
        std::chrono::duration<double>(patience_).count());
    latest_ = Deadline::After(patience_);
    // The owner stays for a while, and could not sleep if this stayed readable.
    wake_.Clear();
    // Looks again: the signal that was just cleared may have been that of an AskNow.
    return wish_.load() == Wish::kNow;
  }
  return latest_->Passed();
}

void IgnoreLeaveSignals() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_IGN);
}

int RunUntilAsked(bool leave_with_stdin, void (*leave)(), void (*stop)(),
                  const std::function<bool()>& run) {
  std::signal(SIGPIPE, SIG_IGN);  // a peer that closes its socket must not end the daemon
  if (leave_with_stdin) {
    IgnoreLeaveSignals();
    std::thread told([stop] {
      AwaitEndOfStdin();
      stop();
    });
    run();
    told.join();
    return 0;
  }
  on_leave = leave;
  on_stop = stop;
  std::signal(SIGTERM, [](int) { on_leave(); });
  std::signal(SIGINT, [](int) { (interrupted++ == 0 ? on_leave : on_stop)(); });
  return run() ? 0 : 1;
}

}  // namespace lamina
