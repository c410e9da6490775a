#include "frontend/openai/api_service.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/log.h"
#include "frontend/openai/cluster_json.h"
#include "frontend/version.h"

namespace lamina {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxWarnedFields = 100;  // names come from clients: the log does not grow with them

// An engine that is faster than this thread must not keep it from its sockets. More than a full batch's tokens, about a millisecond of
// work.
constexpr int kMaxEventsPerTurn = 256;

void Answer(const std::shared_ptr<Exchange>& exchange, const ordered_json& body) {
  exchange->Respond({200, "application/json", DumpJson(body), {}});
}
void Answer(const std::shared_ptr<Exchange>& exchange, const ApiError& error) { exchange->Respond(ErrorResponse(error)); }
void Answer(const std::shared_ptr<Exchange>& exchange, const Status& status) { exchange->Respond(ErrorResponse(ApiError::From(status))); }

// Takes as long for a wrong key as for the right one.
bool SameKey(std::string_view given, std::string_view key) {
  unsigned difference = given.size() != key.size();
  for (size_t i = 0; i < given.size(); ++i) difference |= static_cast<unsigned>(given[i] ^ key[i % key.size()]);
  return difference == 0;
}

uint64_t RandomSeed() {
  static thread_local std::mt19937_64 random(std::random_device{}());
  return random() >> 1;  // fits a signed integer, which clients may want to send back
}

}  // namespace

ApiService::ApiService(ServiceOptions options, ServedModel model, Metrics& metrics)
    : options_(std::move(options)),
      model_(std::move(model)),
      metrics_(metrics),
      rules_{model_.config.vocab_size, model_.config.generation},
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count()),
      events_(std::make_shared<Inbox<EngineEvent>>()) {}

ApiService::~ApiService() = default;

const std::unordered_map<std::string_view, ApiService::Route>& ApiService::Routes() {
  static const std::unordered_map<std::string_view, Route> routes = {
      {"/v1/completions", {"POST", &ApiService::HandleCompletion, false}},
      {"/v1/chat/completions", {"POST", &ApiService::HandleChat, false}},
      {"/v1/models", {"GET", &ApiService::HandleModels, false}},
      {"/health", {"GET", &ApiService::HandleHealth, true}},
      {"/ping", {"GET", &ApiService::HandlePing, true}},
      {"/version", {"GET", &ApiService::HandleVersion, true}},
      {"/metrics", {"GET", &ApiService::HandleMetrics, true}},
      {"/tokenize", {"POST", &ApiService::HandleTokenize, false}},
      {"/detokenize", {"POST", &ApiService::HandleDetokenize, false}},
      {"/cluster/status", {"GET", &ApiService::HandleClusterStatus, false}},
  };
  return routes;
}

// The scheme in any case (RFC 9110, section 11.1).
bool ApiService::Authorized(const InboundRequest& request) const {
  if (options_.api_key.empty()) return true;
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view given = request.authorization;
  const bool is_bearer = given.size() >= kScheme.size() && std::equal(kScheme.begin(), kScheme.end(), given.begin(), [](char a, char b) {
                           return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
                         });
  return is_bearer && SameKey(given.substr(kScheme.size()), options_.api_key);
}

std::optional<OutboundResponse> ApiService::Screen(const InboundRequest& request) const {
  const auto route = Routes().find(request.path);
  if (route == Routes().end())
    return ErrorResponse({404, "there is nothing at this path; see /v1/models, /v1/completions and /v1/chat/completions", ""});
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  if (method != route->second.method) {
    OutboundResponse response = ErrorResponse({405, std::string(route->first) + " takes " + route->second.method + " requests", ""});
    response.headers.emplace_back("Allow", route->second.method);
    return response;
  }
  if (route->second.open || Authorized(request)) return std::nullopt;
  return ErrorResponse({401, "a valid API key is needed: Authorization: Bearer KEY", ""});
}

bool ApiService::IsOpen(std::string_view path) {
  const auto route = Routes().find(path);
  return route != Routes().end() && route->second.open;
}

void ApiService::Handle(const std::shared_ptr<Exchange>& exchange) {
  (this->*Routes().find(exchange->request().path)->second.handler)(exchange);
}

Status ApiService::CheckAccepting() const {
  if (draining_) return TryAgain("the server is shutting down");
  if (engine_ == nullptr) return TryAgain("the model is still loading");
  const EngineStatus status = engine_->status();
  if (!status.serving) return TryAgain(status.detail.empty() ? "the server cannot serve at the moment" : status.detail);
  if (status.scheduler.num_waiting > options_.max_queued_requests) return TryAgain();
  return OkStatus();
}

std::optional<ApiError> ApiService::CheckModel(const std::string& model) const {
  if (model.empty() || model == model_.name) return std::nullopt;
  return ApiError{404, "the model '" + model + "' is not served here; '" + model_.name + "' is", "model"};
}

int64_t ApiService::max_model_len() const { return engine_ != nullptr ? engine_->max_model_len() : model_.config.max_positions; }

