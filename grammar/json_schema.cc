#include "grammar/json_schema.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "grammar/json_numbers.h"
#include "grammar/json_parts.h"
#include "grammar/regex_grammar.h"
#include "grammar/schema_terms.h"
#include "grammar/string_formats.h"
#include "text/utf8.h"

namespace lamina {
namespace {

using Json = nlohmann::ordered_json;

// Where an error is, of schemas that hold together.
std::string PlaceOf(const Conjunction& schemas) {
  return schemas.empty() ? "#" : Shortened(schemas.front().at, 200);
}

// Compiles schemas to rules. A rule is made for each list of schemas that hold together, so that
// recursive schemas become recursive rules. Their bodies are made one after the other.
class SchemaCompiler {
 public:
  SchemaCompiler(const Json& root, GrammarBuilder& builder)
      : reader_(root), builder_(builder), parts_(builder) {}

  Result<Fragment> Compile(const Json& root) {
    LAMINA_ASSIGN_OR_RETURN(const Fragment whole, ValueOf({{&root, "#"}}));
    while (!without_body_.empty() && !builder_.is_full()) {
      const auto [rule, schemas] = std::move(without_body_.back());
      without_body_.pop_back();
      LAMINA_ASSIGN_OR_RETURN(const Fragment body, BodyOf(schemas));
      builder_.DefineRule(rule, body);
    }
    return whole;
  }

 private:
  // A value that satisfies all of the schemas.
  Result<Fragment> ValueOf(const Conjunction& schemas) {
    LAMINA_ASSIGN_OR_RETURN(const Conjunction resolved, reader_.Resolved(schemas));
    if (resolved.empty()) return parts_.Value();
    Conjunction key = resolved;
    std::sort(key.begin(), key.end());
    const auto [found, is_new] = rules_.try_emplace(std::move(key));
    if (is_new) {
      found->second = builder_.DeclareRule(PlaceOf(resolved));
      without_body_.emplace_back(found->second, resolved);
    }
    return builder_.Call(found->second);
  }

  Result<Fragment> BodyOf(const Conjunction& schemas) {
    LAMINA_ASSIGN_OR_RETURN(const SchemaTerms terms, reader_.TermsOf(schemas));
    if (terms.choice) return Choose(schemas, *terms.choice);
    if (terms.values) return OneOfValues(terms, schemas);
    std::vector<Fragment> kinds;
    if ((terms.types & kJsonObject) != 0) {
      LAMINA_ASSIGN_OR_RETURN(const Fragment object, ObjectOf(terms));
      kinds.push_back(object);
    }
    if ((terms.types & kJsonArray) != 0) {
      LAMINA_ASSIGN_OR_RETURN(const Fragment array, ArrayOf(terms));
      kinds.push_back(array);
    }
    if ((terms.types & kJsonString) != 0) {
      LAMINA_ASSIGN_OR_RETURN(const Fragment string, StringOf(terms, schemas));
      kinds.push_back(string);
    }
    if ((terms.types & kJsonNumber) != 0) {
      LAMINA_ASSIGN_OR_RETURN(const Fragment number, NumberOf(terms, schemas));
      kinds.push_back(number);
    }
    if ((terms.types & kJsonBoolean) != 0) {
      kinds.push_back(builder_.Literal("true"));
      kinds.push_back(builder_.Literal("false"));
    }
    if ((terms.types & kJsonNull) != 0) kinds.push_back(builder_.Literal("null"));
    return kinds.empty() ? builder_.Nothing() : builder_.AnyOf(kinds);
  }

  Status Unsupported(const Conjunction& schemas, const std::string& why) const {
    return InvalidArgument("the schema, at " + PlaceOf(schemas) + ": " + why);
  }

  Result<Fragment> Choose(const Conjunction& schemas, const SchemaTerms::Choice& choice) {
    LAMINA_ASSIGN_OR_RETURN(const std::vector<Conjunction> alternatives,
                            reader_.Alternatives(schemas, choice));
    if (choice.keyword == "oneOf") {
      // A value of two of them is invalid, which a grammar cannot keep out.
      for (size_t i = 0; i < alternatives.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          LAMINA_ASSIGN_OR_RETURN(const bool disjoint,
                                  reader_.AreDisjoint(alternatives[j], alternatives[i]));
          if (!disjoint)
            return Unsupported({choice.of},
                               "'oneOf' is supported for schemas that plainly exclude each other, "
                               "by their types, or by 'const' or 'enum', of values or of a "
                               "property that both require; its schemas " +
                                   std::to_string(j) + " and " + std::to_string(i) +
                                   " may not; 'anyOf' takes them");
        }
      }
    }
    std::vector<Fragment> parts;
    for (const Conjunction& alternative : alternatives) {
      LAMINA_ASSIGN_OR_RETURN(const Fragment part, ValueOf(alternative));
      parts.push_back(part);
    }
    return builder_.AnyOf(parts);
  }

