// Strangers: peers that have connected to a listener and not yet shown who they are. A listener
// gives them few sockets in all. When those are taken, the next peer still gets in: the stranger
// that has waited longest, of the origin that has most of them, is closed. So silent connections,
// however many, do not keep out a peer that greets at once.
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"

namespace lamina {

// A stranger has at least so long before it may be closed for another: a greeting takes two or
// three round trips, and machines may be busy. So a listener that holds 64 strangers accepts up to
// 640 a second, one that holds 256 up to 2,560, and a peer behind the 4,096 that the kernel's
// backlog holds is heard within a few seconds.
inline constexpr auto kLeastPatience = milliseconds(100);

// A listener accepts at most so many peers at a time, and then goes on with the greetings of all.
inline constexpr int kAcceptsPerTurn = 32;

// The origin of a peer, by which strangers are counted, from its address "10.0.0.1:7000" or
// "[fe80::1]:7000": the IPv4 address, or the first 64 bits of the IPv6 address, as one host may
// have all addresses with the same 64. Text that is no such address is its own origin.
std::string OriginOf(const std::string& peer_address);

struct Stranger {
  std::string origin;
  TimePoint since;  // when it connected
};

// The index of the stranger to close: the oldest one of the origin that has most of them. Among
// origins with the same number it is the one whose oldest came first. nullopt if there is none.
// REQUIRES: the strangers of one origin stand in the order in which they came.
std::optional<size_t> WhoMakesRoom(std::span<const Stranger> strangers);

// WhoMakesRoom for listeners that keep peers in a list, in the order in which they came. Returns
// the entry to close; end() if there is none, or it came less than kLeastPatience ago. An entry has
// the members `origin` and `since`; entries for which `is_stranger` returns false are not closed.
template <typename Entry, typename IsStranger>
typename std::list<Entry>::iterator FindRoom(std::list<Entry>& entries,
                                             const IsStranger& is_stranger) {
  std::vector<Stranger> strangers;
  std::vector<typename std::list<Entry>::iterator> at;
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    if (!is_stranger(*entry)) continue;
    strangers.push_back({entry->origin, entry->since});
    at.push_back(entry);
  }
  const std::optional<size_t> chosen = WhoMakesRoom(strangers);
  if (!chosen || Clock::now() - strangers[*chosen].since < kLeastPatience) return entries.end();
  return at[*chosen];
}

template <typename Entry>
typename std::list<Entry>::iterator FindRoom(std::list<Entry>& entries) {
  return FindRoom(entries, [](const Entry&) { return true; });
}

}  // namespace lamina
