// Times of one streamed answer of an OpenAI-compatible server.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace lamina {

// Takes events as they come. The first with text is the first token: servers send empty ones before
// anything is computed. Behind it every event with a choice counts, as a token may have no text.
// Where the server does not count tokens, events with text are taken for them, and an empty event
// at the end for none.
class AnswerMeter {
 public:
  explicit AnswerMeter(TimePoint sent) : sent_(sent) {}

  void Take(std::string_view data, TimePoint at);

  bool done() const { return done_; }                  // [DONE] came
  const std::string& error() const { return error_; }  // the server's, in the stream; "": none
  bool has_tokens() const { return !events_.empty(); }
  double ttft_seconds() const;  // REQUIRES: has_tokens()
  // To the last token. REQUIRES: has_tokens().
  double e2el_seconds() const;
  std::vector<double> itl_seconds() const;                  // between one event and the next
  int64_t prompt_tokens() const { return prompt_tokens_; }  // as the server says; 0: it does not
  int64_t output_tokens() const;
  // output_tokens; else they are events.
  bool counted_by_server() const { return output_tokens_ > 0; }

 private:
  size_t num_timed_events() const;

  TimePoint sent_;
  std::vector<TimePoint> events_;  // from the first with text; while none has text, from the first
  size_t up_to_last_text_ = 0;     // events
  int64_t num_texts_ = 0, prompt_tokens_ = 0, output_tokens_ = 0;
  std::string error_;
  bool done_ = false;
};

}  // namespace lamina
