#include "api/protocols/responses_answer.h"

#include <chrono>
#include <utility>
#include <vector>

namespace lamina {
namespace {

using nlohmann::ordered_json;

// A stream's last events repeat what was in it, so a stream is kept until its end. Items are made
// one after another, and what they hold is added to the last one.
class ResponsesAnswer final : public AnswerForm {
 public:
  explicit ResponsesAnswer(ordered_json repeated)
      : repeated_(std::move(repeated)),
        created_(std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count()) {}

  std::string Whole(const ChoiceOutput& answer, const Usage& usage) override {
    cut_ = answer.finish == FinishReason::kLength;
    if (!answer.reasoning.empty()) AddDone(NewItem(Kind::kReasoning), answer.reasoning);
    if (!answer.text.empty() || answer.calls.empty()) AddDone(NewItem(Kind::kMessage), answer.text);
    for (const ChoiceOutput::Call& call : answer.calls) AddDone(NewCall(call), call.arguments);
    return DumpJson(Response(cut_ ? "incomplete" : "completed", &usage));
  }

  void SendPiece(const ChoiceOutput& piece, const Usage&, Exchange& exchange) override {
    Begin();
    if (piece.finish) cut_ = piece.finish == FinishReason::kLength;
    if (!piece.reasoning.empty()) Add(Kind::kReasoning, piece.reasoning);
    // What goes on with the call before comes before what is new.
    auto call = piece.calls.begin();
    for (; call != piece.calls.end() && call->name.empty(); ++call) AddArguments(*call);
    if (!piece.text.empty()) Add(Kind::kMessage, piece.text);
    for (; call != piece.calls.end(); ++call) {
      if (!call->name.empty()) {
        Close();
        Open(Kind::kCall, NewCall(*call));
      }
      AddArguments(*call);
    }
    Flush(exchange);
  }

  void SendEnd(const Usage& usage, Exchange& exchange) override {
    Begin();
    if (open_ == Kind::kNone && output_.empty()) Open(Kind::kMessage, NewItem(Kind::kMessage));
    Close(cut_ ? "incomplete" : "completed");
    const std::string status = cut_ ? "incomplete" : "completed";
    Send("response." + status, {{"response", Response(status, &usage)}});
    Flush(exchange);
  }

  void SendError(const ApiError& error, Exchange& exchange) override {
    Send("error", {{"code", "server_error"}, {"message", error.message}, {"param", nullptr}});
    ordered_json response = Response("failed", nullptr);
    response["error"] = {{"code", "server_error"}, {"message", error.message}};
    Send("response.failed", {{"response", std::move(response)}});
    Flush(exchange);
  }

  size_t held_bytes() const override { return held_bytes_; }

 private:
  enum class Kind { kNone, kReasoning, kMessage, kCall };

  ordered_json NewItem(Kind kind) {
    const std::string id = request_id() + "_" + std::to_string(num_items_++);
    if (kind == Kind::kReasoning)
      return {{"id", "rs_" + id},
              {"type", "reasoning"},
              {"summary", ordered_json::array()},
              {"content", ordered_json::array()},
              {"status", "in_progress"}};
    return {{"id", "msg_" + id},
            {"type", "message"},
            {"role", "assistant"},
            {"content", ordered_json::array()},
            {"status", "in_progress"}};
  }

  ordered_json NewCall(const ChoiceOutput::Call& call) {
    return {{"id", "fc_" + request_id() + "_" + std::to_string(num_items_++)},
            {"type", "function_call"},
            {"call_id", call.id},
            {"name", call.name},
            {"arguments", ""},
            {"status", "in_progress"}};
  }

  static ordered_json Part(Kind kind, const std::string& text) {
    if (kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", ordered_json::array()},
            {"logprobs", ordered_json::array()}};
  }

  // Fills an item and takes it for done.
  void AddDone(ordered_json item, const std::string& text) {
    if (item["type"] == "function_call") {
      item["arguments"] = text;
    } else {
      const bool reasons = item["type"] == "reasoning";
      item["content"].push_back(Part(reasons ? Kind::kReasoning : Kind::kMessage, text));
    }
    item["status"] = cut_ ? "incomplete" : "completed";
    if (!output_.empty()) output_.back()["status"] = "completed";
    output_.push_back(std::move(item));
  }

