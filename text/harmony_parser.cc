#include "text/harmony_parser.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lamina {
namespace {

constexpr std::string_view kStart = "<|start|>", kMessage = "<|message|>", kChannel = "<|channel|>";
// What a header may begin with: a recipient may stand before the channel.
constexpr std::array<std::string_view, 4> kBeginHeader = {kStart, kChannel, kMessage, "to="};
constexpr std::array<std::string_view, 3> kEndMessage = {"<|end|>", "<|call|>", "<|return|>"};
constexpr std::string_view kOfFunctions = "functions.";
// Longer than any header. What is no header by then was text.
constexpr size_t kMaxHeaderBytes = 512;

// Whether one of `words` begins with `text`, or is it.
bool MayBecome(std::string_view text, const auto& words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return word.starts_with(text); });
}

// What stands behind `mark` in a header, up to white space or the next marker; "" if `mark` does
// not occur.
std::string_view WordBehind(std::string_view header, std::string_view mark) {
  const size_t found = header.find(mark);
  if (found == std::string_view::npos) return {};
  const std::string_view rest = header.substr(found + mark.size());
  return rest.substr(0, rest.find_first_of(" \n\t\r<"));
}

}  // namespace

void HarmonyParser::Push(std::string_view text, AnswerPieces& pieces) {
  pieces_ = &pieces;
  for (const char c : text) Take(c);
}

void HarmonyParser::Take(char c) {
  if (place_ == Place::kOver) return;
  held_ += c;
  if (place_ == Place::kHeader)
    TakeHeader();
  else
    TakeBody();
}

void HarmonyParser::TakeHeader() {
  const size_t spaces =
      static_cast<size_t>(std::ranges::find_if_not(held_, IsWhiteSpace) - held_.begin());
  const std::string_view rest = std::string_view(held_).substr(spaces);
  const bool begins = std::ranges::any_of(
      kBeginHeader, [&](std::string_view word) { return rest.starts_with(word); });
  if (rest.ends_with(kMessage) && begins) {
    const std::string header = std::exchange(held_, {});
    return BeginMessage(std::string_view(header).substr(0, header.size() - kMessage.size()));
  }
  if (held_.size() < kMaxHeaderBytes && (begins || MayBecome(rest, kBeginHeader))) return;
  // No header: what is held is text without one, and what seemed to be a marker is none.
  const std::string text = std::exchange(held_, {});
  kind_ = Kind::kText;
  joins_ = false;
  place_ = Place::kBody;
  Emit(std::string_view(text).substr(0, spaces + 1));
  for (const char c : std::string_view(text).substr(spaces + 1)) Take(c);
}

void HarmonyParser::BeginMessage(std::string_view header) {
  place_ = Place::kBody;
  began_ = true;
  const std::string_view recipient = WordBehind(header, "to=");
  if (recipient.starts_with(kOfFunctions)) {
    const std::string name(recipient.substr(kOfFunctions.size()));
    if (format_.tool_names.contains(name)) {
      kind_ = Kind::kCall;
      pieces_->calls.push_back({num_calls_++, name, ""});
      return;
    }
  }
  const bool reasons = !recipient.empty() || WordBehind(header, kChannel) == "analysis";
  kind_ = reasons && format_.reasoning ? Kind::kReasoning : Kind::kText;
  joins_ = kind_ == Kind::kReasoning ? wrote_reasoning_ : wrote_text_;
}

void HarmonyParser::TakeBody() {
  while (!held_.empty()) {
    const bool ends = std::ranges::find(kEndMessage, held_) != kEndMessage.end();
    // A message that is not ended is ended by the next one's header.
    const bool next = held_ == kStart || held_ == kChannel;
    if (ends || next) {
      EndMessage();
      if (ends || place_ == Place::kOver) held_.clear();
      return;
    }
    if (MayBecome(held_, kEndMessage) || kStart.starts_with(held_) || kChannel.starts_with(held_))
      return;
    Emit(std::string_view(held_).substr(0, 1));
    held_.erase(0, 1);
  }
}

void HarmonyParser::EndMessage() {
  const bool is_last = kind_ == Kind::kCall && !format_.parallel;
  place_ = is_last ? Place::kOver : Place::kHeader;
}

void HarmonyParser::Emit(std::string_view text) {
  if (text.empty()) return;
  if (kind_ == Kind::kCall) {
    const size_t index = num_calls_ - 1;
    if (pieces_->calls.empty() || pieces_->calls.back().index != index)
      pieces_->calls.push_back({index, "", ""});
    pieces_->calls.back().arguments += text;
    return;
  }
  std::string& to = kind_ == Kind::kReasoning ? pieces_->reasoning : pieces_->text;
  if (std::exchange(joins_, false)) to += '\n';
  to += text;
  (kind_ == Kind::kReasoning ? wrote_reasoning_ : wrote_text_) = true;
}

void HarmonyParser::Finish(AnswerPieces& pieces) {
  pieces_ = &pieces;
  // What is held is the beginning of a marker, or of a header. Where there has been a message, or a
  // whole marker, nobody is told of what broke off behind it.
  const bool is_header =
      place_ == Place::kHeader && (began_ || std::ranges::any_of(kBeginHeader, [&](auto word) {
                                     return held_.find(word) != std::string::npos;
                                   }));
  if (place_ != Place::kOver && !is_header) Emit(held_);
  held_.clear();
  place_ = Place::kOver;
}

}  // namespace lamina
