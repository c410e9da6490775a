#include "grammar/json_parts.h"

#include <algorithm>
#include <map>

#include "grammar/regex_grammar.h"
#include "text/utf8.h"

namespace lamina {
namespace {

constexpr int64_t kMaxIndent = 64;

const std::vector<CodePointRange>& UnescapedCharacters() {
  static const std::vector<CodePointRange> ranges =
      Complement(std::vector<CodePointRange>{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  return ranges;
}

}  // namespace

Fragment AddChoices(std::span<const std::string> texts, GrammarBuilder& builder) {
  struct Node {
    int32_t state = 0;
    std::map<char, size_t> next;
  };
  const Fragment all = builder.Nothing();
  std::vector<Node> nodes = {{builder.NewState(), {}}};
  builder.AddEmpty(all.begin, nodes[0].state);
  for (const std::string& text : texts) {
    size_t at = 0;
    for (const char c : text) {
      if (builder.is_full()) return all;
      const auto [found, is_new] = nodes[at].next.emplace(c, nodes.size());
      const size_t next = found->second;
      if (is_new) {
        nodes.push_back({builder.NewState(), {}});
        const auto byte = static_cast<uint8_t>(c);
        builder.AddBytes(nodes[at].state, byte, byte, nodes[next].state);
      }
      at = next;
    }
    builder.AddEmpty(nodes[at].state, all.end);
  }
  return all;
}

std::string JsonQuoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': quoted += "\\\""; break;
      case '\\': quoted += "\\\\"; break;
      case '\b': quoted += "\\b"; break;
      case '\f': quoted += "\\f"; break;
      case '\n': quoted += "\\n"; break;
      case '\r': quoted += "\\r"; break;
      case '\t': quoted += "\\t"; break;
      default:
        if (static_cast<uint8_t>(c) >= 0x20) {
          quoted += c;
          break;
        }
        constexpr std::string_view kDigits = "0123456789abcdef";
        quoted += "\\u00";
        quoted += kDigits[static_cast<uint8_t>(c) >> 4];
        quoted += kDigits[static_cast<uint8_t>(c) & 15];
    }
  }
  return quoted + '"';
}

Fragment JsonParts::Named(std::optional<Rule>& rule, const char* name,
                          Fragment (JsonParts::*body)()) {
  if (!rule) {
    rule = builder_.DeclareRule(name);
    builder_.DefineRule(*rule, (this->*body)());
  }
  return builder_.Call(*rule);
}

Fragment JsonParts::Space() { return Named(space_, "space", &JsonParts::MakeSpace); }
Fragment JsonParts::Value() { return Named(value_, "value", &JsonParts::MakeValue); }
Fragment JsonParts::Object() { return Named(object_, "object", &JsonParts::MakeObject); }
Fragment JsonParts::Array() { return Named(array_, "array", &JsonParts::MakeArray); }
Fragment JsonParts::String() { return Named(string_, "string", &JsonParts::MakeString); }
Fragment JsonParts::Character() {
  return Named(character_, "character", &JsonParts::MakeCharacter);
}

// One state for each place of the indent: states are few, and no rule is called.
Fragment JsonParts::MakeSpace() {
  const Fragment space = builder_.Nothing();
  builder_.AddEmpty(space.begin, space.end);
  builder_.AddBytes(space.begin, ' ', ' ', space.end);
  int32_t at = builder_.NewState();
  builder_.AddBytes(space.begin, '\n', '\n', at);
  for (int64_t i = 0; i < kMaxIndent; ++i) {
    const int32_t next = builder_.NewState();
    builder_.AddEmpty(at, space.end);
    builder_.AddBytes(at, ' ', ' ', next);
    builder_.AddBytes(at, '\t', '\t', next);
    at = next;
  }
  builder_.AddEmpty(at, space.end);
  return space;
}

Fragment JsonParts::MakeValue() {
  return builder_.AnyOf({Object(), Array(), String(), Number(), builder_.Literal("true"),
                         builder_.Literal("false"), builder_.Literal("null")});
}

Fragment JsonParts::Member(Fragment key, Fragment value) {
  return builder_.Sequence({key, builder_.Literal(":"), Space(), value});
}

Fragment JsonParts::Comma() { return builder_.Sequence({builder_.Literal(","), Space()}); }

Fragment JsonParts::MakeObject() {
  const Rule member = builder_.DeclareRule("member");
  builder_.DefineRule(member, Member(String(), Value()));
  const Fragment more =
      builder_.Repeat(builder_.Sequence({Comma(), builder_.Call(member)}), 0, std::nullopt);
  const Fragment members = builder_.Sequence({builder_.Call(member), more, Space()});
  return builder_.Sequence(
      {builder_.Literal("{"), Space(), builder_.Optional(members), builder_.Literal("}")});
}

Fragment JsonParts::MakeArray() {
  const Fragment more = builder_.Repeat(builder_.Sequence({Comma(), Value()}), 0, std::nullopt);
  const Fragment items = builder_.Sequence({Value(), more, Space()});
  return builder_.Sequence(
      {builder_.Literal("["), Space(), builder_.Optional(items), builder_.Literal("]")});
}

Fragment JsonParts::Quoted(Fragment body) {
  return builder_.Sequence({builder_.Literal("\""), body, builder_.Literal("\"")});
}

