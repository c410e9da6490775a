#include "api/protocols/ollama_request.h"

#include <cstdio>
#include <deque>
#include <utility>

#include "api/protocols/ollama_answer.h"

namespace lamina {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kNoImages = "this server's models read text";

// Reads one request. The first error is kept, and ends what is under way.
class OllamaReader {
 public:
  OllamaReader(ForeignBody body, const ServedModel& model, Translation& out)
      : body_(body), model_(model), chat_(out.body), out_(out), reader_(body.fields) {}

  std::optional<ApiError> ReadChat() {
    ReadCommon();
    const json* messages = reader_.Find("messages");
    if (messages == nullptr || *messages == json::array()) return Loaded(OllamaPath::kChat);
    chat_["messages"] = ordered_json::array();
    if (!messages->is_array())
      reader_.Fail("messages", "'messages' must be a list, not " + JsonTypeName(*messages));
    for (size_t i = 0; messages->is_array() && i < messages->size() && !reader_.error(); ++i)
      ReadMessage((*messages)[i], body_.ordered["messages"][i], At("messages", i));
    MoveField(reader_, body_.ordered, "tools", chat_, "tools");
    return Finish(OllamaPath::kChat);
  }

  // A prompt stands where a conversation's first message does, unless it is raw or there is no
  // template to make a conversation of it.
  std::optional<ApiError> ReadGenerate() {
    ReadCommon();
    std::string prompt, system, suffix;
    bool raw = false;
    reader_.Read("prompt", prompt);
    reader_.Read("suffix", suffix);
    reader_.Read("system", system);
    reader_.Read("raw", raw);
    reader_.Refuse("template", "the model's own is used; or send a 'raw' prompt");
    reader_.Refuse("context", "use /api/chat, which has the conversation as messages");
    reader_.Refuse("images", kNoImages);
    for (const char* name : {"width", "height", "steps"}) reader_.Refuse(name, "answers are text");
    if (prompt.empty() && suffix.empty()) return Loaded(OllamaPath::kGenerate);
    if (raw || !suffix.empty() || model_.chat_template == nullptr) {
      if (!system.empty())
        reader_.Fail("system",
                     "'system' is not supported with a prompt that goes to the model as "
                     "it is");
      if (reader_.Find("think") != nullptr && *reader_.Find("think") != false)
        reader_.Fail("think",
                     "'think' is not supported with a prompt that goes to the model as it "
                     "is");
      out_.kind = ApiKind::kCompletion;
      chat_.erase("chat_template_kwargs");
      chat_["prompt"] = std::move(prompt);
      if (!suffix.empty()) chat_["suffix"] = std::move(suffix);
    } else {
      chat_["messages"] = ordered_json::array();
      if (!system.empty())
        chat_["messages"].push_back({{"role", "system"}, {"content", std::move(system)}});
      chat_["messages"].push_back({{"role", "user"}, {"content", std::move(prompt)}});
    }
    return Finish(OllamaPath::kGenerate);
  }

 private:
  void Fail(const std::string& where, const std::string& what) {
    reader_.Fail(where.substr(0, where.find_first_of("[.")), where + " " + what);
  }

  void ReadCommon() {
    std::string name;
    reader_.Read("model", name);
    if (name.empty()) reader_.Fail("model", "'model' is missing");
    chat_["model"] = OllamaModelName(std::move(name), model_);
    chat_["stream"] = true;
    MoveField(reader_, body_.ordered, "stream", chat_, "stream");
    ReadOptions();
    ReadFormat();
    ReadThink();
    reader_.Refuse("logprobs", "use /v1/chat/completions");
    reader_.Refuse("top_logprobs", "use /v1/chat/completions");
    // The model stays loaded, and prompts that are too long are refused in any case.
    for (const char* ignored : {"keep_alive", "truncate", "shift"}) reader_.Ignore(ignored);
  }

