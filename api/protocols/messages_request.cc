#include "api/protocols/messages_request.h"

#include <utility>

#include "api/protocols/messages_answer.h"

namespace lamina {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Reads one request. The first error is kept, and ends what is under way.
class MessagesReader {
 public:
  MessagesReader(ForeignBody body, const ServedModel& model, ordered_json& chat)
      : body_(body), model_(model), chat_(chat), reader_(body.fields) {}

  std::optional<ApiError> ReadConversation() {
    MoveField(reader_, body_.ordered, "model", chat_, "model");
    if (reader_.Find("model") == nullptr) reader_.Fail("model", "'model' is missing");
    chat_["messages"] = ordered_json::array();
    ReadSystem();
    ReadMessages();
    ReadTools();
    ReadToolChoice();
    ReadThinking();
    ReadOutputConfig();
    // They say where, for whom, how fast and at what price.
    for (const char* name : {"metadata", "service_tier", "cache_control", "inference_geo", "speed",
                             "user_profile_id", "workspace_id", "diagnostics"})
      reader_.Ignore(name);
    return reader_.error();
  }

  std::optional<ApiError> ReadAnswer() {
    if (reader_.Find("max_tokens") == nullptr)
      reader_.Fail("max_tokens", "'max_tokens' is missing");
    for (const char* name : {"max_tokens", "temperature", "top_p", "top_k", "stream"})
      MoveField(reader_, body_.ordered, name, chat_, name);
    if (const json* stop = reader_.Find("stop_sequences"); stop != nullptr && !stop->is_array())
      reader_.Fail("stop_sequences", "'stop_sequences' must be a list of strings");
    MoveField(reader_, body_.ordered, "stop_sequences", chat_, "stop");
    reader_.Refuse("container", "no code runs on this server");
    return reader_.error();
  }

  std::optional<ApiError> Finish() {
    FailUnknown(reader_, "");
    return reader_.error();
  }

 private:
  void Fail(const std::string& where, const std::string& what) {
    reader_.Fail(where.substr(0, where.find_first_of("[.")), where + " " + what);
  }

  // The fields of an object of the request that neither `reader` nor anybody needs: where a prompt
  // may be cached.
  void Finish(FieldReader& reader, const std::string& where) {
    reader.Ignore("cache_control");
    FailUnknown(reader, where + ".");
    if (reader.error() && !reader_.error()) {
      const ApiError& error = *reader.error();
      reader_.Fail(where.substr(0, where.find('[')),
                   error.param.starts_with(where) ? error.message : where + ": " + error.message);
    }
  }

  void ReadText(const json& block, const std::string& where, ordered_json& parts) {
    FieldReader reader(block);
    reader.Ignore("type");
    std::string text;
    if (reader.Find("text") == nullptr) reader.Fail("text", "'text' is missing");
    reader.Read("text", text);
    reader.Refuse("citations", "answers cite nothing");
    Finish(reader, where);
    parts.push_back({{"type", "text"}, {"text", std::move(text)}});
  }

  // Content that is text and nothing else, as chats have it.
  ordered_json ReadTexts(const json& content, const std::string& where) {
    if (content.is_string()) return content.get<std::string>();
    ordered_json parts = ordered_json::array();
    if (!content.is_array()) {
      Fail(where, "must be a string or a list of text blocks, not " + JsonTypeName(content));
      return parts;
    }
    for (size_t i = 0; i < content.size() && !reader_.error(); ++i) {
      if (TypeOf(content[i]) != "text") {
        Fail(At(where, i), "must be a block of type 'text'; other kinds are not supported");
      } else {
        ReadText(content[i], At(where, i), parts);
      }
    }
    return parts;
  }

  void ReadSystem() {
    const json* system = reader_.Find("system");
    if (system == nullptr || *system == "" || *system == json::array()) return;
    chat_["messages"].push_back({{"role", "system"}, {"content", ReadTexts(*system, "system")}});
  }

  void ReadMessages() {
    const json* messages = reader_.Find("messages");
    if (messages == nullptr) return reader_.Fail("messages", "'messages' is missing");
    if (!messages->is_array() || messages->empty())
      return reader_.Fail("messages", "'messages' must be a list with at least one message");
    for (size_t i = 0; i < messages->size() && !reader_.error(); ++i)
      ReadMessage((*messages)[i], body_.ordered["messages"][i], At("messages", i));
    if (!reader_.error() && messages->back()["role"] == "assistant")
      reader_.Fail("messages",
                   "the last of 'messages' is the assistant's: to go on with the beginning of an "
                   "answer is not supported");
  }

  void ReadMessage(const json& message, ordered_json& ordered, const std::string& where) {
    if (!message.is_object()) return Fail(where, "must be an object, not " + JsonTypeName(message));
    FieldReader reader(message);
    std::string role;
    reader.Read("role", role);
    const json* content = reader.Find("content");
    if (role != "user" && role != "assistant" && role != "system")
      reader.Fail("role", "'role' must be \"user\", \"assistant\" or \"system\"");
    if (content == nullptr) reader.Fail("content", "'content' is missing");
    Finish(reader, where);
    if (reader_.error()) return;
    if (content->is_string() || role == "system") {
      chat_["messages"].push_back(
          {{"role", role}, {"content", ReadTexts(*content, where + ".content")}});
    } else if (!content->is_array() || content->empty()) {
      Fail(where + ".content", "must be a string or a list of blocks that is not empty");
    } else if (role == "user") {
      ReadUserBlocks(*content, where + ".content");
    } else {
      ReadAssistantBlocks(*content, ordered["content"], where + ".content");
    }
  }

