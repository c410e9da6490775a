#include "grammar/grammar_builder.h"

#include <algorithm>
#include <array>

#include "text/utf8.h"

namespace lamina {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

// How JSON writes a character that may not stand for itself between quotes.
std::string JsonEscape(uint32_t c) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: break;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  return std::string("\\u00") + kDigits[c >> 4] + kDigits[c & 15];
}

// [0x00, 0x1F], '"' and '\\'.
bool NeedsJsonEscape(uint32_t c) { return c < 0x20 || c == '"' || c == '\\'; }

struct Utf8Bytes {
  std::array<uint8_t, 4> bytes{};
  int length = 0;
};

Utf8Bytes Encode(uint32_t c) {
  std::string text;
  AppendCodePoint(c, text);
  Utf8Bytes out;
  for (const char byte : text)
    out.bytes[static_cast<size_t>(out.length++)] = static_cast<uint8_t>(byte);
  return out;
}

}  // namespace

std::vector<CodePointRange> Normalized(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> valid;
  for (const auto& [low, high] : ranges) {
    if (low < kFirstSurrogate) valid.emplace_back(low, std::min(high, kFirstSurrogate - 1));
    if (high > kLastSurrogate)
      valid.emplace_back(std::max(low, kLastSurrogate + 1), std::min(high, kMaxCodePoint));
  }
  std::sort(valid.begin(), valid.end());
  std::vector<CodePointRange> merged;
  for (const CodePointRange& range : valid) {
    if (range.first > range.second) continue;
    if (!merged.empty() && range.first <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, range.second);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

std::vector<CodePointRange> Complement(std::span<const CodePointRange> ranges) {
  std::vector<CodePointRange> rest;
  uint32_t next = 0;
  for (const auto& [low, high] : ranges) {
    if (low > next) rest.emplace_back(next, low - 1);
    next = high + 1;
  }
  if (next <= kMaxCodePoint) rest.emplace_back(next, kMaxCodePoint);
  return Normalized(std::move(rest));
}

int32_t GrammarBuilder::NewState() {
  if (std::ssize(edges_) >= kMaxGrammarStates) full_ = true;
  if (full_) return 0;
  edges_.emplace_back();
  return static_cast<int32_t>(edges_.size()) - 1;
}

void GrammarBuilder::AddEdge(int32_t from, Grammar::Edge edge) {
  if (++num_edges_ > kMaxGrammarEdges) full_ = true;
  if (!full_) edges_[static_cast<size_t>(from)].push_back(edge);
}

void GrammarBuilder::AddEmpty(int32_t from, int32_t to) {
  AddEdge(from, {Grammar::EdgeKind::kEmpty, 0, 0, 0, to});
}

void GrammarBuilder::AddBytes(int32_t from, uint8_t low, uint8_t high, int32_t to) {
  AddEdge(from, {Grammar::EdgeKind::kBytes, low, high, 0, to});
}

GrammarBuilder::Rule GrammarBuilder::DeclareRule(std::string name) {
  const int32_t begin = NewState(), end = NewState();
  if (full_) return 0;
  rules_.push_back({std::move(name), begin, end});
  return static_cast<Rule>(rules_.size()) - 1;
}

void GrammarBuilder::DefineRule(Rule rule, Fragment body) {
  if (full_) return;
  const RuleStates& states = rules_[static_cast<size_t>(rule)];
  AddEmpty(states.begin, body.begin);
  AddEmpty(body.end, states.end);
}

Fragment GrammarBuilder::Nothing() { return {NewState(), NewState()}; }

Fragment GrammarBuilder::Empty() {
  const Fragment part = Nothing();
  AddEmpty(part.begin, part.end);
  return part;
}

Fragment GrammarBuilder::Bytes(uint8_t low, uint8_t high) {
  const Fragment part = Nothing();
  AddBytes(part.begin, low, high, part.end);
  return part;
}

Fragment GrammarBuilder::Literal(std::string_view bytes) {
  if (bytes.empty()) return Empty();
  const int32_t begin = NewState();
  int32_t at = begin;
  for (const char c : bytes) {
    const int32_t next = NewState();
    AddBytes(at, static_cast<uint8_t>(c), static_cast<uint8_t>(c), next);
    at = next;
  }
  return {begin, at};
}

Fragment GrammarBuilder::Call(Rule rule) {
  const Fragment part = Nothing();
  AddEdge(part.begin, {Grammar::EdgeKind::kCall, 0, 0, rule, part.end});
  return part;
}

// Splits the range until each piece is a product of byte ranges: all bytes behind the first one
// that differs take all of 0x80 to 0xBF.
void GrammarBuilder::AddUtf8(int32_t from, CodePointRange range, int32_t to) {
  const auto [low, high] = range;
  for (const uint32_t last_of_length : {0x7FU, 0x7FFU, 0xFFFFU}) {
    if (low > last_of_length || high <= last_of_length) continue;
    AddUtf8(from, {low, last_of_length}, to);
    return AddUtf8(from, {last_of_length + 1, high}, to);
  }
  const Utf8Bytes first = Encode(low), last = Encode(high);
  for (int rest = first.length - 1; rest >= 1; --rest) {
    const uint32_t low_bits = (1U << (6 * rest)) - 1;
    if ((low & ~low_bits) == (high & ~low_bits)) continue;
    if ((low & low_bits) != 0) {
      AddUtf8(from, {low, low | low_bits}, to);
      return AddUtf8(from, {(low | low_bits) + 1, high}, to);
    }
    if ((high & low_bits) != low_bits) {
      AddUtf8(from, {low, (high & ~low_bits) - 1}, to);
      return AddUtf8(from, {high & ~low_bits, high}, to);
    }
  }
  int32_t at = from;
  for (int i = 0; i < first.length && !full_; ++i) {
    const int32_t next = i + 1 == first.length ? to : NewState();
    AddBytes(at, first.bytes[static_cast<size_t>(i)], last.bytes[static_cast<size_t>(i)], next);
    at = next;
  }
}

Fragment GrammarBuilder::CodePoints(std::span<const CodePointRange> ranges, TextForm form) {
  const Fragment part = Nothing();
  for (auto [low, high] : ranges) {
    while (form == TextForm::kJsonString && low <= std::min<uint32_t>(high, '\\') && !full_) {
      // Up to the next one that needs an escape.
      uint32_t c = low;
      while (c <= high && c <= '\\' && !NeedsJsonEscape(c)) ++c;
      if (c > low) AddUtf8(part.begin, {low, c - 1}, part.end);
      low = c;
      if (c > high || c > '\\') break;
      const Fragment escape = Literal(JsonEscape(c));
      AddEmpty(part.begin, escape.begin);
      AddEmpty(escape.end, part.end);
      ++low;
    }
    if (low <= high) AddUtf8(part.begin, {low, high}, part.end);
  }
  return part;
}

Fragment GrammarBuilder::Sequence(std::span<const Fragment> parts) {
  if (parts.empty()) return Empty();
  for (size_t i = 1; i < parts.size(); ++i) AddEmpty(parts[i - 1].end, parts[i].begin);
  return {parts.front().begin, parts.back().end};
}

Fragment GrammarBuilder::AnyOf(std::span<const Fragment> parts) {
  if (parts.size() == 1) return parts.front();
  const Fragment any = Nothing();
  for (const Fragment& part : parts) {
    AddEmpty(any.begin, part.begin);
    AddEmpty(part.end, any.end);
  }
  return any;
}

Fragment GrammarBuilder::Repeat(Fragment body, int64_t min, std::optional<int64_t> max) {
  if (max == 0) return Empty();
  if (min == 1 && max == 1) return body;
  const Fragment all = Nothing();
  if (min <= 1 && (!max || *max == 1)) {
    AddEmpty(all.begin, body.begin);
    AddEmpty(body.end, all.end);
    if (min == 0) AddEmpty(all.begin, all.end);
    if (!max) AddEmpty(body.end, body.begin);
    return all;
  }
  // A rule of its own, so that each time takes one state.
  const Rule rule = DeclareRule();
  DefineRule(rule, body);
  int32_t at = all.begin;
  for (int64_t i = 0; i < max.value_or(min) && !full_; ++i) {
    if (i >= min) AddEmpty(at, all.end);
    const Fragment once = Call(rule);
    AddEmpty(at, once.begin);
    if (!max && i + 1 == min) AddEmpty(once.end, once.begin);
    at = once.end;
  }
  AddEmpty(at, all.end);
  return all;
}

std::vector<bool> GrammarBuilder::FindCompletable() {
  struct Entry {
    int32_t from;
    Grammar::Edge edge;
  };
  std::vector<std::vector<Entry>> into(edges_.size());  // by target
  std::vector<std::vector<Entry>> calls(rules_.size());
  for (int32_t from = 0; from < std::ssize(edges_); ++from) {
    for (const Grammar::Edge& edge : edges_[static_cast<size_t>(from)]) {
      into[static_cast<size_t>(edge.target)].push_back({from, edge});
      if (edge.kind == Grammar::EdgeKind::kCall)
        calls[static_cast<size_t>(edge.rule)].push_back({from, edge});
    }
  }
  std::vector<std::vector<Rule>> begun(edges_.size());  // by state, the rules that begin there
  std::vector<bool> completable(edges_.size(), false);
  whole_.assign(rules_.size(), false);
  std::vector<int32_t> unvisited;
  const auto mark = [&](int32_t state) {
    if (completable[static_cast<size_t>(state)]) return;
    completable[static_cast<size_t>(state)] = true;
    unvisited.push_back(state);
  };
  for (Rule rule = 0; rule < std::ssize(rules_); ++rule) {
    begun[static_cast<size_t>(rules_[static_cast<size_t>(rule)].begin)].push_back(rule);
    mark(rules_[static_cast<size_t>(rule)].end);
  }
  while (!unvisited.empty()) {
    const auto state = static_cast<size_t>(unvisited.back());
    unvisited.pop_back();
    for (const Rule rule : begun[state]) {
      whole_[static_cast<size_t>(rule)] = true;
      for (const Entry& call : calls[static_cast<size_t>(rule)]) {
        if (completable[static_cast<size_t>(call.edge.target)]) mark(call.from);
      }
    }
    for (const Entry& entry : into[state]) {
      if (entry.edge.kind != Grammar::EdgeKind::kCall ||
          whole_[static_cast<size_t>(entry.edge.rule)])
        mark(entry.from);
    }
  }
  return completable;
}

Result<Grammar> GrammarBuilder::Finish(Rule root) && {
  if (full_)
    return InvalidArgument("the constraint is too large: it needs more than " +
                           std::to_string(kMaxGrammarStates) + " states or " +
                           std::to_string(kMaxGrammarEdges) + " transitions");
  const std::vector<bool> completable = FindCompletable();
  if (!whole_[static_cast<size_t>(root)])
    return InvalidArgument("no text satisfies the constraint");
  Grammar grammar;
  std::vector<std::string> names;
  std::swap(rules_[0], rules_[static_cast<size_t>(root)]);
  const auto place = [&](Rule rule) { return rule == root ? 0 : rule == 0 ? root : rule; };
  for (const RuleStates& rule : rules_) {
    grammar.starts.push_back(rule.begin);
    names.push_back(rule.name);
  }
  grammar.states.resize(edges_.size());
  for (const RuleStates& rule : rules_)
    grammar.states[static_cast<size_t>(rule.end)].accepts = true;
  for (size_t from = 0; from < edges_.size(); ++from) {
    grammar.states[from].first_edge = static_cast<int32_t>(grammar.edges.size());
    for (Grammar::Edge edge : edges_[from]) {
      const bool is_call = edge.kind == Grammar::EdgeKind::kCall;
      if (!completable[static_cast<size_t>(edge.target)]) continue;
      if (is_call && !whole_[static_cast<size_t>(edge.rule)]) continue;
      if (is_call) edge.rule = place(edge.rule);
      grammar.edges.push_back(edge);
    }
    grammar.states[from].num_edges =
        static_cast<int32_t>(grammar.edges.size()) - grammar.states[from].first_edge;
  }
  LAMINA_RETURN_IF_ERROR(CheckGrammar(grammar, names));
  return grammar;
}

}  // namespace lamina
