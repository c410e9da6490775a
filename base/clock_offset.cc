#include "base/clock_offset.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

namespace lamina {
namespace {

uint64_t MakeClockId() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  if (boot.empty()) return 0;
  // The time namespace, such as "time:[4026531834]": a container may have a clock of its own.
  // Kernels without time namespaces do not have the link.
  std::array<char, 64> space{};
  const ssize_t size = readlink("/proc/self/ns/time", space.data(), space.size());
  boot.append(space.data(), size > 0 ? static_cast<size_t>(size) : 0);
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : boot) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

uint64_t ClockId() {
  static const uint64_t id = MakeClockId();
  return id;
}

void ClockOffset::Add(uint64_t clock, const ClockExchange& exchange) {
  shared_ = clock != 0 && clock == ClockId();
  if (shared_) {
    before_ = now_ = {0, 0};
    return;
  }
  const int64_t here = exchange.taken_ns - exchange.sent_ns,
                there = exchange.answered_ns - exchange.received_ns;
  // The peer cannot have worked for longer than the whole exchange took.
  if (there < 0 || here < there) return;
  if (count_++ == kWindow) {
    before_ = now_;
    now_ = {};
    count_ = 1;
  }
  if (here - there >= now_.round_trip_ns) return;
  // Halved before they are added: the sum of two real clocks would not overflow, but these numbers
  // come from a peer.
  const auto middle = [](int64_t a, int64_t b) { return a / 2 + b / 2; };
  now_ = {here - there, middle(exchange.received_ns, exchange.answered_ns) -
                            middle(exchange.sent_ns, exchange.taken_ns)};
}

}  // namespace lamina
