// Times of one streamed answer of an OpenAI-compatible server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace lamina {

// Takes events as they come. An event with a choice is a token, as `vllm bench serve` counts; one that only announces the role of a chat
// is not.
class AnswerMeter {
 public:
  explicit AnswerMeter(TimePoint sent) : sent_(sent) {}

  void Take(std::string_view data, TimePoint at);

  bool done() const { return done_; }                  // [DONE] came
  const std::string& error() const { return error_; }  // the server's, in the stream; "": none
  bool has_tokens() const { return first_.has_value(); }
  double ttft_seconds() const;                                             // REQUIRES: has_tokens()
  double e2el_seconds() const;                                             // to the last token. REQUIRES: has_tokens()
  const std::vector<double>& itl_seconds() const { return itl_seconds_; }  // between one event and the next
  int64_t prompt_tokens() const { return prompt_tokens_; }                 // as the server says; 0: it does not
  int64_t output_tokens() const { return output_tokens_ > 0 ? output_tokens_ : num_events_; }

 private:
  TimePoint sent_;
  std::optional<TimePoint> first_;
  TimePoint last_;
  std::vector<double> itl_seconds_;
  int64_t num_events_ = 0, prompt_tokens_ = 0, output_tokens_ = 0;
  std::string error_;
  bool done_ = false;
};

}  // namespace lamina
