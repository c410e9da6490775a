// Takes a model's answer apart while it comes: reasoning, text, and calls of tools.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer_format.h"
#include "text/call_reader.h"
#include "text/harmony_parser.h"

namespace lamina {

// What is new in an answer.
struct AnswerPieces {
  struct Call {
    size_t index = 0;       // of the call in the answer
    std::string name;       // not empty where the call begins
    std::string arguments;  // goes on with those of the pieces before
  };
  std::string reasoning;
  std::string text;
  std::vector<Call> calls;

  bool empty() const { return reasoning.empty() && text.empty() && calls.empty(); }
};

// All pieces together are the same however the answer is cut into them. Whatever the model writes,
// nothing is lost: what begins like a call and is none stays text, and of a call that breaks off,
// or goes on as no JSON, the arguments are what was written. White space around calls and line
// breaks around reasoning are no part of the text. Thread: one.
class AnswerParser {
 public:
  explicit AnswerParser(const AnswerFormat& format);  // borrows
  explicit AnswerParser(AnswerFormat&&) = delete;

  // Adds to `pieces` what has become certain. What follows the end of an answer is dropped.
  void Push(std::string_view text, AnswerPieces& pieces);

  // The answer ends here.
  void Finish(AnswerPieces& pieces);

  bool called() const { return harmony_ ? harmony_->called() : num_calls_ > 0; }
  // Whether the answer is over because it was to have one call and has it.
  bool over() const { return harmony_ ? harmony_->over() : state_ == State::kOver; }
  size_t held_bytes() const {
    return harmony_ ? harmony_->held_bytes() : held_.capacity() + uncertain_.capacity();
  }

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
  std::optional<HarmonyParser> harmony_;    // reads everything, if the format is its
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
