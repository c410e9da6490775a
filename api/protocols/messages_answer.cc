#include "api/protocols/messages_answer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "api/protocols/protocol_errors.h"
#include "api/protocols/translation.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

class MessagesAnswer final : public AnswerForm {
 public:
  explicit MessagesAnswer(std::string model) : model_(std::move(model)) {}

  std::string Whole(const ChoiceOutput& answer, const Usage& usage) override {
    ordered_json content = ordered_json::array();
    if (!answer.reasoning.empty())
      content.push_back({{"type", "thinking"}, {"thinking", answer.reasoning}, {"signature", ""}});
    // Clients look for a first block.
    if (!answer.text.empty() || (answer.calls.empty() && content.empty()))
      content.push_back({{"type", "text"}, {"text", answer.text}});
    for (const ChoiceOutput::Call& call : answer.calls)
      content.push_back({{"type", "tool_use"},
                         {"id", call.id},
                         {"name", call.name},
                         {"input", ArgumentsObject(call.arguments)}});
    Note(answer);
    ordered_json message = Message(usage);
    message["content"] = std::move(content);
    message.update(Stop());
    return DumpJson(message);
  }

  void SendPiece(const ChoiceOutput& piece, const Usage& usage, Exchange& exchange) override {
    Begin(usage, exchange);
    Note(piece);
    if (!piece.reasoning.empty()) {
      Open(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, exchange);
      Delta({{"type", "thinking_delta"}, {"thinking", piece.reasoning}}, exchange);
    }
    // What goes on with the call before comes before what is new.
    auto call = piece.calls.begin();
    for (; call != piece.calls.end() && call->name.empty(); ++call) SendArguments(*call, exchange);
    if (!piece.text.empty()) {
      Open(Block::kText, {{"type", "text"}, {"text", ""}}, exchange);
      Delta({{"type", "text_delta"}, {"text", piece.text}}, exchange);
    }
    for (; call != piece.calls.end(); ++call) {
      if (!call->name.empty()) {
        Close(exchange);
        Open(Block::kCall,
             {{"type", "tool_use"},
              {"id", call->id},
              {"name", call->name},
              {"input", ordered_json::object()}},
             exchange);
      }
      SendArguments(*call, exchange);
    }
  }

  void SendEnd(const Usage& usage, Exchange& exchange) override {
    Begin(usage, exchange);
    if (index_ < 0) Open(Block::kText, {{"type", "text"}, {"text", ""}}, exchange);
    Close(exchange);
    Send({{"type", "message_delta"}, {"delta", Stop()}, {"usage", UsageOf(usage)}}, exchange);
    Send({{"type", "message_stop"}}, exchange);
  }

  void SendError(const ApiError& error, Exchange& exchange) override {
    Send({{"type", "error"},
          {"error", {{"type", AnthropicErrorType(error.http_status)}, {"message", error.message}}}},
         exchange);
  }

 private:
  enum class Block { kNone, kThinking, kText, kCall };

  // Tokens that the prefix cache had are counted apart.
  static ordered_json UsageOf(const Usage& usage) {
    return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage.cached_tokens},
            {"output_tokens", usage.completion_tokens}};
  }

  ordered_json Message(const Usage& usage) const {
    return {{"id", "msg_" + request_id()},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_},
            {"content", ordered_json::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", UsageOf(usage)}};
  }

  // Keeps why the answer ended.
  void Note(const ChoiceOutput& piece) {
    if (!piece.finish) return;
    const bool matched = piece.stop_reason.is_string();
    stop_reason_ = piece.finish == FinishReason::kLength ? "max_tokens"
                   : piece.called                        ? "tool_use"
                   : matched                             ? "stop_sequence"
                                                         : "end_turn";
    if (matched) stop_sequence_ = piece.stop_reason;
  }
  ordered_json Stop() const {
    return {{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}};
  }

  static void Send(const ordered_json& event, Exchange& exchange) {
    exchange.SendEvent(DumpJson(event), event["type"].get_ref<const std::string&>());
  }

  void Begin(const Usage& usage, Exchange& exchange) {
    if (std::exchange(begun_, true)) return;
    Send({{"type", "message_start"}, {"message", Message(usage)}}, exchange);
    Send({{"type", "ping"}}, exchange);
  }

  void Open(Block block, const ordered_json& content, Exchange& exchange) {
    if (open_ == block) return;
    Close(exchange);
    open_ = block;
    Send({{"type", "content_block_start"}, {"index", ++index_}, {"content_block", content}},
         exchange);
  }

  void Delta(const ordered_json& delta, Exchange& exchange) const {
    Send({{"type", "content_block_delta"}, {"index", index_}, {"delta", delta}}, exchange);
  }

  void SendArguments(const ChoiceOutput::Call& call, Exchange& exchange) const {
    if (call.arguments.empty() || open_ != Block::kCall) return;
    Delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}}, exchange);
  }

  void Close(Exchange& exchange) {
    if (std::exchange(open_, Block::kNone) == Block::kNone) return;
    Send({{"type", "content_block_stop"}, {"index", index_}}, exchange);
  }

  const std::string model_;
  bool begun_ = false;
  Block open_ = Block::kNone;
  int index_ = -1;  // of the block that was opened last
  std::string stop_reason_ = "end_turn";
  ordered_json stop_sequence_;
};

}  // namespace

std::unique_ptr<AnswerForm> NewMessagesAnswer(const std::string& model) {
  return std::make_unique<MessagesAnswer>(model);
}

}  // namespace lamina
