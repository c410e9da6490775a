#include "api/sse_parser.h"

namespace lamina {

Result<bool> SseParser::Feed(std::string_view bytes) {
  for (const char c : bytes) {
    const bool is_second_half = skip_newline_ && c == '\n';  // of "\r\n"
    skip_newline_ = c == '\r';
    if (is_second_half) continue;
    if (c != '\n' && c != '\r') {
      line_ += c;
      if (line_.size() > max_event_bytes_) return TooLarge();
      continue;
    }
    const std::string line = std::move(line_);
    line_.clear();
    LAMINA_ASSIGN_OR_RETURN(const bool more, Line(line));
    if (!more) return false;
  }
  return true;
}

Result<bool> SseParser::Line(std::string_view line) {
  if (line.empty()) {
    if (!has_data_) return true;
    has_data_ = false;
    const std::string data = std::move(data_);
    data_.clear();
    return on_data_(data);
  }
  if (!line.starts_with("data")) return true;  // comments, event, id, retry
  line.remove_prefix(4);
  if (!line.empty()) {
    if (line[0] != ':') return true;
    line.remove_prefix(1);
    if (line.starts_with(' ')) line.remove_prefix(1);
  }
  if (data_.size() + line.size() > max_event_bytes_) return TooLarge();
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
  return true;
}

Status SseParser::TooLarge() const {
  return OutOfSpace("an event of the stream is larger than " + std::to_string(max_event_bytes_) +
                    " bytes");
}

}  // namespace lamina
