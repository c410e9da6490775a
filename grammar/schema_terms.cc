#include "grammar/schema_terms.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "text/utf8.h"

namespace lamina {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxSchemaCount = 1 << 20;

// Keywords that say nothing of which values are valid.
const std::set<std::string>& Annotations() {
  static const std::set<std::string> names = {"title",
                                              "description",
                                              "default",
                                              "examples",
                                              "example",
                                              "$comment",
                                              "$schema",
                                              "$defs",
                                              "definitions",
                                              "deprecated",
                                              "readOnly",
                                              "writeOnly",
                                              "contentMediaType",
                                              "contentEncoding",
                                              "contentSchema",
                                              "discriminator",
                                              "externalDocs",
                                              "xml",
                                              "$anchor",
                                              "$vocabulary"};
  return names;
}

Status Wrong(const std::string& at, const std::string& why) {
  return InvalidArgument("the schema, at " + Shortened(at, 200) + ": " + why);
}

Status HasToBe(const std::string& at, const std::string& keyword, const char* what) {
  return Wrong(at, "'" + keyword + "' has to be " + what);
}

std::string Below(const std::string& at, const std::string& key) {
  std::string escaped;
  for (const char c : key) {
    if (c == '~')
      escaped += "~0";
    else if (c == '/')
      escaped += "~1";
    else
      escaped += c;
  }
  return at + "/" + escaped;
}

std::optional<int64_t> CountOf(const Json& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number >= 0 && number <= kMaxSchemaCount && std::floor(number) == number)
      return static_cast<int64_t>(number);
    return std::nullopt;
  }
  if (!value.is_number_integer() || value < 0) return std::nullopt;
  return value > kMaxSchemaCount ? kMaxSchemaCount + 1 : value.get<int64_t>();
}

uint8_t TypeNamed(const std::string& name) {
  static const std::map<std::string, uint8_t> types = {
      {"null", kJsonNull},    {"boolean", kJsonBoolean}, {"object", kJsonObject},
      {"array", kJsonArray},  {"integer", kJsonInteger}, {"number", kJsonNumber},
      {"string", kJsonString}};
  const auto found = types.find(name);
  return found == types.end() ? 0 : found->second;
}

// Of a value as it is written out. What is an integer but is written as a fraction counts as both.
uint8_t TypesOf(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return kJsonNull;
    case Json::value_t::boolean: return kJsonBoolean;
    case Json::value_t::object: return kJsonObject;
    case Json::value_t::array: return kJsonArray;
    case Json::value_t::string: return kJsonString;
    case Json::value_t::number_float: {
      const double number = value.get<double>();
      return std::floor(number) == number ? kJsonNumber : kJsonFraction;
    }
    default: return kJsonInteger;
  }
}

// Equal as JSON Schema has it: the order of properties does not matter.
bool AreEqual(const Json& a, const Json& b) {
  if (!a.is_structured() || !b.is_structured()) return a == b;
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), AreEqual);
  return std::ranges::all_of(a.items(), [&](const auto& item) {
    const auto found = b.find(item.key());
    return found != b.end() && AreEqual(item.value(), *found);
  });
}

void Tighten(std::optional<Bound>& bound, const Bound& other, bool is_minimum) {
  const double sign = is_minimum ? 1 : -1;
  const bool tighter = !bound || sign * other.value > sign * bound->value ||
                       (other.value == bound->value && other.exclusive);
  if (tighter) bound = other;
}

Result<Bound> BoundOf(const Json& value, bool exclusive, const std::string& at,
                      const std::string& keyword) {
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    return HasToBe(at, keyword, "a number");
  Bound bound{value.get<double>(), exclusive};
  const bool fits = !value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX;
  if (value.is_number_integer() && fits)
    bound.integer = value.get<int64_t>();
  else if (std::floor(bound.value) == bound.value && std::abs(bound.value) < 0x1p53)
    bound.integer = static_cast<int64_t>(bound.value);
  return bound;
}

