#include "manager/engine_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/printable.h"
#include "base/token_mask.h"
#include "wire/codec.h"

namespace lamina {
namespace {

constexpr int kMaxFramesPerTurn = 256;
constexpr int kMaxEventsPerTurn = 4096;
// More than api/requests.h lets clients ask for, and little to keep.
constexpr size_t kMaxListedTokens = size_t{1} << 20;
constexpr int32_t kMaxLogprobs = 1024;
// A step says as much of each of its rows.
constexpr int32_t kMaxPromptLogprobs = 64;
// Most log-probabilities and values of embeddings in one message, but for those of one event: a few
// MiB.
constexpr size_t kMaxScoresPerMessage = size_t{1} << 18;

}  // namespace

EngineService::EngineService(const EngineServiceOptions& options, Engine& engine, ControlPort& port)
    : options_(options), engine_(engine), port_(port) {}

EngineService::~EngineService() {
  for (const auto& [connection, front] : fronts_) {
    for (const auto& [id, request] : front.requests) engine_.Abort(request.engine_id);
  }
}

size_t EngineService::num_requests() const {
  size_t count = 0;
  for (const auto& [connection, front] : fronts_) count += front.requests.size();
  return count;
}

bool EngineService::Turn(TimePoint now) {
  bool did = false;
  for (int i = 0; i < kMaxFramesPerTurn; ++i) {
    const std::optional<ControlEvent> event = port_.TryPop();
    if (!event) break;
    Handle(*event);
    did = true;
  }
  did |= SendEvents();
  if (fronts_.empty()) {
    next_status_ = TimePoint::max();
  } else if (next_status_ == TimePoint::max() || now >= next_status_) {
    SendStatus(now);
  }
  return did;
}

void EngineService::Handle(const ControlEvent& event) {
  switch (event.kind) {
    case ControlEvent::Kind::kConnected: return;
    case ControlEvent::Kind::kLost:
      if (fronts_.contains(event.connection)) return Lose(event.connection, event.status.message());
      return port_.Close(event.connection);
    case ControlEvent::Kind::kFrame: break;
  }
  if (const Status taken = TakeFrame(event.connection, event.frame); !taken.ok())
    Lose(event.connection, taken.message());
}

// An error: the connection is of no use any more.
Status EngineService::TakeFrame(Connection connection, const ControlFrame& frame) {
  const auto is = [&](MessageType type) { return frame.type == FrameType(type); };
  if (is(MessageType::kOpenFront)) {
    LAMINA_ASSIGN_OR_RETURN(const OpenFront request, Decode<OpenFront>(frame.payload));
    return Open(connection, request);
  }
  const auto found = fronts_.find(connection);
  if (found == fronts_.end())
    return InvalidArgument(
        fmt::format("a message of type {} from somebody who is no front", frame.type));
  Front& front = found->second;
  if (is(MessageType::kSubmitRequest)) {
    LAMINA_ASSIGN_OR_RETURN(SubmitRequest request, Decode<SubmitRequest>(frame.payload));
    return Submit(connection, front, std::move(request));
  }
  if (is(MessageType::kAbortRequest)) {
    LAMINA_ASSIGN_OR_RETURN(const AbortRequest request, Decode<AbortRequest>(frame.payload));
    const auto of = front.requests.find(request.id);
    if (of == front.requests.end()) return OkStatus();  // it is over, which the front hears soon
    engine_.Abort(of->second.engine_id);
    front.requests.erase(of);
    return OkStatus();
  }
  if (is(MessageType::kStopContinuation)) {
    LAMINA_ASSIGN_OR_RETURN(const StopContinuation request,
                            Decode<StopContinuation>(frame.payload));
    if (const auto of = front.requests.find(request.id); of != front.requests.end())
      engine_.Stop(of->second.engine_id, request.index);
    return OkStatus();
  }
  return InvalidArgument(fmt::format("a message of type {}, which fronts do not send", frame.type));
}

Status EngineService::Open(Connection connection, const OpenFront& request) {
  FrontOpened answer;
  if (request.model != options_.model || request.vocab_size != options_.vocab_size) {
    answer.status = InvalidArgument(fmt::format(
        "the manager serves '{}' with a vocabulary of {} tokens, and the front '{}' "
        "with one of {}",
        options_.model, options_.vocab_size, Printable(request.model), request.vocab_size));
  } else if (!fronts_.contains(connection) && fronts_.size() >= options_.max_fronts) {
    answer.status =
        TryAgain(fmt::format("the manager has {} fronts, and takes no more", fronts_.size()));
  } else {
    answer.max_model_len = engine_.max_model_len();
    const std::span<const TokenId> ends = engine_.eos_tokens();
    answer.eos_tokens.assign(ends.begin(), ends.end());
    answer.manager_id = options_.manager_id;
    LAMINA_LOG_INFO("{} is served", port_.PeerName(connection));
    port_.ServeToo(connection);
    fronts_.try_emplace(connection);
    next_status_ = TimePoint::max();  // the next turn tells it how the engine is
  }
  Send(connection, MessageType::kFrontOpened, answer);
  return OkStatus();
}

Status EngineService::Submit(Connection connection, Front& front, SubmitRequest request) {
  if (front.requests.contains(request.id))
    return InvalidArgument(fmt::format("request {} is asked for twice", request.id));
  RequestSubmitted answer{request.id, Check(request.request)};
  if (answer.status.ok()) {
    GenerateRequest& spec = request.request;
    // Groups of one front are none of another's.
    if (spec.prefix_group != 0) spec.prefix_group ^= connection << 48;
    Request entry;
    entry.num_open = spec.told.empty()
                         ? spec.n
                         : static_cast<int>(std::ranges::count(spec.told, false, &Told::over));
    Result<RequestId> id = engine_.Submit(
        std::move(spec), [told = told_, connection, id = request.id](const TokenEvent& event) {
          told->Push({connection, id, event});
        });
    answer.status = id.status();
    if (id.ok()) {
      entry.engine_id = *id;
      front.requests.emplace(request.id, entry);
    }
  }
  Send(connection, MessageType::kRequestSubmitted, answer);
  return OkStatus();
}

// What the engine takes for granted: it comes from another process.
Status EngineService::Check(const GenerateRequest& request) const {
  const SamplingParams& sampling = request.sampling;
  const auto bad = [](const std::string& what, auto value) {
    return InvalidArgument(fmt::format("{} is {}", what, value));
  };
  const auto within = [](float value, float least, float most) {
    return value >= least && value <= most;  // not of NaN
  };
  if (!within(sampling.temperature, 0, 1e6f)) return bad("temperature", sampling.temperature);
  if (!(sampling.top_p > 0) || sampling.top_p > 1) return bad("top_p", sampling.top_p);
  if (sampling.top_k < 0) return bad("top_k", sampling.top_k);
  if (!within(sampling.min_p, 0, 1)) return bad("min_p", sampling.min_p);
  if (!(sampling.repetition_penalty > 0) || !std::isfinite(sampling.repetition_penalty))
    return bad("repetition_penalty", sampling.repetition_penalty);
  if (!std::isfinite(sampling.frequency_penalty))
    return bad("frequency_penalty", sampling.frequency_penalty);
  if (!std::isfinite(sampling.presence_penalty))
    return bad("presence_penalty", sampling.presence_penalty);
  if (sampling.num_logprobs < -1 || sampling.num_logprobs > kMaxLogprobs)
    return bad("num_logprobs", sampling.num_logprobs);
  if (sampling.num_prompt_logprobs < -1 || sampling.num_prompt_logprobs > kMaxPromptLogprobs)
    return bad("num_prompt_logprobs", sampling.num_prompt_logprobs);
  if (sampling.min_tokens < 0) return bad("min_tokens", sampling.min_tokens);
  if (!sampling.banned.empty()) return bad("the number of banned tokens", sampling.banned.size());
  if (sampling.logit_bias.size() > kMaxListedTokens)
    return bad("the number of biases", sampling.logit_bias.size());
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token < 0 || token >= options_.vocab_size) return bad("a token with a bias", token);
    if (!std::isfinite(bias)) return bad("a bias", bias);
  }
  LAMINA_RETURN_IF_ERROR(CheckConstraints(sampling));
  if (request.stop_tokens.size() > kMaxListedTokens)
    return bad("the number of stop tokens", request.stop_tokens.size());
  for (const TokenId token : request.stop_tokens) {
    if (token < 0 || token >= options_.vocab_size) return bad("a stop token", token);
  }
  if (request.prompt_index >> 32 != 0) return bad("prompt_index", request.prompt_index);
  return OkStatus();
}