  Result<Fragment> OneOfValues(const SchemaTerms& terms, const Conjunction& schemas) {
    if (terms.limits_strings || terms.limits_numbers || terms.limits_arrays || terms.limits_objects)
      return Unsupported(schemas, "'enum' and 'const' are supported beside 'type' alone");
    std::vector<Fragment> values;
    std::vector<std::string> texts;
    for (const Json& value : *terms.values) {
      if (!HasType(value, terms.types)) continue;
      if (value.is_structured()) {
        values.push_back(ValueLike(value));
      } else {
        texts.push_back(TextOf(value));
      }
    }
    if (!texts.empty()) values.push_back(AddChoices(texts, builder_));
    return values.empty() ? builder_.Nothing() : builder_.AnyOf(values);
  }

  static bool HasType(const Json& value, uint8_t types) {
    switch (value.type()) {
      case Json::value_t::null: return (types & kJsonNull) != 0;
      case Json::value_t::boolean: return (types & kJsonBoolean) != 0;
      case Json::value_t::object: return (types & kJsonObject) != 0;
      case Json::value_t::array: return (types & kJsonArray) != 0;
      case Json::value_t::string: return (types & kJsonString) != 0;
      case Json::value_t::number_float: return (types & kJsonFraction) != 0;
      default: return (types & kJsonInteger) != 0;
    }
  }

  // Of a value that is neither an object nor an array.
  static std::string TextOf(const Json& value) {
    return value.is_string() ? JsonQuoted(value.get_ref<const std::string&>()) : value.dump();
  }

  // The value as it stands, with spaces where JSON may have them.
  Fragment ValueLike(const Json& value) {
    if (!value.is_structured()) return builder_.Literal(TextOf(value));
    std::vector<Fragment> all = {builder_.Literal(value.is_object() ? "{" : "["), parts_.Space()};
    bool first = true;
    for (const auto& [key, inner] : value.items()) {
      if (!std::exchange(first, false)) all.push_back(parts_.Comma());
      const Fragment written = ValueLike(inner);
      all.push_back(value.is_object() ? parts_.Member(builder_.Literal(JsonQuoted(key)), written)
                                      : written);
    }
    if (!first) all.push_back(parts_.Space());
    all.push_back(builder_.Literal(value.is_object() ? "}" : "]"));
    return builder_.Sequence(all);
  }

  // Two chains of states, side by side: members have been written, or none has.
  Result<Fragment> ObjectOf(const SchemaTerms& terms) {
    const Fragment open = builder_.Sequence({builder_.Literal("{"), parts_.Space()});
    const Fragment end_space = parts_.Space();
    const Fragment close = builder_.Literal("}");
    builder_.AddEmpty(end_space.end, close.begin);
    int32_t none = open.end, some = builder_.NewState();
    // Enters `member` from both, and leads to the next states.
    const auto add = [&](Fragment member) {
      const Fragment comma = parts_.Comma();
      builder_.AddEmpty(some, comma.begin);
      builder_.AddEmpty(comma.end, member.begin);
      builder_.AddEmpty(none, member.begin);
    };
    for (const auto& [name, schemas] : terms.properties) {
      if (builder_.is_full()) break;
      LAMINA_ASSIGN_OR_RETURN(const Fragment value, ValueOf(schemas));
      const Fragment member = parts_.Member(builder_.Literal(JsonQuoted(name)), value);
      add(member);
      const int32_t next_none = builder_.NewState(), next_some = builder_.NewState();
      builder_.AddEmpty(member.end, next_some);
      if (!terms.required.contains(name)) {
        builder_.AddEmpty(none, next_none);
        builder_.AddEmpty(some, next_some);
      }
      none = next_none;
      some = next_some;
    }
    if (terms.additional) {
      std::vector<std::string> names;
      for (const auto& property : terms.properties) names.push_back(property.first);
      LAMINA_ASSIGN_OR_RETURN(const Fragment value, ValueOf(*terms.additional));
      const Fragment member =
          parts_.Member(names.empty() ? parts_.String() : parts_.StringOtherThan(names), value);
      add(member);
      builder_.AddEmpty(member.end, some);
    }
    builder_.AddEmpty(none, close.begin);
    builder_.AddEmpty(some, end_space.begin);
    return Fragment{open.begin, close.end};
  }

