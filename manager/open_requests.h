// The requests that are not over: what each of their continuations has got so far, and what their
// clients and the observer are told. Pure: the caller tells the time.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "manager/engine.h"
#include "manager/engine_options.h"
#include "wire/step_messages.h"

namespace lamina {

// A call of a sink that is still to be made.
struct Delivery {
  Engine::Sink sink;
  TokenEvent event;
};

// Why a sequence has to start again.
enum class Setback {
  kLateStep,  // its step was not answered in time
  kLostKv,    // what memory nodes held of it is gone
  kOwnFault,  // its own row failed, though nodes did what they were told
};

// Each continuation of a request is a sequence of the scheduler's. Thread: one owner.
class OpenRequests {
 public:
  // Borrows `options`.
  explicit OpenRequests(const EngineOptions& options) : options_(options) {}

  // kInvalidArgument if no engine of these options could serve the request, whatever is free.
  Status Check(const GenerateRequest& request) const;

  // A continuation that is over already has a sequence's number and nothing else. REQUIRES: Check
  // accepted the request.
  RequestId Add(GenerateRequest request, Engine::Sink sink, TimePoint now);

  // Forgets a request that was not accepted in the end; nobody hears of it.
  void Drop(RequestId request);

  // By continuation, also those that are over; empty if the request is over. Borrowed until the
  // request is.
  std::span<const SequenceId> Sequences(RequestId request) const;
  // The request's specification, with the objectives that it has. REQUIRES: it is not over.
  const GenerateRequest& Spec(RequestId request) const { return requests_.at(request).spec; }
  // Sequences that are not over, in the order of their numbers.
  std::vector<SequenceId> AllSequences() const;

  // The sequence's first work is sent, and finds K and V of `num_cached` tokens on the nodes. Only
  // the first call counts: a sequence starts again after a preemption.
  void Start(SequenceId sequence, int64_t num_cached, TimePoint now);

  // What nodes are told of a sequence that starts with these tokens.
  NewSequence Announce(SequenceId sequence, std::span<const TokenId> tokens) const;

  // Whether log-probabilities of the prompt's tokens are asked for, and have not all been told.
  // False for sequences that are over.
  bool LacksScores(SequenceId sequence) const;

  // A step says how likely tokens of the sequence's prompt are. Those that its client has not heard
  // of are appended to `out`. Does nothing for one that is over, if tokens before these are
  // missing, or if the prompt has others.
  void TakeScores(const ScoredTokens& scored, std::vector<Delivery>& out);

  // A step sampled this. Appends what the client hears to `out`, and returns whether the sequence
  // is over with it. Does nothing for one that was over before.
  bool TakeToken(const NewToken& sampled, TimePoint now, std::vector<Delivery>& out);

  // Whether what is asked for is an embedding of the prompt, and no token. False for sequences that
  // are over.
  bool Embeds(SequenceId sequence) const;

  // A step has embedded the sequence's prompt, and it is over. Does nothing for one that was over
  // before. REQUIRES: Embeds.
  void TakeEmbedding(const EmbeddedPrompt& embedded, TimePoint now, std::vector<Delivery>& out);

  // Ends the sequence with `event`, which is appended to `out`. REQUIRES: event.finish. False if it
  // was over before.
  bool Finish(SequenceId sequence, TokenEvent event, TimePoint now, std::vector<Delivery>& out);

  // The sequence has to start again for this reason: for the n-th time; 0 if it is over.
  int CountSetback(SequenceId sequence, Setback why);

  // Notes that the sequence is dropped because its first token is too late, and returns what its
  // client is to be told. The caller ends it. REQUIRES: it is not over, and has no token.
  Status MarkDropped(SequenceId sequence);

  // Sequences that had a setback, or go on where another engine left them, and no token since.
  int num_rebuilding() const { return num_rebuilding_; }

 private:
  struct Continuation {
    RequestId request;
    int index = 0;
    int64_t num_generated = 0;
    TimePoint submitted, last_token;
    std::optional<TimePoint> started;      // first prefill chunk sent
    std::optional<TimePoint> first_token;  // of those that came here; or of the embedding
    int64_t num_cached = 0;                // as TokenEvent's
    std::array<int, 3> num_setbacks{};     // by Setback
    bool rebuilding = false;               // had a setback and no token since
    bool dropped = false;                  // MarkDropped
    // Tokens of the prompt, behind its first, whose log-probabilities are asked for and not told.
    int64_t num_unscored = 0;
  };
  struct Request {
    GenerateRequest spec;
    Engine::Sink sink;
    std::vector<SequenceId> sequences;  // [n]
    int num_open = 0;
  };

  Status CheckTold(const GenerateRequest& request) const;
  Status CheckUrgency(const GenerateRequest& request) const;
  void SetRebuilding(Continuation& continuation, bool rebuilding);
  bool BansEveryToken(const GenerateRequest& request) const;  // until it has min_tokens
  bool Ends(const GenerateRequest& request, TokenId token) const;
  void SetFinish(const Request& request, const Continuation& continuation, TokenEvent& event) const;
  void Observe(const Continuation& continuation, const TokenEvent& end, const Request& request,
               TimePoint now) const;

  const EngineOptions& options_;
  std::unordered_map<RequestId, Request> requests_;
  std::unordered_map<SequenceId, Continuation> continuations_;
  uint64_t last_request_ = 0, last_sequence_ = 0;
  int num_rebuilding_ = 0;
};

}  // namespace lamina
