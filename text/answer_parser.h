// Takes a model's answer apart while it comes: reasoning, text, and calls of tools.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer_format.h"

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
  virtual ~AnswerParser() = default;

  // Of answers of this format, which it borrows.
  static std::unique_ptr<AnswerParser> Create(const AnswerFormat& format);
  static std::unique_ptr<AnswerParser> Create(AnswerFormat&&) = delete;

  // Adds to `pieces` what has become certain. What follows the end of an answer is dropped.
  virtual void Push(std::string_view text, AnswerPieces& pieces) = 0;

  // The answer ends here.
  virtual void Finish(AnswerPieces& pieces) = 0;

  // Whether the answer has called a tool so far.
  virtual bool called() const = 0;
  // Whether the answer is over because it was to have one call and has it.
  virtual bool over() const = 0;
  virtual size_t held_bytes() const = 0;  // memory for what is not certain yet
};

}  // namespace lamina