  void ReadOptions() {
    const json* options = reader_.Find("options");
    if (options == nullptr) return;
    if (!options->is_object())
      return reader_.Fail("options", "'options' must be an object, not " + JsonTypeName(*options));
    FieldReader reader(*options);
    ordered_json& ordered = body_.ordered["options"];
    int64_t num_predict = -1;
    reader.ReadInteger("num_predict", -2, INT64_MAX, num_predict);
    if (num_predict == 0)
      reader.Fail("num_predict", "'num_predict' must not be 0; -1 is as many as fit");
    if (num_predict > 0) chat_["max_tokens"] = num_predict;
    for (const char* name : {"temperature", "top_k", "top_p", "min_p", "presence_penalty",
                             "frequency_penalty", "stop"})
      MoveField(reader, ordered, name, chat_, name);
    int64_t seed = -1;
    reader.ReadInteger("seed", INT64_MIN, INT64_MAX, seed);
    if (seed != -1) chat_["seed"] = seed;
    MoveField(reader, ordered, "repeat_penalty", chat_, "repetition_penalty");
    RefuseOther(reader, "repeat_last_n", -1, "'repeat_penalty' looks at all tokens");
    RefuseOther(reader, "typical_p", 1, "use 'min_p' or 'top_p'");
    RefuseOther(reader, "tfs_z", 1, "use 'min_p' or 'top_p'");
    RefuseOther(reader, "mirostat", 0, "use 'temperature'");
    RefuseOther(reader, "penalize_newline", true, "line breaks are tokens like others");
    // How Ollama loads a model, and what tunes the samplers above.
    for (const char* name :
         {"num_keep", "num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "numa",
          "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mmap", "use_mlock",
          "embedding_only", "mirostat_tau", "mirostat_eta"})
      reader.Ignore(name);
    FailUnknown(reader, "options.");
    if (reader.error()) reader_.Fail(reader.error()->param, reader.error()->message);
  }

  void ReadFormat() {
    const json* format = reader_.Find("format");
    if (format == nullptr || *format == "") return;
    if (*format == "json") {
      chat_["response_format"] = {{"type", "json_object"}};
    } else if (format->is_object()) {
      chat_["response_format"] = {
          {"type", "json_schema"},
          {"json_schema", {{"schema", std::move(body_.ordered["format"])}}}};
    } else {
      reader_.Fail("format", "'format' must be \"json\" or a JSON schema");
    }
  }

  void ReadThink() {
    const json* think = reader_.Find("think");
    if (think == nullptr) return;
    if (think->is_string() && *think != "") {
      chat_["reasoning_effort"] = think->get<std::string>();
      return;
    }
    bool wanted = false;
    reader_.Read("think", wanted);
    if (const auto error = ChooseReasoning(wanted, "think", model_, chat_))
      reader_.Fail(error->param, error->message);
  }

  void ReadMessage(const json& message, ordered_json& ordered, const std::string& where) {
    if (!message.is_object()) return Fail(where, "must be an object, not " + JsonTypeName(message));
    FieldReader reader(message);
    std::string role, content, thinking, tool, call_id;
    reader.Read("role", role);
    reader.Read("content", content);
    reader.Read("thinking", thinking);
    for (const char* name : {"tool_name", "name"}) reader.Read(name, tool);
    reader.Read("tool_call_id", call_id);
    reader.Refuse("images", kNoImages);
    if (role.empty()) reader.Fail("role", "'role' must be a string that is not empty");
    const json* calls = reader.Find("tool_calls");
    FailUnknown(reader, where + ".");
    if (reader.error()) return reader_.Fail("messages", where + ": " + reader.error()->message);
    ordered_json out = {{"role", role}, {"content", std::move(content)}};
    if (!thinking.empty()) out["reasoning_content"] = std::move(thinking);
    if (role == "tool") {
      if (!tool.empty()) out["name"] = tool;
      out["tool_call_id"] = call_id.empty() ? TakeCallId(tool) : call_id;
    }
    if (calls != nullptr && !calls->empty())
      ReadCalls(*calls, ordered["tool_calls"], where + ".tool_calls", out);
    chat_["messages"].push_back(std::move(out));
  }

