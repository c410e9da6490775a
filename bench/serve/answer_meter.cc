#include "bench/serve/answer_meter.h"

#include <nlohmann/json.hpp>

#include "api/http_client.h"

namespace lamina {
namespace {

using nlohmann::json;

const json* FieldOf(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Whether the choice has the text of a completion, or anything that a chat says: content,
// reasoning, calls of tools.
bool HasText(const json& choice) {
  if (const json* text = FieldOf(choice, "text")) return *text != "";
  const json* delta = FieldOf(choice, "delta");
  if (delta == nullptr || !delta->is_object()) return false;
  for (const auto& [key, value] : delta->items()) {
    if (key != "role" && !value.empty() && value != "") return true;
  }
  return false;
}

// {"delta": {"role": "assistant", "content": ""}}, which comes before anything is computed.
bool OnlyAnnouncesTheRole(const json& choice) {
  const json* delta = FieldOf(choice, "delta");
  return delta != nullptr && FieldOf(*delta, "role") != nullptr &&
         FieldOf(choice, "finish_reason") == nullptr && !HasText(choice);
}

// 0 if the server does not say, or says more than an answer can have.
int64_t CountIn(const json& usage, const char* key) {
  constexpr int64_t kMostTokens = 1'000'000'000;  // sums of so many cannot overflow
  const json* count = FieldOf(usage, key);
  if (count == nullptr || !count->is_number_integer() || *count < 0 || *count > kMostTokens)
    return 0;
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
  if (choices == nullptr || !choices->is_array() || choices->empty() ||
      OnlyAnnouncesTheRole((*choices)[0]))
    return;
  const bool has_text = HasText((*choices)[0]);
  // The first text makes what came before it no tokens.
  if (has_text && num_texts_++ == 0) events_.clear();
  events_.push_back(at);
  if (has_text) up_to_last_text_ = events_.size();
}

// An empty event at the end is either a token without text, such as the one that ends the text, or
// only says why the answer is over. The server's count has the former in it, and not the latter;
// without a count such events are left out.
size_t AnswerMeter::num_timed_events() const {
  return counted_by_server() || num_texts_ == 0 ? events_.size() : up_to_last_text_;
}

double AnswerMeter::ttft_seconds() const { return Seconds(events_.front() - sent_); }

double AnswerMeter::e2el_seconds() const {
  return Seconds(events_[num_timed_events() - 1] - sent_);
}

std::vector<double> AnswerMeter::itl_seconds() const {
  std::vector<double> gaps;
  for (size_t i = 1; i < num_timed_events(); ++i)
    gaps.push_back(Seconds(events_[i] - events_[i - 1]));
  return gaps;
}

int64_t AnswerMeter::output_tokens() const {
  return counted_by_server() ? output_tokens_ : num_texts_;
}

}  // namespace lamina