// Text that cannot fit is refused before the work of tokenising it.
Result<std::vector<TokenId>> ApiService::Tokenize(const std::string& text, bool add_special_tokens) const {
  if (model_.tokenizer->MinTokens(text) > max_model_len()) {
    return InvalidArgument("the prompt has " + std::to_string(text.size()) + " bytes, which cannot fit into the model's context of " +
                           std::to_string(max_model_len()) + " tokens");
  }
  std::vector<TokenId> tokens = model_.tokenizer->Encode(text, add_special_tokens);
  for (const TokenId token : tokens) {  // tokens may have been added to a tokenizer and not to its model
    if (token < model_.config.vocab_size) continue;
    return InvalidArgument("the text has the token " + std::to_string(token) + ", \"" + model_.tokenizer->IdToPiece(token) +
                           "\", but the model's vocabulary has " + std::to_string(model_.config.vocab_size));
  }
  return tokens;
}

bool ApiService::StartsWithBos(const std::string& text) const {
  const std::optional<TokenId> bos = model_.tokenizer->bos();
  return bos && text.starts_with(model_.tokenizer->TokenBytes(*bos));
}

Result<std::string> ApiService::RenderChat(const ChatInput& input) const {
  if (model_.chat_template == nullptr) return InvalidArgument(model_.no_chat_reason + "; use /v1/completions");
  auto text = model_.chat_template->Render(input);
  if (!text.ok()) return InvalidArgument("chat template: " + text.status().message());
  return text;
}

void ApiService::HandleCompletion(const std::shared_ptr<Exchange>& exchange) {
  if (Status status = CheckAccepting(); !status.ok()) return Answer(exchange, status);
  json body;
  if (auto error = ParseBody(exchange->TakeBody(), body)) return Answer(exchange, *error);
  CompletionRequest request;
  std::vector<std::string> unknown;
  if (auto error = ParseCompletion(body, rules_, request, unknown)) return Answer(exchange, *error);
  if (auto error = CheckModel(request.options.model)) return Answer(exchange, *error);
  WarnUnknown(unknown);
  GenerationSpec spec;
  spec.model = model_.name;
  for (const Prompt& prompt : request.prompts) {
    GenerationSpec::Prompt& out = spec.prompts.emplace_back();
    if (const std::string* text = std::get_if<std::string>(&prompt)) {
      auto tokens = Tokenize(*text, request.add_special_tokens);
      if (!tokens.ok()) return Answer(exchange, ApiError{400, tokens.status().message(), "prompt"});
      out.tokens = *std::move(tokens);
      if (request.echo) out.echo = *text;
    } else {
      out.tokens = std::get<std::vector<TokenId>>(prompt);
      if (request.echo) out.echo = model_.tokenizer->Decode(out.tokens, request.options.skip_special_tokens);
    }
  }
  spec.options = std::move(request.options);
  Begin(std::move(spec), exchange);
}

void ApiService::HandleChat(const std::shared_ptr<Exchange>& exchange) {
  if (Status status = CheckAccepting(); !status.ok()) return Answer(exchange, status);
  json body;
  if (auto error = ParseBody(exchange->TakeBody(), body)) return Answer(exchange, *error);
  ChatRequest request;
  std::vector<std::string> unknown;
  if (auto error = ParseChat(body, rules_, request, unknown)) return Answer(exchange, *error);
  if (auto error = CheckModel(request.options.model)) return Answer(exchange, *error);
  WarnUnknown(unknown);
  const Result<std::string> text = RenderChat(request.input);
  if (!text.ok()) return Answer(exchange, ApiError{400, text.status().message(), "messages"});
  auto tokens = Tokenize(text.value(), request.add_special_tokens.value_or(!StartsWithBos(text.value())));
  if (!tokens.ok()) return Answer(exchange, ApiError{400, tokens.status().message(), "messages"});
  GenerationSpec spec;
  spec.kind = ApiKind::kChat;
  spec.model = model_.name;
  spec.prompts.push_back({*std::move(tokens), ""});
  spec.default_max_tokens = INT64_MAX;  // whatever fits
  spec.options = std::move(request.options);
  Begin(std::move(spec), exchange);
}

void ApiService::Begin(GenerationSpec spec, const std::shared_ptr<Exchange>& exchange) {
  if (!spec.options.has_seed) spec.options.sampling.set_seed(RandomSeed());
  const uint64_t id = next_generation_++;
  auto generation = Generation::Create(std::move(spec), *model_.tokenizer, *engine_, exchange);
  const Status status = generation->Start([events = events_, id](int part) -> Engine::Sink {
    return [events, id, part](const TokenEvent& event) { events->Push({id, part, event}); };
  });
  if (!status.ok()) return Answer(exchange, status);
  generations_.emplace(id, std::move(generation));
  exchange->NotifyGone([this, id] {
    const auto found = generations_.find(id);
    if (found == generations_.end()) return;
    found->second->Abort();
    End(id);
  });
}

void ApiService::End(uint64_t generation) {
  generations_.erase(generation);
  if (generations_.empty() && on_idle_) std::exchange(on_idle_, nullptr)();
}