// "%7B" and the like.
std::string Unescaped(const std::string& uri) {
  std::string text;
  for (size_t i = 0; i < uri.size(); ++i) {
    const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    if (uri[i] == '%' && i + 2 < uri.size() && is_hex(uri[i + 1]) && is_hex(uri[i + 2])) {
      text += static_cast<char>(std::stoi(uri.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      text += uri[i];
    }
  }
  return text;
}

}  // namespace

Result<PlacedSchema> SchemaReader::Target(const PlacedSchema& placed) const {
  const Json& value = (*placed.schema)["$ref"];
  if (!value.is_string()) return HasToBe(placed.at, "$ref", "a string");
  const std::string reference = Unescaped(value.get<std::string>());
  const auto unknown = [&] {
    return Wrong(placed.at, "'$ref' is \"" + Shortened(reference, 200) +
                                "\", which names no schema of this document ('#', '#/$defs/...')");
  };
  if (reference != "#" && !reference.starts_with("#/")) return unknown();
  // Walked by hand: a pointer of the library throws.
  const Json* at = &root_;
  for (size_t begin = 2; reference.size() > 1 && begin <= reference.size();) {
    const size_t end = std::min(reference.find('/', begin), reference.size());
    std::string key;
    for (size_t i = begin; i < end; ++i) {
      const bool escaped = reference[i] == '~' && i + 1 < end &&
                           (reference[i + 1] == '0' || reference[i + 1] == '1');
      key += escaped ? (reference[++i] == '0' ? '~' : '/') : reference[i];
    }
    if (at->is_object()) {
      const auto found = at->find(key);
      if (found == at->end()) return unknown();
      at = &*found;
    } else if (at->is_array() && !key.empty() && key.size() < 7 &&
               std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; }) &&
               std::stoul(key) < at->size()) {
      at = &(*at)[std::stoul(key)];
    } else {
      return unknown();
    }
    begin = end + 1;
  }
  if (!at->is_object() && !at->is_boolean()) return unknown();
  return PlacedSchema{at, reference};
}

Result<Conjunction> SchemaReader::Resolved(const Conjunction& schemas) {
  Conjunction resolved;
  for (const PlacedSchema& placed : schemas) LAMINA_RETURN_IF_ERROR(Resolve(placed, 0, resolved));
  return resolved;
}

Status SchemaReader::Resolve(PlacedSchema placed, int depth, Conjunction& resolved) {
  if (++num_terms_ > kMaxTerms)
    return Wrong(placed.at, "the schema and the combinations of its choices are more than " +
                                std::to_string(kMaxTerms) + " schemas");
  if (depth > kMaxDepth)
    return Wrong(placed.at, "'$ref' and 'allOf' are nested more than " + std::to_string(kMaxDepth) +
                                " deep, or lead in a circle");
  const Json& schema = *placed.schema;
  if (schema.is_boolean() && schema.get<bool>()) return OkStatus();
  const auto says = [&](const char* keyword) {
    return schema.is_object() && schema.contains(keyword) && !placed.chosen.contains(keyword);
  };
  const bool refers = says("$ref"), is_all_of = says("allOf");
  if (refers) placed.chosen.insert("$ref");
  if (is_all_of) placed.chosen.insert("allOf");
  if (std::ranges::find(resolved, placed) != resolved.end() && !refers) return OkStatus();
  const bool says_more =
      !schema.is_object() || std::ranges::any_of(schema.items(), [&](const auto& item) {
        return !placed.chosen.contains(item.key()) && !Annotations().contains(item.key());
      });
  if (says_more) resolved.push_back(placed);
  if (refers) {
    LAMINA_ASSIGN_OR_RETURN(PlacedSchema target, Target(placed));
    LAMINA_RETURN_IF_ERROR(Resolve(std::move(target), depth + 1, resolved));
  }
  if (!is_all_of) return OkStatus();
  const Json& list = schema["allOf"];
  const std::string at = Below(placed.at, "allOf");
  if (!list.is_array() || list.empty())
    return HasToBe(placed.at, "allOf", "a list of schemas that is not empty");
  for (size_t i = 0; i < list.size(); ++i)
    LAMINA_RETURN_IF_ERROR(Resolve({&list[i], Below(at, std::to_string(i))}, depth + 1, resolved));
  return OkStatus();
}

Result<SchemaTerms> SchemaReader::TermsOf(const Conjunction& schemas) {
  SchemaTerms terms;
  Parts parts;
  for (const PlacedSchema& placed : schemas) LAMINA_RETURN_IF_ERROR(Add(placed, parts, terms));
  JoinObjects(parts, terms);
  JoinArrays(parts, terms);
  if (parts.typed || terms.values || terms.choice) return terms;
  // Without a type the keywords say which one is meant.
  uint8_t meant = 0;
  if (terms.limits_objects) meant |= kJsonObject;
  if (terms.limits_arrays) meant |= kJsonArray;
  if (terms.limits_strings) meant |= kJsonString;
  if (terms.limits_numbers) meant |= kJsonNumber;
  if (meant != 0) terms.types &= meant;
  return terms;
}

