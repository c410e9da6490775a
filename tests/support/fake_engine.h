// An engine that says what a test told it to say.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "manager/engine.h"

namespace lamina::testing {

// A thread hands out one token of each running continuation in turn, so that choices interleave.
// Thread: any.
class FakeEngine final : public Engine {
 public:
  // The tokens of continuation `index`. The end-of-sequence token (unless ignored), a stop token or
  // max_new_tokens ends it; so does the end of the list (kLength).
  using Script = std::function<std::vector<TokenId>(const GenerateRequest& request, int index)>;

  FakeEngine(Script script, int64_t max_model_len, TokenId eos);
  ~FakeEngine() override;

  Result<RequestId> Submit(GenerateRequest request, Sink sink) override;
  void Abort(RequestId request) override;
  void Stop(RequestId request, int index) override;
  EngineStatus status() override;
  int64_t max_model_len() const override { return max_model_len_; }
  std::span<const TokenId> eos_tokens() const override { return {&eos_, 1}; }

  // Continuations stop after so many tokens until Resume().
  void PauseAfter(size_t tokens);
  void Resume();

  // Every token takes at least this long, as a real engine's do; else a script of any length is
  // done before an Abort arrives.
  void SetTokenTime(std::chrono::microseconds time);

  // Submit number `countdown` from now on (1: the next one) and those after it are refused with
  // this.
  void RefuseSubmits(Status status, int countdown = 1);

  // Continuations end with kError after so many tokens.
  void FailAfter(size_t tokens, Status error);

  void SetStatus(EngineStatus status);

  // Of all that were accepted, in order.
  std::vector<GenerateRequest> requests() const;

  // Wait until so many continuations were told kAbort, or stopped by Stop; until nothing runs.
  // False at the deadline.
  bool WaitForAborts(size_t count, Deadline deadline);
  bool WaitForStops(size_t count, Deadline deadline);
  bool WaitUntilIdle(Deadline deadline);
  size_t num_running() const;

 private:
  struct Sequence {
    RequestId request;
    int index = 0;
    std::vector<TokenId> tokens;
    size_t next = 0;
    Sink sink;
    bool aborted = false;
    bool stopped = false;
    size_t num_scored = 0;  // tokens of the prompt
  };

  // How many tokens the prompt has, its first and last one, and -1.
  static std::vector<float> EmbeddingOf(const GenerateRequest& request);
  // The next tokens of the prompt, if they are asked for and not all told: half of what is left, or
  // all if that is one. Token p has the log-probability -p / 8 and the rank p; the most likely are
  // tokens 500, 501, ..., with -1/8, -2/8, ...
  static std::vector<TokenScore> NextScored(const GenerateRequest& request, Sequence& sequence);
  void Run();
  bool Ready(const Sequence& sequence) const;
  TokenEvent NextEvent(Sequence& sequence) const;
  bool WaitUntil(Deadline deadline, const std::function<bool()>& condition);

  const Script script_;
  const int64_t max_model_len_;
  const TokenId eos_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<GenerateRequest> requests_;
  std::vector<std::shared_ptr<Sequence>> running_;
  EngineStatus status_;
  size_t pause_after_ = SIZE_MAX;
  size_t fail_after_ = SIZE_MAX;
  std::chrono::microseconds token_time_{0};
  Status failure_;
  Status refusal_;
  int refuse_countdown_ = 0;
  size_t num_aborts_ = 0;
  size_t num_stops_ = 0;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace lamina::testing