void ApiService::DeliverEvents() {
  for (int i = 0; i < kMaxEventsPerTurn; ++i) {
    const auto item = events_->TryPop();
    if (!item) return;
    const auto found = generations_.find(item->generation);
    if (found == generations_.end()) continue;  // it ended before: its client left, or a stop string was found
    if (!found->second->OnEvent(item->part, item->event)) continue;
    num_failed_draining_ += draining_ && item->event.finish == FinishReason::kError;
    End(item->generation);
  }
}

void ApiService::SetEngine(Engine* engine) {
  if (engine == engine_) return;
  if (engine_ != nullptr) FailAll(PeerLost("the engine has stopped"));
  engine_ = engine;
}

void ApiService::Drain(std::function<void()> on_idle) {
  draining_ = true;
  if (generations_.empty()) return on_idle();
  on_idle_ = std::move(on_idle);
}

void ApiService::FailAll(const Status& status) {
  while (!generations_.empty()) {
    const uint64_t id = generations_.begin()->first;
    generations_.begin()->second->Fail(status);
    num_failed_draining_ += draining_;
    End(id);
  }
}

void ApiService::WarnUnknown(const std::vector<std::string>& fields) {
  for (const std::string& field : fields) {
    if (warned_fields_.size() >= kMaxWarnedFields || !warned_fields_.insert(field.substr(0, 64)).second) continue;
    LAMINA_LOG_WARN("requests have a field that is not known here and has no effect: {}",
                    json(field.substr(0, 64)).dump(-1, ' ', true, json::error_handler_t::replace));
  }
}

void ApiService::HandleModels(const std::shared_ptr<Exchange>& exchange) {
  const ordered_json entry = {{"id", model_.name},
                              {"object", "model"},
                              {"created", created_},
                              {"owned_by", "lamina"},
                              {"root", model_.root.empty() ? model_.name : model_.root},
                              {"parent", nullptr},
                              {"max_model_len", max_model_len()},
                              {"permission", ordered_json::array()}};
  Answer(exchange, ordered_json{{"object", "list"}, {"data", ordered_json::array({entry})}});
}

void ApiService::HandleHealth(const std::shared_ptr<Exchange>& exchange) {
  const bool serving = !draining_ && engine_ != nullptr && engine_->status().serving;
  exchange->Respond({serving ? 200 : 503, "text/plain", "", {}});
}

void ApiService::HandlePing(const std::shared_ptr<Exchange>& exchange) { exchange->Respond({200, "text/plain", "", {}}); }

void ApiService::HandleVersion(const std::shared_ptr<Exchange>& exchange) { Answer(exchange, ordered_json{{"version", kVersion}}); }

void ApiService::HandleMetrics(const std::shared_ptr<Exchange>& exchange) {
  const EngineStatus status = engine_ != nullptr ? engine_->status() : EngineStatus();
  exchange->Respond({200, "text/plain; version=0.0.4; charset=utf-8", metrics_.Serialize(status), {}});
}

void ApiService::HandleClusterStatus(const std::shared_ptr<Exchange>& exchange) {
  EngineStatus status;
  status.detail = "the model is still loading";
  if (engine_ != nullptr) status = engine_->status();
  if (draining_) {
    status.serving = false;
    status.detail = "the server is shutting down";
  }
  Answer(exchange, ClusterStatusJson(status));
}

void ApiService::HandleTokenize(const std::shared_ptr<Exchange>& exchange) {
  json body;
  if (auto error = ParseBody(exchange->TakeBody(), body)) return Answer(exchange, *error);
  TokenizeRequest request;
  if (auto error = ParseTokenize(body, request)) return Answer(exchange, *error);
  if (auto error = CheckModel(request.model)) return Answer(exchange, *error);
  std::string text;
  bool add_special_tokens = request.add_special_tokens.value_or(true);
  if (const ChatInput* chat = std::get_if<ChatInput>(&request.input)) {
    const Result<std::string> rendered = RenderChat(*chat);
    if (!rendered.ok()) return Answer(exchange, ApiError{400, rendered.status().message(), "messages"});
    text = rendered.value();
    add_special_tokens = request.add_special_tokens.value_or(!StartsWithBos(text));
  } else {
    text = std::get<std::string>(request.input);
  }
  const std::vector<TokenId> tokens = model_.tokenizer->Encode(text, add_special_tokens);
  Answer(exchange, ordered_json{{"count", tokens.size()}, {"max_model_len", max_model_len()}, {"tokens", tokens}});
}

void ApiService::HandleDetokenize(const std::shared_ptr<Exchange>& exchange) {
  json body;
  if (auto error = ParseBody(exchange->TakeBody(), body)) return Answer(exchange, *error);
  DetokenizeRequest request;
  if (auto error = ParseDetokenize(body, rules_, request)) return Answer(exchange, *error);
  if (auto error = CheckModel(request.model)) return Answer(exchange, *error);
  Answer(exchange, ordered_json{{"prompt", model_.tokenizer->Decode(request.tokens, /*skip_special=*/false)}});
}

}  // namespace lamina