  ordered_json Response(const std::string& status, const Usage* usage) const {
    ordered_json response = {{"id", "resp_" + request_id()}, {"object", "response"},
                             {"created_at", created_},       {"status", status},
                             {"background", false},          {"error", nullptr},
                             {"incomplete_details", nullptr}};
    if (status == "incomplete") response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response.update(repeated_);
    response["output"] = output_;
    response["usage"] = usage == nullptr ? ordered_json() : UsageOf(*usage);
    return response;
  }

  static ordered_json UsageOf(const Usage& usage) {
    return {{"input_tokens", usage.prompt_tokens},
            {"input_tokens_details",
             {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
            {"output_tokens", usage.completion_tokens},
            {"output_tokens_details", {{"reasoning_tokens", 0}}},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  }

  void Send(const std::string& type, const ordered_json& more) {
    ordered_json event = {{"type", type}, {"sequence_number", sequence_number_++}};
    event.update(more);
    events_.push_back({DumpJson(event), type});
  }

  // What ends an item or the response says again what was in it, so several events may be long.
  void Flush(Exchange& exchange) {
    if (events_.size() == 1) {
      exchange.SendEvent(events_[0].data, events_[0].name);
    } else if (!events_.empty()) {
      exchange.SendEvents(events_);
    }
    events_.clear();
  }

  // An event about the item that is open.
  void SendOf(const std::string& type, ordered_json more) {
    ordered_json event = {{"item_id", item_["id"]}, {"output_index", output_.size()}};
    if (open_ != Kind::kCall) event["content_index"] = 0;
    event.update(more);
    Send("response." + type, event);
  }

  const char* Name() const {
    return open_ == Kind::kCall        ? "function_call_arguments"
           : open_ == Kind::kReasoning ? "reasoning_text"
                                       : "output_text";
  }

  void Begin() {
    if (std::exchange(begun_, true)) return;
    Send("response.created", {{"response", Response("in_progress", nullptr)}});
    Send("response.in_progress", {{"response", Response("in_progress", nullptr)}});
  }

  void Open(Kind kind, ordered_json item) {
    Close();
    open_ = kind;
    item_ = std::move(item);
    Send("response.output_item.added", {{"output_index", output_.size()}, {"item", item_}});
    if (kind != Kind::kCall) SendOf("content_part.added", {{"part", Part(kind, "")}});
  }

  void Add(Kind kind, const std::string& text) {
    if (open_ != kind) Open(kind, NewItem(kind));
    held_bytes_ += text.size();
    text_ += text;
    ordered_json delta = {{"delta", text}};
    if (kind == Kind::kMessage) delta["logprobs"] = ordered_json::array();
    SendOf(std::string(Name()) + ".delta", std::move(delta));
  }

  void AddArguments(const ChoiceOutput::Call& call) {
    if (call.arguments.empty() || open_ != Kind::kCall) return;
    held_bytes_ += call.arguments.size();
    text_ += call.arguments;
    SendOf("function_call_arguments.delta", {{"delta", call.arguments}});
  }

  void Close(const char* status = "completed") {
    if (open_ == Kind::kNone) return;
    const bool calls = open_ == Kind::kCall;
    ordered_json done = {{calls ? "arguments" : "text", text_}};
    if (calls) done["name"] = item_["name"];
    if (open_ == Kind::kMessage) done["logprobs"] = ordered_json::array();
    SendOf(std::string(Name()) + ".done", std::move(done));
    if (calls) {
      item_["arguments"] = text_;
    } else {
      item_["content"].push_back(Part(open_, text_));
      SendOf("content_part.done", {{"part", item_["content"][0]}});
    }
    item_["status"] = status;
    Send("response.output_item.done", {{"output_index", output_.size()}, {"item", item_}});
    output_.push_back(std::move(item_));
    text_.clear();
    open_ = Kind::kNone;
  }

  const ordered_json repeated_;
  const int64_t created_;  // Unix seconds
  bool begun_ = false;
  bool cut_ = false;  // at the limit of tokens
  int num_items_ = 0;
  int sequence_number_ = 0;
  ordered_json output_ = ordered_json::array();  // items that are done
  Kind open_ = Kind::kNone;                      // of the item that is not
  ordered_json item_;
  std::string text_;  // of it
  size_t held_bytes_ = 0;
  std::vector<StreamEvent> events_;  // to be sent
};

}  // namespace

std::unique_ptr<AnswerForm> NewResponsesAnswer(ordered_json repeated) {
  return std::make_unique<ResponsesAnswer>(std::move(repeated));
}

}  // namespace lamina
