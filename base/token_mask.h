// A set of tokens of a vocabulary: which ones may be chosen.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace lamina {

// Bit (token % 8) of byte (token / 8) says whether the token is in the set. A set has exactly
// TokenMaskBytes(vocab) bytes, and its bits behind the vocabulary are 0.
struct TokenMask {
  std::string bits;
  int64_t count = 0;  // of tokens in the set
};

// Which tokens may be chosen next. Borrows the mask.
struct NextTokens {
  // Of tokens that go on with the text; those that end it are allowed where it may end.
  const TokenMask* tokens = nullptr;
  bool may_end = false;
};

inline size_t TokenMaskBytes(int64_t vocab_size) {
  return static_cast<size_t>((vocab_size + 7) / 8);
}

// REQUIRES: the token is in the vocabulary.
inline bool HasToken(std::string_view bits, TokenId token) {
  return (static_cast<uint8_t>(bits[static_cast<size_t>(token) / 8]) >> (token % 8) & 1) != 0;
}

// Both keep the count. REQUIRES: the token is in the vocabulary.
inline void AddToken(TokenId token, TokenMask& mask) {
  if (HasToken(mask.bits, token)) return;
  char& byte = mask.bits[static_cast<size_t>(token) / 8];
  byte = static_cast<char>(static_cast<uint8_t>(byte) | 1U << (token % 8));
  ++mask.count;
}
inline void RemoveToken(TokenId token, TokenMask& mask) {
  if (!HasToken(mask.bits, token)) return;
  char& byte = mask.bits[static_cast<size_t>(token) / 8];
  byte = static_cast<char>(static_cast<uint8_t>(byte) & ~(1U << (token % 8)));
  --mask.count;
}

}  // namespace lamina
