#include "bench/serve/answer_meter.h"

#include <nlohmann/json.hpp>

#include "frontend/http_client.h"

namespace lamina {
namespace {

using nlohmann::json;

const json* FieldOf(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// {"delta": {"role": "assistant", "content": ""}} comes before anything is computed.
bool OnlyAnnouncesTheRole(const json& choice) {
  const json* delta = FieldOf(choice, "delta");
  if (delta == nullptr || FieldOf(*delta, "role") == nullptr || FieldOf(choice, "finish_reason") != nullptr) return false;
  for (const auto& [key, value] : delta->items()) {
    if (key != "role" && !value.empty() && value != "") return false;
  }
  return true;
}

// 0: it does not say, or more than an answer can have.
int64_t CountIn(const json& usage, const char* key) {
  constexpr int64_t kMostTokens = 1'000'000'000;  // sums of so many cannot overflow
  const json* count = FieldOf(usage, key);
  if (count == nullptr || !count->is_number_integer() || *count < 0 || *count > kMostTokens) return 0;
  return count->get<int64_t>();
}

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void AnswerMeter::Take(std::string_view data, TimePoint at) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const json event = json::parse(data, nullptr, false);
  if (FieldOf(event, "error") != nullptr) error_ = ErrorMessageOf({0, std::string(data)});
  if (const json* usage = FieldOf(event, "usage")) {
    prompt_tokens_ = CountIn(*usage, "prompt_tokens");
    output_tokens_ = CountIn(*usage, "completion_tokens");
  }
  const json* choices = FieldOf(event, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty() || OnlyAnnouncesTheRole((*choices)[0])) return;
  ++num_events_;
  if (first_) {
    itl_seconds_.push_back(Seconds(at - last_));
  } else {
    first_ = at;
  }
  last_ = at;
}

double AnswerMeter::ttft_seconds() const { return Seconds(*first_ - sent_); }

double AnswerMeter::e2el_seconds() const { return Seconds(last_ - sent_); }

}  // namespace lamina
