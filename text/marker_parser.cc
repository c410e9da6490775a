#include "text/marker_parser.h"

#include <algorithm>
#include <utility>

namespace lamina {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr size_t kMaxToolNameBytes = 256;

// Those of ToolMarkers that stand before calls.
std::vector<std::string> MarkersOf(const AnswerFormat& format) {
  std::vector<std::string> markers;
  if (!format.tools) return markers;
  switch (*format.tools) {
    case ToolFormat::kHermes: return {"<tool_call>"};
    case ToolFormat::kLlama3Json: return {"<|python_tag|>"};
    case ToolFormat::kMistral: return {"[TOOL_CALLS]"};
    case ToolFormat::kGranite: return {"<|tool_call|>", "<tool_call>"};
    case ToolFormat::kPhi4MiniJson: return {"functools", "<|tool_call|>"};
    case ToolFormat::kOpenAi: break;
  }
  return markers;
}

std::vector<std::string> ClosersOf(const AnswerFormat& format) {
  if (format.tools == ToolFormat::kHermes || format.tools == ToolFormat::kGranite)
    return {"</tool_call>"};
  if (format.tools == ToolFormat::kPhi4MiniJson) return {"<|/tool_call|>"};
  return {};
}

enum class MarkerMatch { kNo, kBeginning, kWhole };

MarkerMatch MarkerMatchOf(std::string_view text, const std::vector<std::string>& words) {
  MarkerMatch match = MarkerMatch::kNo;
  for (const std::string& word : words) {
    if (text == word) return MarkerMatch::kWhole;
    if (std::string_view(word).starts_with(text)) match = MarkerMatch::kBeginning;
  }
  return match;
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == ':' || c == '/';
}

// "f" of "f[CALL_ID]x[ARGS]" and "f"; "" if that is no name.
std::string NameIn(std::string_view text) {
  const size_t end = std::min(text.find("[ARGS]"), text.find("[CALL_ID]"));
  if (end != std::string_view::npos) {
    if (!text.ends_with("[ARGS]")) return "";
    text = text.substr(0, end);
  }
  while (!text.empty() && IsWhiteSpace(text.back())) text.remove_suffix(1);
  return std::ranges::all_of(text, IsNameCharacter) ? std::string(text) : "";
}

}  // namespace

MarkerParser::MarkerParser(const AnswerFormat& format)
    : format_(format),
      markers_(MarkersOf(format_)),
      closers_(ClosersOf(format_)),
      state_(format_.forced != ForcedCall::kNo ? State::kCalls
             : format_.begins_reasoning        ? State::kReasoning
                                               : State::kText) {}

void MarkerParser::Push(std::string_view text, AnswerPieces& pieces) {
  pieces_ = &pieces;
  for (const char c : text) Take(c);
}

void MarkerParser::Take(char c) {
  switch (state_) {
    case State::kReasoning: return TakeReasoning(c);
    case State::kText: return TakeText(c);
    case State::kCalls: return TakeStartOfCalls(c);
    case State::kItem: return TakeItem(c);
    case State::kNextItem: return TakeNextItem(c);
    case State::kObject: return TakeObject(c);
    case State::kName: return TakeName(c);
    case State::kArguments: return TakeArguments(c);
    case State::kBroken: return TakeBroken(c);
    case State::kCloser: return TakeCloser(c);
    case State::kSemicolon: return TakeSemicolon(c);
    case State::kOver: return;
  }
}

// Line breaks at its beginning and its end are no part of it.
void MarkerParser::TakeReasoning(char c) {
  held_ += c;
  while (!held_.empty()) {
    const size_t breaks = std::min(held_.find_first_not_of('\n'), held_.size());
    const std::string_view rest = std::string_view(held_).substr(breaks);
    if (rest == kThinkEnd) {
      held_.clear();
      state_ = State::kText;
      drop_breaks_ = true;
      return;
    }
    if (kThinkEnd.starts_with(rest)) return;
    if (!reasoned_ && kThink.starts_with(rest)) {
      if (rest == kThink) held_.clear();  // once more, although the prompt had it
      return;
    }
    pieces_->reasoning.append(held_, reasoned_ ? 0 : breaks, reasoned_ ? breaks + 1 : 1);
    held_.erase(0, breaks + 1);
    reasoned_ = true;
  }
}

