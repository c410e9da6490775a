// Server-sent events out of a stream of bytes, as the HTML standard defines them; only the data of
// an event is kept.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace lamina {

class SseParser {
 public:
  // Called once per event with its data lines joined by '\n'. False: no further events are wanted.
  using OnData = std::function<bool(std::string_view data)>;

  // `max_event_bytes`: of a line, and of an event's data. They are kept until they are complete.
  static constexpr size_t kMaxEventBytes = size_t{64} << 20;
  explicit SseParser(OnData on_data, size_t max_event_bytes = kMaxEventBytes)
      : on_data_(std::move(on_data)), max_event_bytes_(max_event_bytes) {}

  // Takes the next bytes, cut anywhere. False once OnData said so. kOutOfSpace: a line or an event
  // is larger than it may be; the parser is not to be used any more.
  Result<bool> Feed(std::string_view bytes);

 private:
  Result<bool> Line(std::string_view line);
  Status TooLarge() const;

  OnData on_data_;
  size_t max_event_bytes_;
  std::string line_;  // the unfinished one
  std::string data_;
  bool has_data_ = false;
  bool skip_newline_ = false;  // after a '\r'
};

}  // namespace lamina
