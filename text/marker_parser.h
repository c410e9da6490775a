// Reads answers that are text, with reasoning between <think> and </think>, and calls of tools as
// JSON, alone or behind the markers of the model's format.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer_format.h"
#include "text/answer_parser.h"
#include "text/call_reader.h"
#include "text/json_scanner.h"

namespace lamina {

// Of all formats but ToolFormat::kOpenAi, and of calls that are forced in any.
class MarkerParser final : public AnswerParser {
 public:
  explicit MarkerParser(const AnswerFormat& format);  // borrows

  void Push(std::string_view text, AnswerPieces& pieces) override;
  void Finish(AnswerPieces& pieces) override;
  bool called() const override { return num_calls_ > 0; }
  bool over() const override { return state_ == State::kOver; }
  size_t held_bytes() const override { return held_.capacity() + uncertain_.capacity(); }

 private:
  enum class State {
    kReasoning,
    kText,
    kCalls,      // behind a marker
    kItem,       // in a list, where a call or the list's end is to come
    kNextItem,   // behind a call of the list
    kObject,     // in a call
    kName,       // before the arguments of [TOOL_CALLS]f[ARGS]{...}
    kArguments,  // those
    kBroken,     // in a call that is no JSON any more
    kCloser,     // behind a call, where </tool_call> may come
    kSemicolon,  // behind a call, where ';' and another one may come
    kOver,
  };

  void Take(char c);
  void TakeReasoning(char c);
  void TakeText(char c);
  void TakeStartOfCalls(char c);
  void TakeItem(char c);
  void TakeNextItem(char c);
  void TakeObject(char c);
  void TakeName(char c);
  void TakeArguments(char c);
  void TakeBroken(char c);
  void TakeCloser(char c);
  void TakeSemicolon(char c);

  void BeginObject(char c);
  void BeginCall(const std::string& name);
  void EndCall();
  void AddArguments(std::string_view text);
  void EmitText(std::string_view text);
  void NoCall();  // all that is uncertain was text
  void NoCallBefore(char c);
  void ReadAgain(State state);  // what is held, as text

  const AnswerFormat& format_;
  const std::vector<std::string> markers_;  // that announce calls
  const std::vector<std::string> closers_;
  State state_;
  AnswerPieces* pieces_ = nullptr;  // of the Push under way
  std::string held_;                // may become a marker, or white space before one
  std::string uncertain_;           // since a marker: text, if no call follows
  bool reasoned_ = false;           // some reasoning was handed out
  bool at_start_ = true;            // no text was
  bool drop_breaks_ = false;        // line breaks that come now
  bool in_list_ = false;
  bool marked_ = false;  // the calls stand behind a marker
  size_t num_calls_ = 0;
  bool call_begun_ = false;  // the current object
  CallReader object_{true};
  JsonScanner arguments_;
  std::string name_;
};

}  // namespace lamina
