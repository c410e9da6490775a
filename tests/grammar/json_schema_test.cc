#include "grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/grammar_texts.h"
#include "tests/support/paths.h"

namespace lamina::testing {
namespace json_schema_test {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

Result<Grammar> Compile(const ordered_json& schema) {
  return CompileConstraint({.kind = ConstraintKind::kJsonSchema, .schema = schema});
}

ordered_json Golden() {
  std::ifstream file(SourcePath("/tests/grammar/schema_golden.json"));
  return ordered_json::parse(file);
}

// The Python package jsonschema is the oracle: schema_golden.py.
TEST(JsonSchema, TakesWhatIsValidAndNothingElse) {
  const ordered_json cases = Golden();
  ASSERT_GT(cases.size(), 40u);
  for (const ordered_json& one : cases) {
    const Result<Grammar> grammar = Compile(one["schema"]);
    ASSERT_TRUE(grammar.ok()) << one["schema"] << ": " << grammar.status();
    Automaton automaton(*grammar, ByteVocabulary());
    for (const ordered_json& text : one["valid"])
      EXPECT_TRUE(Accepts(automaton, text.get<std::string>())) << one["schema"] << " " << text;
    for (const ordered_json& text : one["invalid"])
      EXPECT_FALSE(Accepts(automaton, text.get<std::string>())) << one["schema"] << " " << text;
  }
}

// Values of the keywords that texts are drawn for below, checked without a grammar.
bool IsValid(const ordered_json& schema, const ordered_json& value) {
  const auto type = schema["type"].get<std::string>();
  if (type == "object") {
    if (!value.is_object()) return false;
    for (const auto& [name, inner] : schema["properties"].items()) {
      if (value.contains(name) && !IsValid(inner, value[name])) return false;
      const ordered_json& required = schema["required"];
      const bool is_required = std::ranges::find(required, ordered_json(name)) != required.end();
      if (is_required && !value.contains(name)) return false;
    }
    return std::ranges::all_of(
        value.items(), [&](const auto& item) { return schema["properties"].contains(item.key()); });
  }
  if (type == "array")
    return value.is_array() && value.size() >= schema["minItems"] &&
           value.size() <= schema["maxItems"] &&
           std::ranges::all_of(value, [&](const auto& v) { return IsValid(schema["items"], v); });
  if (type == "integer")
    return value.is_number_integer() && value >= schema["minimum"] && value <= schema["maximum"];
  if (type == "number")
    return value.is_number() && value.get<double>() >= schema["minimum"].get<double>() &&
           value.get<double>() < schema["exclusiveMaximum"].get<double>();
  return type == "string" && value.is_string() &&
         value.get_ref<const std::string&>().size() <= schema["maxLength"].get<size_t>() * 4;
}

TEST(JsonSchema, DrawnTextsAreValid) {
  const auto schema = ordered_json::parse(R"({"type": "object", "required": ["n", "list"],
    "properties": {"n": {"type": "integer", "minimum": -17, "maximum": 1234}, "s": {"type": "string",
    "maxLength": 6}, "list": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type":
    "object", "required": ["x"], "properties": {"x": {"type": "number", "minimum": -2.5,
    "exclusiveMaximum": 31.25}}}}}})");
  const Result<Grammar> grammar = Compile(schema);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  Automaton automaton(*grammar, ByteVocabulary());
  std::mt19937 random(11);
  int num_texts = 0;
  for (int i = 0; i < 300; ++i) {
    const std::optional<std::string> text = DrawText(automaton, random, 2000);
    if (!text) continue;
    ++num_texts;
    const ordered_json value = ordered_json::parse(*text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << *text;
    EXPECT_TRUE(IsValid(schema, value)) << *text;
  }
  EXPECT_GT(num_texts, 200);
}

TEST(JsonSchema, PropertiesStandInTheSchemasOrder) {
  const Result<Grammar> grammar = Compile(ordered_json::parse(
      R"({"type": "object", "properties": {"z": {"type": "null"}, "a": {"type": "null"}}})"));
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  Automaton automaton(*grammar, ByteVocabulary());
  EXPECT_TRUE(Accepts(automaton, R"({"z": null, "a": null})"));
  EXPECT_TRUE(Accepts(automaton, "{\n  \"z\":null,\n\t\"a\": null\n}"));
  EXPECT_FALSE(Accepts(automaton, R"({"a": null, "z": null})"));
  EXPECT_FALSE(Accepts(automaton, R"({"z": null, "b": null})"));
  EXPECT_FALSE(Accepts(automaton, R"({"z":  null})"));
  EXPECT_FALSE(Accepts(automaton, R"( {})"));
}

