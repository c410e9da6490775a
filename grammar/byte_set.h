// A set of bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lamina {

class ByteSet {
 public:
  bool Has(uint8_t byte) const { return (words_[byte / 64] >> (byte % 64) & 1) != 0; }

  // Those in [low, high].
  void Add(uint8_t low, uint8_t high) {
    for (size_t word = low / 64; word <= high / size_t{64}; ++word) {
      const size_t first = word == low / 64 ? low % 64 : 0;
      const size_t last = word == high / size_t{64} ? high % 64 : 63;
      words_[word] |= (~uint64_t{0} >> (63 - (last - first))) << first;
    }
  }

  int size() const {
    int count = 0;
    for (const uint64_t word : words_) count += std::popcount(word);
    return count;
  }

  bool Intersects(const ByteSet& other) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      if ((words_[i] & other.words_[i]) != 0) return true;
    }
    return false;
  }

  // Calls `visit(byte)` for each, from the largest to the smallest.
  template <class Visit>
  void ForEachDescending(const Visit& visit) const {
    for (size_t i = words_.size(); i-- > 0;) {
      for (uint64_t left = words_[i]; left != 0;) {
        const int bit = 63 - std::countl_zero(left);
        left &= ~(uint64_t{1} << bit);
        visit(static_cast<uint8_t>(64 * i + static_cast<size_t>(bit)));
      }
    }
  }

 private:
  std::array<uint64_t, 4> words_{};
};

}  // namespace lamina
