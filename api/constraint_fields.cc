#include "api/constraint_fields.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lamina {
namespace {

using nlohmann::json;
using Pointer = json::json_pointer;

// Strings are parsed again when they are schemas, so they are held against the limit of bodies.
constexpr int kMaxSchemaNesting = 100;

// Collects what the fields ask for.
class ConstraintReader {
 public:
  explicit ConstraintReader(FieldReader& reader) : reader_(reader) {}

  std::optional<RequestedConstraint> Read() {
    ReadResponseFormat();
    ReadStructuredOutputs();
    Json("guided_json", reader_.Find("guided_json"), Pointer("/guided_json"));
    Text("guided_regex", reader_.Find("guided_regex"), ConstraintKind::kRegex);
    Choice("guided_choice", reader_.Find("guided_choice"));
    Text("guided_grammar", reader_.Find("guided_grammar"), ConstraintKind::kGrammar);
    Text("grammar", reader_.Find("grammar"), ConstraintKind::kGrammar);
    Text("ebnf", reader_.Find("ebnf"), ConstraintKind::kGrammar);
    Text("regex", reader_.Find("regex"), ConstraintKind::kRegex);
    Json("json_schema", reader_.Find("json_schema"), Pointer("/json_schema"));
    for (const char* name : {"guided_whitespace_pattern", "structural_tag"})
      reader_.Refuse(name,
                     "whitespace between the parts of JSON is what docs/structured_output.md "
                     "says");
    // It picks one of the other server's implementations.
    reader_.Ignore("guided_decoding_backend");
    return reader_.error() ? std::nullopt : std::move(found_);
  }

 private:
  void Take(const std::string& field, Constraint constraint,
            std::optional<Pointer> schema_at = std::nullopt) {
    if (found_)
      return reader_.Fail(field, "a text can have one constraint, and '" + found_->field +
                                     "' and '" + field + "' are two");
    found_ = {field, std::move(constraint), std::move(schema_at)};
  }

  // Values that mean nothing, as for fields that are not supported.
  static bool IsAbsent(const json* value) {
    return value == nullptr || *value == false || *value == "" ||
           (value->is_array() && value->empty());
  }

  void Text(const std::string& field, const json* value, ConstraintKind kind) {
    if (IsAbsent(value)) return;
    if (!value->is_string())
      return reader_.Fail(field, "'" + field + "' must be a string, not " + JsonTypeName(*value));
    Take(field, {.kind = kind, .text = value->get<std::string>()});
  }

  void Choice(const std::string& field, const json* value) {
    if (IsAbsent(value)) return;
    const bool is_list = value->is_array() && std::ranges::all_of(*value, [](const json& item) {
                           return item.is_string() && !item.get_ref<const std::string&>().empty();
                         });
    if (!is_list)
      return reader_.Fail(field, "'" + field + "' must be a list of strings that are not empty");
    Take(field,
         {.kind = ConstraintKind::kChoice, .choices = value->get<std::vector<std::string>>()});
  }

  // A schema, or one as a string.
  void Json(const std::string& field, const json* value, const Pointer& at) {
    if (IsAbsent(value)) return;
    if (value->is_object()) return Take(field, {.kind = ConstraintKind::kJsonSchema}, at);
    if (!value->is_string())
      return reader_.Fail(field, "'" + field + "' must be a JSON schema, or one as a string, not " +
                                     JsonTypeName(*value));
    const auto& text = value->get_ref<const std::string&>();
    bool too_deep = false;
    const auto keep = [&](int depth, nlohmann::ordered_json::parse_event_t, auto&) {
      too_deep |= depth > kMaxSchemaNesting;
      return depth <= kMaxSchemaNesting;
    };
    auto schema = nlohmann::ordered_json::parse(text, keep, /*allow_exceptions=*/false);
    if (too_deep || schema.is_discarded() || text.find('\0') != std::string::npos)
      return reader_.Fail(field, "'" + field +
                                     "' is a string that is not valid JSON, or nested more "
                                     "than 100 deep");
    Take(field, {.kind = ConstraintKind::kJsonSchema, .schema = std::move(schema)});
  }