TEST(JsonSchema, RequiredPropertiesThatAreNotDescribedStandInTheListsOrder) {
  const Result<Grammar> grammar = Compile(ordered_json::parse(
      R"({"type": "object", "properties": {"m": {"type": "null"}}, "required": ["z", "m", "a"],
          "additionalProperties": {"type": "null"}})"));
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  Automaton automaton(*grammar, ByteVocabulary());
  EXPECT_TRUE(Accepts(automaton, R"({"m": null, "z": null, "a": null})"));
  EXPECT_FALSE(Accepts(automaton, R"({"m": null, "a": null, "z": null})"));
}

struct Refused {
  const char* schema;
  const char* says;
};

TEST(JsonSchema, RefusesByName) {
  for (const Refused& one : {
           Refused{R"({"not": {}})", "'not' is not supported"},
           Refused{R"({"type": "object", "properties": {"a": {"if": {}}}})",
                   "at #/properties/a: the keyword 'if'"},
           Refused{R"({"patternProperties": {}})", "'patternProperties'"},
           Refused{R"({"uniqueItems": true})", "'uniqueItems'"},
           Refused{R"({"multipleOf": 0.5})", "'multipleOf'"},
           Refused{R"({"maxLenght": 3})", "'maxLenght'"},
           Refused{R"({"type": "string", "format": "iri"})", "the format 'iri'"},
           Refused{R"({"type": "string", "pattern": "(?=a"})", "looks ahead"},
           Refused{R"({"type": "string", "pattern": "a", "maxLength": 2})", "one of 'pattern'"},
           Refused{R"({"type": "thing"})", "'type' has to be"},
           Refused{R"({"enum": []})", "'enum' has to be"},
           Refused{R"({"enum": [1], "minimum": 0})", "beside 'type' alone"},
           Refused{R"({"minItems": -1})", "'minItems' has to be"},
           Refused{R"({"minLength": "x"})", "'minLength' has to be"},
           Refused{R"({"minimum": "x"})", "'minimum' has to be a number"},
           Refused{R"({"type": "number", "minimum": 1e-12})", "9 digits"},
           Refused{R"({"$ref": "other.json"})", "names no schema of this document"},
           Refused{R"({"$ref": "#/$defs/x"})", "names no schema of this document"},
           Refused{R"({"$ref": "#"})", "in a circle"},
           Refused{R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", "left-recursive"},
           Refused{R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "exclude each other"},
           Refused{R"({"properties": {"a": 3}})", "has to be an object or a boolean"},
           Refused{R"({"items": [3]})", "has to be an object or a boolean"},
           Refused{R"(false)", "no text satisfies"},
           Refused{R"({"type": "integer", "minimum": 3, "maximum": 2})", "no text satisfies"},
           Refused{R"({"allOf": [{"type": "string"}, {"type": "null"}]})", "no text satisfies"},
           Refused{R"({"type": "object", "required": ["a"], "additionalProperties": false})",
                   "no text satisfies"},
           Refused{R"({"type": "string", "maxLength": 1000000})", "65536 states"},
           Refused{R"([])", "has to be a JSON object"},
       }) {
    const Result<Grammar> grammar = Compile(ordered_json::parse(one.schema));
    ASSERT_FALSE(grammar.ok()) << one.schema;
    EXPECT_EQ(grammar.status().code(), StatusCode::kInvalidArgument) << one.schema;
    EXPECT_THAT(grammar.status().message(), HasSubstr(one.says)) << one.schema;
  }
}

// Each choice doubles the combinations.
TEST(JsonSchema, CombinationsAreBounded) {
  ordered_json all = ordered_json::array();
  for (int i = 0; i < 40; ++i) {
    const std::string name = "p" + std::to_string(i);
    all.push_back(
        {{"anyOf", {{{"properties", {{name, {{"type", "null"}}}}}}, {{"required", {name}}}}}});
  }
  const Result<Grammar> grammar = Compile({{"type", "object"}, {"allOf", all}});
  ASSERT_FALSE(grammar.ok());
  EXPECT_THAT(grammar.status().message(), HasSubstr("more than 16384 schemas"));
}

}  // namespace json_schema_test
}  // namespace lamina::testing
