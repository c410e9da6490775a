#include "api/chat_fields.h"

#include <utility>

namespace lamina {
namespace {

using nlohmann::json;

constexpr size_t kMaxTools = 1024;
constexpr size_t kMaxToolNameBytes = 256;
constexpr size_t kMaxVariables = 16;  // for the template

// Text of a message: a string, a list of {"type": "text", "text"}, or null.
std::string ReadContent(FieldReader& reader, const json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return "";
  std::string text;
  if (!content.is_array()) {
    reader.Fail("messages", where + ".content must be a string or a list of text parts, not " +
                                JsonTypeName(content));
    return text;
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const json& part = content[i];
    const bool is_text = part.is_object() && (!part.contains("type") || part["type"] == "text") &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text)
      reader.Fail(
          "messages",
          where + ".content[" + std::to_string(i) +
              "] must be {\"type\": \"text\", \"text\": ...}; other kinds are not supported");
    if (is_text) text += (i == 0 ? "" : "\n") + part["text"].get<std::string>();
  }
  return text;
}

void ReadMessages(FieldReader& reader, ChatInput& input) {
  const json* messages = reader.Find("messages");
  if (messages == nullptr) return reader.Fail("messages", "'messages' is missing");
  if (!messages->is_array() || messages->empty())
    return reader.Fail("messages", "'messages' must be a list with at least one message");
  for (size_t i = 0; i < messages->size(); ++i) {
    const json& message = (*messages)[i];
    const std::string where = "messages[" + std::to_string(i) + "]";
    if (!message.is_object())
      return reader.Fail("messages", where + " must be an object, not " + JsonTypeName(message));
    if (!message.contains("role") || !message["role"].is_string())
      return reader.Fail("messages", where + ".role must be a string");
    if (!message.contains("content") && !message.contains("tool_calls"))
      return reader.Fail("messages", where + ".content is missing");
    ChatMessage& out = input.messages.emplace_back();
    out.role = message["role"].get<std::string>();
    const bool calls = message.contains("tool_calls") && !message["tool_calls"].is_null();
    const bool has_content = message.contains("content") && !message["content"].is_null();
    if (has_content || !calls)
      out.content = ReadContent(reader, has_content ? message["content"] : json(), where);
    if (reader.error()) return;
    out.rest = nlohmann::ordered_json(message);
    out.rest.erase("role");
    out.rest.erase("content");
  }
}

// Templates know it by its name, or only whether there is any.
void ReadReasoningEffort(FieldReader& reader, nlohmann::ordered_json& variables) {
  if (reader.Find("reasoning_effort") == nullptr) return;
  std::string effort;
  reader.Read("reasoning_effort", effort);
  for (const auto& [name, value] : {std::pair<const char*, json>("reasoning_effort", effort),
                                    {"enable_thinking", effort != "none"}}) {
    if (!variables.contains(name)) variables[name] = value;
  }
}

}  // namespace

void ReadChatInput(FieldReader& reader, ChatInput& input) {
  ReadMessages(reader, input);
  reader.Read("add_generation_prompt", input.add_generation_prompt);
  if (const json* variables = reader.Find("chat_template_kwargs")) {
    if (!variables->is_object())
      return reader.Fail("chat_template_kwargs", "'chat_template_kwargs' must be an object, not " +
                                                     JsonTypeName(*variables));
    if (variables->size() > kMaxVariables)
      return reader.Fail("chat_template_kwargs", "'chat_template_kwargs' has more than 16 entries");
    input.variables = nlohmann::ordered_json(*variables);
  }
  ReadReasoningEffort(reader, input.variables);
  reader.Refuse("chat_template", "the model's own is used");
  reader.Refuse("continue_final_message", "use /v1/completions to go on with a text");
}

std::set<std::string> ReadTools(FieldReader& reader, ChatInput& input) {
  std::set<std::string> names;
  const json* tools = reader.Find("tools");
  const json* choice = reader.Find("tool_choice");
  if (tools != nullptr && !tools->is_array()) {
    reader.Fail("tools", "'tools' must be a list, not " + JsonTypeName(*tools));
    return names;
  }
  if (tools == nullptr || tools->empty()) return names;
  if (tools->size() > kMaxTools)
    reader.Fail("tools", "'tools' has " + std::to_string(tools->size()) +
                             " entries; at most 1024 are possible");
  for (size_t i = 0; i < tools->size() && !reader.error(); ++i) {
    const json& tool = (*tools)[i];
    const std::string where = "tools[" + std::to_string(i) + "]";
    const bool is_function = tool.is_object() && tool.value("type", json()) == "function" &&
                             tool.contains("function") && tool["function"].is_object();
    if (!is_function) {
      reader.Fail("tools", where +
                               " must be {\"type\": \"function\", \"function\": {...}}; other "
                               "kinds are not supported");
    } else if (const json name = tool["function"].value("name", json());
               !name.is_string() || name.get_ref<const std::string&>().empty()) {
      reader.Fail("tools", where + ".function.name must be a string that is not empty");
    } else if (name.get_ref<const std::string&>().size() > kMaxToolNameBytes) {
      reader.Fail("tools", where + ".function.name has more than 256 bytes");
    } else {
      names.insert(name.get<std::string>());
    }
  }
  // Tools that must not be called are not shown to the model.
  if (choice != nullptr && *choice == "none") return {};
  input.tools = nlohmann::ordered_json(*tools);
  return names;
}

void ReadToolChoice(FieldReader& reader, ChatRequest& out) {
  const json* choice = reader.Find("tool_choice");
  if (choice == nullptr || *choice == "none" || *choice == "auto") return;
  if (*choice == "required") {
    out.forced = ForcedCall::kList;
  } else {
    const json function = choice->is_object() ? choice->value("function", json()) : json();
    const json name = function.is_object() ? function.value("name", json()) : json();
    if (!name.is_string())
      return reader.Fail("tool_choice",
                         "'tool_choice' must be \"auto\", \"none\", \"required\" or {\"type\": "
                         "\"function\", \"function\": {\"name\": ...}}");
    out.forced = ForcedCall::kNamed;
    out.forced_name = name.get<std::string>();
    if (!out.tool_names.contains(out.forced_name))
      return reader.Fail("tool_choice",
                         "'tool_choice' names '" + out.forced_name + "', which 'tools' have not");
  }
  if (out.tool_names.empty())
    reader.Fail("tool_choice", "'tool_choice' demands a call, but there are no 'tools'");
}

void RefuseFunctions(FieldReader& reader) {
  reader.Refuse("functions", "use 'tools'");
  const json* call = reader.Find("function_call");
  if (call != nullptr && *call != "none" && *call != "auto")
    reader.Refuse("function_call", "use 'tools' and 'tool_choice'");
}

}  // namespace lamina
