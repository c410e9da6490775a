// The official JSON-Schema-Test-Suite, of which nothing is in this repository: the variable
// LAMINA_JSON_SCHEMA_SUITE names a checkout of it. A schema is refused by name, or everything that
// is invalid is kept out and everything valid can be written, byte by byte and in the tokens of
// tiny-stories. Where lamina departs from JSON Schema as docs/structured_output.md says, a value is
// not judged, and counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "tests/support/golden_prompts.h"
#include "tests/support/grammar_texts.h"
#include "text/infill.h"

namespace lamina::testing {
namespace schema_suite_test {

using nlohmann::ordered_json;

bool HoldsSchemas(const std::string& key) {
  return key == "properties" || key == "$defs" || key == "definitions";
}

// Objects are open unless the schema says otherwise, as in JSON Schema.
void Open(ordered_json& schema) {
  for (auto& [key, inner] : schema.items()) {
    if (!inner.is_structured() || key == "const" || key == "enum") continue;
    if (!HoldsSchemas(key)) {
      Open(inner);
      continue;
    }
    for (auto& [name, one] : inner.items()) {
      if (one.is_structured()) Open(one);
    }
  }
  if (schema.is_object() && schema.contains("properties") &&
      !schema.contains("additionalProperties"))
    schema["additionalProperties"] = true;
}

// The types that keywords of a schema without `type` are about; empty: any.
std::vector<std::string> ImpliedTypes(const ordered_json& schema) {
  const std::map<std::string, std::string> kTypes = {{"minLength", "string"},
                                                     {"maxLength", "string"},
                                                     {"pattern", "string"},
                                                     {"format", "string"},
                                                     {"minimum", "number"},
                                                     {"maximum", "number"},
                                                     {"exclusiveMinimum", "number"},
                                                     {"exclusiveMaximum", "number"},
                                                     {"items", "array"},
                                                     {"prefixItems", "array"},
                                                     {"minItems", "array"},
                                                     {"maxItems", "array"},
                                                     {"properties", "object"},
                                                     {"additionalProperties", "object"},
                                                     {"required", "object"}};
  std::vector<std::string> types;
  for (const auto& [key, value] : schema.items()) {
    if (key == "type" || key == "const" || key == "enum") return {};
    if (const auto type = kTypes.find(key); type != kTypes.end()) types.push_back(type->second);
  }
  return types;
}

class Value {
 public:
  // Borrows the root schema.
  Value(const ordered_json& root, const ordered_json& value) : root_(root), value_(value) {}

  // Whether lamina reads the schema as JSON Schema does for this value and those within: it takes
  // keywords for the types that they are about, formats for more than annotations, and every
  // dialect for that of the draft.
  bool IsJudged() const {
    const bool has_dialect = root_.is_object() && root_.contains("$schema") &&
                             root_["$schema"] != "https://json-schema.org/draft/2020-12/schema";
    return !has_dialect && IsJudged(root_, value_, 0);
  }

 private:
  bool IsJudged(const ordered_json& schema, const ordered_json& value, int depth) const {
    if (!schema.is_object() || depth > 20) return true;
    if (schema.contains("format")) return false;
    const std::vector<std::string> types = ImpliedTypes(schema);
    const std::string type = value.is_number() ? "number" : value.type_name();
    if (!types.empty() && std::ranges::find(types, type) == types.end()) return false;
    if (schema.contains("$ref") && !IsJudged(Target(schema["$ref"]), value, depth + 1))
      return false;
    for (const char* key : {"allOf", "anyOf", "oneOf"}) {
      for (const ordered_json& one : schema.value(key, ordered_json::array()))
        if (!IsJudged(one, value, depth + 1)) return false;
    }
    for (const auto& [name, inner] : value.items()) {
      const ordered_json* below = Below(schema, value, name);
      if (value.is_structured() && below != nullptr && !IsJudged(*below, inner, depth + 1))
        return false;
    }
    return true;
  }

  const ordered_json& Target(const std::string& reference) const {
    static const ordered_json kAny = true;
    if (!reference.starts_with("#")) return kAny;
    const ordered_json::json_pointer pointer(reference.substr(1));
    return root_.contains(pointer) ? root_[pointer] : kAny;
  }

  static const ordered_json* Below(const ordered_json& schema, const ordered_json& value,
                                   const std::string& name) {
    const auto at = [](const ordered_json& map, const std::string& key) -> const ordered_json* {
      const auto found = map.find(key);
      return found == map.end() ? nullptr : &*found;
    };
    if (value.is_object()) {
      const ordered_json* const named = at(schema, "properties");
      const ordered_json* const one = named == nullptr ? nullptr : at(*named, name);
      return one != nullptr ? one : at(schema, "additionalProperties");
    }
    const ordered_json* const first = at(schema, "prefixItems");
    const size_t index = value.is_array() ? std::stoul(name) : 0;
    if (first != nullptr && index < first->size()) return &(*first)[index];
    return at(schema, "items");
  }

