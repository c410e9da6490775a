#include "api/protocols/responses_request.h"

#include <utility>

#include "api/protocols/responses_answer.h"

namespace lamina {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// What an answer repeats of its request, unless that is long: streams say it three times.
constexpr size_t kMaxRepeatedBytes = size_t{64} << 10;

// Reads one request. The first error is kept, and ends what is under way.
class ResponsesReader {
 public:
  ResponsesReader(ForeignBody body, const ServedModel& model, Translation& out)
      : body_(body), model_(model), chat_(out.body), out_(out), reader_(body.fields) {}

  std::optional<ApiError> Read() {
    chat_["messages"] = ordered_json::array();
    Repeat();
    ReadInstructions();
    ReadInput();
    ReadTools();
    ReadToolChoice();
    ReadText();
    ReadReasoning();
    for (const char* name : {"model", "temperature", "top_p", "stream", "parallel_tool_calls"})
      MoveField(reader_, body_.ordered, name, chat_, name);
    MoveField(reader_, body_.ordered, "max_output_tokens", chat_, "max_tokens");
    // vLLM's further fields.
    for (const char* name : {"seed", "top_k", "min_p", "repetition_penalty", "priority",
                             "request_id", "chat_template_kwargs"})
      MoveField(reader_, body_.ordered, name, chat_, name);
    RefuseOthers();
    FailUnknown(reader_, "");
    if (reader_.error()) return reader_.error();
    out_.form = NewResponsesAnswer(std::move(repeated_));
    return std::nullopt;
  }

 private:
  void Fail(const std::string& where, const std::string& what) {
    reader_.Fail(where.substr(0, where.find_first_of("[.")), where + " " + what);
  }

  void Finish(FieldReader& reader, const std::string& where) {
    FailUnknown(reader, where + ".");
    if (!reader.error() || reader_.error()) return;
    const ApiError& error = *reader.error();
    const std::string param = where.substr(0, where.find('['));
    reader_.Fail(param,
                 error.param.starts_with(where) ? error.message : where + ": " + error.message);
  }

  void Repeat() {
    const json& fields = body_.fields;
    const auto of = [&](const char* name, ordered_json otherwise) {
      const auto found = fields.find(name);
      return found == fields.end() || found->is_null() ? otherwise : body_.ordered[name];
    };
    repeated_ = {{"model", model_.name},
                 {"instructions", of("instructions", nullptr)},
                 {"max_output_tokens", of("max_output_tokens", nullptr)},
                 {"metadata", of("metadata", ordered_json::object())},
                 {"parallel_tool_calls", of("parallel_tool_calls", true)},
                 {"previous_response_id", nullptr},
                 {"reasoning", of("reasoning", ordered_json::object())},
                 {"store", false},
                 {"temperature", of("temperature", nullptr)},
                 {"text", of("text", {{"format", {{"type", "text"}}}})},
                 {"tool_choice", of("tool_choice", "auto")},
                 {"tools", of("tools", ordered_json::array())},
                 {"top_p", of("top_p", nullptr)},
                 {"truncation", "disabled"}};
    if (DumpJson(repeated_).size() <= kMaxRepeatedBytes) return;
    repeated_["instructions"] = nullptr;
    repeated_["metadata"] = ordered_json::object();
    repeated_["text"] = ordered_json::object();
    repeated_["tools"] = ordered_json::array();
  }

  void ReadInstructions() {
    std::string text;
    reader_.Read("instructions", text);
    if (!text.empty()) chat_["messages"].push_back({{"role", "system"}, {"content", text}});
  }

