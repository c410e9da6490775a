// ApiService's handlers of what clients of other servers ask for.
#include "api/api_service.h"
#include "api/protocols/foreign_requests.h"
#include "api/protocols/messages_request.h"
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

}  // namespace lamina
