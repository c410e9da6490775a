#include "api/protocols/llama_answer.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

// "n" tokens in a time, as `name`_n, `name`_ms, ...
void AddTimes(const std::string& name, int64_t n, Clock::duration duration, ordered_json& timings) {
  const double ms = std::chrono::duration<double, std::milli>(duration).count();
  timings[name + "_n"] = n;
  timings[name + "_ms"] = ms;
  timings[name + "_per_token_ms"] = n > 0 ? ms / static_cast<double>(n) : 0;
  timings[name + "_per_second"] = ms > 0 ? 1e3 * static_cast<double>(n) / ms : 0;
}

class LlamaAnswer final : public AnswerForm {
 public:
  explicit LlamaAnswer(std::string model) : model_(std::move(model)) {}

  std::string Whole(const ChoiceOutput& answer, const Usage& usage) override {
    KeepEnd(answer);
    return DumpJson(End(answer.text, usage));
  }

  void SendPiece(const ChoiceOutput& piece, const Usage& usage, Exchange& exchange) override {
    if (!first_piece_) first_piece_ = Clock::now();
    KeepEnd(piece);
    if (piece.text.empty()) return;
    exchange.SendEvent(DumpJson({{"index", 0},
                                 {"content", piece.text},
                                 {"tokens", ordered_json::array()},
                                 {"stop", false},
                                 {"id_slot", -1},
                                 {"tokens_predicted", usage.completion_tokens},
                                 {"tokens_evaluated", usage.prompt_tokens}}));
  }

  void SendEnd(const Usage& usage, Exchange& exchange) override {
    exchange.SendEvent(DumpJson(End("", usage)));
  }

  void SendError(const ApiError& error, Exchange& exchange) override {
    exchange.SendEvent(DumpJson(ordered_json{
        {"error",
         {{"code", error.http_status}, {"message", error.message}, {"type", "server_error"}}}}));
  }

  ordered_json End(const std::string& text, const Usage& usage) const {
    const TimePoint now = Clock::now();
    // Of an answer that comes whole, it is not known when its first token came.
    const TimePoint first = first_piece_.value_or(begun_);
    ordered_json timings = {{"cache_n", usage.cached_tokens}};
    AddTimes("prompt", usage.prompt_tokens - usage.cached_tokens, first - begun_, timings);
    AddTimes("predicted", usage.completion_tokens, now - first, timings);
    return {{"index", 0},
            {"content", text},
            {"tokens", ordered_json::array()},
            {"id_slot", -1},
            {"stop", true},
            {"model", model_},
            {"tokens_predicted", usage.completion_tokens},
            {"tokens_evaluated", usage.prompt_tokens},
            {"truncated", false},
            {"stop_type", stop_type_},
            {"stopping_word", stopping_word_},
            {"tokens_cached", usage.cached_tokens},
            {"timings", std::move(timings)}};
  }

 private:
  void KeepEnd(const ChoiceOutput& piece) {
    if (!piece.finish) return;
    if (*piece.finish == FinishReason::kLength) {
      stop_type_ = "limit";
    } else if (piece.stop_reason.is_string()) {
      stop_type_ = "word";
      stopping_word_ = piece.stop_reason.get<std::string>();
    } else {
      stop_type_ = "eos";
    }
  }

  const std::string model_;
  const TimePoint begun_ = Clock::now();
  std::optional<TimePoint> first_piece_;
  std::string stop_type_ = "none", stopping_word_;
};

}  // namespace

std::unique_ptr<AnswerForm> NewLlamaAnswer(const std::string& model) {
  return std::make_unique<LlamaAnswer>(model);
}

std::string LlamaNothing(const std::string& model) {
  return DumpJson(LlamaAnswer(model).End("", Usage()));
}

}  // namespace lamina
