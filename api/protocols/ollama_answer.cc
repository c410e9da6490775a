#include "api/protocols/ollama_answer.h"

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "api/protocols/translation.h"
#include "base/clock.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

int64_t Nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

ordered_json OllamaBegin(const std::string& model) {
  return {{"model", model}, {"created_at", TimeText(std::chrono::system_clock::now())}};
}

// Calls are told whole, so a stream keeps the one that comes until it is complete.
class OllamaAnswer final : public AnswerForm {
 public:
  OllamaAnswer(OllamaPath path, std::string model) : path_(path), model_(std::move(model)) {}

  std::string Whole(const ChoiceOutput& answer, const Usage& usage) override {
    ordered_json calls = ordered_json::array();
    for (const ChoiceOutput::Call& call : answer.calls) calls.push_back(CallJson(call));
    cut_ = answer.finish == FinishReason::kLength;
    ordered_json json = Part(answer.text, answer.reasoning, std::move(calls));
    json.update(End(usage));
    return DumpJson(json);
  }

  StreamKind stream_kind() const override { return StreamKind::kLines; }

  void SendPiece(const ChoiceOutput& piece, const Usage&, Exchange& exchange) override {
    if (!first_piece_) first_piece_ = Clock::now();
    if (piece.finish) cut_ = piece.finish == FinishReason::kLength;
    ordered_json calls = ordered_json::array();
    for (const ChoiceOutput::Call& call : piece.calls) {
      if (!call.name.empty()) {
        if (call_) calls.push_back(CallJson(*call_));
        call_ = call;
      } else if (call_) {
        call_->arguments += call.arguments;
      }
    }
    if (piece.finish && call_) calls.push_back(CallJson(*std::exchange(call_, std::nullopt)));
    if (piece.text.empty() && piece.reasoning.empty() && calls.empty()) return;
    ordered_json json = Part(piece.text, piece.reasoning, std::move(calls));
    json["done"] = false;
    exchange.SendEvent(DumpJson(json));
  }

  void SendEnd(const Usage& usage, Exchange& exchange) override {
    ordered_json json = Part("", "", ordered_json::array());
    json.update(End(usage));
    exchange.SendEvent(DumpJson(json));
  }

  void SendError(const ApiError& error, Exchange& exchange) override {
    exchange.SendEvent(DumpJson(ordered_json{{"error", error.message}}));
  }

  size_t held_bytes() const override { return call_ ? call_->arguments.size() : 0; }

 private:
  static ordered_json CallJson(const ChoiceOutput::Call& call) {
    return {{"id", call.id},
            {"function",
             {{"index", call.index},
              {"name", call.name},
              {"arguments", ArgumentsObject(call.arguments)}}}};
  }

  ordered_json Part(const std::string& text, const std::string& reasoning,
                    ordered_json calls) const {
    ordered_json json = OllamaBegin(model_);
    if (path_ == OllamaPath::kGenerate) {
      json["response"] = text;
      if (!reasoning.empty()) json["thinking"] = reasoning;
      return json;
    }
    ordered_json& message = json["message"];
    message = {{"role", "assistant"}, {"content", text}};
    if (!reasoning.empty()) message["thinking"] = reasoning;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    return json;
  }

  // Of an answer that comes whole, it is not known when its first token came.
  ordered_json End(const Usage& usage) const {
    const TimePoint now = Clock::now();
    const TimePoint first = first_piece_.value_or(begun_);
    return {{"done", true},
            {"done_reason", cut_ ? "length" : "stop"},
            {"total_duration", Nanoseconds(now - begun_)},
            {"load_duration", 0},
            {"prompt_eval_count", usage.prompt_tokens},
            {"prompt_eval_duration", Nanoseconds(first - begun_)},
            {"eval_count", usage.completion_tokens},
            {"eval_duration", Nanoseconds(now - first)}};
  }

  const OllamaPath path_;
  const std::string model_;
  const TimePoint begun_ = Clock::now();
  std::optional<TimePoint> first_piece_;
  bool cut_ = false;                        // at the limit of tokens
  std::optional<ChoiceOutput::Call> call_;  // that is under way
};

}  // namespace

std::string TimeText(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  const auto of_day = time.time_since_epoch() % std::chrono::seconds(1);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char date[40], text[64];
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof(text), "%s.%06lldZ", date,
                static_cast<long long>(
                    std::chrono::duration_cast<std::chrono::microseconds>(of_day).count()));
  return text;
}

std::unique_ptr<AnswerForm> NewOllamaAnswer(OllamaPath path, const std::string& model) {
  return std::make_unique<OllamaAnswer>(path, model);
}

std::string OllamaLoaded(OllamaPath path, const std::string& model) {
  ordered_json json = OllamaBegin(model);
  if (path == OllamaPath::kGenerate) {
    json["response"] = "";
  } else {
    json["message"] = {{"role", "assistant"}, {"content", ""}};
  }
  json.update(ordered_json{{"done", true}, {"done_reason", "load"}});
  return DumpJson(json);
}

}  // namespace lamina
