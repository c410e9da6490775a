// Reads answers in OpenAI's harmony format, in which gpt-oss writes: messages, each with a header
// that says which channel it is for, and perhaps to which tool it goes.
//
//   <|channel|>analysis<|message|>REASONING<|end|>
//   <|start|>assistant<|channel|>commentary to=functions.f
//   <|constrain|>json<|message|>{...}<|call|>
//   <|start|>assistant<|channel|>final<|message|>TEXT<|return|>
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/answer_format.h"
#include "text/answer_parser.h"

namespace lamina {

// Of ToolFormat::kOpenAi. Messages of the same kind are joined by a line break. A message to
// something else than one of the request's tools is reasoning.
class HarmonyParser final : public AnswerParser {
 public:
  // Borrows. The prompt ends in front of the header of an answer's first message.
  explicit HarmonyParser(const AnswerFormat& format) : format_(format) {}

  void Push(std::string_view text, AnswerPieces& pieces) override;
  void Finish(AnswerPieces& pieces) override;
  bool called() const override { return num_calls_ > 0; }
  bool over() const override { return place_ == Place::kOver; }
  size_t held_bytes() const override { return held_.capacity(); }

 private:
  enum class Place { kHeader, kBody, kOver };
  enum class Kind { kReasoning, kText, kCall };

  void Take(char c);
  void TakeHeader();
  void TakeBody();
  // A message whose header, without <|message|>, was `header`.
  void BeginMessage(std::string_view header);
  void EndMessage();
  void Emit(std::string_view text);

  const AnswerFormat& format_;
  AnswerPieces* pieces_ = nullptr;  // of the Push under way
  Place place_ = Place::kHeader;
  Kind kind_ = Kind::kText;
  std::string held_;    // a header, or what may become a marker
  bool began_ = false;  // there was a message with a header
  bool wrote_reasoning_ = false, wrote_text_ = false;
  bool joins_ = false;  // a line break comes before what the message has
  size_t num_calls_ = 0;
};

}  // namespace lamina