  // Results of calls are messages of their own in a chat; the text between them is the user's.
  void ReadUserBlocks(const json& content, const std::string& where) {
    ordered_json parts = ordered_json::array();
    const auto end_text = [&] {
      if (!parts.empty())
        chat_["messages"].push_back({{"role", "user"}, {"content", std::move(parts)}});
      parts = ordered_json::array();
    };
    for (size_t i = 0; i < content.size() && !reader_.error(); ++i) {
      const std::string type = TypeOf(content[i]);
      if (type == "text") {
        ReadText(content[i], At(where, i), parts);
      } else if (type == "tool_result") {
        end_text();
        ReadResult(content[i], At(where, i));
      } else {
        Fail(At(where, i), "must be a block of type 'text' or 'tool_result'; other kinds, '" +
                               type.substr(0, 64) + "' for example, are not supported");
      }
    }
    end_text();
  }

  void ReadResult(const json& block, const std::string& where) {
    FieldReader reader(block);
    reader.Ignore("type");
    std::string id;
    bool is_error = false;
    if (reader.Find("tool_use_id") == nullptr)
      reader.Fail("tool_use_id", "'tool_use_id' is missing");
    reader.Read("tool_use_id", id);
    reader.Read("is_error", is_error);
    const json* content = reader.Find("content");
    reader.Refuse("toolset_name", "there are no sets of tools");
    Finish(reader, where);
    ordered_json text = content == nullptr ? "" : ReadTexts(*content, where + ".content");
    // Templates know no results that are errors.
    if (is_error && text.is_string()) text = "Error: " + text.get<std::string>();
    if (is_error && text.is_array())
      text.insert(text.begin(), ordered_json{{"type", "text"}, {"text", "Error:"}});
    chat_["messages"].push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
  }

  void ReadAssistantBlocks(const json& content, ordered_json& ordered, const std::string& where) {
    ordered_json parts = ordered_json::array(), calls = ordered_json::array();
    std::string reasoning;
    for (size_t i = 0; i < content.size() && !reader_.error(); ++i) {
      const std::string type = TypeOf(content[i]);
      if (type == "text") {
        ReadText(content[i], At(where, i), parts);
      } else if (type == "tool_use") {
        ReadCall(content[i], ordered[i], At(where, i), calls);
      } else if (type == "thinking") {
        FieldReader reader(content[i]);
        for (const char* name : {"type", "signature"}) reader.Ignore(name);
        std::string text;
        reader.Read("thinking", text);
        Finish(reader, At(where, i));
        reasoning += text;
      } else {
        Fail(At(where, i),
             "must be a block of type 'text', 'tool_use' or 'thinking'; other kinds, '" +
                 type.substr(0, 64) + "' for example, are not supported");
      }
    }
    ordered_json message = {{"role", "assistant"}, {"content", std::move(parts)}};
    if (message["content"].empty()) message["content"] = calls.empty() ? ordered_json("") : nullptr;
    if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    chat_["messages"].push_back(std::move(message));
  }

  void ReadCall(const json& block, ordered_json& ordered, const std::string& where,
                ordered_json& calls) {
    FieldReader reader(block);
    for (const char* name : {"type", "caller"}) reader.Ignore(name);
    std::string id, name;
    reader.Read("id", id);
    reader.Read("name", name);
    if (id.empty()) reader.Fail("id", "'id' must be a string that is not empty");
    if (name.empty()) reader.Fail("name", "'name' must be a string that is not empty");
    const json* input = reader.Find("input");
    if (input == nullptr || !input->is_object()) reader.Fail("input", "'input' must be an object");
    reader.Refuse("toolset_name", "there are no sets of tools");
    Finish(reader, where);
    if (reader_.error()) return;
    calls.push_back({{"id", id},
                     {"type", "function"},
                     {"function", {{"name", name}, {"arguments", DumpJson(ordered["input"])}}}});
  }

  void ReadTools() {
    const json* tools = reader_.Find("tools");
    if (tools == nullptr) return;
    if (!tools->is_array())
      return reader_.Fail("tools", "'tools' must be a list, not " + JsonTypeName(*tools));
    if (tools->empty()) return;
    chat_["tools"] = ordered_json::array();
    for (size_t i = 0; i < tools->size() && !reader_.error(); ++i)
      ReadTool((*tools)[i], body_.ordered["tools"][i], At("tools", i));
  }

