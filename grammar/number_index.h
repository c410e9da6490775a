// Finds the number of a thing by a hash of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lamina {

// A hash table of open addresses. What the numbers stand for is the caller's: it says which of
// those with the same hash is meant.
class NumberIndex {
 public:
  static constexpr int32_t kNone = -1;

  // The number that was inserted with this hash and for which `is_same(number)` holds, or kNone.
  template <class IsSame>
  int32_t Find(uint64_t hash, const IsSame& is_same) const {
    if (places_.empty()) return kNone;
    for (size_t at = hash & mask();; at = (at + 1) & mask()) {
      const Place& place = places_[at];
      if (place.number == kNone) return kNone;
      if (place.hash == hash && is_same(place.number)) return place.number;
    }
  }

  // REQUIRES: number >= 0, and it is not there with this hash.
  void Insert(uint64_t hash, int32_t number) {
    if (2 * (size_ + 1) > places_.size()) Grow();
    Put({hash, number});
    ++size_;
  }

  void Clear() {
    places_.clear();
    size_ = 0;
  }

 private:
  struct Place {
    uint64_t hash = 0;
    int32_t number = kNone;
  };

  size_t mask() const { return places_.size() - 1; }

  void Put(const Place& added) {
    size_t at = added.hash & mask();
    while (places_[at].number != kNone) at = (at + 1) & mask();
    places_[at] = added;
  }

  void Grow() {
    const std::vector<Place> before = std::move(places_);
    places_.assign(before.empty() ? 64 : 2 * before.size(), {});
    for (const Place& place : before) {
      if (place.number != kNone) Put(place);
    }
  }

  std::vector<Place> places_;  // a power of two of them, at most half of them taken
  size_t size_ = 0;
};

}  // namespace lamina
