#include "manager/remote_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "wire/codec.h"

namespace lamina {
namespace {

// A manager that has no room for a request gets it again after so long.
constexpr auto kAgainAfter = std::chrono::milliseconds(200);

double InSeconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

RemoteRequests::RemoteRequests(const RemoteRequestsOptions& options, TimePoint now)
    : options_(options), lost_since_(now), lost_(PeerLost("no manager was reached yet")) {}

Result<RequestId> RemoteRequests::Submit(GenerateRequest request, Engine::Sink sink,
                                         TimePoint now) {
  if (given_up_) return lost_;
  if (request.prompt.empty()) return InvalidArgument("the prompt is empty");
  if (request.n < 1) return InvalidArgument(fmt::format("n is {}, not at least 1", request.n));
  if (request.max_new_tokens < 1)
    return InvalidArgument(
        fmt::format("max_tokens must be at least 1, not {}", request.max_new_tokens));
  if (facts_ && request.max_new_tokens > facts_->max_model_len - std::ssize(request.prompt))
    return InvalidArgument(fmt::format(
        "{} prompt tokens and {} new ones are more than the model's length of {} tokens",
        request.prompt.size(), request.max_new_tokens, facts_->max_model_len));
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= options_.vocab_size)
      return InvalidArgument(
          fmt::format("token id {} is outside the vocabulary of {}", token, options_.vocab_size));
  }
  const uint64_t id = ++last_id_;
  Request& entry = requests_[id];
  entry.spec = std::move(request);
  entry.sink = std::move(sink);
  entry.submitted = now;
  entry.continuations.resize(static_cast<size_t>(entry.spec.n));
  entry.num_open = entry.spec.n;
  if (open_) {
    Send(id, entry);
  } else {
    entry.accepted = true;
    entry.waits_since = now;
  }
  return RequestId{id};
}

void RemoteRequests::Abort(RequestId request, TimePoint now) {
  const auto found = requests_.find(request.value);
  if (found == requests_.end()) return;
  if (found->second.sent) Queue(MessageType::kAbortRequest, AbortRequest{request.value});
  EndAll(found, FinishReason::kAbort, OkStatus(), now);
}

void RemoteRequests::Stop(RequestId request, int index, TimePoint now) {
  const auto found = requests_.find(request.value);
  if (found == requests_.end() || index < 0 || index >= found->second.spec.n) return;
  if (found->second.continuations[static_cast<size_t>(index)].told.over) return;
  if (found->second.sent)
    Queue(MessageType::kStopContinuation, StopContinuation{request.value, index});
  TokenEvent event;
  event.index = index;
  event.finish = FinishReason::kStop;
  Tell(found, std::move(event), now);
}

void RemoteRequests::OnConnected() {
  Queue(MessageType::kOpenFront, OpenFront{options_.model, options_.vocab_size});
}

Status RemoteRequests::TakeFrame(const ControlFrame& frame, TimePoint now) {
  const auto is = [&](MessageType type) { return frame.type == FrameType(type); };
  if (is(MessageType::kFrontOpened)) {
    LAMINA_ASSIGN_OR_RETURN(FrontOpened opened, Decode<FrontOpened>(frame.payload));
    LAMINA_RETURN_IF_ERROR(TakeOpened(std::move(opened)));
    SendWaiting(now);
    return OkStatus();
  }
  if (is(MessageType::kEngineStatus)) {
    LAMINA_ASSIGN_OR_RETURN(status_, Decode<EngineStatus>(frame.payload));
    return OkStatus();
  }
  if (is(MessageType::kRequestSubmitted)) {
    LAMINA_ASSIGN_OR_RETURN(const RequestSubmitted answer, Decode<RequestSubmitted>(frame.payload));
    TakeSubmitted(answer, now);
    return OkStatus();
  }
  if (is(MessageType::kRequestEvents)) {
    LAMINA_ASSIGN_OR_RETURN(RequestEvents events, Decode<RequestEvents>(frame.payload));
    for (RequestEvent& event : events.events)
      LAMINA_RETURN_IF_ERROR(TakeEvent(std::move(event), now));
    return OkStatus();
  }
  return Corrupt(fmt::format("a message of type {}, which a manager does not send", frame.type));
}

// Requests go on with another engine only if it has the same model.
Status RemoteRequests::TakeOpened(FrontOpened opened) {
  LAMINA_RETURN_IF_ERROR(opened.status);
  if (facts_ &&
      (facts_->max_model_len != opened.max_model_len || facts_->eos_tokens != opened.eos_tokens)) {
    return InvalidArgument(
        fmt::format("the manager serves '{}' otherwise than the one before: with a length of {} "
                    "tokens instead of {}, or with other end-of-sequence tokens",
                    options_.model, opened.max_model_len, facts_->max_model_len));
  }
  manager_ = opened.manager_id;
  if (!facts_) facts_ = std::move(opened);
  open_ = true;
  given_up_ = false;
  return OkStatus();
}