Status SchemaReader::Add(const PlacedSchema& placed, Parts& parts, SchemaTerms& terms) {
  const Json& schema = *placed.schema;
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) terms.types = 0;
    return OkStatus();
  }
  if (!schema.is_object()) return Wrong(placed.at, "a schema has to be an object or a boolean");
  for (const auto& [keyword, value] : schema.items())
    LAMINA_RETURN_IF_ERROR(AddKeyword(placed, keyword, value, parts, terms));
  // These keywords change each other's meaning.
  const auto find = [&](const char* name) {
    const auto found = schema.find(name);
    return found == schema.end() ? nullptr : &*found;
  };
  const Json *const properties = find("properties"), *const additional =
                                                         find("additionalProperties");
  if (properties != nullptr || additional != nullptr)
    parts.objects.push_back({properties, additional, placed.at});
  const Json *const prefix = find("prefixItems"), *const items = find("items");
  if (prefix != nullptr)
    parts.arrays.push_back({prefix, items, placed.at, "prefixItems", "items"});
  else if (items != nullptr && items->is_array())  // before the draft of 2020
    parts.arrays.push_back({items, find("additionalItems"), placed.at, "items", "additionalItems"});
  else if (items != nullptr)
    parts.arrays.push_back({nullptr, items, placed.at, "", "items"});
  return OkStatus();
}

Status SchemaReader::AddTypes(const Json& value, const std::string& at, SchemaTerms& terms) {
  uint8_t types = 0;
  const Json names = value.is_array() ? value : Json::array({value});
  for (const Json& name : names) {
    const uint8_t type = name.is_string() ? TypeNamed(name.get<std::string>()) : uint8_t{0};
    if (type == 0)
      return HasToBe(at, "type",
                     "null, boolean, object, array, number, integer or string, or a list of them");
    types |= type;
  }
  terms.types &= types;
  return OkStatus();
}

Status SchemaReader::AddValues(const Json& values, SchemaTerms& terms) {
  std::vector<Json> both;
  for (const Json& value : values) {
    const auto is_same = [&](const Json& other) { return AreEqual(value, other); };
    if (terms.values && std::ranges::none_of(*terms.values, is_same)) continue;
    if (std::ranges::none_of(both, is_same)) both.push_back(value);
  }
  terms.values = std::move(both);
  return OkStatus();
}

