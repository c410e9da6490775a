#include "text/chat_template.h"

#include <set>
#include <utility>

#include "base/text_file.h"
#include "gguf/gguf_model.h"
#include "text/gguf_tokenizer.h"
#include "text/json_file.h"
#include "text/template_ast.h"
#include "text/template_evaluator.h"
#include "text/template_lexer.h"

namespace lamina {
namespace {

// The text of "chat_template"; "" if it is not one.
std::string TemplateText(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string first;
  if (!value.is_array()) return first;
  for (const auto& entry : value) {
    if (!entry.is_object() || !entry.contains("template") || !entry["template"].is_string())
      continue;
    const std::string text = entry["template"].get<std::string>();
    if (entry.contains("name") && entry["name"] == "default") return text;
    if (first.empty()) first = text;
  }
  return first;
}

}  // namespace

struct ChatTemplate::State {
  std::string source;
  std::set<std::string> names;
  chat::Block block;
  SpecialTokens special_tokens;
};

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(const std::string& source,
                                                          SpecialTokens special_tokens) {
  LAMINA_ASSIGN_OR_RETURN(chat::Block block, chat::Parse(source));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<chat::Token> tokens, chat::Tokenize(source));
  std::set<std::string> names;
  for (const chat::Token& token : tokens) {
    if (token.kind == chat::Token::Kind::kName) names.insert(token.text);
  }
  auto state = std::make_unique<State>(
      State{source, std::move(names), std::move(block), std::move(special_tokens)});
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(state)));
}

bool ChatTemplate::Names(const std::string& name) const { return state_->names.contains(name); }
const std::string& ChatTemplate::source() const { return state_->source; }

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(const std::string& model_path) {
  if (IsGgufPath(model_path)) return LoadGgufChatTemplate(model_path);
  const std::string& dir = model_path;
  const std::string config_path = dir + "/tokenizer_config.json";
  nlohmann::json config = nlohmann::json::object();
  if (auto file = ReadJsonFile(config_path); file.ok()) {
    config = *std::move(file);
  } else if (file.status().code() != StatusCode::kNotFound) {
    return file.status();
  }
  std::string path = dir + "/chat_template.jinja";
  auto own_file = ReadTextFile(path);
  std::string source = own_file.ok() ? *own_file : "";
  if (!own_file.ok() && own_file.status().code() != StatusCode::kNotFound) return own_file.status();
  if (!own_file.ok()) {
    path = config_path + ": chat_template";
    if (config.contains("chat_template")) source = TemplateText(config["chat_template"]);
    if (source.empty())
      return NotFound(dir +
                      ": the model has no chat template (neither chat_template.jinja nor "
                      "chat_template in tokenizer_config.json)");
  }
  SpecialTokens special_tokens = {{"bos_token", ""}, {"eos_token", ""}};
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                           "cls_token", "mask_token"}) {
    if (config.contains(name) && !config[name].is_null())
      special_tokens[name] = SpecialTokenText(config[name]);
  }
  auto parsed = Parse(source, std::move(special_tokens));
  if (!parsed.ok()) return parsed.status().WithContext(path);
  return parsed;
}

Result<std::string> ChatTemplate::Render(const ChatInput& input) const {
  chat::Dict globals;
  globals.Set("tools", chat::Value::MakeNone());
  globals.Set("documents", chat::Value::MakeNone());
  for (const auto& [name, value] : input.variables.items())
    globals.Set(name, chat::Value::FromJson(value));
  if (!input.tools.is_null()) globals.Set("tools", chat::Value::FromJson(input.tools));
  chat::List messages;
  for (const ChatMessage& message : input.messages) {
    chat::Dict dict;
    dict.Set("role", chat::Value(message.role));
    dict.Set("content", message.content ? chat::Value(*message.content) : chat::Value::MakeNone());
    for (const auto& [name, value] : message.rest.items())
      dict.Append(name, chat::Value::FromJson(value));
    messages.emplace_back(std::move(dict));
  }
  globals.Set("messages", chat::Value(std::move(messages)));
  globals.Set("add_generation_prompt", chat::Value(input.add_generation_prompt));
  for (const auto& [name, text] : state_->special_tokens) globals.Set(name, chat::Value(text));
  chat::RenderLimits limits;
  limits.now = input.now;
  return chat::Render(state_->block, std::move(globals), limits);
}

}  // namespace lamina