  Result<Fragment> ArrayOf(const SchemaTerms& terms) {
    const Fragment open = builder_.Sequence({builder_.Literal("["), parts_.Space()});
    const Fragment end_space = parts_.Space();
    const Fragment close = builder_.Literal("]");
    builder_.AddEmpty(end_space.end, close.begin);
    const int64_t most = terms.max_items.value_or(INT64_MAX);
    // Behind `count` items.
    int32_t at = open.end;
    int64_t count = 0;
    const auto may_end = [&] {
      if (count >= terms.min_items)
        builder_.AddEmpty(at, count == 0 ? close.begin : end_space.begin);
    };
    const auto add = [&](Fragment item) {
      may_end();
      if (count++ > 0) item = builder_.Sequence({parts_.Comma(), item});
      builder_.AddEmpty(at, item.begin);
      at = item.end;
    };
    for (const Conjunction& schemas : terms.first_items) {
      if (count == most || builder_.is_full()) break;
      LAMINA_ASSIGN_OR_RETURN(const Fragment item, ValueOf(schemas));
      add(item);
    }
    if (terms.items && count < most) {
      if (count == 0) {
        LAMINA_ASSIGN_OR_RETURN(const Fragment item, ValueOf(*terms.items));
        add(item);
      }
      LAMINA_ASSIGN_OR_RETURN(const Fragment item, ValueOf(*terms.items));
      const int64_t least = std::max<int64_t>(terms.min_items - count, 0);
      const Fragment more = builder_.Repeat(
          builder_.Sequence({parts_.Comma(), item}), least,
          terms.max_items ? std::optional(std::max<int64_t>(most - count, 0)) : std::nullopt);
      builder_.AddEmpty(at, more.begin);
      at = more.end;
      count = std::max(count, terms.min_items);
    }
    may_end();
    return Fragment{open.begin, close.end};
  }

  Result<Fragment> StringOf(const SchemaTerms& terms, const Conjunction& schemas) {
    const bool has_length = terms.min_length > 0 || terms.max_length;
    const auto num_ways = static_cast<int>(terms.patterns.size()) + (terms.format.empty() ? 0 : 1) +
                          (has_length ? 1 : 0);
    if (num_ways == 0) return parts_.String();
    if (num_ways > 1)
      return Unsupported(schemas,
                         "a string can have one of 'pattern', 'format' and a length; write the "
                         "length into the pattern: '^[a-z]{1,8}$'");
    if (has_length) {
      if (terms.max_length && *terms.max_length < terms.min_length) return builder_.Nothing();
      return parts_.Quoted(builder_.Repeat(parts_.Character(), terms.min_length, terms.max_length));
    }
    RegexOptions options{.form = TextForm::kJsonString, .search = true};
    std::string pattern;
    if (terms.format.empty()) {
      pattern = terms.patterns.front().first;
    } else {
      const std::optional<std::string> of_format = PatternOfFormat(terms.format);
      if (!of_format)
        return Unsupported(schemas, "the format '" + Shortened(terms.format, 100) +
                                        "' is not supported; there are " + SupportedFormats());
      pattern = *of_format;
      options.search = false;
    }
    Result<Fragment> body = AddRegex(pattern, options, builder_);
    if (!body.ok()) return Unsupported(schemas, "'pattern': " + body.status().message());
    return parts_.Quoted(*body);
  }

  Result<Fragment> NumberOf(const SchemaTerms& terms, const Conjunction& schemas) {
    if ((terms.types & kJsonFraction) == 0) return IntegerOf(terms);
    if (!terms.minimum && !terms.maximum) return parts_.Number();
    Result<Fragment> number = AddDecimals(terms.minimum, terms.maximum, builder_);
    if (!number.ok()) return Unsupported(schemas, number.status().message());
    return number;
  }

  // Bounds that are no integers are moved to the next one inside.
  Fragment IntegerOf(const SchemaTerms& terms) {
    if (!terms.minimum && !terms.maximum) return parts_.Integer();
    const auto inside = [](const std::optional<Bound>& bound, int64_t inward) {
      std::optional<int64_t> limit;
      if (!bound) return limit;
      if (bound->integer) {
        limit = *bound->integer;
        const bool at_end = *limit == (inward > 0 ? INT64_MAX : INT64_MIN);
        if (bound->exclusive && !at_end) *limit += inward;
        return limit;
      }
      const double whole = inward > 0 ? std::ceil(bound->value) : std::floor(bound->value);
      limit = whole >= 0x1p63    ? INT64_MAX
              : whole <= -0x1p63 ? INT64_MIN
                                 : static_cast<int64_t>(whole);
      return limit;
    };
    return AddIntegers(inside(terms.minimum, 1), inside(terms.maximum, -1), builder_);
  }

  SchemaReader reader_;
  GrammarBuilder& builder_;
  JsonParts parts_;
  std::map<Conjunction, GrammarBuilder::Rule> rules_;
  std::vector<std::pair<GrammarBuilder::Rule, Conjunction>> without_body_;
};

}  // namespace

Result<Fragment> AddJsonSchema(const Json& schema, GrammarBuilder& builder) {
  if (!schema.is_object() && !schema.is_boolean())
    return InvalidArgument("a schema has to be a JSON object");
  return SchemaCompiler(schema, builder).Compile(schema);
}

}  // namespace lamina
