// ApiService's handlers of what clients of other servers ask for.
#include <utility>
#include <vector>

#include "api/api_service.h"
#include "api/openapi.h"
#include "api/pages/pages.h"
#include "api/protocols/foreign_requests.h"
#include "api/protocols/llama_request.h"
#include "api/protocols/messages_request.h"
#include "api/protocols/ollama_request.h"
#include "api/protocols/responses_request.h"

namespace lamina {

void ApiService::HandleMessages(const std::shared_ptr<Exchange>& exchange) {
  Generate(exchange, TranslateMessages);
}

void ApiService::HandleCountTokens(const std::shared_ptr<Exchange>& exchange) {
  const auto read = [this](const RequestReader& reader, const std::string& body,
                           int64_t max_model_len) {
    return CountForeignTokens(TranslateCountTokens, reader, model_, body, max_model_len);
  };
  Read(exchange, read, chat_readers_);
}

void ApiService::HandleResponses(const std::shared_ptr<Exchange>& exchange) {
  Generate(exchange, TranslateResponses);
}

void ApiService::HandleOllamaChat(const std::shared_ptr<Exchange>& exchange) {
  Generate(exchange, TranslateOllamaChat);
}

void ApiService::HandleOllamaGenerate(const std::shared_ptr<Exchange>& exchange) {
  Generate(exchange, TranslateOllamaGenerate);
}

void ApiService::HandleOllamaEmbed(const std::shared_ptr<Exchange>& exchange) {
  Embed(exchange, VectorForm::Kind::kOllama);
}

void ApiService::HandleOllamaEmbeddings(const std::shared_ptr<Exchange>& exchange) {
  Embed(exchange, VectorForm::Kind::kOllamaPlain);
}

void ApiService::AnswerFacts(const std::shared_ptr<Exchange>& exchange, Tell tell) {
  const EngineStatus status = engine_ != nullptr ? engine_->status() : EngineStatus();
  const ServerFacts facts{model_, status, max_model_len(), created_};
  exchange->Respond({200, "application/json", DumpJson(tell(facts)), {}});
}

void ApiService::HandleOllamaTags(const std::shared_ptr<Exchange>& exchange) {
  AnswerFacts(exchange, OllamaTags);
}

void ApiService::HandleOllamaProcesses(const std::shared_ptr<Exchange>& exchange) {
  AnswerFacts(exchange, OllamaProcesses);
}

// The request's body says which model, and there is one.
void ApiService::HandleOllamaShow(const std::shared_ptr<Exchange>& exchange) {
  const auto read = [this](const RequestReader&, const std::string& body, int64_t max_model_len) {
    ReadRequest out;
    const EngineStatus no_status;
    const ServerFacts facts{model_, no_status, max_model_len, created_};
    const auto error = CheckOllamaShow(body, model_);
    out.outcome = error
                      ? ErrorResponse(*error)
                      : OutboundResponse{200, "application/json", DumpJson(OllamaShow(facts)), {}};
    return out;
  };
  Read(exchange, read, chat_readers_);
}

void ApiService::HandleLlamaCompletion(const std::shared_ptr<Exchange>& exchange) {
  Generate(exchange, TranslateLlamaCompletion);
}

void ApiService::HandleLlamaInfill(const std::shared_ptr<Exchange>& exchange) {
  Generate(exchange, TranslateLlamaInfill);
}

void ApiService::HandleProps(const std::shared_ptr<Exchange>& exchange) {
  AnswerFacts(exchange, LlamaProps);
}

void ApiService::HandleSlots(const std::shared_ptr<Exchange>& exchange) {
  AnswerFacts(exchange, LlamaSlots);
}

void ApiService::HandleOpenApi(const std::shared_ptr<Exchange>& exchange) {
  std::vector<PathDescription> paths;
  for (const auto& [path, route] : Routes())
    paths.push_back({std::string(path), route.method, route.summary, route.required, route.open});
  exchange->Respond({200, "application/json", DumpJson(OpenApiDocument(std::move(paths))), {}});
}

void ApiService::HandleDocs(const std::shared_ptr<Exchange>& exchange) {
  exchange->Respond(PageResponse(kDocsPage));
}

void ApiService::HandleChatPage(const std::shared_ptr<Exchange>& exchange) {
  exchange->Respond(PageResponse(kChatPage));
}

}  // namespace lamina