Status EngineService::CheckConstraints(const SamplingParams& sampling) const {
  // Nodes check what the bytes are.
  if (sampling.grammar.size() > kMaxGrammarBytes)
    return InvalidArgument(fmt::format("a grammar of {} bytes", sampling.grammar.size()));
  if (!sampling.allowed_tokens.empty() &&
      sampling.allowed_tokens.size() != TokenMaskBytes(options_.vocab_size))
    return InvalidArgument("allowed tokens of another vocabulary");
  size_t num_tokens = 0;
  for (const TokenList& word : sampling.bad_words) {
    num_tokens += word.tokens.size();
    const bool in_vocabulary = std::ranges::all_of(
        word.tokens, [&](TokenId token) { return token >= 0 && token < options_.vocab_size; });
    if (word.tokens.empty() || !in_vocabulary)
      return InvalidArgument("a bad word without tokens or with one outside the vocabulary");
  }
  if (sampling.bad_words.size() > kMaxBadWords || num_tokens > kMaxBadWordTokens)
    return InvalidArgument(
        fmt::format("{} bad words of {} tokens", sampling.bad_words.size(), num_tokens));
  return OkStatus();
}

void EngineService::Lose(Connection connection, const std::string& why) {
  const std::string name = port_.PeerName(connection);
  port_.Close(connection);
  const auto found = fronts_.find(connection);
  if (found == fronts_.end()) {
    if (const auto more = stranger_lines_.Admit())
      LAMINA_LOG_WARN("{} is not served: {}{}", name, why, *more);
    return;
  }
  if (const auto more = lost_lines_.Admit())
    LAMINA_LOG_WARN("a front is lost, with its {} requests: {}: {}{}",
                    found->second.requests.size(), name, why, *more);
  for (const auto& [id, request] : found->second.requests) engine_.Abort(request.engine_id);
  fronts_.erase(found);
}

