#include "api/api_service.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <random>

#include "api/cluster_json.h"
#include "api/protocols/foreign_requests.h"
#include "base/log.h"
#include "base/version.h"

namespace lamina {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Names come from clients: the log does not grow with them.
constexpr size_t kMaxWarnedFields = 100;

// An engine that is faster than this thread must not keep it from its sockets. More than a full
// batch's tokens, about a millisecond of work.
constexpr int kMaxEventsPerTurn = 256;

// Threads in a pool that reads bodies. They sleep most of the time.
constexpr int kNumReaders = 4;

// A tokenizer may need forty bytes for each byte of a text: one word of 7 MiB took 300 MB. Larger
// bodies are read one at a time, by a thread of their own: they wait for each other, and small ones
// for none of them.
constexpr size_t kLargeBodyBytes = size_t{256} << 10;

// What follows is a model's name.
constexpr std::string_view kModelPath = "/v1/models/";

// "a/b" of "a%2Fb"; what is no escape stays.
std::string Unescaped(std::string_view path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    unsigned value = 0;
    const char* digits = path.data() + i + 1;
    const bool escape = path[i] == '%' && i + 2 < path.size() &&
                        std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
    text += escape ? static_cast<char>(value) : path[i];
    if (escape) i += 2;
  }
  return text;
}

void Answer(const std::shared_ptr<Exchange>& exchange, const ordered_json& body) {
  exchange->Respond({200, "application/json", DumpJson(body), {}});
}
void Answer(const std::shared_ptr<Exchange>& exchange, const Status& status) {
  exchange->Respond(ErrorResponse(ApiError::From(status)));
}

// The tokens of a long text are megabytes of JSON. They are sent piece by piece, because copying
// and sending all at once keeps the other connections waiting for tens of milliseconds.
void AnswerRead(const std::shared_ptr<Exchange>& exchange, OutboundResponse response) {
  if (response.status != 200) return exchange->Respond(std::move(response));
  constexpr size_t kPieceBytes = size_t{64} << 10;
  exchange->RespondInPieces([body = std::move(response.body), at = size_t{0}](auto& piece) mutable {
    piece.append(body, at, kPieceBytes);
    at += kPieceBytes;
    return at >= body.size();
  });
}

// Takes as long for a wrong key as for the right one.
bool SameKey(std::string_view given, std::string_view key) {
  unsigned difference = given.size() != key.size();
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned>(given[i] ^ key[i % key.size()]);
  return difference == 0;
}

uint64_t RandomSeed() {
  std::random_device random;
  // Fits a signed integer, which clients may want to send back.
  return (uint64_t{random()} << 32 | random()) >> 1;
}

}  // namespace

ApiService::ApiService(ServiceOptions options, ServedModel model, Metrics& metrics)
    : options_(std::move(options)),
      model_(std::move(model)),
      metrics_(metrics),
      reader_(model_),
      answer_memory_(options_.max_answer_bytes),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      events_(std::make_shared<Inbox<Event>>()),
      large_reader_(1),
      chat_readers_(kNumReaders),
      readers_(kNumReaders) {}

// All at once: they may wait for each other.
ApiService::~ApiService() {
  readers_.Stop();
  chat_readers_.Stop();
  large_reader_.Stop();
  reader_.Stop();
}