// The character's automaton in place, so that the states inside of a string call nothing.
Fragment JsonParts::MakeString() {
  return Quoted(builder_.Repeat(MakeCharacter(), 0, std::nullopt));
}

Fragment JsonParts::MakeCharacter() {
  const auto hex = [&] {
    return builder_.AnyOf(
        {builder_.Bytes('0', '9'), builder_.Bytes('a', 'f'), builder_.Bytes('A', 'F')});
  };
  const auto bytes = [&](std::string_view choices) {
    const Fragment one = builder_.Nothing();
    for (const char c : choices)
      builder_.AddBytes(one.begin, static_cast<uint8_t>(c), static_cast<uint8_t>(c), one.end);
    return one;
  };
  const auto high = [&] { return builder_.Sequence({bytes("dD"), bytes("89abAB")}); };
  const auto low = [&] { return builder_.Sequence({bytes("dD"), bytes("cdefCDEF")}); };
  const Fragment no_surrogate =
      builder_.AnyOf({builder_.Sequence({bytes("0123456789abcefABCEF"), hex()}),
                      builder_.Sequence({bytes("dD"), bytes("01234567")})});
  const Fragment unit = builder_.AnyOf(
      {builder_.Sequence({no_surrogate, hex(), hex()}),
       builder_.Sequence({high(), hex(), hex(), builder_.Literal("\\u"), low(), hex(), hex()})});
  const Fragment escape = builder_.Sequence(
      {builder_.Literal("\\"),
       builder_.AnyOf({bytes("\"\\/bfnrt"), builder_.Sequence({builder_.Literal("u"), unit})})});
  return builder_.AnyOf({builder_.CodePoints(UnescapedCharacters(), TextForm::kPlain), escape});
}

Fragment JsonParts::Integer() {
  const Fragment positive = builder_.Sequence(
      {builder_.Bytes('1', '9'), builder_.Repeat(builder_.Bytes('0', '9'), 0, std::nullopt)});
  return builder_.Sequence({builder_.Optional(builder_.Literal("-")),
                            builder_.AnyOf({builder_.Literal("0"), positive})});
}

Fragment JsonParts::Number() {
  const auto digits = [&] { return builder_.Repeat(builder_.Bytes('0', '9'), 1, std::nullopt); };
  const Fragment fraction = builder_.Sequence({builder_.Literal("."), digits()});
  const Fragment sign = builder_.AnyOf({builder_.Literal("+"), builder_.Literal("-")});
  const Fragment exponent =
      builder_.Sequence({builder_.AnyOf({builder_.Literal("e"), builder_.Literal("E")}),
                         builder_.Optional(sign), digits()});
  return builder_.Sequence({Integer(), builder_.Optional(fraction), builder_.Optional(exponent)});
}

// The texts as a trie of characters. What leaves it is another text, and so is one that ends in it
// where none of them ends.
Fragment JsonParts::StringOtherThan(const std::vector<std::string>& texts) {
  struct Node {
    int32_t state = 0;
    bool ends = false;
    std::map<uint32_t, size_t> next;
  };
  std::vector<Node> nodes = {{builder_.NewState(), false, {}}};
  for (const std::string& text : texts) {
    size_t at = 0;
    for (std::string_view rest = text; !rest.empty() && !builder_.is_full();) {
      size_t length = 0;
      const uint32_t c = FirstCodePoint(rest, &length);
      rest.remove_prefix(length);
      const auto [found, is_new] = nodes[at].next.emplace(c, nodes.size());
      at = found->second;
      if (is_new) nodes.push_back({builder_.NewState(), false, {}});
    }
    nodes[at].ends = true;
  }
  const auto characters = [&](std::vector<CodePointRange> ranges) {
    return builder_.CodePoints(Normalized(std::move(ranges)), TextForm::kJsonString);
  };
  const Fragment other = builder_.Repeat(characters({{0, kMaxCodePoint}}), 0, std::nullopt);
  // Characters leave the trie in two kinds. Those of a kind that no text goes on with are the same
  // for all nodes: most have letters alone.
  const std::vector<CodePointRange> kinds[] = {
      {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7F}},
      {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x80, kMaxCodePoint}}};
  std::optional<Fragment> leaving[2];
  const auto leave = [&](const Node& node, size_t kind) {
    std::vector<CodePointRange> stay;
    for (const auto& [c, next] : node.next) {
      for (const auto& [low, high] : kinds[kind]) {
        if (c >= low && c <= high) stay.emplace_back(c, c);
      }
    }
    std::optional<Fragment> own;
    std::optional<Fragment>& used = stay.empty() ? leaving[kind] : own;
    if (!used) {
      // All characters but those that are not of the kind, or stay.
      for (const auto& [low, high] : kinds[1 - kind]) stay.emplace_back(low, high);
      used = characters(Complement(Normalized(std::move(stay))));
      builder_.AddEmpty(used->end, other.begin);
    }
    builder_.AddEmpty(node.state, used->begin);
  };
  const Fragment body{nodes[0].state, other.end};
  for (const Node& node : nodes) {
    if (builder_.is_full()) break;
    if (!node.ends) builder_.AddEmpty(node.state, other.end);
    for (const auto& [c, next] : node.next) {
      const Fragment step = characters({{c, c}});
      builder_.AddEmpty(node.state, step.begin);
      builder_.AddEmpty(step.end, nodes[next].state);
    }
    leave(node, 0);
    leave(node, 1);
  }
  return Quoted(body);
}

}  // namespace lamina
