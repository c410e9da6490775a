#include "frontend/text/template_meter.h"

#include <algorithm>

namespace lamina::chat {
namespace {

// How much of each is about the work of a step, a tenth of a microsecond.
constexpr size_t kTextBytesPerStep = 128;
constexpr size_t kEntriesPerStep = 4;
constexpr size_t kKeysPerStep = 16;
constexpr size_t kWalkBytesPerStep = 16;

}  // namespace

Status Meter::Steps(size_t count) {
  steps_left_ -= static_cast<int64_t>(std::min(count, size_t{INT64_MAX} / 2));
  if (steps_left_ >= 0) return OkStatus();
  steps_left_ = 0;  // never to be had again
  return OutOfSpace("the template takes too long on this conversation");
}

Status Meter::TextFits(size_t bytes) const {
  return bytes <= max_text_bytes_ ? OkStatus() : OutOfSpace("a text of more than " + std::to_string(max_text_bytes_) + " bytes");
}

Status Meter::Text(size_t bytes) {
  LAMINA_RETURN_IF_ERROR(TextFits(bytes));
  return Steps(bytes / kTextBytesPerStep);
}

Status Meter::Entries(size_t count) { return Steps(count / kEntriesPerStep); }
Status Meter::Keys(size_t count) { return Steps(count / kKeysPerStep); }
Status Meter::Walk(size_t text_bytes) { return Steps(text_bytes / kWalkBytesPerStep); }

Result<std::string> Meter::Print(const Value& value) {
  LAMINA_RETURN_IF_ERROR(Text(value.text_bytes()));
  if (value.depth() > 0) LAMINA_RETURN_IF_ERROR(Walk(value.text_bytes()));
  return value.ToText();
}

// An entry's line begins with a space for each level and step of the indent.
Result<std::string> Meter::PrintJson(const Value& value, int indent) {
  const size_t per_byte = 1 + static_cast<size_t>(std::max(indent, 0)) * static_cast<size_t>(value.depth());
  if (value.text_bytes() > max_text_bytes_ / per_byte) return Text(max_text_bytes_ + 1);
  LAMINA_RETURN_IF_ERROR(Text(value.text_bytes() * per_byte));
  if (value.depth() > 0) LAMINA_RETURN_IF_ERROR(Walk(value.text_bytes()));
  return value.ToJson(indent);
}

}  // namespace lamina::chat