const std::unordered_map<std::string_view, ApiService::Route>& ApiService::Routes() {
  using Self = ApiService;
  static const std::unordered_map<std::string_view, Route> routes = {
      {"/v1/completions",
       {"POST", &Self::HandleCompletion, false, "text that goes on from prompts", "prompt"}},
      {"/v1/chat/completions",
       {"POST", &Self::HandleChat, false, "answers in a conversation", "messages"}},
      {"/v1/embeddings", {"POST", &Self::HandleEmbeddings, false, "vectors of texts", "input"}},
      {"/v1/score", {"POST", &Self::HandleScores, false, "how near texts are to each other"}},
      {"/score", {"POST", &Self::HandleScores, false, "how near texts are to each other"}},
      {"/v1/rerank",
       {"POST", &Self::HandleRanking, false, "documents, those nearest to a query first",
        "query documents"}},
      {"/v2/rerank",
       {"POST", &Self::HandleRanking, false, "documents, those nearest to a query first",
        "query documents"}},
      {"/rerank",
       {"POST", &Self::HandleRanking, false, "documents, those nearest to a query first",
        "query documents"}},
      {"/v1/responses", {"POST", &Self::HandleResponses, false, "OpenAI's Responses API", "input"}},
      {"/v1/messages",
       {"POST", &Self::HandleMessages, false, "Anthropic's Messages API",
        "model max_tokens messages"}},
      {"/v1/messages/count_tokens",
       {"POST", &Self::HandleCountTokens, false, "the tokens of such a request", "model messages"}},
      {"/v1/models", {"GET", &Self::HandleModels, false, "what is served"}},
      {kModelPath, {"GET", &Self::HandleModel, false, "one model, by its name"}},
      {"/api/chat", {"POST", &Self::HandleOllamaChat, false, "Ollama's chats", "model"}},
      {"/api/generate", {"POST", &Self::HandleOllamaGenerate, false, "Ollama's texts", "model"}},
      {"/api/embed", {"POST", &Self::HandleOllamaEmbed, false, "Ollama's vectors", "model"}},
      {"/api/embeddings",
       {"POST", &Self::HandleOllamaEmbeddings, false, "Ollama's older vectors", "model"}},
      {"/api/tags", {"GET", &Self::HandleOllamaTags, false, "what is served, for Ollama"}},
      {"/api/ps", {"GET", &Self::HandleOllamaProcesses, false, "what is loaded, for Ollama"}},
      {"/api/show", {"POST", &Self::HandleOllamaShow, false, "a model, for Ollama", "model"}},
      {"/api/version", {"GET", &Self::HandleVersion, true, "the version, for Ollama"}},
      {"/completion",
       {"POST", &Self::HandleLlamaCompletion, false, "llama.cpp's completions", "prompt"}},
      {"/infill",
       {"POST", &Self::HandleLlamaInfill, false, "text between two others, for llama.cpp"}},
      {"/props", {"GET", &Self::HandleProps, false, "the model and its defaults, for llama.cpp"}},
      {"/slots", {"GET", &Self::HandleSlots, false, "how busy the server is, for llama.cpp"}},
      {"/health", {"GET", &Self::HandleHealth, true, "200 while requests are answered, else 503"}},
      {"/ping", {"GET", &Self::HandlePing, true, "200 while the process runs"}},
      {"/version", {"GET", &Self::HandleVersion, true, "the version of lamina"}},
      {"/metrics", {"GET", &Self::HandleMetrics, true, "figures for Prometheus"}},
      {"/tokenize",
       {"POST", &Self::HandleTokenize, false, "the tokens of a text or a conversation"}},
      {"/detokenize", {"POST", &Self::HandleDetokenize, false, "the text of tokens", "tokens"}},
      {"/cluster/status",
       {"GET", &Self::HandleClusterStatus, false, "the nodes and what they hold"}},
      {"/openapi.json", {"GET", &Self::HandleOpenApi, true, "this list, for programs"}},
      {"/docs", {"GET", &Self::HandleDocs, true, "this list, for people"}},
      {"/", {"GET", &Self::HandleChatPage, true, "a page to chat"}},
  };
  return routes;
}

ApiService::RouteMap::const_iterator ApiService::FindRoute(std::string_view path) {
  const bool names_model = path.starts_with(kModelPath) && path.size() > kModelPath.size();
  return Routes().find(names_model ? kModelPath : path);
}

// A token by its scheme, in any case (RFC 9110, section 11.1), or the header of Anthropic's
// clients.
bool ApiService::Authorized(const InboundRequest& request) const {
  if (options_.api_key.empty() || SameKey(request.api_key, options_.api_key)) return true;
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view given = request.authorization;
  const bool is_bearer =
      given.size() >= kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), given.begin(), [](char a, char b) {
        return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
      });
  return is_bearer && SameKey(given.substr(kScheme.size()), options_.api_key);
}

