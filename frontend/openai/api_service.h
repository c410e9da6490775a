// The API's paths: from an HTTP request to an answer. It owns the requests under way and knows no sockets.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/inbox.h"
#include "frontend/engine.h"
#include "frontend/metrics.h"
#include "frontend/openai/api_error.h"
#include "frontend/openai/exchange.h"
#include "frontend/openai/generation.h"
#include "frontend/openai/requests.h"
#include "frontend/text/chat_template.h"
#include "frontend/text/tokenizer.h"
#include "splitter/model_config.h"

namespace lamina {

// What is served. Borrowed objects outlive the service.
struct ServedModel {
  std::string name;                             // as clients write it
  std::string root;                             // where it came from; "": the name
  const Tokenizer* tokenizer = nullptr;         // required
  const ChatTemplate* chat_template = nullptr;  // nullptr: chat requests get a 400 with `no_chat_reason`
  std::string no_chat_reason = "this model has no chat template";
  ModelConfig config;
};

struct ServiceOptions {
  std::string api_key;             // "": none is asked for
  int max_queued_requests = 1024;  // while more sequences wait in the engine, requests are refused before their prompt is looked at
};

// Thread: one, the server's; only the engine's sinks come from elsewhere, through an inbox.
class ApiService {
 public:
  ApiService(ServiceOptions options, ServedModel model, Metrics& metrics);
  ~ApiService();

  // The answer to a request of which only the header is needed to refuse it: wrong path or method, no valid API key. nullopt: its body is
  // needed.
  std::optional<OutboundResponse> Screen(const InboundRequest& request) const;

  // Whether the path answers without the API key and without a body: /health and its like.
  static bool IsOpen(std::string_view path);

  // Answers at once, or later from DeliverEvents. REQUIRES: Screen let the request pass.
  void Handle(const std::shared_ptr<Exchange>& exchange);

  // nullptr: there is none (any more); requests under way fail with 503. Borrowed until replaced.
  void SetEngine(Engine* engine);

  // Events of the engine wait while this descriptor is readable.
  int events_fd() const { return events_->fd(); }
  void DeliverEvents();  // some of them: connections get their turn in between

  // From now on new requests for text get 503, and /health too. `on_idle` is called once, when none is under way.
  void Drain(std::function<void()> on_idle);

  // Of the requests that were under way at Drain, those that failed since: for want of time, or for another reason.
  size_t num_failed_draining() const { return num_failed_draining_; }

  // Every request under way fails with this.
  void FailAll(const Status& status);

 private:
  struct EngineEvent {
    uint64_t generation;
    int part;  // of it
    TokenEvent event;
  };
  using Handler = void (ApiService::*)(const std::shared_ptr<Exchange>&);
  struct Route {
    const char* method;
    Handler handler;
    bool open;  // without the API key
  };

  static const std::unordered_map<std::string_view, Route>& Routes();
  bool Authorized(const InboundRequest& request) const;

  void HandleCompletion(const std::shared_ptr<Exchange>& exchange);
  void HandleChat(const std::shared_ptr<Exchange>& exchange);
  void HandleModels(const std::shared_ptr<Exchange>& exchange);
  void HandleHealth(const std::shared_ptr<Exchange>& exchange);
  void HandlePing(const std::shared_ptr<Exchange>& exchange);
  void HandleVersion(const std::shared_ptr<Exchange>& exchange);
  void HandleMetrics(const std::shared_ptr<Exchange>& exchange);
  void HandleTokenize(const std::shared_ptr<Exchange>& exchange);
  void HandleDetokenize(const std::shared_ptr<Exchange>& exchange);
  void HandleClusterStatus(const std::shared_ptr<Exchange>& exchange);

  Status CheckAccepting() const;
  std::optional<ApiError> CheckModel(const std::string& model) const;
  Result<std::vector<TokenId>> Tokenize(const std::string& text, bool add_special_tokens) const;
  bool StartsWithBos(const std::string& text) const;
  Result<std::string> RenderChat(const ChatInput& input) const;
  void Begin(GenerationSpec spec, const std::shared_ptr<Exchange>& exchange);
  void End(uint64_t generation);
  void WarnUnknown(const std::vector<std::string>& fields);
  int64_t max_model_len() const;

  ServiceOptions options_;
  ServedModel model_;
  Metrics& metrics_;
  RequestRules rules_;
  int64_t created_ = 0;  // Unix seconds
  Engine* engine_ = nullptr;
  // Shared with the sinks, which may be called while the service goes away.
  std::shared_ptr<Inbox<EngineEvent>> events_;
  std::unordered_map<uint64_t, std::unique_ptr<Generation>> generations_;
  uint64_t next_generation_ = 1;
  bool draining_ = false;
  size_t num_failed_draining_ = 0;
  std::function<void()> on_idle_;
  std::set<std::string> warned_fields_;
};

}  // namespace lamina