  const ordered_json& root_;
  const ordered_json& value_;
};

// Names in the order in which the schema has them, of its own objects and of constants.
void CollectNames(const ordered_json& schema, std::vector<std::string>& names) {
  for (const auto& [key, inner] : schema.items()) {
    if (schema.is_object()) names.push_back(key);
    if (key == "required") {
      for (const ordered_json& name : inner)
        if (name.is_string()) names.push_back(name);
    }
    if (inner.is_structured()) CollectNames(inner, names);
  }
}

enum class Numbers { kAsTheyAre, kWhole, kWithFraction };

// Objects in the order of `names`; whole numbers are one value with a fraction of 0 and without.
ordered_json Written(const ordered_json& value, const std::vector<std::string>& names,
                     Numbers numbers) {
  const double number = value.is_number() ? value.get<double>() : 0.5;
  if (number == std::floor(number) && std::abs(number) < 1e18) {
    if (numbers == Numbers::kWhole) return static_cast<int64_t>(number);
    if (numbers == Numbers::kWithFraction) return number;
  }
  ordered_json written = value;
  if (value.is_array()) {
    for (ordered_json& inner : written) inner = Written(inner, names, numbers);
  }
  if (!value.is_object()) return written;
  std::vector<std::string> keys;
  for (const auto& [key, inner] : value.items()) keys.push_back(key);
  std::ranges::stable_sort(keys, {}, [&](const std::string& key) {
    return std::ranges::find(names, key) - names.begin();
  });
  written = ordered_json::object();
  for (const std::string& key : keys) written[key] = Written(value[key], names, numbers);
  return written;
}

struct Tally {
  int groups = 0, refused = 0, accepted = 0, rejected = 0, not_judged = 0;
};

class SchemaSuite : public ::testing::Test {
 protected:
  void CheckGroup(const std::string& file, const ordered_json& group) {
    Tally& tally = tallies_[file];
    ++tally.groups;
    ordered_json schema = group["schema"];
    if (schema.is_structured()) Open(schema);
    const Result<Grammar> grammar =
        CompileConstraint({.kind = ConstraintKind::kJsonSchema, .schema = schema});
    if (!grammar.ok()) {
      ++tally.refused;
      EXPECT_EQ(grammar.status().code(), StatusCode::kInvalidArgument);
      return;
    }
    Automaton bytes(*grammar, ByteVocabulary()), tokens(*grammar, vocabulary_);
    std::vector<std::string> names;
    if (schema.is_structured()) CollectNames(schema, names);
    for (const ordered_json& test : group["tests"]) {
      SCOPED_TRACE(file + ": " + group["description"].get<std::string>() + ": " +
                   test["description"].get<std::string>());
      std::string text;  // the spelling that is accepted, if one is
      bool accepts = false;
      for (const Numbers numbers : {Numbers::kAsTheyAre, Numbers::kWhole, Numbers::kWithFraction}) {
        if (accepts) break;
        text = Written(test["data"], names, numbers).dump();
        accepts = Accepts(bytes, text);
      }
      if (test["valid"] == false) {
        EXPECT_FALSE(accepts) << text;
        ++tally.rejected;
      } else if (!Value(group["schema"], test["data"]).IsJudged()) {
        ++tally.not_judged;
      } else {
        EXPECT_TRUE(accepts) << text;
        EXPECT_TRUE(AcceptsTokens(tokens, text)) << text;
        ++tally.accepted;
      }
    }
  }

  // In the tokens that the tokenizer makes of it, each of which its mask has to allow.
  bool AcceptsTokens(Automaton& automaton, const std::string& text) const {
    const Result<std::vector<TokenId>> tokens = EncodeContinuation(*tokenizer_, text);
    if (!tokens.ok()) return false;
    Automaton::State state = automaton.start();
    for (const TokenId token : *tokens) {
      const Result<const TokenMask*> mask = automaton.MaskOf(state);
      if (!mask.ok() || !HasToken((*mask)->bits, token)) return false;
      const Result<Automaton::State> next = automaton.Advance(state, std::span(&token, 1));
      if (!next.ok() || *next == Automaton::kDead) return false;
      state = *next;
    }
    return automaton.accepts(state);
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = LoadTokenizer(TinyStoriesDir()).value();
  const std::shared_ptr<const Vocabulary> vocabulary_ =
      Vocabulary::Of(*tokenizer_, tokenizer_->vocab_size());
  std::map<std::string, Tally> tallies_;
};

TEST_F(SchemaSuite, IsKeptToOrRefusedByName) {
  const char* const folder = std::getenv("LAMINA_JSON_SCHEMA_SUITE");
  if (folder == nullptr) GTEST_SKIP() << "LAMINA_JSON_SCHEMA_SUITE names no checkout of the suite";
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(folder) + "/tests/draft2020-12")) {
    if (file.path().extension() != ".json") continue;
    std::ifstream in(file.path());
    for (const ordered_json& group : ordered_json::parse(in))
      CheckGroup(file.path().stem().string(), group);
  }
  Tally all;
  for (const auto& [name, tally] : tallies_) {
    std::cout << name << ": " << tally.groups << " schemas, " << tally.refused << " refused; "
              << tally.accepted << " valid, " << tally.rejected << " invalid, " << tally.not_judged
              << " not judged\n";
    all.groups += tally.groups;
    all.refused += tally.refused;
    all.accepted += tally.accepted;
    all.rejected += tally.rejected;
    all.not_judged += tally.not_judged;
  }
  std::cout << "all: " << all.groups << " schemas, " << all.refused << " refused; " << all.accepted
            << " valid, " << all.rejected << " invalid, " << all.not_judged << " not judged\n";
  EXPECT_GT(all.accepted, 200);
  EXPECT_GT(all.rejected, 200);
}

}  // namespace schema_suite_test
}  // namespace lamina::testing