std::optional<OutboundResponse> ApiService::Screen(const InboundRequest& request) const {
  const auto route = FindRoute(request.path);
  if (route == Routes().end())
    return ErrorResponse(
        {404, "there is nothing at this path; /docs and /openapi.json say what there is", ""});
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  if (method != route->second.method) {
    OutboundResponse response = ErrorResponse(
        {405, std::string(route->first) + " takes " + route->second.method + " requests", ""});
    response.headers.emplace_back("Allow", route->second.method);
    return response;
  }
  if (route->second.open || Authorized(request)) return std::nullopt;
  return ErrorResponse({401, "a valid API key is needed: Authorization: Bearer KEY", ""});
}

bool ApiService::IsOpen(std::string_view path) {
  const auto route = FindRoute(path);
  return route != Routes().end() && route->second.open;
}

void ApiService::Handle(const std::shared_ptr<Exchange>& exchange) {
  (this->*FindRoute(exchange->request().path)->second.handler)(exchange);
}

Status ApiService::CheckAccepting() const {
  if (draining_) return TryAgain("the server is shutting down");
  if (engine_ == nullptr) return TryAgain("the model is still loading");
  const EngineStatus status = engine_->status();
  if (status.given_up) return TryAgain(status.detail);
  if (status.scheduler.num_waiting + status.scheduler.num_parked > options_.max_queued_requests)
    return TryAgain();
  return OkStatus();
}

int64_t ApiService::max_model_len() const {
  return engine_ != nullptr ? engine_->max_model_len() : model_.config.max_positions;
}

// More than so many bodies would wait longer than their clients.
Status ApiService::CheckReaders() const {
  return reading_.size() > static_cast<size_t>(options_.max_queued_requests) ? TryAgain()
                                                                             : OkStatus();
}

void ApiService::HandleCompletion(const std::shared_ptr<Exchange>& exchange) {
  if (Status status = CheckAccepting(); !status.ok()) return Answer(exchange, status);
  Read(exchange, &RequestReader::Completion, readers_);
}

void ApiService::HandleChat(const std::shared_ptr<Exchange>& exchange) {
  if (Status status = CheckAccepting(); !status.ok()) return Answer(exchange, status);
  Read(exchange, &RequestReader::Chat, chat_readers_);
}

void ApiService::Generate(const std::shared_ptr<Exchange>& exchange, Translate translate) {
  if (Status status = CheckAccepting(); !status.ok()) return Answer(exchange, status);
  const auto read = [this, translate](const RequestReader& reader, const std::string& body,
                                      int64_t max_model_len) {
    return ReadForeign(translate, reader, model_, body, max_model_len);
  };
  Read(exchange, read, chat_readers_);
}

void ApiService::Embed(const std::shared_ptr<Exchange>& exchange, VectorForm::Kind kind) {
  if (Status status = CheckAccepting(); !status.ok()) return Answer(exchange, status);
  const auto read = [kind](const RequestReader& reader, const std::string& body,
                           int64_t max_model_len) {
    return reader.Vectors(kind, body, max_model_len);
  };
  Read(exchange, read, readers_);
}

void ApiService::HandleEmbeddings(const std::shared_ptr<Exchange>& exchange) {
  Embed(exchange, VectorForm::Kind::kEmbeddings);
}

void ApiService::HandleScores(const std::shared_ptr<Exchange>& exchange) {
  Embed(exchange, VectorForm::Kind::kScores);
}

void ApiService::HandleRanking(const std::shared_ptr<Exchange>& exchange) {
  Embed(exchange, VectorForm::Kind::kRanking);
}

void ApiService::HandleTokenize(const std::shared_ptr<Exchange>& exchange) {
  Read(exchange, &RequestReader::Tokenize, chat_readers_);
}

void ApiService::HandleDetokenize(const std::shared_ptr<Exchange>& exchange) {
  Read(exchange, &RequestReader::Detokenize, readers_);
}

