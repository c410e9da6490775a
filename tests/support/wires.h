// What travels between processes that run on one thread: each thing is at the other end after a
// time that the process's clock tells, which a test may have replaced (virtual_clock.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace lamina::testing {

// Thread: owner.
class Wires {
 public:
  // One direction of a connection: what is sent over it arrives in the order in which it was sent.
  struct Way {
    std::string from, to;
    TimePoint last{};  // when what was sent last arrives
  };

  // `latency` is asked each time that something is sent.
  explicit Wires(std::function<Clock::duration()> latency) : latency_(std::move(latency)) {}
  Wires(const Wires&) = delete;

  // Calls `arrive` after the latency and `more`.
  void Send(Way& way, std::function<void()> arrive, Clock::duration more = {});

  // From now on nothing that `from` has sent arrives at `to`; it waits. Each Cut needs a Mend,
  // after the last of which what has waited arrives at once.
  void Cut(const std::string& from, const std::string& to);
  void Mend(const std::string& from, const std::string& to);
  // Nullopt: they are joined.
  std::optional<TimePoint> cut_since(const std::string& from, const std::string& to) const;
  bool any_cut() const { return !cuts_.empty(); }

  // Hands over what has arrived by now. Returns whether there was anything.
  bool Deliver();
  // When the next thing arrives. The end of time: nothing is under way.
  TimePoint next() const { return under_way_.empty() ? TimePoint::max() : under_way_.front().at; }

 private:
  struct Sent {
    TimePoint at;
    uint64_t number = 0;  // things that arrive at the same time do it in the order of these
    std::string from, to;
    std::function<void()> arrive;
  };
  struct CutWay {
    TimePoint since;
    int depth = 0;
    std::vector<Sent> waiting;
  };

  // Orders a heap whose first element arrives next.
  static bool Later(const Sent& a, const Sent& b) {
    return std::pair(a.at, a.number) > std::pair(b.at, b.number);
  }
  void Push(Sent sent);

  const std::function<Clock::duration()> latency_;
  std::vector<Sent> under_way_;  // a heap
  std::map<std::pair<std::string, std::string>, CutWay> cuts_;
  uint64_t last_number_ = 0;
};

}  // namespace lamina::testing
