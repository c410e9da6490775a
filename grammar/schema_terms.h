// What JSON schemas that hold together say of a value, put together from their keywords.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"

namespace lamina {

// A schema and where it stands, as a JSON pointer with '#' in front.
struct PlacedSchema {
  const nlohmann::ordered_json* schema = nullptr;
  std::string at;
  // Keywords that are passed over: what they say stands in further schemas.
  std::set<std::string> chosen = {};

  // Whether it says the same.
  friend bool operator==(const PlacedSchema& a, const PlacedSchema& b) {
    return a.schema == b.schema && a.chosen == b.chosen;
  }
  friend bool operator<(const PlacedSchema& a, const PlacedSchema& b) {
    return std::tie(a.schema, a.chosen) < std::tie(b.schema, b.chosen);
  }
};
// All of them hold. Empty: any value.
using Conjunction = std::vector<PlacedSchema>;

// Types as a set.
enum JsonType : uint8_t {
  kJsonNull = 1,
  kJsonBoolean = 2,
  kJsonObject = 4,
  kJsonArray = 8,
  kJsonInteger = 16,
  kJsonFraction = 32,  // a number that is not written as an integer
  kJsonString = 64,
  kJsonNumber = kJsonInteger | kJsonFraction,
  kJsonAny = 127,
};

struct Bound {
  double value = 0;
  bool exclusive = false;
  std::optional<int64_t> integer = {};  // the value, if it is written as one
};

struct SchemaTerms {
  uint8_t types = kJsonAny;
  std::optional<std::vector<nlohmann::ordered_json>> values;  // of enum and const

  // Objects. By name, in the order in which they are named first.
  std::vector<std::pair<std::string, Conjunction>> properties;
  std::set<std::string> required;
  std::vector<std::string> required_in_order;  // the same, as they are named
  std::optional<Conjunction> additional;       // of other properties; nullopt: there are none

  // Arrays.
  std::vector<Conjunction> first_items;
  std::optional<Conjunction> items;  // of the items behind them; nullopt: there are none
  int64_t min_items = 0;
  std::optional<int64_t> max_items;

  // Strings. Lengths in characters.
  int64_t min_length = 0;
  std::optional<int64_t> max_length;
  std::vector<std::pair<std::string, std::string>> patterns;  // and where each stands
  std::string format;

  std::optional<Bound> minimum, maximum;

  // The first choice that has still to be made: one of these schemas.
  struct Choice {
    PlacedSchema of;      // who has the keyword
    std::string keyword;  // anyOf or oneOf
  };
  std::optional<Choice> choice;

  // Not the types, nor the choice, nor the values.
  bool limits_strings = false, limits_numbers = false, limits_arrays = false,
       limits_objects = false;
};

// Reads the keywords of one document. Borrows it.
class SchemaReader {
 public:
  // Schemas that are looked through, those that are part of several combinations several times.
  static constexpr int kMaxTerms = 1 << 14;
  // References and allOf inside of each other.
  static constexpr int kMaxDepth = 100;

  explicit SchemaReader(const nlohmann::ordered_json& root) : root_(root) {}

  // All of these return kInvalidArgument for a keyword that is not supported or has a wrong value,
  // with its place.

  // The same with the targets of references and the schemas of allOf beside them.
  Result<Conjunction> Resolved(const Conjunction& schemas);
  // REQUIRES: Resolved.
  Result<SchemaTerms> TermsOf(const Conjunction& schemas);
  // The schemas of a choice, each together with the others, and Resolved. REQUIRES: it is the
  // choice of the schemas' terms.
  Result<std::vector<Conjunction>> Alternatives(const Conjunction& schemas,
                                                const SchemaTerms::Choice& choice);
  // Whether no value can satisfy both, as far as that is plain.
  Result<bool> AreDisjoint(const Conjunction& a, const Conjunction& b, int depth = 0);

 private:
  struct ObjectPart {
    const nlohmann::ordered_json* properties = nullptr;
    const nlohmann::ordered_json* additional = nullptr;
    std::string at;
  };
  struct ArrayPart {
    const nlohmann::ordered_json* first = nullptr;
    const nlohmann::ordered_json* rest = nullptr;
    std::string at, first_name, rest_name;
  };
  struct Parts {
    std::vector<ObjectPart> objects;
    std::vector<ArrayPart> arrays;
    bool typed = false;
  };

  Status Resolve(PlacedSchema placed, int depth, Conjunction& resolved);
  Status Add(const PlacedSchema& placed, Parts& parts, SchemaTerms& terms);
  Status AddKeyword(const PlacedSchema& placed, const std::string& keyword,
                    const nlohmann::ordered_json& value, Parts& parts, SchemaTerms& terms);
  Status AddTypes(const nlohmann::ordered_json& value, const std::string& at, SchemaTerms& terms);
  Status AddValues(const nlohmann::ordered_json& values, SchemaTerms& terms);
  Result<PlacedSchema> Target(const PlacedSchema& placed) const;
  void JoinObjects(const Parts& parts, SchemaTerms& terms);
  void JoinArrays(const Parts& parts, SchemaTerms& terms);

  const nlohmann::ordered_json& root_;
  int num_terms_ = 0;
};

}  // namespace lamina