Status SchemaReader::AddKeyword(const PlacedSchema& placed, const std::string& keyword,
                                const Json& value, Parts& parts, SchemaTerms& terms) {
  const std::string& at = placed.at;
  if (Annotations().contains(keyword) || keyword.starts_with("x-")) return OkStatus();
  if (placed.chosen.contains(keyword)) return OkStatus();
  if (keyword == "$id" && placed.schema == &root_) return OkStatus();
  if (keyword == "type") {
    parts.typed = true;
    return AddTypes(value, at, terms);
  }
  if (keyword == "const") return AddValues(Json::array({value}), terms);
  if (keyword == "enum") {
    if (!value.is_array() || value.empty()) return HasToBe(at, keyword, "a list that is not empty");
    return AddValues(value, terms);
  }
  if (keyword == "anyOf" || keyword == "oneOf") {
    if (!value.is_array() || value.empty())
      return HasToBe(at, keyword, "a list of schemas that is not empty");
    if (!terms.choice) terms.choice = {placed, keyword};
    return OkStatus();
  }
  // Objects. Properties and items are put together when all schemas are known.
  if (keyword == "properties") {
    terms.limits_objects = true;
    return value.is_object() ? OkStatus() : HasToBe(at, keyword, "an object of schemas");
  }
  if (keyword == "additionalProperties") {
    terms.limits_objects = true;
    return OkStatus();
  }
  if (keyword == "required") {
    if (!value.is_array()) return HasToBe(at, keyword, "a list of strings");
    terms.limits_objects = true;
    for (const Json& name : value) {
      if (!name.is_string()) return HasToBe(at, keyword, "a list of strings");
      if (terms.required.insert(name.get<std::string>()).second)
        terms.required_in_order.push_back(name.get<std::string>());
    }
    return OkStatus();
  }
  // Arrays.
  if (keyword == "prefixItems" || keyword == "items" || keyword == "additionalItems") {
    terms.limits_arrays = true;
    if (keyword == "prefixItems" && !value.is_array())
      return HasToBe(at, keyword, "a list of schemas");
    return OkStatus();
  }
  if (keyword == "minItems" || keyword == "maxItems" || keyword == "minLength" ||
      keyword == "maxLength") {
    const std::optional<int64_t> count = CountOf(value);
    if (!count || *count > kMaxSchemaCount)
      return HasToBe(at, keyword, "an integer from 0 to 1048576");
    (keyword.ends_with("Items") ? terms.limits_arrays : terms.limits_strings) = true;
    if (keyword == "minItems") terms.min_items = std::max(terms.min_items, *count);
    if (keyword == "minLength") terms.min_length = std::max(terms.min_length, *count);
    std::optional<int64_t>* const most = keyword == "maxItems"    ? &terms.max_items
                                         : keyword == "maxLength" ? &terms.max_length
                                                                  : nullptr;
    if (most != nullptr) *most = std::min(most->value_or(*count), *count);
    return OkStatus();
  }
  if (keyword == "uniqueItems" && value == false) return OkStatus();
  if (keyword == "minProperties" && value == 0) return OkStatus();
  // Strings.
  if (keyword == "pattern") {
    if (!value.is_string()) return HasToBe(at, keyword, "a string");
    terms.limits_strings = true;
    const auto pattern = value.get<std::string>();
    const auto is_same = [&](const auto& other) { return other.first == pattern; };
    if (std::ranges::none_of(terms.patterns, is_same)) terms.patterns.emplace_back(pattern, at);
    return OkStatus();
  }
  if (keyword == "format") {
    if (!value.is_string()) return HasToBe(at, keyword, "a string");
    const auto format = value.get<std::string>();
    if (format == "float" || format == "double") return OkStatus();
    if (format == "int32" || format == "int64") {
      const int64_t least = format == "int32" ? INT32_MIN : INT64_MIN;
      const int64_t most = format == "int32" ? INT32_MAX : INT64_MAX;
      Tighten(terms.minimum, {static_cast<double>(least), false, least}, true);
      Tighten(terms.maximum, {static_cast<double>(most), false, most}, false);
      terms.limits_numbers = true;
      return OkStatus();
    }
    if (!terms.format.empty() && terms.format != format)
      return Wrong(at, "two formats of one string are not supported: '" + terms.format + "' and '" +
                           format + "'");
    terms.limits_strings = true;
    terms.format = format;
    return OkStatus();
  }
  // Numbers.
  if (keyword == "minimum" || keyword == "maximum" || keyword == "exclusiveMinimum" ||
      keyword == "exclusiveMaximum") {
    if (value.is_boolean())
      return Wrong(at, "'" + keyword + "' as a boolean, of draft 4, is not supported");
    LAMINA_ASSIGN_OR_RETURN(const Bound bound,
                            BoundOf(value, keyword.starts_with("exclusive"), at, keyword));
    terms.limits_numbers = true;
    const bool is_minimum = keyword.ends_with("inimum");
    Tighten(is_minimum ? terms.minimum : terms.maximum, bound, is_minimum);
    return OkStatus();
  }
  if (keyword == "multipleOf" && value == 1) {
    terms.types &= static_cast<uint8_t>(~kJsonFraction);
    return OkStatus();
  }
  return Wrong(at, "the keyword '" + Shortened(keyword, 100) + "' is not supported");
}

// A property has to satisfy what each of the schemas says of it: that of its name, or else that of
// additional ones. Without `additionalProperties` anywhere there are no others than those that are
// named, if any are.
void SchemaReader::JoinObjects(const Parts& parts, SchemaTerms& terms) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const ObjectPart& part : parts.objects) {
    if (part.properties == nullptr) continue;
    for (const auto& item : part.properties->items()) {
      if (known.insert(item.key()).second) names.push_back(item.key());
    }
  }
  for (const std::string& name : terms.required_in_order) {
    if (known.insert(name).second) names.push_back(name);
  }
  bool any_additional = false, none_more = false;
  for (const ObjectPart& part : parts.objects) {
    any_additional |= part.additional != nullptr;
    none_more |= part.additional != nullptr && *part.additional == false;
  }
  for (const std::string& name : names) {
    Conjunction all;
    for (const ObjectPart& part : parts.objects) {
      const bool is_named = part.properties != nullptr && part.properties->contains(name);
      if (is_named)
        all.push_back({&(*part.properties)[name], Below(Below(part.at, "properties"), name)});
      else if (part.additional != nullptr)
        all.push_back({part.additional, Below(part.at, "additionalProperties")});
    }
    terms.properties.emplace_back(name, std::move(all));
  }
  const bool any_named = std::ranges::any_of(
      parts.objects, [](const ObjectPart& part) { return part.properties != nullptr; });
  if (none_more || (!any_additional && any_named)) return;
  terms.additional = Conjunction();
  for (const ObjectPart& part : parts.objects) {
    if (part.additional != nullptr)
      terms.additional->push_back({part.additional, Below(part.at, "additionalProperties")});
  }
}

