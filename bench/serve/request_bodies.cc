#include "bench/serve/request_bodies.h"

#include <nlohmann/json.hpp>

#include "hub/find_model.h"

namespace lamina {
namespace {

// Anything but an object if the text is none.
nlohmann::json ExtraFields(const std::string& text) {
  return text.empty() ? nlohmann::json::object() : nlohmann::json::parse(text, nullptr, false);
}

}  // namespace

Result<FoundTokenizer> FindTokenizer(const std::string& dir, const ServedEndpoint& endpoint) {
  FoundTokenizer found;
  found.dir = endpoint.root;
  if (!dir.empty()) {
    LAMINA_ASSIGN_OR_RETURN(found.dir, FindModel(dir));
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizerOrBytes(found.dir);
  if (tokenizer.ok()) {
    found.tokenizer = *std::move(tokenizer);
    return found;
  }
  if (!dir.empty()) return tokenizer.status();
  return FoundTokenizer();
}

BodyMaker::BodyMaker(BodyOptions options, std::string model, const Tokenizer* tokenizer,
                     int64_t block_tokens)
    : options_(std::move(options)),
      model_(std::move(model)),
      prompts_(tokenizer, options_.seed),
      block_tokens_(block_tokens) {
  vocab_size_ = options_.vocab_size > 0 ? options_.vocab_size
                : tokenizer != nullptr  ? tokenizer->vocab_size()
                                        : 0;
}

Status BodyMaker::Check() const {
  if (!ExtraFields(options_.extra_body).is_object())
    return InvalidArgument("--extra-body is not a JSON object: " + options_.extra_body);
  if (options_.prompt_format != "ids") return OkStatus();
  if (options_.chat)
    return InvalidArgument(
        "--prompt-format ids: chats have messages of text; use --backend openai");
  if (vocab_size_ > 0) return OkStatus();
  return InvalidArgument("--prompt-format ids needs the model's --vocab-size, or its --tokenizer");
}

std::string BodyMaker::Make(const TraceRequest& request, size_t index) const {
  nlohmann::json body = {
      {"model", model_},
      {"stream", true},
      {"stream_options", {{"include_usage", true}}},
      {"temperature", options_.temperature},
      {options_.chat ? "max_completion_tokens" : "max_tokens", request.output_tokens}};
  if (options_.ignore_eos) body["ignore_eos"] = true;
  if (options_.chat) {
    body["messages"] = {
        {{"role", "user"}, {"content", prompts_.Text(request, index, block_tokens_)}}};
  } else if (options_.prompt_format == "ids") {
    body["prompt"] = prompts_.Ids(request, index, block_tokens_, vocab_size_);
  } else {
    body["prompt"] = prompts_.Text(request, index, block_tokens_);
  }
  body.update(ExtraFields(options_.extra_body));
  // Texts of a dataset may not be valid UTF-8, which dump would throw at.
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lamina