void ApiService::Read(const std::shared_ptr<Exchange>& exchange, ReadBody read,
                      WorkerPool& readers) {
  if (Status status = CheckReaders(); !status.ok()) return Answer(exchange, status);
  const uint64_t id = next_id_++;
  const auto wanted = std::make_shared<std::atomic<bool>>(true);
  reading_.emplace(id, Reading{exchange, wanted});
  exchange->NotifyGone([this, id, wanted] {
    *wanted = false;
    reading_.erase(id);
    CheckIdle();
  });
  WorkerPool& pool = exchange->request().body.size() > kLargeBodyBytes ? large_reader_ : readers;
  pool.Post([this, id, exchange, wanted, read, max_model_len = max_model_len()] {
    if (!*wanted) return;
    BodyRead done{id, {}};
    try {
      done.request = read(reader_, exchange->request().body, max_model_len);
    } catch (const std::exception& exception) {
      // Out of memory, for example: this request fails, not the server.
      LAMINA_LOG_ERROR("a request to {} failed: {}", exchange->request().path, exception.what());
      done.request.outcome = ErrorResponse({500, "the server could not work on this request", ""});
    }
    events_->Push(std::move(done));
  });
}

void ApiService::OnBodyRead(BodyRead event) {
  const auto found = reading_.find(event.id);
  if (found == reading_.end()) return;  // its client left, or it was failed
  const std::shared_ptr<Exchange> exchange = std::move(found->second.exchange);
  reading_.erase(found);
  (void)exchange->TakeBody();  // it is parsed
  WarnUnknown(event.request.unknown_fields);
  if (auto* response = std::get_if<OutboundResponse>(&event.request.outcome)) {
    if (options_.log_requests && response->status != 200)
      LAMINA_LOG_INFO("request {}: {} was refused with status {}", exchange->request().request_id,
                      exchange->request().path, response->status);
    AnswerRead(exchange, std::move(*response));
  } else if (engine_ == nullptr) {
    Answer(exchange, TryAgain("the model is not loaded any more"));
  } else {
    Begin(std::move(std::get<GenerationSpec>(event.request.outcome)), exchange);
  }
  CheckIdle();
}

void ApiService::Begin(GenerationSpec spec, const std::shared_ptr<Exchange>& exchange) {
  if (Status status = CheckAnswerSize(spec, max_model_len(), options_.max_answer_values);
      !status.ok())
    return Answer(exchange, status);
  if (!spec.options.has_seed) spec.options.sampling.seed = RandomSeed();
  if (spec.options.request_id.empty()) spec.options.request_id = exchange->request().request_id;
  const uint64_t id = next_id_++;
  auto generation =
      Generation::Create(std::move(spec), {*model_.tokenizer, *engine_, answer_memory_}, exchange);
  const Status status = generation->Start([events = events_, id](int part) -> Engine::Sink {
    return [events, id, part](const TokenEvent& event) {
      events->Push(EngineEvent{id, part, event});
    };
  });
  if (!status.ok()) {
    // Its nodes were lost while its body was read.
    if (status.code() == StatusCode::kPeerLost) NoteFailure();
    return Answer(exchange, status);
  }
  generations_.emplace(id, std::move(generation));
  exchange->NotifyGone([this, id] {
    const auto found = generations_.find(id);
    if (found == generations_.end()) return;
    found->second->Abort();
    End(id, "its client left");
  });
}

void ApiService::End(uint64_t id, const char* outcome) {
  const Generation& generation = *generations_.at(id);
  if (generation.failed()) NoteFailure();
  if (options_.log_requests) {
    const Usage& usage = generation.usage();
    LAMINA_LOG_INFO(
        "request {}: {} prompt tokens, {} of them cached, {} output tokens, {:.3f} s, {}",
        generation.request_id(), usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens,
        SecondsSince(generation.begun()), generation.failed() ? "failed" : outcome);
  }
  generations_.erase(id);
  CheckIdle();
}

void ApiService::NoteFailure() {
  failures_.push_back(Clock::now());
  if (!draining_) ForgetOldFailures();
}

void ApiService::ForgetOldFailures() {
  const TimePoint first = Clock::now() - options_.drain_lookback;
  while (!failures_.empty() && failures_.front() <= first) failures_.pop_front();
}

void ApiService::CheckIdle() {
  if (generations_.empty() && reading_.empty() && on_idle_) std::exchange(on_idle_, nullptr)();
}

