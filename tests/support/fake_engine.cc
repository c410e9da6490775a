#include "tests/support/fake_engine.h"

#include <algorithm>

namespace lamina::testing {

FakeEngine::FakeEngine(Script script, int64_t max_model_len, TokenId eos)
    : script_(std::move(script)), max_model_len_(max_model_len), eos_(eos) {
  status_.serving = true;
  thread_ = std::thread([this] { Run(); });
}

FakeEngine::~FakeEngine() {
  {
    std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<RequestId> FakeEngine::Submit(GenerateRequest request, Sink sink) {
  std::lock_guard lock(mutex_);
  if (!refusal_.ok() && --refuse_countdown_ <= 0) return refusal_;
  const RequestId id{requests_.size() + 1};
  for (int i = 0; i < request.n; ++i) {
    auto sequence = std::make_shared<Sequence>(Sequence{id, i, script_(request, i), 0, sink});
    if (static_cast<int64_t>(sequence->tokens.size()) > request.max_new_tokens)
      sequence->tokens.resize(static_cast<size_t>(request.max_new_tokens));
    running_.push_back(std::move(sequence));
  }
  requests_.push_back(std::move(request));
  changed_.notify_all();
  return id;
}

void FakeEngine::Abort(RequestId request) {
  std::lock_guard lock(mutex_);
  for (const auto& sequence : running_) sequence->aborted |= sequence->request == request;
  changed_.notify_all();
}

void FakeEngine::Stop(RequestId request, int index) {
  std::lock_guard lock(mutex_);
  for (const auto& sequence : running_)
    sequence->stopped |= sequence->request == request && sequence->index == index;
  changed_.notify_all();
}

bool FakeEngine::Ready(const Sequence& sequence) const {
  return sequence.aborted || sequence.stopped || sequence.next < pause_after_;
}

std::vector<TokenScore> FakeEngine::NextScored(const GenerateRequest& request, Sequence& sequence) {
  std::vector<TokenScore> scored;
  if (request.sampling.num_prompt_logprobs < 0 || sequence.index > 0) return scored;
  const size_t left = request.prompt.size() - 1 - sequence.num_scored;
  for (size_t i = 0; i < (left + 1) / 2; ++i) {
    const auto position = static_cast<int32_t>(++sequence.num_scored);
    TokenScore& token = scored.emplace_back();
    token.token = request.prompt[static_cast<size_t>(position)];
    token.logprob = -0.125f * static_cast<float>(position);
    token.rank = position;
    for (int32_t top = 0; top < request.sampling.num_prompt_logprobs; ++top)
      token.top.push_back({500 + top, -0.125f * static_cast<float>(top + 1)});
  }
  return scored;
}

std::vector<float> FakeEngine::EmbeddingOf(const GenerateRequest& request) {
  const std::vector<TokenId>& prompt = request.prompt;
  return {static_cast<float>(prompt.size()), static_cast<float>(prompt.front()),
          static_cast<float>(prompt.back()), -1};
}

TokenEvent FakeEngine::NextEvent(Sequence& sequence) const {
  TokenEvent event;
  event.index = sequence.index;
  if (sequence.aborted || sequence.stopped) {
    event.finish = sequence.aborted ? FinishReason::kAbort : FinishReason::kStop;
    return event;
  }
  if (sequence.next >= fail_after_) {
    event.finish = FinishReason::kError;
    event.error = failure_;
    return event;
  }
  const GenerateRequest& request = requests_[sequence.request.value - 1];
  if (request.sampling.embeds) {
    event.embedding = EmbeddingOf(request);
    event.finish = FinishReason::kStop;
    return event;
  }
  event.scored = NextScored(request, sequence);
  if (!event.scored.empty()) return event;
  if (sequence.next == sequence.tokens.size()) {
    event.finish = FinishReason::kLength;
    return event;
  }
  const TokenId token = sequence.tokens[sequence.next++];
  event.token = token;
  event.first = sequence.next == 1;
  if (request.sampling.num_logprobs >= 0) {
    event.logprob = -0.25f * static_cast<float>(sequence.next);
    event.rank = 1;
    for (int i = 0; i < request.sampling.num_logprobs; ++i)
      event.top.push_back({token + i, event.logprob - static_cast<float>(i)});
  }
  const bool stops = std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) !=
                     request.stop_tokens.end();
  if (stops || (token == eos_ && !request.ignore_eos)) {
    event.finish = FinishReason::kStop;
    event.stop_token = token;
  } else if (sequence.next == static_cast<size_t>(request.max_new_tokens)) {
    event.finish = FinishReason::kLength;
  }
  return event;
}

void FakeEngine::Run() {
  size_t turn = 0;
  std::unique_lock lock(mutex_);
  while (!quit_) {
    const auto is_ready = [this](const auto& sequence) { return Ready(*sequence); };
    const auto begin = running_.begin() +
                       static_cast<std::ptrdiff_t>(running_.empty() ? 0 : turn % running_.size());
    auto next = std::find_if(begin, running_.end(), is_ready);
    if (next == running_.end()) next = std::find_if(running_.begin(), running_.end(), is_ready);
    if (next == running_.end()) {
      changed_.wait(lock);
      continue;
    }
    const std::shared_ptr<Sequence> sequence = *next;
    const TokenEvent event = NextEvent(*sequence);
    turn = static_cast<size_t>(next - running_.begin()) + 1;
    if (event.finish) running_.erase(next);
    const auto token_time = token_time_;
    lock.unlock();
    if (token_time.count() > 0) std::this_thread::sleep_for(token_time);
    sequence->sink(event);
    lock.lock();
    if (event.finish && sequence->aborted) ++num_aborts_;
    if (event.finish && sequence->stopped) ++num_stops_;
    changed_.notify_all();
  }
}

EngineStatus FakeEngine::status() {
  std::lock_guard lock(mutex_);
  EngineStatus status = status_;
  status.scheduler.num_running += static_cast<int>(running_.size());
  return status;
}

void FakeEngine::SetStatus(EngineStatus status) {
  std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

void FakeEngine::PauseAfter(size_t tokens) {
  std::lock_guard lock(mutex_);
  pause_after_ = tokens;
}

void FakeEngine::Resume() {
  std::lock_guard lock(mutex_);
  pause_after_ = SIZE_MAX;
  changed_.notify_all();
}

void FakeEngine::SetTokenTime(std::chrono::microseconds time) {
  std::lock_guard lock(mutex_);
  token_time_ = time;
}

void FakeEngine::RefuseSubmits(Status status, int countdown) {
  std::lock_guard lock(mutex_);
  refusal_ = std::move(status);
  refuse_countdown_ = countdown;
}

void FakeEngine::FailAfter(size_t tokens, Status error) {
  std::lock_guard lock(mutex_);
  fail_after_ = tokens;
  failure_ = std::move(error);
}

std::vector<GenerateRequest> FakeEngine::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

size_t FakeEngine::num_running() const {
  std::lock_guard lock(mutex_);
  return running_.size();
}

bool FakeEngine::WaitUntil(Deadline deadline, const std::function<bool()>& condition) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.at(), condition);
}

bool FakeEngine::WaitForAborts(size_t count, Deadline deadline) {
  return WaitUntil(deadline, [&] { return num_aborts_ >= count; });
}

bool FakeEngine::WaitForStops(size_t count, Deadline deadline) {
  return WaitUntil(deadline, [&] { return num_stops_ >= count; });
}

bool FakeEngine::WaitUntilIdle(Deadline deadline) {
  return WaitUntil(deadline, [&] { return running_.empty(); });
}

}  // namespace lamina::testing
