// Constraints of all kinds: compiling them, sending them and walking through them must never crash,
// take long or take much memory, whatever they say. The first byte picks the kind.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "grammar/automaton.h"
#include "grammar/constraint.h"

namespace {

using lamina::Automaton;

std::shared_ptr<const lamina::Vocabulary> Tokens() {
  static const auto vocabulary = [] {
    std::vector<std::string> bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
    for (const char* token : {"ab", "{\"", "\": ", "12", "true", "\\n", "日本", "\xE6\x97", "  "})
      bytes.emplace_back(token);
    return std::make_shared<const lamina::Vocabulary>(std::move(bytes));
  }();
  return vocabulary;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  lamina::Constraint constraint;
  constraint.kind = static_cast<lamina::ConstraintKind>(data[0] % 5);
  constraint.text.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  constraint.choices = {constraint.text, constraint.text.substr(0, constraint.text.size() / 2)};
  if (constraint.kind == lamina::ConstraintKind::kJsonSchema) {
    // As deep as request bodies may be.
    const auto keep = [](int depth, nlohmann::ordered_json::parse_event_t, auto&) {
      return depth <= 100;
    };
    constraint.schema = nlohmann::ordered_json::parse(constraint.text, keep, false);
    if (constraint.schema.is_discarded()) return 0;
  }
  const lamina::Result<lamina::Grammar> grammar = CompileConstraint(constraint);
  if (!grammar.ok()) {
    if (grammar.status().message().empty()) std::abort();
    return 0;
  }
  const std::string bytes = grammar->ToBytes();
  const lamina::Result<lamina::Grammar> back = lamina::Grammar::FromBytes(bytes);
  if (bytes.size() > lamina::kMaxGrammarBytes || !back.ok() || !(*back == *grammar)) std::abort();

  Automaton automaton(*grammar, Tokens());
  Automaton::State state = automaton.start();
  for (size_t step = 0; step < 8 && state != Automaton::kDead; ++step) {
    const auto mask = automaton.MaskOf(state);
    if (!mask.ok() || (*mask)->count == 0) break;
    lamina::TokenId token = data[step % size] % 256;
    while (!lamina::HasToken((*mask)->bits, token))
      token = (token + 1) % automaton.vocabulary().size();
    const auto next = automaton.Advance(state, std::span(&token, 1));
    if (!next.ok()) break;
    state = *next;
    if (state == Automaton::kDead) std::abort();  // the mask allowed it
  }
  return 0;
}
