// Reads a call of a tool as models write it: {"name": "f", "arguments": {...}}.
#pragma once

#include <string>

#include "text/json_scanner.h"

namespace lamina {

// Takes an object character by character and hands out its arguments while they come. "parameters"
// is another word for "arguments", and {"function": {...}} may stand around both. Other keys are
// read past. Thread: one.
class CallReader {
 public:
  // `needs_arguments`: what has none is no call.
  explicit CallReader(bool needs_arguments) : needs_arguments_(needs_arguments) {}

  // kDone: the object is complete, and is a call if called(). kBad: it is broken; nothing may
  // follow.
  JsonScanner::State Push(char c);

  // True as soon as this is certainly a call: it has a name and its arguments have begun.
  bool called() const { return called_; }
  const std::string& name() const { return name_; }  // REQUIRES: called()

  // What came of the arguments since the last time: valid JSON, if the object ends well.
  // REQUIRES: called().
  std::string TakeArguments();

 private:
  void Note(char c);
  void NoteString();
  void Complete();

  bool needs_arguments_;
  JsonScanner scanner_;
  std::string text_;         // of the object, up to where it is called
  size_t string_begin_ = 0;  // of the last string, in text_
  size_t level_ = 1;         // at which name and arguments stand
  std::string key_;          // the last one at that level
  std::string name_;
  bool called_ = false;
  enum class Arguments { kNotYet, kComing, kComplete } arguments_ = Arguments::kNotYet;
  std::string pending_;  // of the arguments, not taken
};

}  // namespace lamina
