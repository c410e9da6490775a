// Turns a conversation into a prompt, with the template that comes with a chat model.
//
// Templates are written in Jinja. This reads the part of the language that chat templates use:
// text, {{ output }}, {% for %} with else, filter, break, continue and `loop`, {% if %}, {% set %}
// with its blocks, {% macro %}, {% generation %}, namespace(), the operators, inline if, indexing
// and slices, common filters, tests, string and dict methods, comments and white space control with
// trim_blocks and lstrip_blocks on. As in the transformers library, raise_exception() and
// strftime_now() are there, and `tools` and `documents` are none unless they are given. What it
// cannot do (includes, {% call %}, chained comparisons, ...) is named in an error when the template
// is loaded, or when it is reached.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

struct ChatMessage {
  std::string role;
  std::optional<std::string> content;  // nullopt: none, beside calls of tools
  // Further keys, "name" for example; templates see all keys in this order.
  nlohmann::ordered_json rest = nlohmann::ordered_json::object();
};

struct ChatInput {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  // Further variables by name; they cannot replace those of lamina.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  nlohmann::ordered_json tools;          // a list; null: none
  std::time_t now = std::time(nullptr);  // what strftime_now() writes, as local time
};

// Thread: any; immutable after loading.
class ChatTemplate {
 public:
  ~ChatTemplate();

  // Reads that of a GGUF file, or of a checkpoint folder: chat_template.jinja, else "chat_template"
  // of tokenizer_config.json (a string, or a list of {"name", "template"} of which "default" is
  // taken). kNotFound if the model has none. Errors of Parse begin with the file's name.
  static Result<std::unique_ptr<ChatTemplate>> Load(const std::string& model_path);

  // Reads a template. `special_tokens` are texts by name ("bos_token") that templates write into
  // the prompt. kInvalidArgument if it is no template and kUnimplemented if it needs what is not
  // supported, both as "line N: ...".
  using SpecialTokens = std::map<std::string, std::string>;
  static Result<std::unique_ptr<ChatTemplate>> Parse(const std::string& source,
                                                     SpecialTokens special_tokens);

  // Whether the template looks at anything of this name: what it does not name has no effect.
  bool Names(const std::string& name) const;

  const std::string& source() const;

  // Returns the prompt's text. It holds the beginning-of-sequence token already if the template
  // wants one: tokenize it without adding another. Errors are the client's: the template refused
  // the conversation, or something is missing in it. REQUIRES: JSON values are nested less than
  // 1,000 deep.
  Result<std::string> Render(const ChatInput& input) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lamina