void RemoteRequests::SendWaiting(TimePoint now) {
  if (!open_) return;
  for (auto& [id, request] : requests_) {
    if (!request.sent && (!request.again || now >= *request.again)) Send(id, request);
  }
}

void RemoteRequests::Send(uint64_t id, Request& request) {
  const auto is_told = [](const Continuation& continuation) {
    const Told& told = continuation.told;
    return told.over || !told.tokens.empty() || told.num_scored > 0;
  };
  SubmitRequest message{id, request.spec};
  if (std::ranges::any_of(request.continuations, is_told)) {
    for (const Continuation& continuation : request.continuations)
      message.request.told.push_back(continuation.told);
  }
  Queue(MessageType::kSubmitRequest, message);
  request.sent = true;
  request.again.reset();
}

void RemoteRequests::TakeSubmitted(const RequestSubmitted& answer, TimePoint now) {
  const auto found = requests_.find(answer.id);
  if (found == requests_.end()) return;  // its client did not want it any more
  Request& request = found->second;
  const bool for_now = answer.status.code() == StatusCode::kPeerLost ||
                       (answer.status.code() == StatusCode::kTryAgain && request.accepted);
  if (answer.status.ok()) {
    request.accepted = true;
    request.waits_since.reset();
  } else if (for_now) {
    request.accepted = true;
    request.sent = false;
    if (!request.waits_since) request.waits_since = now;
    request.again = now + kAgainAfter;
  } else {
    EndAll(found, FinishReason::kError, answer.status, now);
  }
}

Status RemoteRequests::TakeEvent(RequestEvent event, TimePoint now) {
  const auto found = requests_.find(event.id);
  if (found == requests_.end()) return OkStatus();  // its client did not want it any more
  const int index = event.event.index;
  if (index < 0 || index >= found->second.spec.n)
    return Corrupt(fmt::format("an event of continuation {} of {}", index, found->second.spec.n));
  const std::optional<TokenId> token = event.event.token;
  if (token && (*token < 0 || *token >= options_.vocab_size))
    return Corrupt(fmt::format("token {} of {}", *token, options_.vocab_size));
  if (found->second.continuations[static_cast<size_t>(index)].told.over) return OkStatus();
  LAMINA_RETURN_IF_ERROR(CheckScores(found->second, event.event));
  LAMINA_RETURN_IF_ERROR(CheckEmbedding(found->second, event.event));
  Tell(found, std::move(event.event), now);
  return OkStatus();
}

// Clients count on them.
Status RemoteRequests::CheckScores(const Request& request, const TokenEvent& event) const {
  const SamplingParams& sampling = request.spec.sampling;
  const int64_t all = sampling.num_prompt_logprobs < 0 ? 0 : std::ssize(request.spec.prompt) - 1;
  const Told& told = request.continuations.front().told;
  const int64_t scored = told.num_scored + (event.index == 0 ? std::ssize(event.scored) : 0);
  const auto is_next = [&, i = told.num_scored](const TokenScore& token) mutable {
    return token.token == request.spec.prompt[static_cast<size_t>(++i)];
  };
  if (event.index != 0 && !event.scored.empty())
    return Corrupt("log-probabilities of a prompt with another continuation than the first");
  if (scored > all || !std::ranges::all_of(event.scored, is_next) ||
      (event.index == 0 && event.token && scored < all))
    return Corrupt(fmt::format("log-probabilities of {} prompt tokens, expected {}", scored, all));
  return OkStatus();
}

Status RemoteRequests::CheckEmbedding(const Request& request, const TokenEvent& event) const {
  const bool embeds = request.spec.sampling.embeds;
  if (embeds && event.token) return Corrupt("a token behind a prompt that is only embedded");
  const bool is_due = embeds && event.finish == FinishReason::kStop;
  if (event.embedding.empty() == is_due)
    return Corrupt(fmt::format("an embedding of {} values in an event that {} one",
                               event.embedding.size(), embeds ? "lacks" : "has no place for"));
  const auto is_finite = [](float value) { return std::isfinite(value); };
  return std::ranges::all_of(event.embedding, is_finite)
             ? OkStatus()
             : Corrupt("an embedding with values that are not numbers");
}