void MarkerParser::TakeText(char c) {
  if (drop_breaks_ && c == '\n') return;
  drop_breaks_ = false;
  held_ += c;
  while (!held_.empty()) {
    const size_t spaces =
        static_cast<size_t>(std::ranges::find_if_not(held_, IsWhiteSpace) - held_.begin());
    const std::string_view rest = std::string_view(held_).substr(spaces);
    const bool may_reason = format_.reasoning && at_start_ && !reasoned_;
    if (may_reason && rest == kThink) {
      held_.clear();
      state_ = State::kReasoning;
      return;
    }
    const MarkerMatch match = MarkerMatchOf(rest, markers_);
    if (match == MarkerMatch::kWhole) {
      uncertain_ = std::exchange(held_, {});
      marked_ = true;
      in_list_ = false;
      state_ = State::kCalls;
      return;
    }
    if (format_.tools == ToolFormat::kLlama3Json && at_start_ && rest == "{") {
      uncertain_ = held_.substr(0, spaces);
      held_.clear();
      marked_ = false;
      in_list_ = false;
      return BeginObject('{');
    }
    const bool waits = match == MarkerMatch::kBeginning && !markers_.empty();
    if (waits || (may_reason && kThink.starts_with(rest))) return;
    EmitText(std::string_view(held_).substr(0, spaces + 1));
    held_.erase(0, spaces + 1);
  }
}

void MarkerParser::EmitText(std::string_view text) {
  pieces_->text += text;
  at_start_ = false;
}

void MarkerParser::NoCall() {
  EmitText(std::exchange(uncertain_, {}));
  state_ = State::kText;
}

// `c` is the first character that shows it. It may begin another marker.
void MarkerParser::NoCallBefore(char c) {
  NoCall();
  Take(c);
}

void MarkerParser::ReadAgain(State state) {
  state_ = state;
  for (const char c : std::exchange(held_, {})) Take(c);
}

void MarkerParser::TakeStartOfCalls(char c) {
  const bool takes_list =
      format_.tools != ToolFormat::kHermes && format_.tools != ToolFormat::kLlama3Json;
  if (c == '{' && format_.forced == ForcedCall::kNamed) {
    BeginCall(format_.forced_name);
    arguments_ = JsonScanner();
    state_ = State::kArguments;
    return TakeArguments(c);
  }
  if (c == '{' && format_.tools != ToolFormat::kPhi4MiniJson) return BeginObject(c);
  if (c == '[' && (takes_list || format_.forced == ForcedCall::kList)) {
    in_list_ = true;
    state_ = State::kItem;
  } else if (format_.tools == ToolFormat::kMistral && IsNameCharacter(c)) {
    name_.assign(1, c);
    state_ = State::kName;
  } else if (!IsWhiteSpace(c)) {
    return NoCallBefore(c);
  }
  uncertain_ += c;
}

void MarkerParser::TakeItem(char c) {
  if (c == '{') return BeginObject(c);
  if (c == ']' && num_calls_ > 0) {
    uncertain_.clear();
    state_ = State::kCloser;
  } else if (IsWhiteSpace(c)) {
    uncertain_ += c;
  } else {
    NoCallBefore(c);
  }
}

void MarkerParser::TakeNextItem(char c) {
  if (IsWhiteSpace(c)) return;
  if (c == ',') {
    state_ = State::kItem;
  } else if (c == ']') {
    state_ = State::kCloser;
  } else {
    held_.assign(1, c);
    ReadAgain(State::kText);
  }
}

void MarkerParser::BeginObject(char c) {
  object_ = CallReader(/*needs_arguments=*/format_.tools == ToolFormat::kLlama3Json);
  call_begun_ = false;
  state_ = State::kObject;
  TakeObject(c);
}

void MarkerParser::TakeObject(char c) {
  const JsonScanner::State state = object_.Push(c);
  if (state == JsonScanner::State::kBad) {
    if (!call_begun_) return NoCallBefore(c);
    state_ = State::kBroken;
    return TakeBroken(c);
  }
  if (!call_begun_) uncertain_ += c;
  if (object_.called() && !call_begun_) {
    const bool marked = marked_ || format_.forced != ForcedCall::kNo;
    if (!marked && !format_.tool_names.contains(object_.name())) return NoCall();
    BeginCall(object_.name());
  }
  if (call_begun_) AddArguments(object_.TakeArguments());
  if (state != JsonScanner::State::kDone) return;
  if (call_begun_) {
    EndCall();
  } else {
    NoCall();
  }
}

