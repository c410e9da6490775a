#include "api/sse_parser.h"

namespace lamina {

bool SseParser::Feed(std::string_view bytes) {
  for (const char c : bytes) {
    const bool is_second_half = skip_newline_ && c == '\n';  // of "\r\n"
    skip_newline_ = c == '\r';
    if (is_second_half) continue;
    if (c != '\n' && c != '\r') {
      line_ += c;
      continue;
    }
    const std::string line = std::move(line_);
    line_.clear();
    if (!Line(line)) return false;
  }
  return true;
}

bool SseParser::Line(std::string_view line) {
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
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
  return true;
}

}  // namespace lamina
