// The API's paths: from an HTTP request to an answer. It owns the requests under way and knows no
// sockets.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "api/api_error.h"
#include "api/exchange.h"
#include "api/generation.h"
#include "api/metrics.h"
#include "api/protocols/server_facts.h"
#include "api/protocols/translation.h"
#include "api/request_reader.h"
#include "api/vector_form.h"
#include "api/worker_pool.h"
#include "base/clock.h"
#include "base/inbox.h"
#include "manager/engine.h"

namespace lamina {

struct ServiceOptions {
  std::string api_key;        // "": none is asked for
  bool log_requests = false;  // a line for each request for text
  // While more sequences wait in the engine, requests are refused before their prompt is looked at.
  int max_queued_requests = 1024;

  // What one answer may have, in values: tokens of all choices times (1 + log-probabilities for
  // each). 128 texts that fill a context of 131,072 tokens, or 128 of 6,000 tokens with 20
  // log-probabilities; up to half a gigabyte until they are sent.
  int64_t max_answer_values = int64_t{1} << 24;

  // What all answers may hold until they are sent; one that goes beyond fails with 503.
  size_t max_answer_bytes = size_t{1} << 30;

  // A request that failed so shortly before Drain counts as one that Drain found under way. Whoever
  // ends everything at once may reach nodes before this process.
  Clock::duration drain_lookback = std::chrono::seconds(1);
};

// Thread: one, the server's. Bodies are read on threads of its own, so that a long text does not
// keep it from its connections; what they come to and what the engine's sinks say arrives through
// an inbox.
class ApiService {
 public:
  ApiService(ServiceOptions options, ServedModel model, Metrics& metrics);
  ~ApiService();

  // The answer to a request of which only the header is needed to refuse it: wrong path or method,
  // no valid API key. nullopt: its body is needed.
  std::optional<OutboundResponse> Screen(const InboundRequest& request) const;

  // Whether the path answers without the API key and without a body: /health and its like.
  static bool IsOpen(std::string_view path);

  // Answers at once, or later from DeliverEvents. REQUIRES: Screen let the request pass.
  void Handle(const std::shared_ptr<Exchange>& exchange);

  // nullptr: there is none (any more); requests under way fail with 503. Borrowed until replaced.
  void SetEngine(Engine* engine);

  // Events of the engine and bodies that were read wait while this descriptor is readable.
  int events_fd() const { return events_->fd(); }
  void DeliverEvents();  // some of them: connections get their turn in between

  // From now on new requests for text get 503, and /health too. `on_idle` is called once, when none
  // is under way.
  void Drain(std::function<void()> on_idle);

  // How many requests failed, of those that were under way at Drain or `drain_lookback` before it:
  // for want of time, or for another reason. REQUIRES: after Drain.
  size_t num_failed_draining() const { return failures_.size(); }

  // Every request under way fails with this.
  void FailAll(const Status& status);

 private:
  struct EngineEvent {
    uint64_t generation;
    int part;  // of it
    TokenEvent event;
  };
  struct BodyRead {
    uint64_t id;
    ReadRequest request;
  };
  // A request whose body is being read, or waits for it.
  struct Reading {
    std::shared_ptr<Exchange> exchange;
    // False: its client is gone. Shared with the thread that reads it.
    std::shared_ptr<std::atomic<bool>> wanted;
  };
  using Event = std::variant<EngineEvent, BodyRead>;
  using ReadBody = std::function<ReadRequest(const RequestReader& reader, const std::string& body,
                                             int64_t max_model_len)>;
  using Handler = void (ApiService::*)(const std::shared_ptr<Exchange>&);
  struct Route {
    const char* method;
    Handler handler;
    bool open;                  // without the API key
    const char* summary;        // for /openapi.json
    const char* required = "";  // fields of the body that have to be there, with spaces between
  };

  using RouteMap = std::unordered_map<std::string_view, Route>;
  static const RouteMap& Routes();
  static RouteMap::const_iterator FindRoute(std::string_view path);
  bool Authorized(const InboundRequest& request) const;