void MarkerParser::TakeName(char c) {
  if (c != '{') {
    if (name_.size() == kMaxToolNameBytes) return NoCallBefore(c);
    name_ += c;
    uncertain_ += c;
    return;
  }
  const std::string name = NameIn(name_);
  if (name.empty()) return NoCallBefore(c);
  BeginCall(name);
  arguments_ = JsonScanner();
  state_ = State::kArguments;
  TakeArguments(c);
}

void MarkerParser::TakeArguments(char c) {
  const JsonScanner::State state = arguments_.Push(c);
  if (state == JsonScanner::State::kBad) {
    state_ = State::kBroken;
    return TakeBroken(c);
  }
  AddArguments({&c, 1});
  if (state == JsonScanner::State::kDone) EndCall();
}

void MarkerParser::BeginCall(const std::string& name) {
  call_begun_ = true;
  uncertain_.clear();
  at_start_ = false;
  pieces_->calls.push_back({num_calls_++, name, ""});
}

void MarkerParser::AddArguments(std::string_view text) {
  if (text.empty()) return;
  const size_t index = num_calls_ - 1;
  if (pieces_->calls.empty() || pieces_->calls.back().index != index)
    pieces_->calls.push_back({index, "", ""});
  pieces_->calls.back().arguments += text;
}

void MarkerParser::EndCall() {
  held_.clear();
  if (!format_.parallel || format_.forced == ForcedCall::kNamed) {
    state_ = State::kOver;
  } else if (in_list_) {
    state_ = State::kNextItem;
  } else if (format_.tools == ToolFormat::kLlama3Json) {
    state_ = State::kSemicolon;
  } else if (closers_.empty()) {
    state_ = State::kText;
  } else {
    state_ = State::kCloser;
  }
}

// Up to what closes a call, or another begins with: nobody can say where this one ends.
void MarkerParser::TakeBroken(char c) {
  held_ += c;
  while (!held_.empty()) {
    const MarkerMatch closer = MarkerMatchOf(held_, closers_);
    const MarkerMatch marker = MarkerMatchOf(held_, markers_);
    if (closer == MarkerMatch::kWhole || marker == MarkerMatch::kWhole) {
      const std::string word = std::exchange(held_, {});
      in_list_ = false;
      state_ = format_.parallel ? State::kText : State::kOver;
      if (format_.parallel && marker == MarkerMatch::kWhole) {
        uncertain_ = word;
        marked_ = true;
        state_ = State::kCalls;
      }
      return;
    }
    if (closer == MarkerMatch::kBeginning || marker == MarkerMatch::kBeginning) return;
    AddArguments(std::string_view(held_).substr(0, 1));
    held_.erase(0, 1);
  }
}

void MarkerParser::TakeCloser(char c) {
  if (held_.empty() && IsWhiteSpace(c)) return;
  held_ += c;
  const MarkerMatch match = MarkerMatchOf(held_, closers_);
  if (match == MarkerMatch::kNo) return ReadAgain(State::kText);
  if (match != MarkerMatch::kWhole) return;
  held_.clear();
  state_ = State::kText;
}

void MarkerParser::TakeSemicolon(char c) {
  if (IsWhiteSpace(c)) return;
  if (c == ';') {
    uncertain_.clear();
    state_ = State::kCalls;
    return;
  }
  held_.assign(1, c);
  ReadAgain(State::kText);
}

void MarkerParser::Finish(AnswerPieces& pieces) {
  pieces_ = &pieces;
  switch (state_) {
    case State::kReasoning: pieces.reasoning += held_; break;
    case State::kBroken: AddArguments(held_); break;
    case State::kObject:
    case State::kName:
    case State::kCalls:
    case State::kItem: pieces.text += uncertain_; break;
    case State::kText:
      // White space behind calls says nothing.
      if (num_calls_ == 0 || !std::ranges::all_of(held_, IsWhiteSpace)) pieces.text += held_;
      break;
    case State::kCloser: pieces.text += held_; break;
    default: break;
  }
  held_.clear();
  uncertain_.clear();
  state_ = State::kOver;
}

}  // namespace lamina
