#include "manager/open_requests.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace lamina {
namespace {

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

int64_t Milliseconds(Clock::duration duration) {
  return std::chrono::duration_cast<milliseconds>(duration).count();
}

}  // namespace

Status OpenRequests::Check(const GenerateRequest& request) const {
  if (request.prompt.empty()) return InvalidArgument("the prompt is empty");
  if (request.n < 1 || request.n > options_.scheduler.max_queued)
    return InvalidArgument("n must be between 1 and " +
                           std::to_string(options_.scheduler.max_queued) + ", not " +
                           std::to_string(request.n));
  if (request.max_new_tokens < 1)
    return InvalidArgument("max_tokens must be at least 1, not " +
                           std::to_string(request.max_new_tokens));
  if (request.sampling.embeds &&
      (request.n != 1 || request.max_new_tokens != 1 || request.sampling.num_prompt_logprobs >= 0))
    return InvalidArgument("a prompt that is embedded has one embedding and nothing else");
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= options_.vocab_size) {
      return InvalidArgument("token id " + std::to_string(token) +
                             " is outside the vocabulary of " +
                             std::to_string(options_.vocab_size));
    }
  }
  if (BansEveryToken(request)) {
    return InvalidArgument(
        "every token of the vocabulary is in 'stop_token_ids' or ends the text, so none is left "
        "for the first " +
        std::to_string(request.sampling.min_tokens) + ", as many as 'min_tokens' asks for");
  }
  LAMINA_RETURN_IF_ERROR(CheckUrgency(request));
  return CheckTold(request);
}

Status OpenRequests::CheckUrgency(const GenerateRequest& request) const {
  for (const Clock::duration objective : {request.slo.ttft, request.slo.tpot}) {
    if (objective < Clock::duration::zero() || objective > kLongestObjective)
      return InvalidArgument("an objective of 'slo' is negative or longer than ten minutes");
  }
  if (request.priority != 0 && options_.queue != QueueMode::kPriority)
    return InvalidArgument("'priority' has no effect here: requests are served in the order '" +
                           std::string(QueueModeName(options_.queue)) +
                           "'; serve with the scheduling policy priority");
  return OkStatus();
}

Status OpenRequests::CheckTold(const GenerateRequest& request) const {
  if (request.told.empty()) return OkStatus();
  if (std::ssize(request.told) != request.n)
    return InvalidArgument("of " + std::to_string(request.n) + " continuations " +
                           std::to_string(request.told.size()) + " are said to have tokens");
  for (const Told& told : request.told) {
    if (told.over) continue;
    if (std::ssize(told.tokens) >= request.max_new_tokens)
      return InvalidArgument("a continuation that is not over has all of its " +
                             std::to_string(request.max_new_tokens) + " tokens");
    const int64_t all_scored =
        request.sampling.num_prompt_logprobs < 0 ? 0 : std::ssize(request.prompt) - 1;
    const bool scored_first =
        &told != &request.told.front() || told.tokens.empty() || told.num_scored == all_scored;
    if (told.num_scored < 0 || told.num_scored > all_scored || !scored_first)
      return InvalidArgument(std::to_string(told.num_scored) + " of " + std::to_string(all_scored) +
                             " log-probabilities of the prompt cannot have been told");
    if (told.num_cached < 0 || told.num_cached >= std::ssize(request.prompt))
      return InvalidArgument("not " + std::to_string(told.num_cached) + " of " +
                             std::to_string(request.prompt.size()) +
                             " prompt tokens can have been cached");
    for (const TokenId token : told.tokens) {
      if (token < 0 || token >= options_.vocab_size || Ends(request, token))
        return InvalidArgument("a continuation that is not over has token " +
                               std::to_string(token) +
                               ", which would have ended it or is outside the vocabulary");
    }
  }
  if (std::ranges::all_of(request.told, &Told::over))
    return InvalidArgument("all continuations are over");
  return OkStatus();
}

// Nothing could be sampled, which looks like an error of the nodes.
bool OpenRequests::BansEveryToken(const GenerateRequest& request) const {
  const auto num_named = std::ssize(request.stop_tokens) + std::ssize(options_.eos_tokens);
  if (request.sampling.min_tokens == 0 || num_named < options_.vocab_size) return false;
  std::set<TokenId> banned(request.stop_tokens.begin(), request.stop_tokens.end());
  if (!request.ignore_eos) banned.insert(options_.eos_tokens.begin(), options_.eos_tokens.end());
  const auto in_vocabulary = [&](TokenId token) {
    return token >= 0 && token < options_.vocab_size;
  };
  return std::ranges::count_if(banned, in_vocabulary) >= options_.vocab_size;
}