  void HandleCompletion(const std::shared_ptr<Exchange>& exchange);
  void HandleChat(const std::shared_ptr<Exchange>& exchange);
  void HandleEmbeddings(const std::shared_ptr<Exchange>& exchange);
  void HandleScores(const std::shared_ptr<Exchange>& exchange);
  void HandleRanking(const std::shared_ptr<Exchange>& exchange);
  void HandleOllamaEmbed(const std::shared_ptr<Exchange>& exchange);
  void HandleOllamaEmbeddings(const std::shared_ptr<Exchange>& exchange);
  void HandleMessages(const std::shared_ptr<Exchange>& exchange);
  void HandleCountTokens(const std::shared_ptr<Exchange>& exchange);
  void HandleResponses(const std::shared_ptr<Exchange>& exchange);
  void HandleOllamaChat(const std::shared_ptr<Exchange>& exchange);
  void HandleOllamaGenerate(const std::shared_ptr<Exchange>& exchange);
  void HandleOllamaTags(const std::shared_ptr<Exchange>& exchange);
  void HandleOllamaProcesses(const std::shared_ptr<Exchange>& exchange);
  void HandleOllamaShow(const std::shared_ptr<Exchange>& exchange);
  void HandleLlamaCompletion(const std::shared_ptr<Exchange>& exchange);
  void HandleLlamaInfill(const std::shared_ptr<Exchange>& exchange);
  void HandleProps(const std::shared_ptr<Exchange>& exchange);
  void HandleSlots(const std::shared_ptr<Exchange>& exchange);
  void HandleOpenApi(const std::shared_ptr<Exchange>& exchange);
  void HandleDocs(const std::shared_ptr<Exchange>& exchange);
  void HandleChatPage(const std::shared_ptr<Exchange>& exchange);
  void HandleModels(const std::shared_ptr<Exchange>& exchange);
  void HandleModel(const std::shared_ptr<Exchange>& exchange);
  void HandleHealth(const std::shared_ptr<Exchange>& exchange);
  void HandlePing(const std::shared_ptr<Exchange>& exchange);
  void HandleVersion(const std::shared_ptr<Exchange>& exchange);
  void HandleMetrics(const std::shared_ptr<Exchange>& exchange);
  void HandleTokenize(const std::shared_ptr<Exchange>& exchange);
  void HandleDetokenize(const std::shared_ptr<Exchange>& exchange);
  void HandleClusterStatus(const std::shared_ptr<Exchange>& exchange);

  Status CheckAccepting() const;
  Status CheckReaders() const;
  // Large bodies are read by large_reader_, whatever `readers` is.
  void Read(const std::shared_ptr<Exchange>& exchange, ReadBody read, WorkerPool& readers);
  // A request for text of another protocol.
  void Generate(const std::shared_ptr<Exchange>& exchange, Translate translate);
  void Embed(const std::shared_ptr<Exchange>& exchange, VectorForm::Kind kind);
  // Tells clients of other servers about this one.
  using Tell = nlohmann::ordered_json (*)(const ServerFacts& facts);
  void AnswerFacts(const std::shared_ptr<Exchange>& exchange, Tell tell);
  void OnBodyRead(BodyRead event);
  void OnEngineEvent(const EngineEvent& event);
  void Begin(GenerationSpec spec, const std::shared_ptr<Exchange>& exchange);
  void End(uint64_t generation, const char* outcome = "answered");
  void CheckIdle();
  void NoteFailure();
  void ForgetOldFailures();
  void WarnUnknown(const std::vector<std::string>& fields);
  int64_t max_model_len() const;
  nlohmann::ordered_json ModelEntry() const;

  ServiceOptions options_;
  ServedModel model_;
  Metrics& metrics_;
  RequestReader reader_;
  AnswerMemory answer_memory_;
  int64_t created_ = 0;  // Unix seconds
  Engine* engine_ = nullptr;
  // Shared with the sinks and the readers, which may be called while the service goes away.
  std::shared_ptr<Inbox<Event>> events_;
  std::unordered_map<uint64_t, std::unique_ptr<Generation>> generations_;
  std::unordered_map<uint64_t, Reading> reading_;
  uint64_t next_id_ = 1;  // of a generation or a body
  bool draining_ = false;
  // When requests that were under way failed. Before Drain only those that may count then.
  std::deque<TimePoint> failures_;
  std::function<void()> on_idle_;
  std::set<std::string> warned_fields_;
  // These go first: their threads use what stands above.
  WorkerPool large_reader_;
  // Of what a chat template may be needed for: templates work one at a time, and whoever waits for
  // them is not to keep a thread from prompts that need none.
  WorkerPool chat_readers_;
  WorkerPool readers_;
};

}  // namespace lamina
