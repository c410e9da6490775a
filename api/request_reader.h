// From the body of a request to the prompts to generate from, or to an answer: JSON, chat templates
// and tokenizers, whose work grows with the text and may take seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "api/api_error.h"
#include "api/exchange.h"
#include "api/generation.h"
#include "api/requests.h"
#include "api/vector_form.h"
#include "api/worker_pool.h"
#include "base/mutex.h"
#include "model/model_config.h"
#include "text/answer_format.h"
#include "text/chat_template.h"
#include "text/infill.h"
#include "text/tokenizer.h"

namespace lamina {

// What is served. Borrowed objects outlive the service.
struct ServedModel {
  std::string name;                      // as clients write it
  std::string root;                      // where it came from; "": the name
  const Tokenizer* tokenizer = nullptr;  // required
  // Nullptr: chat requests get a 400 with `no_chat_reason`.
  const ChatTemplate* chat_template = nullptr;
  std::string no_chat_reason = "this model has no chat template";
  ModelConfig config;
  // Why a text's vector would not be the model's own; "": it is. Requests for vectors get 400.
  std::string no_vectors_reason;
  // How the model writes calls of tools; nullopt: nobody knows, and requests with tools get 400.
  std::optional<ToolFormat> tool_format;
  // How it is asked for the text between two others; nullopt: its tokenizer has no tokens for that.
  std::optional<InfillFormat> infill;
  bool reasoning = false;  // whether it may reason before it answers
  int max_num_seqs = 64;   // sequences that are decoded at once
};

// What became of a body: text is to be generated, or the answer, which may be an error.
struct ReadRequest {
  std::variant<GenerationSpec, OutboundResponse> outcome;
  std::vector<std::string> unknown_fields;
};

// Thread: any. What takes much memory is done by one thread at a time, while others that need it
// wait: chat templates, which may make 256 MB each, and the tokenising of long texts.
// `max_model_len`: text that cannot fit into so many tokens is refused before the work of
// tokenising it.
class RequestReader {
 public:
  explicit RequestReader(const ServedModel& model);  // borrows

  // What is being read gets an error soon.
  void Stop() { renderer_.Stop(); }

  ReadRequest Completion(const std::string& body, int64_t max_model_len) const;
  ReadRequest Chat(const std::string& body, int64_t max_model_len) const;
  ReadRequest Vectors(VectorForm::Kind kind, const std::string& body, int64_t max_model_len) const;
  ReadRequest Tokenize(const std::string& body, int64_t max_model_len) const;
  ReadRequest Detokenize(const std::string& body, int64_t max_model_len) const;

 private:
  // Each fills `out` or says what is wrong.
  std::optional<ApiError> ReadCompletion(const std::string& body, int64_t max_model_len,
                                         ReadRequest& out) const;
  std::optional<ApiError> ReadChat(const std::string& body, int64_t max_model_len,
                                   ReadRequest& out) const;
  std::optional<ApiError> ReadVectors(VectorForm::Kind kind, const std::string& body,
                                      int64_t max_model_len, ReadRequest& out) const;
  std::optional<ApiError> ReadTokenize(const std::string& body, int64_t max_model_len,
                                       ReadRequest& out) const;
  std::optional<ApiError> ReadDetokenize(const std::string& body, int64_t max_model_len,
                                         ReadRequest& out) const;

  std::optional<ApiError> CheckModel(const std::string& model) const;
  std::optional<ApiError> CheckReasoningEffort(const ChatInput& input) const;
  // Makes sampling parameters of what constrains the answers.
  std::optional<ApiError> FinishOptions(const std::string& body, GenerationOptions& options) const;
  std::optional<ApiError> EncodeBadWords(GenerationOptions& options) const;
  Result<std::vector<TokenId>> Tokens(const std::string& text, bool add_special_tokens,
                                      int64_t max_model_len) const;
  Status CheckLength(const std::string& text, int64_t max_model_len) const;
  Result<std::vector<TokenId>> Encode(const std::string& text, bool add_special_tokens,
                                      int64_t max_model_len) const;
  Status CheckVocabulary(std::span<const TokenId> tokens) const;
  // Makes one prompt of what stands before and behind the text that is to be generated.
  std::optional<ApiError> JoinInfill(const CompletionRequest& request, int64_t max_model_len,
                                     std::vector<TokenId>& tokens) const;
  bool StartsWithBos(const std::string& text) const;
  Result<std::string> RenderChat(const ChatInput& input) const;
  std::optional<ApiError> CheckTools(const ChatInput& input, ForcedCall forced) const;
  // How the answer to `prompt` is to be read.
  // Whether the model's answers are messages in channels (text/harmony_parser.h).
  bool has_channels() const { return model_.tool_format == ToolFormat::kOpenAi; }
  std::optional<AnswerFormat> FormatOf(const ChatRequest& request, std::string_view prompt) const;

  const ServedModel& model_;
  RequestRules rules_;
  // That announce and close reasoning and calls: text, although some tokenizers have them special.
  const std::vector<TokenId> marker_tokens_;
  mutable Mutex encoding_long_;  // held while a long text is tokenised
  // Templates work on one thread. The allocator keeps memory for each thread, so a lock would bound
  // what templates use at once, and not what the process keeps of it.
  mutable WorkerPool renderer_{1};
};

}  // namespace lamina