void SchemaReader::JoinArrays(const Parts& parts, SchemaTerms& terms) {
  size_t num_first = 0;
  for (const ArrayPart& part : parts.arrays) {
    if (part.first != nullptr) num_first = std::max(num_first, part.first->size());
  }
  const auto at_place = [&](size_t i) {
    Conjunction all;
    for (const ArrayPart& part : parts.arrays) {
      if (part.first != nullptr && i < part.first->size())
        all.push_back(
            {&(*part.first)[i], Below(Below(part.at, part.first_name), std::to_string(i))});
      else if (part.rest != nullptr)
        all.push_back({part.rest, Below(part.at, part.rest_name)});
    }
    return all;
  };
  for (size_t i = 0; i < num_first; ++i) terms.first_items.push_back(at_place(i));
  terms.items = at_place(num_first);
}

Result<std::vector<Conjunction>> SchemaReader::Alternatives(const Conjunction& schemas,
                                                            const SchemaTerms::Choice& choice) {
  std::vector<Conjunction> alternatives;
  const Json& list = (*choice.of.schema)[choice.keyword];
  for (size_t i = 0; i < list.size(); ++i) {
    Conjunction all = schemas;
    std::ranges::find(all, choice.of)->chosen.insert(choice.keyword);
    all.push_back({&list[i], Below(Below(choice.of.at, choice.keyword), std::to_string(i))});
    LAMINA_ASSIGN_OR_RETURN(all, Resolved(all));
    alternatives.push_back(std::move(all));
  }
  return alternatives;
}

Result<bool> SchemaReader::AreDisjoint(const Conjunction& a, const Conjunction& b, int depth) {
  constexpr int kMaxChecks = 4;  // of properties inside of each other
  if (depth > kMaxChecks) return false;
  LAMINA_ASSIGN_OR_RETURN(const Conjunction resolved_a, Resolved(a));
  LAMINA_ASSIGN_OR_RETURN(const Conjunction resolved_b, Resolved(b));
  LAMINA_ASSIGN_OR_RETURN(const SchemaTerms x, TermsOf(resolved_a));
  LAMINA_ASSIGN_OR_RETURN(const SchemaTerms y, TermsOf(resolved_b));
  // An integer is a number that may be written as a fraction: 1.0.
  const auto wide = [](uint8_t types) {
    return static_cast<uint8_t>((types & kJsonNumber) != 0 ? types | kJsonNumber : types);
  };
  const auto common = static_cast<uint8_t>(wide(x.types) & wide(y.types));
  if (common == 0) return true;
  if (x.values && y.values) {
    for (const Json& value : *x.values) {
      for (const Json& other : *y.values) {
        if (AreEqual(value, other)) return false;
      }
    }
    return true;
  }
  for (const auto& [one, other] : {std::pair(&x, &y), std::pair(&y, &x)}) {
    if (!one->values) continue;
    const bool none =
        std::ranges::none_of(*one->values, [&, types = wide(other->types)](const Json& value) {
          return (wide(TypesOf(value)) & types) != 0;
        });
    if (none) return true;
  }
  if (common != kJsonObject) return false;
  for (const auto& [name, schemas] : x.properties) {
    if (!x.required.contains(name) || !y.required.contains(name)) continue;
    const auto same = std::ranges::find(y.properties, name, [](const auto& p) { return p.first; });
    if (same == y.properties.end()) continue;
    LAMINA_ASSIGN_OR_RETURN(const bool disjoint, AreDisjoint(schemas, same->second, depth + 1));
    if (disjoint) return true;
  }
  return false;
}

}  // namespace lamina