  void ReadInput() {
    const json* input = reader_.Find("input");
    if (input == nullptr) return reader_.Fail("input", "'input' is missing");
    if (input->is_string()) {
      chat_["messages"].push_back({{"role", "user"}, {"content", input->get<std::string>()}});
      return;
    }
    if (!input->is_array() || input->empty())
      return reader_.Fail("input", "'input' must be a string or a list of items, and not empty");
    for (size_t i = 0; i < input->size() && !reader_.error(); ++i)
      ReadItem((*input)[i], At("input", i));
    if (!reasoning_.empty()) AssistantMessage();
    if (!reader_.error() && !chat_["messages"].empty() &&
        chat_["messages"].back()["role"] == "assistant")
      reader_.Fail("input",
                   "the last item of 'input' is the assistant's: to go on with the beginning of an "
                   "answer is not supported");
  }

  void ReadItem(const json& item, const std::string& where) {
    const std::string type = TypeOf(item);
    FieldReader reader(item.is_object() ? item : kNothing);
    for (const char* name : {"type", "id", "status"}) reader.Ignore(name);
    if (type == "function_call") {
      ReadCall(reader, where);
    } else if (type == "function_call_output") {
      ReadResult(reader, where);
    } else if (type == "reasoning") {
      ReadPastReasoning(reader, where);
    } else if (type == "message" || (type.empty() && item.is_object() && item.contains("role"))) {
      ReadMessage(reader, where);
    } else if (type == "item_reference" ||
               (type.empty() && item.is_object() && item.contains("id"))) {
      Fail(where,
           "refers to an earlier item, but nothing is stored on this server: send the item "
           "itself");
    } else {
      Fail(where,
           "must be an item of type 'message', 'function_call', 'function_call_output' or "
           "'reasoning'; other kinds, '" +
               type.substr(0, 64) + "' for example, are not supported");
    }
  }

  void ReadMessage(FieldReader& reader, const std::string& where) {
    std::string role;
    reader.Read("role", role);
    const json* content = reader.Find("content");
    reader.Ignore("phase");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      reader.Fail("role", "'role' must be \"user\", \"assistant\", \"system\" or \"developer\"");
    if (content == nullptr) reader.Fail("content", "'content' is missing");
    Finish(reader, where);
    if (reader_.error()) return;
    ordered_json text = ReadTexts(*content, where + ".content");
    if (role == "assistant") {
      AssistantMessage()["content"] = std::move(text);
      return;
    }
    // Templates name the role that instructions have, which is the older of both for most.
    const bool has_developers =
        model_.chat_template != nullptr &&
        model_.chat_template->source().find("developer") != std::string::npos;
    if (role == "developer" && !has_developers) role = "system";
    chat_["messages"].push_back({{"role", role}, {"content", std::move(text)}});
  }

  // Text or a list of parts that are text.
  ordered_json ReadTexts(const json& content, const std::string& where) {
    if (content.is_string()) return content.get<std::string>();
    ordered_json parts = ordered_json::array();
    if (!content.is_array()) {
      Fail(where, "must be a string or a list of parts, not " + JsonTypeName(content));
      return parts;
    }
    for (size_t i = 0; i < content.size() && !reader_.error(); ++i) {
      const std::string type = TypeOf(content[i]);
      if (type != "input_text" && type != "output_text" && type != "text") {
        Fail(At(where, i),
             "must be a part of type 'input_text' or 'output_text'; other kinds are "
             "not supported");
        break;
      }
      FieldReader reader(content[i]);
      for (const char* name : {"type", "annotations", "logprobs", "prompt_cache_breakpoint"})
        reader.Ignore(name);
      std::string text;
      if (reader.Find("text") == nullptr) reader.Fail("text", "'text' is missing");
      reader.Read("text", text);
      Finish(reader, At(where, i));
      parts.push_back({{"type", "text"}, {"text", std::move(text)}});
    }
    return parts;
  }

  // A new message of the assistant's, with the reasoning that stood before it.
  ordered_json& AssistantMessage() {
    chat_["messages"].push_back({{"role", "assistant"}, {"content", nullptr}});
    ordered_json& message = chat_["messages"].back();
    if (!reasoning_.empty()) {
      message["reasoning_content"] = std::exchange(reasoning_, "");
      message["content"] = "";
    }
    return message;
  }