RequestId OpenRequests::Add(GenerateRequest request, Engine::Sink sink, TimePoint now) {
  const RequestId id{++last_request_};
  for (const TokenId eos : options_.eos_tokens) {
    if (!request.ignore_eos) request.sampling.banned.push_back(eos);
  }
  for (const TokenId stop : request.stop_tokens) request.sampling.banned.push_back(stop);
  if (!request.slo.any()) request.slo = options_.slo.Of(std::ssize(request.prompt));
  Request entry{std::move(request), std::move(sink), {}, 0};
  for (int i = 0; i < entry.spec.n; ++i) {
    const SequenceId sequence{++last_sequence_};
    entry.sequences.push_back(sequence);
    const Told told = entry.spec.told.empty() ? Told() : entry.spec.told[static_cast<size_t>(i)];
    if (told.over) continue;
    ++entry.num_open;
    Continuation continuation;
    continuation.request = id;
    continuation.index = i;
    continuation.submitted = continuation.last_token = now;
    continuation.num_generated = std::ssize(told.tokens);
    // Once is enough: the prompt is the same in all.
    if (i == 0 && entry.spec.sampling.num_prompt_logprobs >= 0)
      continuation.num_unscored = std::ssize(entry.spec.prompt) - 1 - told.num_scored;
    SetRebuilding(continuation, !told.tokens.empty());
    continuations_[sequence] = continuation;
  }
  requests_[id] = std::move(entry);
  return id;
}

void OpenRequests::Drop(RequestId request) {
  for (const SequenceId sequence : Sequences(request)) {
    const auto found = continuations_.find(sequence);
    if (found == continuations_.end()) continue;
    SetRebuilding(found->second, false);
    continuations_.erase(found);
  }
  requests_.erase(request);
}

std::span<const SequenceId> OpenRequests::Sequences(RequestId request) const {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return {};
  return found->second.sequences;
}

std::vector<SequenceId> OpenRequests::AllSequences() const {
  std::vector<SequenceId> all;
  for (const auto& [sequence, continuation] : continuations_) all.push_back(sequence);
  std::sort(all.begin(), all.end());
  return all;
}

void OpenRequests::Start(SequenceId sequence, int64_t num_cached, TimePoint now) {
  Continuation& continuation = continuations_.at(sequence);
  if (continuation.started) return;
  continuation.started = now;
  continuation.num_cached = num_cached;
}

NewSequence OpenRequests::Announce(SequenceId sequence, std::span<const TokenId> tokens) const {
  const Continuation& continuation = continuations_.at(sequence);
  const GenerateRequest& spec = requests_.at(continuation.request).spec;
  NewSequence announced;
  announced.sequence = sequence;
  announced.sampling = spec.sampling;
  announced.sampling.seed =
      ChoiceSeed(spec.sampling.seed, spec.prompt_index, static_cast<uint64_t>(continuation.index));
  if (continuation.num_unscored == 0) announced.sampling.num_prompt_logprobs = -1;
  announced.tokens.assign(tokens.begin(), tokens.end());
  announced.num_prompt_tokens = static_cast<int32_t>(spec.prompt.size());
  return announced;
}

bool OpenRequests::LacksScores(SequenceId sequence) const {
  const auto found = continuations_.find(sequence);
  return found != continuations_.end() && found->second.num_unscored > 0;
}

// A sequence that has started again has its prompt computed from its beginning.
void OpenRequests::TakeScores(const ScoredTokens& scored, std::vector<Delivery>& out) {
  const auto found = continuations_.find(scored.sequence);
  if (found == continuations_.end()) return;
  Continuation& continuation = found->second;
  const Request& request = requests_.at(continuation.request);
  const int64_t next = std::ssize(request.spec.prompt) - continuation.num_unscored;
  const int64_t known = next - scored.first_position;
  if (known < 0 || known >= std::ssize(scored.tokens)) return;
  const int64_t count = std::min(std::ssize(scored.tokens) - known, continuation.num_unscored);
  const auto told =
      std::span(scored.tokens).subspan(static_cast<size_t>(known), static_cast<size_t>(count));
  // A node may say anything.
  if (count == 0 ||
      !std::ranges::equal(
          told, std::span(request.spec.prompt).subspan(static_cast<size_t>(next), told.size()), {},
          &TokenScore::token))
    return;
  TokenEvent event;
  event.index = continuation.index;
  event.scored.assign(told.begin(), told.end());
  continuation.num_unscored -= count;
  out.push_back({request.sink, std::move(event)});
}

bool OpenRequests::TakeToken(const NewToken& sampled, TimePoint now, std::vector<Delivery>& out) {
  const SequenceId sequence = sampled.sequence;
  const auto found = continuations_.find(sequence);
  if (found == continuations_.end()) return false;  // finished while the step ran
  Continuation& continuation = found->second;
  const Request& request = requests_.at(continuation.request);
  SetRebuilding(continuation, false);
  TokenEvent event;
  event.token = sampled.chosen.token;
  event.logprob = sampled.chosen.logprob;
  event.rank = sampled.chosen.rank;
  event.sequence = sequence;
  event.top = sampled.chosen.top;
  event.first = continuation.num_generated++ == 0;
  if (event.first) event.num_cached = continuation.num_cached;
  if (!continuation.first_token) continuation.first_token = now;
  if (options_.observer != nullptr) {
    if (event.first) {
      options_.observer->OnFirstToken(Seconds(now - continuation.submitted));
    } else {
      options_.observer->OnNextToken(Seconds(now - continuation.last_token));
    }
  }
  continuation.last_token = now;
  SetFinish(request, continuation, event);
  if (event.finish) return Finish(sequence, std::move(event), now, out);
  event.index = continuation.index;
  out.push_back({request.sink, std::move(event)});
  return false;
}