void RemoteRequests::OnLost(const Status& why, TimePoint now) {
  frames_.clear();
  if (open_) {
    lost_since_ = now;
    for (auto& [id, request] : requests_) {
      if (!request.waits_since) request.waits_since = now;
    }
  }
  for (auto& [id, request] : requests_) {
    request.sent = false;
    request.accepted = true;
    request.again.reset();
  }
  open_ = false;
  lost_ = why;
  status_ = {};
}

void RemoteRequests::Turn(TimePoint now) {
  SendWaiting(now);
  if (!open_ && now - lost_since_ >= options_.give_up_after) given_up_ = true;
  for (auto request = requests_.begin(); request != requests_.end();) {
    const auto it = request++;  // the request may go
    const std::optional<TimePoint> since = it->second.waits_since;
    if (!since || now - *since < options_.give_up_after) continue;
    const std::string why =
        open_ ? "the manager did not take it" : "there is no manager: " + lost_.message();
    EndAll(it, FinishReason::kError,
           PeerLost(fmt::format("the request has waited for {:.0f} s: {}", InSeconds(now - *since),
                                why)),
           now);
  }
}

TimePoint RemoteRequests::next_turn() const {
  TimePoint next = open_ || given_up_ ? TimePoint::max() : lost_since_ + options_.give_up_after;
  for (const auto& [id, request] : requests_) {
    if (request.waits_since) next = std::min(next, *request.waits_since + options_.give_up_after);
    if (open_ && request.again) next = std::min(next, *request.again);
  }
  return next;
}

void RemoteRequests::Tell(Requests::iterator request, TokenEvent event, TimePoint now) {
  Request& entry = request->second;
  Continuation& continuation = entry.continuations[static_cast<size_t>(event.index)];
  Told& told = continuation.told;
  event.first = event.token && told.tokens.empty();
  told.num_scored += std::ssize(event.scored);
  if (event.token) {
    if (event.first) told.num_cached = event.num_cached;
    told.tokens.push_back(*event.token);
    told.kv = {event.sequence, manager_};
    ObserveToken(entry, continuation, now);
  }
  const std::optional<FinishReason> finish = event.finish;
  deliveries_.push_back({entry.sink, std::move(event)});
  if (!finish) return;
  told.over = true;
  ObserveEnd(entry, continuation, *finish, now);
  if (--entry.num_open == 0) requests_.erase(request);
}

void RemoteRequests::EndAll(Requests::iterator request, FinishReason reason, const Status& why,
                            TimePoint now) {
  const int n = request->second.spec.n;
  int left = request->second.num_open;
  for (int i = 0; i < n && left > 0; ++i) {
    if (request->second.continuations[static_cast<size_t>(i)].told.over) continue;
    --left;  // the request goes with the last one
    TokenEvent event;
    event.index = i;
    event.finish = reason;
    event.error = why;
    Tell(request, std::move(event), now);
  }
}

EngineStatus RemoteRequests::status() const {
  if (open_) return status_;
  EngineStatus status;
  status.given_up = given_up_;
  status.detail = "there is no manager: " + lost_.message();
  for (const auto& [id, request] : requests_) status.scheduler.num_waiting += request.num_open;
  return status;
}

void RemoteRequests::ObserveToken(Request& request, Continuation& continuation, TimePoint now) {
  if (options_.observer != nullptr) {
    if (!continuation.first_token) {
      options_.observer->OnFirstToken(InSeconds(now - request.submitted));
    } else {
      options_.observer->OnNextToken(InSeconds(now - *continuation.last_token));
    }
  }
  if (!continuation.first_token) continuation.first_token = now;
  continuation.last_token = now;
}

void RemoteRequests::ObserveEnd(const Request& request, const Continuation& continuation,
                                FinishReason reason, TimePoint now) {
  if (options_.observer == nullptr) return;
  EngineObserver::Finished finished;
  finished.reason = reason;
  finished.prompt_tokens = std::ssize(request.spec.prompt);
  finished.output_tokens = std::ssize(continuation.told.tokens);
  finished.e2e = InSeconds(now - request.submitted);
  if (continuation.first_token)
    finished.decode = InSeconds(*continuation.last_token - *continuation.first_token);
  // The engine's own objectives are not known here.
  const bool failed = reason == FinishReason::kError || reason == FinishReason::kAbort;
  if (request.spec.slo.any() && !failed && continuation.first_token) {
    finished.slo =
        OutcomeOf(request.spec.slo, *continuation.first_token - request.submitted,
                  *continuation.last_token - *continuation.first_token, finished.output_tokens);
  }
  options_.observer->OnFinished(finished);
}

template <typename Message>
void RemoteRequests::Queue(MessageType type, const Message& message) {
  frames_.push_back({FrameType(type), Encode(message)});
}

}  // namespace lamina
