// Whether texts belong to a constraint, and texts that do, for tests of grammars.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/constraint.h"
#include "grammar/vocabulary.h"

namespace lamina::testing {

// Token i is the byte i.
inline std::shared_ptr<const Vocabulary> ByteVocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  return std::make_shared<const Vocabulary>(std::move(bytes));
}

inline bool Accepts(Automaton& automaton, std::string_view text) {
  if (automaton.start() == Automaton::kDead) return false;
  const Result<Automaton::State> state = automaton.AdvanceBytes(automaton.start(), text);
  return state.ok() && *state != Automaton::kDead && automaton.accepts(*state);
}

// Token by token, each drawn from those that the masks allow, until the text is complete; nullopt
// if that takes more than `max_bytes`. Quotes and brackets that close are preferred.
template <typename Random>
std::optional<std::string> DrawText(Automaton& automaton, Random& random, size_t max_bytes) {
  const Vocabulary& vocabulary = automaton.vocabulary();
  std::string text;
  Automaton::State state = automaton.start();
  while (state != Automaton::kDead && text.size() < max_bytes) {
    const Result<const TokenMask*> mask = automaton.MaskOf(state);
    if (!mask.ok()) return std::nullopt;
    std::vector<TokenId> allowed, closing;
    for (TokenId token = 0; token < vocabulary.size(); ++token) {
      if (!HasToken((*mask)->bits, token)) continue;
      allowed.push_back(token);
      if (vocabulary.bytes(token).find_first_of("\"}]") != std::string_view::npos)
        closing.push_back(token);
    }
    if (automaton.accepts(state) && (allowed.empty() || random() % 4 == 0)) return text;
    if (allowed.empty()) return std::nullopt;
    const std::vector<TokenId>& from = !closing.empty() && random() % 3 == 0 ? closing : allowed;
    const TokenId token = from[random() % from.size()];
    text += vocabulary.bytes(token);
    const Result<Automaton::State> next = automaton.Advance(state, std::span(&token, 1));
    state = next.ok() ? *next : Automaton::kDead;
  }
  return std::nullopt;
}

}  // namespace lamina::testing