  // Calls belong to the message before them, if that is the assistant's.
  void ReadCall(FieldReader& reader, const std::string& where) {
    std::string id, name, arguments;
    reader.Read("call_id", id);
    reader.Read("name", name);
    reader.Read("arguments", arguments);
    reader.Ignore("caller");
    reader.Refuse("namespace", "tools have none");
    if (id.empty()) reader.Fail("call_id", "'call_id' must be a string that is not empty");
    if (name.empty()) reader.Fail("name", "'name' must be a string that is not empty");
    Finish(reader, where);
    if (reader_.error()) return;
    ordered_json& messages = chat_["messages"];
    const bool goes_on =
        !messages.empty() && messages.back()["role"] == "assistant" && reasoning_.empty();
    ordered_json& message = goes_on ? messages.back() : AssistantMessage();
    message["tool_calls"].push_back({{"id", id},
                                     {"type", "function"},
                                     {"function", {{"name", name}, {"arguments", arguments}}}});
  }

  void ReadResult(FieldReader& reader, const std::string& where) {
    std::string id;
    reader.Read("call_id", id);
    const json* output = reader.Find("output");
    for (const char* name : {"caller", "name"}) reader.Ignore(name);
    if (id.empty()) reader.Fail("call_id", "'call_id' must be a string that is not empty");
    if (output == nullptr) reader.Fail("output", "'output' is missing");
    Finish(reader, where);
    if (reader_.error()) return;
    chat_["messages"].push_back({{"role", "tool"},
                                 {"tool_call_id", id},
                                 {"content", ReadTexts(*output, where + ".output")}});
  }

  void ReadPastReasoning(FieldReader& reader, const std::string& where) {
    for (const char* name : {"summary", "encrypted_content"}) reader.Ignore(name);
    const json* content = reader.Find("content");
    Finish(reader, where);
    if (content == nullptr || reader_.error()) return;
    if (!content->is_array()) return Fail(where + ".content", "must be a list of parts");
    for (const json& part : *content) {
      const json text = part.is_object() ? part.value("text", json()) : json();
      if (TypeOf(part) != "reasoning_text" || !text.is_string())
        return Fail(where + ".content", "must hold parts of type 'reasoning_text'");
      reasoning_ += text.get_ref<const std::string&>();
    }
  }

