#include "text/call_reader.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace lamina {
namespace {

using nlohmann::json;

bool IsArgumentsKey(const std::string& key) { return key == "arguments" || key == "parameters"; }

// `c` of a JSON text; strings of valid JSON have no control characters as they are.
void AppendValid(char c, bool in_string, std::string& text) {
  if (!in_string || static_cast<unsigned char>(c) >= 0x20) {
    text += c;
    return;
  }
  char escaped[8];
  std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(c));
  text += escaped;
}

}  // namespace

JsonScanner::State CallReader::Push(char c) {
  const bool in_string = scanner_.in_string();
  const JsonScanner::State state = scanner_.Push(c);
  if (state == JsonScanner::State::kBad) return state;
  if (arguments_ == Arguments::kComing) AppendValid(c, in_string, pending_);
  if (!called_) {
    if (c == '"' && !in_string) string_begin_ = text_.size();
    AppendValid(c, in_string, text_);
  }
  Note(c);
  if (state == JsonScanner::State::kDone && !called_) Complete();
  return state;
}

void CallReader::Note(char c) {
  using Event = JsonScanner::Event;
  const Event event = scanner_.event();
  if (arguments_ == Arguments::kComing) {
    if (event == Event::kContainerEnded && scanner_.depth() == level_)
      arguments_ = Arguments::kComplete;
    return;
  }
  if (called_) return;
  if (scanner_.depth() == level_ && (event == Event::kKeyEnded || event == Event::kStringEnded))
    NoteString();
  if (event != Event::kContainerBegan || c != '{' || scanner_.depth() != level_ + 1) return;
  if (key_ == "function" && level_ == 1) {
    level_ = 2;
    key_.clear();
  } else if (IsArgumentsKey(key_) && arguments_ == Arguments::kNotYet) {
    arguments_ = Arguments::kComing;
    pending_ = "{";
    called_ = !name_.empty();
  }
}

// The string that ended is a key, or a value.
void CallReader::NoteString() {
  const json read = json::parse(text_.begin() + static_cast<std::ptrdiff_t>(string_begin_),
                                text_.end(), nullptr, /*allow_exceptions=*/false);
  const std::string text = read.is_string() ? read.get<std::string>() : "";
  if (scanner_.event() == JsonScanner::Event::kKeyEnded) {
    key_ = text;
    return;
  }
  if (key_ != "name" || !name_.empty()) return;
  name_ = text;
  called_ = !name_.empty() && arguments_ == Arguments::kComplete;
}

// Arguments that are no object: none at all, or an object in a string, as the API has them.
void CallReader::Complete() {
  if (name_.empty()) return;
  json object = json::parse(text_, nullptr, /*allow_exceptions=*/false);
  if (level_ == 2 && object.is_object()) object = json(object["function"]);
  if (!object.is_object()) return;
  for (const char* key : {"arguments", "parameters"}) {
    const auto found = object.find(key);
    if (found == object.end()) continue;
    pending_ = found->is_string() ? found->get<std::string>()
               : found->is_null() ? "{}"
                                  : found->dump(-1, ' ', false, json::error_handler_t::replace);
    called_ = true;
    return;
  }
  if (needs_arguments_) return;
  pending_ = "{}";
  called_ = true;
}

std::string CallReader::TakeArguments() { return std::exchange(pending_, {}); }

}  // namespace lamina
