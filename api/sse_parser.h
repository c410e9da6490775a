// Server-sent events out of a stream of bytes, as the HTML standard defines them; only the data of
// an event is kept.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lamina {

class SseParser {
 public:
  // Called once per event with its data lines joined by '\n'. False: no further events are wanted.
  using OnData = std::function<bool(std::string_view data)>;

  explicit SseParser(OnData on_data) : on_data_(std::move(on_data)) {}

  // Takes the next bytes, cut anywhere. False once OnData said so.
  bool Feed(std::string_view bytes);

 private:
  bool Line(std::string_view line);

  OnData on_data_;
  std::string line_;  // the unfinished one
  std::string data_;
  bool has_data_ = false;
  bool skip_newline_ = false;  // after a '\r'
};

}  // namespace lamina