  void ReadTool(const json& tool, ordered_json& ordered, const std::string& where) {
    const std::string type = TypeOf(tool);
    if (!tool.is_object() || (!type.empty() && type != "custom"))
      return Fail(where,
                  "must be an object with 'name' and 'input_schema'; tools that a server "
                  "runs are not supported");
    FieldReader reader(tool);
    std::string name, description;
    reader.Read("name", name);
    reader.Read("description", description);
    if (name.empty()) reader.Fail("name", "'name' must be a string that is not empty");
    const json* schema = reader.Find("input_schema");
    if (schema == nullptr || !schema->is_object())
      reader.Fail("input_schema", "'input_schema' must be an object");
    bool strict = false;
    reader.Read("strict", strict);
    strict_ = strict_ || strict;
    RefuseOther(reader, "allowed_callers", json::array({"direct"}), "no code runs on this server");
    reader.Refuse("defer_loading", "all tools are shown to the model");
    reader.Refuse("input_examples", "write them into the description");
    for (const char* ignored : {"type", "eager_input_streaming"}) reader.Ignore(ignored);
    Finish(reader, where);
    if (reader_.error()) return;
    ordered_json function = {{"name", name}};
    if (!description.empty()) function["description"] = description;
    function["parameters"] = std::move(ordered["input_schema"]);
    chat_["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
  }

  void ReadToolChoice() {
    const json* choice = reader_.Find("tool_choice");
    std::string type = "auto", name;
    bool one_call = false;
    if (choice != nullptr) {
      if (!choice->is_object())
        return reader_.Fail("tool_choice", "'tool_choice' must be an object with a 'type'");
      FieldReader reader(*choice);
      reader.Read("type", type);
      reader.Read("name", name);
      reader.Read("disable_parallel_tool_use", one_call);
      Finish(reader, "tool_choice");
    }
    if (one_call) chat_["parallel_tool_calls"] = false;
    if (type == "any") {
      chat_["tool_choice"] = "required";
    } else if (type == "tool") {
      chat_["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
    } else if (type == "none") {
      chat_["tool_choice"] = "none";
    } else if (type != "auto") {
      reader_.Fail("tool_choice",
                   "'tool_choice.type' must be \"auto\", \"any\", \"tool\" or \"none\"");
    }
    if (strict_ && type == "auto")
      reader_.Fail("tools",
                   "'tools.strict' is not supported unless 'tool_choice' demands a call: then "
                   "arguments fit their schema");
  }

  void ReadThinking() {
    const json* thinking = reader_.Find("thinking");
    if (thinking == nullptr) return;
    const std::string type = TypeOf(*thinking);
    if (type != "enabled" && type != "disabled" && type != "adaptive")
      return reader_.Fail("thinking",
                          "'thinking.type' must be \"enabled\", \"adaptive\" or \"disabled\"");
    FieldReader reader(*thinking);
    reader.Ignore("type");
    int64_t budget = 0;
    reader.ReadInteger("budget_tokens", 1, INT64_MAX, budget);
    std::string display = "summarized";
    reader.Read("display", display);
    if (display != "summarized" && display != "omitted")
      reader.Fail("display", "'display' must be \"summarized\" or \"omitted\"");
    Finish(reader, "thinking");
    if (display == "omitted") chat_["include_reasoning"] = false;
    if (const auto error = ChooseReasoning(type != "disabled", "thinking", model_, chat_))
      reader_.Fail(error->param, error->message);
  }

  void ReadOutputConfig() {
    const json* config = reader_.Find("output_config");
    if (config == nullptr) return;
    if (!config->is_object())
      return reader_.Fail("output_config", "'output_config' must be an object");
    FieldReader reader(*config);
    if (reader.Find("effort") != nullptr)
      chat_["reasoning_effort"] = std::move(body_.ordered["output_config"]["effort"]);
    if (const json* format = reader.Find("format")) {
      if (TypeOf(*format) != "json_schema" || !format->contains("schema")) {
        reader.Fail("format", "'format' must be {\"type\": \"json_schema\", \"schema\": {...}}");
      } else {
        FieldReader inner(*format);
        for (const char* name : {"type", "schema"}) inner.Ignore(name);
        Finish(inner, "output_config.format");
        chat_["response_format"] = {
            {"type", "json_schema"},
            {"json_schema",
             {{"schema", std::move(body_.ordered["output_config"]["format"]["schema"])}}}};
      }
    }
    Finish(reader, "output_config");
  }

  ForeignBody body_;
  const ServedModel& model_;
  ordered_json& chat_;
  FieldReader reader_;
  bool strict_ = false;
};

}  // namespace

std::optional<ApiError> TranslateMessages(ForeignBody body, const ServedModel& model,
                                          Translation& out) {
  MessagesReader reader(body, model, out.body);
  if (auto error = reader.ReadConversation()) return error;
  if (auto error = reader.ReadAnswer()) return error;
  if (auto error = reader.Finish()) return error;
  out.form = NewMessagesAnswer(model.name);
  return std::nullopt;
}

std::optional<ApiError> TranslateCountTokens(ForeignBody body, const ServedModel& model,
                                             Translation& out) {
  MessagesReader reader(body, model, out.body);
  if (auto error = reader.ReadConversation()) return error;
  return reader.Finish();
}

}  // namespace lamina