  void ReadResponseFormat() {
    const json* format = reader_.Find("response_format");
    if (format == nullptr) return;
    if (!format->is_object() || !format->contains("type") || !(*format)["type"].is_string())
      return reader_.Fail("response_format", "'response_format' must be an object with a 'type'");
    const auto& type = (*format)["type"].get_ref<const std::string&>();
    if (type == "text") return;
    const auto inner = [&](const json& object, const char* name) -> const json* {
      const auto found = object.find(name);
      return found == object.end() || found->is_null() ? nullptr : &*found;
    };
    if (type == "json_object") {
      // llama.cpp has a schema here.
      if (const json* schema = inner(*format, "schema"))
        return Json("response_format.schema", schema, Pointer("/response_format/schema"));
      return Take("response_format", {.kind = ConstraintKind::kJsonObject});
    }
    if (type != "json_schema")
      return reader_.Fail("response_format.type",
                          "'response_format' can have the types 'text', "
                          "'json_object' and 'json_schema'");
    const json* named = inner(*format, "json_schema");
    const json* schema = named != nullptr && named->is_object() ? inner(*named, "schema") : nullptr;
    if (schema == nullptr)
      return reader_.Fail("response_format.json_schema.schema",
                          "'response_format' of type 'json_schema' needs 'json_schema.schema'");
    Json("response_format.json_schema.schema", schema,
         Pointer("/response_format/json_schema/schema"));
  }

  void ReadStructuredOutputs() {
    const json* value = reader_.Find("structured_outputs");
    if (IsAbsent(value) || *value == json::object()) return;
    if (!value->is_object())
      return reader_.Fail("structured_outputs",
                          "'structured_outputs' must be an object, not " + JsonTypeName(*value));
    const std::string of = "structured_outputs.";
    FieldReader inner(*value);
    Json(of + "json", inner.Find("json"), Pointer("/structured_outputs/json"));
    Text(of + "regex", inner.Find("regex"), ConstraintKind::kRegex);
    Choice(of + "choice", inner.Find("choice"));
    Text(of + "grammar", inner.Find("grammar"), ConstraintKind::kGrammar);
    bool json_object = false;
    inner.Read("json_object", json_object);
    if (json_object) Take(of + "json_object", {.kind = ConstraintKind::kJsonObject});
    for (const char* name : {"structural_tag", "whitespace_pattern", "disable_any_whitespace",
                             "disable_additional_properties"})
      inner.Refuse(name, "");
    inner.Ignore("disable_fallback");
    if (inner.error()) return reader_.Fail(of + inner.error()->param, inner.error()->message);
    if (const auto unknown = inner.Unknown(1); !unknown.empty())
      return reader_.Fail(of + unknown.front(),
                          "'structured_outputs' has no '" + unknown.front() + "'");
    if (!found_ && !reader_.error())
      reader_.Fail("structured_outputs",
                   "'structured_outputs' needs one of 'json', 'regex', "
                   "'choice', 'grammar' and 'json_object'");
  }

  FieldReader& reader_;
  std::optional<RequestedConstraint> found_;
};

}  // namespace

std::optional<RequestedConstraint> ReadConstraint(FieldReader& reader) {
  return ConstraintReader(reader).Read();
}

Result<std::string> CompileRequested(const RequestedConstraint& requested,
                                     const std::string& body) {
  Result<Grammar> grammar = InternalError("not compiled");
  if (requested.schema_at) {
    const auto ordered = nlohmann::ordered_json::parse(body, nullptr, /*allow_exceptions=*/false);
    const nlohmann::ordered_json::json_pointer at(requested.schema_at->to_string());
    if (!ordered.contains(at)) return InternalError("the schema is not in the request's body");
    Constraint constraint = requested.constraint;
    constraint.schema = ordered.at(at);
    grammar = CompileConstraint(constraint);
  } else {
    grammar = CompileConstraint(requested.constraint);
  }
  if (!grammar.ok())
    return InvalidArgument("'" + requested.field + "': " + grammar.status().message());
  return grammar->ToBytes();
}

}  // namespace lamina