void ApiService::DeliverEvents() {
  for (int i = 0; i < kMaxEventsPerTurn; ++i) {
    auto item = events_->TryPop();
    if (!item) return;
    if (auto* body = std::get_if<BodyRead>(&*item)) {
      OnBodyRead(std::move(*body));
    } else {
      OnEngineEvent(std::get<EngineEvent>(*item));
    }
  }
}

void ApiService::OnEngineEvent(const EngineEvent& event) {
  const auto found = generations_.find(event.generation);
  // It ended before: its client left, or a stop string was found.
  if (found == generations_.end()) return;
  if (!found->second->OnEvent(event.part, event.event)) return;
  End(event.generation);
}

void ApiService::SetEngine(Engine* engine) {
  if (engine == engine_) return;
  if (engine_ != nullptr) FailAll(PeerLost("the engine has stopped"));
  engine_ = engine;
}

void ApiService::Drain(std::function<void()> on_idle) {
  ForgetOldFailures();
  draining_ = true;
  on_idle_ = std::move(on_idle);
  CheckIdle();
}

void ApiService::FailAll(const Status& status) {
  for (const auto& [id, reading] : std::exchange(reading_, {})) {
    *reading.wanted = false;
    NoteFailure();
    Answer(reading.exchange, status);
  }
  while (!generations_.empty()) {
    const uint64_t id = generations_.begin()->first;
    generations_.begin()->second->Fail(status);
    End(id);
  }
}

void ApiService::WarnUnknown(const std::vector<std::string>& fields) {
  for (const std::string& field : fields) {
    if (warned_fields_.size() >= kMaxWarnedFields ||
        !warned_fields_.insert(field.substr(0, 64)).second)
      continue;
    LAMINA_LOG_WARN("requests have a field that is not known here and has no effect: {}",
                    json(field.substr(0, 64)).dump(-1, ' ', true, json::error_handler_t::replace));
  }
}

ordered_json ApiService::ModelEntry() const {
  return {{"id", model_.name},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "lamina"},
          {"root", model_.root.empty() ? model_.name : model_.root},
          {"parent", nullptr},
          {"max_model_len", max_model_len()},
          {"permission", ordered_json::array()}};
}

void ApiService::HandleModels(const std::shared_ptr<Exchange>& exchange) {
  Answer(exchange, ordered_json{{"object", "list"}, {"data", ordered_json::array({ModelEntry()})}});
}

void ApiService::HandleModel(const std::shared_ptr<Exchange>& exchange) {
  const std::string name =
      Unescaped(std::string_view(exchange->request().path).substr(kModelPath.size()));
  if (name == model_.name) return Answer(exchange, ModelEntry());
  exchange->Respond(ErrorResponse(
      {404, "the model '" + name + "' is not served here; '" + model_.name + "' is", "model"}));
}

void ApiService::HandleHealth(const std::shared_ptr<Exchange>& exchange) {
  const EngineStatus status = engine_ != nullptr ? engine_->status() : EngineStatus();
  const bool healthy = !draining_ && status.serving && !status.stands_still;
  exchange->Respond({healthy ? 200 : 503, "text/plain", "", {}});
}

void ApiService::HandlePing(const std::shared_ptr<Exchange>& exchange) {
  exchange->Respond({200, "text/plain", "", {}});
}

void ApiService::HandleVersion(const std::shared_ptr<Exchange>& exchange) {
  Answer(exchange, ordered_json{{"version", kVersion}});
}

void ApiService::HandleMetrics(const std::shared_ptr<Exchange>& exchange) {
  const EngineStatus status = engine_ != nullptr ? engine_->status() : EngineStatus();
  exchange->Respond(
      {200, "text/plain; version=0.0.4; charset=utf-8", metrics_.Serialize(status), {}});
}

void ApiService::HandleClusterStatus(const std::shared_ptr<Exchange>& exchange) {
  EngineStatus status;
  status.detail = "the model is still loading";
  if (engine_ != nullptr) status = engine_->status();
  if (draining_) {
    status.serving = false;
    status.detail = "the server is shutting down";
  }
  ordered_json document = ClusterStatusJson(status);
  if (draining_ || engine_ == nullptr) document["state"] = draining_ ? "shutting down" : "loading";
  Answer(exchange, document);
}

}  // namespace lamina
