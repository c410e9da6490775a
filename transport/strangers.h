// Peers that have connected to a listener and not yet shown who they are. They hold few sockets in
// all, and when those are taken the next one still gets in: who came from where most wait makes
// room. So silent connections, however many, keep nobody out who greets at once.
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"

namespace lamina {

// No stranger is turned away sooner than this after it came: a greeting takes two or three round
// trips, and machines may be busy. A listener that holds 64 strangers so takes 640 a second, one
// that holds 256 takes 2,560: whoever waits behind the 4,096 that the kernel keeps in line is heard
// within a few seconds.
inline constexpr auto kLeastPatience = milliseconds(100);

// Listeners hand so many new peers at a time to their greetings, which go on in between.
inline constexpr int kAcceptsPerTurn = 32;

// Where a peer comes from, as far as shares are concerned, of "10.0.0.1:7000" or "[fe80::1]:7000":
// the IPv4 address, or the first 64 bits of the IPv6 address, of which one host may have all. Text
// that is neither stands for itself.
std::string OriginOf(const std::string& peer_address);

struct Stranger {
  std::string origin;
  TimePoint since;
};

// The index of the one that makes room: of the origin that has most of them, the one that waits
// longest. Of two origins with as many, the one whose eldest came first. nullopt if there is none.
// REQUIRES: those of an origin stand in the order in which they came.
std::optional<size_t> WhoMakesRoom(std::span<const Stranger> strangers);

// For listeners that keep strangers in a list, in the order in which they came: the one that makes
// room now; end() if nobody may be turned away yet. An entry has an `origin` and `since`; those
// that `is_stranger` denies have shown who they are and stay.
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