  void ReadTools() {
    const json* tools = reader_.Find("tools");
    if (tools == nullptr) return;
    if (!tools->is_array())
      return reader_.Fail("tools", "'tools' must be a list, not " + JsonTypeName(*tools));
    if (tools->empty()) return;
    chat_["tools"] = ordered_json::array();
    for (size_t i = 0; i < tools->size() && !reader_.error(); ++i) {
      const json& tool = (*tools)[i];
      const std::string where = At("tools", i);
      if (TypeOf(tool) != "function")
        return Fail(where,
                    "must be of type 'function'; tools that a server runs are not supported");
      FieldReader reader(tool);
      reader.Ignore("type");
      ordered_json function = ordered_json::object();
      for (const char* name : {"name", "description", "parameters"})
        MoveField(reader, body_.ordered["tools"][i], name, function, name);
      bool strict = false;
      reader.Read("strict", strict);
      reader.Ignore("output_schema");
      RefuseOther(reader, "allowed_callers", json::array({"direct"}), "no code runs here");
      reader.Refuse("defer_loading", "all tools are shown to the model");
      reader.Refuse("async", "calls are answered by the client");
      Finish(reader, where);
      chat_["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }

  void ReadToolChoice() {
    const json* choice = reader_.Find("tool_choice");
    if (choice == nullptr) return;
    const json name = choice->is_object() ? choice->value("name", json()) : json();
    if (TypeOf(*choice) == "function" && name.is_string()) {
      chat_["tool_choice"] = {{"type", "function"},
                              {"function", {{"name", name.get<std::string>()}}}};
    } else if (*choice == "auto" || *choice == "none" || *choice == "required") {
      chat_["tool_choice"] = choice->get<std::string>();
    } else {
      reader_.Fail("tool_choice",
                   "'tool_choice' must be \"auto\", \"none\", \"required\" or {\"type\": "
                   "\"function\", \"name\": ...}; other kinds are not supported");
    }
  }

  void ReadText() {
    const json* text = reader_.Find("text");
    if (text == nullptr) return;
    if (!text->is_object()) return reader_.Fail("text", "'text' must be an object");
    FieldReader reader(*text);
    RefuseOther(reader, "verbosity", "medium", "ask for short or long answers in the input");
    const json* format = reader.Find("format");
    Finish(reader, "text");
    if (format == nullptr) return;
    const std::string type = TypeOf(*format);
    if (type == "json_object") {
      chat_["response_format"] = {{"type", "json_object"}};
    } else if (type == "json_schema" && format->contains("schema")) {
      chat_["response_format"] = {
          {"type", "json_schema"},
          {"json_schema", {{"schema", std::move(body_.ordered["text"]["format"]["schema"])}}}};
    } else if (type != "text") {
      reader_.Fail(
          "text.format",
          "'text.format' must be of type 'text', 'json_object' or 'json_schema', which has "
          "a 'schema'");
    }
  }

  void ReadReasoning() {
    const json* reasoning = reader_.Find("reasoning");
    if (reasoning == nullptr) return;
    if (!reasoning->is_object()) return reader_.Fail("reasoning", "'reasoning' must be an object");
    FieldReader reader(*reasoning);
    MoveField(reader, body_.ordered["reasoning"], "effort", chat_, "reasoning_effort");
    for (const char* name : {"summary", "generate_summary"})
      RefuseOther(reader, name, "auto", "the reasoning itself is told, and no summary of it");
    RefuseOther(reader, "context", "auto", "the chat template chooses");
    RefuseOther(reader, "mode", "standard", "there is no other");
    Finish(reader, "reasoning");
  }

  void RefuseOthers() {
    const char* stored = "nothing is stored on this server: send the whole conversation as 'input'";
    for (const char* name : {"previous_response_id", "conversation", "prompt"})
      reader_.Refuse(name, stored);
    reader_.Refuse("store", "nothing is stored on this server; send false");
    for (const char* name : {"background", "background_options"})
      reader_.Refuse(name, "stream the answer, or wait for it");
    reader_.Refuse("context_management", "conversations are not shortened");
    RefuseOther(reader_, "truncation", "disabled", "conversations are not shortened");
    reader_.Refuse("max_tool_calls", "no tools run on this server");
    reader_.Refuse("top_logprobs", "use /v1/chat/completions");
    reader_.Refuse("moderation", "answers are not moderated");
    reader_.Refuse("image", "inputs are text");
    if (const json* include = reader_.Find("include")) {
      // Reasoning is not encrypted: it is told as it is.
      for (const json& item : include->is_array() ? *include : json::array({*include})) {
        if (item != "reasoning.encrypted_content")
          reader_.Fail("include",
                       "'include' is not supported; of what can be asked for nothing is "
                       "there");
      }
    }
    for (const char* name :
         {"metadata", "service_tier", "safety_identifier", "user", "prompt_cache_key",
          "prompt_cache_options", "prompt_cache_retention", "stream_options", "access_programs"})
      reader_.Ignore(name);
  }

  static inline const json kNothing = json::object();
  ForeignBody body_;
  const ServedModel& model_;
  ordered_json& chat_;
  Translation& out_;
  FieldReader reader_;
  ordered_json repeated_;
  std::string reasoning_;  // that stood before what is read now
};

}  // namespace

std::optional<ApiError> TranslateResponses(ForeignBody body, const ServedModel& model,
                                           Translation& out) {
  return ResponsesReader(body, model, out).Read();
}

}  // namespace lamina