bool EngineService::SendEvents() {
  std::map<Connection, RequestEvents> by_front;
  bool did = false;
  size_t num_scores = 0;
  for (int i = 0; i < kMaxEventsPerTurn && num_scores < kMaxScoresPerMessage; ++i) {
    std::optional<ToldEvent> told = told_->TryPop();
    if (!told) break;
    did = true;
    const auto front = fronts_.find(told->front);
    if (front == fronts_.end()) continue;
    const auto of = front->second.requests.find(told->id);
    if (of == front->second.requests.end()) continue;  // the front does not want it any more
    if (told->event.finish && --of->second.num_open == 0) front->second.requests.erase(of);
    for (const TokenScore& score : told->event.scored) num_scores += 1 + score.top.size();
    num_scores += told->event.embedding.size();
    by_front[told->front].events.push_back({told->id, std::move(told->event)});
  }
  for (const auto& [connection, events] : by_front)
    Send(connection, MessageType::kRequestEvents, events);
  return did;
}

void EngineService::SendStatus(TimePoint now) {
  const EngineStatus status = engine_.status();
  std::vector<Connection> connections;  // a copy: Send may lose one
  for (const auto& [connection, front] : fronts_) connections.push_back(connection);
  for (const Connection connection : connections)
    Send(connection, MessageType::kEngineStatus, status);
  next_status_ = now + options_.status_interval;
}

template <typename Message>
bool EngineService::Send(Connection connection, MessageType type, const Message& message) {
  const Status sent = port_.Send(connection, FrameType(type), Encode(message));
  // That a front is gone comes as an event; one that reads nothing would keep all that it is sent.
  if (sent.code() == StatusCode::kOutOfSpace) Lose(connection, sent.message());
  return sent.ok();
}

}  // namespace lamina