bool OpenRequests::Embeds(SequenceId sequence) const {
  const auto found = continuations_.find(sequence);
  return found != continuations_.end() && requests_.at(found->second.request).spec.sampling.embeds;
}

void OpenRequests::TakeEmbedding(const EmbeddedPrompt& embedded, TimePoint now,
                                 std::vector<Delivery>& out) {
  const auto found = continuations_.find(embedded.sequence);
  if (found == continuations_.end()) return;
  Continuation& continuation = found->second;
  continuation.first_token = continuation.last_token = now;
  TokenEvent event;
  event.embedding = embedded.values;
  event.num_cached = continuation.num_cached;
  event.finish = FinishReason::kStop;
  Finish(embedded.sequence, std::move(event), now, out);
}

bool OpenRequests::Ends(const GenerateRequest& request, TokenId token) const {
  const auto is_in = [&](const std::vector<TokenId>& tokens) {
    return std::ranges::find(tokens, token) != tokens.end();
  };
  return (!request.ignore_eos && is_in(options_.eos_tokens)) || is_in(request.stop_tokens);
}

void OpenRequests::SetFinish(const Request& request, const Continuation& continuation,
                             TokenEvent& event) const {
  if (Ends(request.spec, *event.token)) {
    event.finish = FinishReason::kStop;
    event.stop_token = event.token;
  } else if (continuation.num_generated >= request.spec.max_new_tokens) {
    event.finish = FinishReason::kLength;
  }
}

bool OpenRequests::Finish(SequenceId sequence, TokenEvent event, TimePoint now,
                          std::vector<Delivery>& out) {
  const auto found = continuations_.find(sequence);
  if (found == continuations_.end()) return false;
  SetRebuilding(found->second, false);
  const Continuation continuation = found->second;
  continuations_.erase(found);
  const auto request = requests_.find(continuation.request);
  event.index = continuation.index;
  Observe(continuation, event, request->second, now);
  out.push_back({request->second.sink, std::move(event)});
  if (--request->second.num_open == 0) requests_.erase(request);
  return true;
}

int OpenRequests::CountSetback(SequenceId sequence, Setback why) {
  const auto found = continuations_.find(sequence);
  if (found == continuations_.end()) return 0;
  SetRebuilding(found->second, true);
  return ++found->second.num_setbacks[static_cast<size_t>(why)];
}

Status OpenRequests::MarkDropped(SequenceId sequence) {
  Continuation& continuation = continuations_.at(sequence);
  continuation.dropped = true;
  const Slo& slo = requests_.at(continuation.request).spec.slo;
  return TryAgain("the first token was due after " + std::to_string(Milliseconds(slo.ttft)) +
                  " ms, and the request was still waiting: more come than can be served in time");
}

void OpenRequests::SetRebuilding(Continuation& continuation, bool rebuilding) {
  if (continuation.rebuilding == rebuilding) return;
  continuation.rebuilding = rebuilding;
  num_rebuilding_ += rebuilding ? 1 : -1;
}

void OpenRequests::Observe(const Continuation& continuation, const TokenEvent& end,
                           const Request& request, TimePoint now) const {
  if (options_.observer == nullptr) return;
  EngineObserver::Finished finished;
  finished.reason = *end.finish;
  finished.prompt_tokens = static_cast<int64_t>(request.spec.prompt.size());
  finished.output_tokens = continuation.num_generated;
  finished.e2e = Seconds(now - continuation.submitted);
  finished.queue = Seconds(continuation.started.value_or(now) - continuation.submitted);
  if (continuation.started && continuation.first_token) {
    finished.prefill = Seconds(*continuation.first_token - *continuation.started);
    finished.decode = Seconds(continuation.last_token - *continuation.first_token);
  }
  const bool failed = end.finish == FinishReason::kError || end.finish == FinishReason::kAbort;
  // Of one that goes on where another engine left it, only the front knows all times.
  if (request.spec.slo.any() && request.spec.told.empty() && !failed && continuation.first_token) {
    finished.slo = OutcomeOf(request.spec.slo, *continuation.first_token - continuation.submitted,
                             continuation.last_token - *continuation.first_token,
                             std::max<int64_t>(continuation.num_generated, 1));
  } else if (continuation.dropped) {
    finished.slo = SloOutcome::kDropped;
  }
  options_.observer->OnFinished(finished);
}

}  // namespace lamina
