// Times and counts the tokens of one streamed answer of an OpenAI-compatible server.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace lamina {

// Takes the events of a stream as they come. The first event with text is the first token, as
// servers send empty ones before anything is computed. After it every event with a choice counts,
// as a token may have no text. Where the server does not count tokens, events with text are taken
// for tokens, and an empty event at the end for none. Thread: owner.
class AnswerMeter {
 public:
  // `sent` is when the request was sent.
  explicit AnswerMeter(TimePoint sent) : sent_(sent) {}

  // One event's data, and when it came.
  void Take(std::string_view data, TimePoint at);

  bool done() const { return done_; }  // [DONE] has come
  // The message of an error that the server has sent in the stream; "": none.
  const std::string& error() const { return error_; }
  bool has_tokens() const { return !events_.empty(); }
  // From sending to the first token. REQUIRES: has_tokens().
  double ttft_seconds() const;
  // From sending to the last token. REQUIRES: has_tokens().
  double e2el_seconds() const;
  // From each event to the next.
  std::vector<double> itl_seconds() const;
  // Tokens of the prompt as the server counts them; 0 if it does not say.
  int64_t prompt_tokens() const { return prompt_tokens_; }
  // Tokens of the answer as the server counts them; if it does not say, events with text.
  int64_t output_tokens() const;
  // Whether the server has counted the tokens of the answer.
  bool counted_by_server() const { return output_tokens_ > 0; }

 private:
  size_t num_timed_events() const;

  TimePoint sent_;
  // When each event came, from the first one with text on; while none has text, from the very
  // first.
  std::vector<TimePoint> events_;
  // How many of them there were up to the last one with text.
  size_t up_to_last_text_ = 0;
  int64_t num_texts_ = 0, prompt_tokens_ = 0, output_tokens_ = 0;
  std::string error_;
  bool done_ = false;
};

}  // namespace lamina
