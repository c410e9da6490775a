#include "text/template_meter.h"

#include <algorithm>
#include <utility>

namespace lamina::chat {
namespace {

// How much of each is about the work of a step, a tenth of a microsecond.
constexpr size_t kEntriesPerStep = 4;  // of lists; they have 24 bytes
constexpr size_t kKeysPerStep = 16;
constexpr size_t kKeyBytesPerStep = 1024;  // that are compared
constexpr size_t kWalkBytesPerStep = 16;

constexpr size_t kStepsPerLook = 64;  // a look at the time costs less than one

static_assert(sizeof(Value) * kEntriesPerStep <= Meter::kBytesPerStep);

}  // namespace

Meter::Meter(int64_t max_steps, size_t max_text_bytes, std::chrono::nanoseconds max_time)
    : steps_left_(max_steps),
      max_text_bytes_(max_text_bytes),
      time_(max_time, "the template takes too long on this conversation") {}

Status Meter::Steps(size_t count) {
  steps_left_ -= static_cast<int64_t>(std::min(count, size_t{INT64_MAX} / 2));
  if (steps_left_ < 0) {
    steps_left_ = 0;  // never to be had again
    return OutOfSpace("the template takes too long on this conversation");
  }
  steps_since_look_ += count + 1;  // what costs no step is looked at, too
  if (steps_since_look_ < kStepsPerLook) return OkStatus();
  steps_since_look_ = 0;
  return time_.Check();
}

Status Meter::TextFits(size_t bytes) const {
  return bytes <= max_text_bytes_
             ? OkStatus()
             : OutOfSpace("a text of more than " + std::to_string(max_text_bytes_) + " bytes");
}

Status Meter::Text(size_t bytes) {
  LAMINA_RETURN_IF_ERROR(TextFits(bytes));
  return Steps(bytes / kBytesPerStep);
}

Status Meter::Entries(size_t count) { return Steps(count / kEntriesPerStep); }
Status Meter::Keys(size_t count) { return Steps(count / kKeysPerStep); }
Status Meter::Walk(size_t text_bytes) { return Steps(text_bytes / kWalkBytesPerStep); }

// Each makes a text or a pair, some hundred bytes.
Status Meter::CopyKeys(const Dict& dict) {
  size_t bytes = 0;
  for (const auto& [key, value] : dict.items()) bytes += key.size();
  LAMINA_RETURN_IF_ERROR(Steps(2 * dict.items().size()));
  return Steps(bytes / kBytesPerStep);
}

Status Meter::Measure(const Value& value) {
  return value.dict() != nullptr && value.dict()->is_namespace
             ? Entries(value.dict()->items().size())
             : OkStatus();
}

Status Meter::SearchKeys(size_t count, size_t key_bytes) {
  return Steps(count / kKeysPerStep + count * key_bytes / kKeyBytesPerStep);
}

Result<const Value*> Meter::Find(const Dict& dict, std::string_view key) {
  LAMINA_RETURN_IF_ERROR(SearchKeys(dict.items().size(), key.size()));
  return dict.Find(key);
}

Status Meter::Set(Dict& dict, std::string key, Value value) {
  LAMINA_RETURN_IF_ERROR(SearchKeys(dict.items().size(), key.size()));
  LAMINA_RETURN_IF_ERROR(Steps(1 + key.size() / kBytesPerStep));
  dict.Set(std::move(key), std::move(value));
  return OkStatus();
}

Result<std::string> Meter::Print(const Value& value) {
  LAMINA_RETURN_IF_ERROR(Measure(value));
  LAMINA_RETURN_IF_ERROR(Text(value.text_bytes()));
  if (value.depth() > 0) LAMINA_RETURN_IF_ERROR(Walk(value.text_bytes()));
  // Each level copies.
  LAMINA_RETURN_IF_ERROR(
      Steps(value.text_bytes() / kBytesPerStep * static_cast<size_t>(value.depth())));
  return value.ToText();
}

// An entry's line begins with a space for each level and step of the indent.
Result<std::string> Meter::PrintJson(const Value& value, int indent) {
  LAMINA_RETURN_IF_ERROR(Measure(value));
  const size_t per_byte =
      1 + static_cast<size_t>(std::max(indent, 0)) * static_cast<size_t>(value.depth());
  if (value.text_bytes() > max_text_bytes_ / per_byte) return Text(max_text_bytes_ + 1);
  LAMINA_RETURN_IF_ERROR(Text(value.text_bytes() * per_byte));
  if (value.depth() > 0) LAMINA_RETURN_IF_ERROR(Walk(value.text_bytes()));
  LAMINA_RETURN_IF_ERROR(
      Steps(value.text_bytes() * per_byte / kBytesPerStep * static_cast<size_t>(value.depth())));
  return value.ToJson(indent);
}

}  // namespace lamina::chat