  // Ollama's calls have no ids, which templates may want to see: they get numbers. A result belongs
  // to the first call of its name that has none.
  void ReadCalls(const json& calls, ordered_json& ordered, const std::string& where,
                 ordered_json& message) {
    if (!calls.is_array()) return Fail(where, "must be a list");
    waiting_.clear();
    for (size_t i = 0; i < calls.size(); ++i) {
      const json function = calls[i].is_object() ? calls[i].value("function", json()) : json();
      const json name = function.is_object() ? function.value("name", json()) : json();
      if (!name.is_string()) return Fail(At(where, i), "must have a 'function' with a 'name'");
      char id[10];  // of nine signs: Mistral's templates refuse others
      std::snprintf(id, sizeof(id), "%09u", ++num_calls_ % 1'000'000'000);
      const json given = calls[i].value("id", json());
      const std::string call_id = given.is_string() ? given.get<std::string>() : id;
      waiting_.push_back({name.get<std::string>(), call_id});
      ordered_json arguments = ordered_json::object();
      if (function.contains("arguments"))
        arguments = std::move(ordered[i]["function"]["arguments"]);
      message["tool_calls"].push_back(
          {{"id", call_id},
           {"type", "function"},
           {"function", {{"name", name.get<std::string>()}, {"arguments", std::move(arguments)}}}});
    }
  }

  std::string TakeCallId(const std::string& name) {
    for (auto call = waiting_.begin(); call != waiting_.end(); ++call) {
      if (!name.empty() && call->name != name) continue;
      const std::string id = call->id;
      waiting_.erase(call);
      return id;
    }
    return "";
  }

  std::optional<ApiError> Finish(OllamaPath path) {
    FailUnknown(reader_, "");
    if (reader_.error()) return reader_.error();
    out_.form = NewOllamaAnswer(path, model_.name);
    return std::nullopt;
  }

  // Clients that ask for nothing want the model to be loaded, which it is.
  std::optional<ApiError> Loaded(OllamaPath path) {
    if (reader_.error()) return reader_.error();
    if (chat_["model"] == model_.name)
      out_.answer = OutboundResponse{200, "application/json", OllamaLoaded(path, model_.name), {}};
    return std::nullopt;
  }

  struct Call {
    std::string name, id;
  };
  ForeignBody body_;
  const ServedModel& model_;
  ordered_json& chat_;
  Translation& out_;
  FieldReader reader_;
  std::deque<Call> waiting_;  // of the last message with calls: those without a result
  unsigned num_calls_ = 0;
};

}  // namespace

std::string OllamaModelName(std::string name, const ServedModel& model) {
  return name == model.name + ":latest" ? model.name : name;
}

std::optional<ApiError> CheckOllamaShow(const std::string& body, const ServedModel& model) {
  json fields;
  if (auto error = ParseBody(body, fields)) return error;
  FieldReader reader(fields);
  std::string name;
  for (const char* field : {"name", "model"}) reader.Read(field, name);
  if (name.empty()) reader.Fail("model", "'model' is missing");
  if (reader.error() || OllamaModelName(name, model) == model.name) return reader.error();
  return ApiError{404, "the model '" + name + "' is not served here; '" + model.name + "' is",
                  "model"};
}

std::optional<ApiError> TranslateOllamaChat(ForeignBody body, const ServedModel& model,
                                            Translation& out) {
  return OllamaReader(body, model, out).ReadChat();
}

std::optional<ApiError> TranslateOllamaGenerate(ForeignBody body, const ServedModel& model,
                                                Translation& out) {
  return OllamaReader(body, model, out).ReadGenerate();
}

}  // namespace lamina
