#include "tests/sim/expected.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/worker_team.h"
#include "compute_node/compute_session.h"
#include "compute_node/make_compute_device.h"
#include "compute_node/step_runner.h"
#include "kernels/sampling.h"
#include "manager/resolve_config.h"
#include "manager/step_executor.h"

namespace lamina::sim {
namespace {

constexpr int64_t kTokens = 512;
// By how much the reference model's log-probabilities may differ.
constexpr double kTolerance = 2e-3;
// What is chosen by less may be chosen otherwise where sums have another order.
constexpr double kNarrow = 1e-4;
constexpr TimePoint kNow{std::chrono::hours(24)};

// Carries out each order at once, on the caller's thread.
class DirectExecutor final : public StepExecutor {
 public:
  static Result<std::unique_ptr<StepExecutor>> Create(const std::string& model_dir,
                                                      const SessionLimits& limits) {
    auto executor = std::make_unique<DirectExecutor>();
    LAMINA_ASSIGN_OR_RETURN(executor->device_, MakeComputeDevice(HostCpu{}, executor->team_));
    WeightOptions weights;
    weights.model_dir = model_dir;
    LAMINA_ASSIGN_OR_RETURN(executor->model_, executor->device_->Load(weights));
    ConfigureCompute request;
    request.attention = MakeAttentionSpec(executor->model_->config, DType::kF32, DType::kF32);
    request.limits = limits;
    LAMINA_ASSIGN_OR_RETURN(
        std::unique_ptr<AttentionStrategy> attention,
        MakeLocalAttention(request, *executor->model_, kTokens, *executor->device_));
    LAMINA_ASSIGN_OR_RETURN(
        executor->runner_,
        StepRunner::Create(*executor->model_, limits, std::move(attention), *executor->device_));
    return std::unique_ptr<StepExecutor>(std::move(executor));
  }
  DirectExecutor() : team_(1) {}

  std::vector<KvNode> kv_nodes() const override { return {{kSelf, kTokens}}; }
  std::map<NodeId, NodeKv> kv() const override { return {}; }
  NodeId KvNodeOf(NodeId node) const override { return node; }
  void Start(std::function<void(ExecutorEvent)> on_event) override {
    on_event_ = std::move(on_event);
  }
  void Leave(NodeId) override {}
  void Submit(const StepPlan& plan, std::vector<NewSequence> added) override {
    const Status begun = runner_->Begin(MakeComputeOrder(0, plan, std::move(added), true));
    std::vector<StepResult> results;
    while (begun.ok() && results.empty()) runner_->Advance(results);
    ExecutorEvent event;
    if (begun.ok())
      event.result = std::move(results.front());
    else
      event = {ExecutorEvent::Kind::kComputeLost, {}, kSelf, begun};
    on_event_(std::move(event));
  }
  TimePoint Turn(TimePoint) override { return TimePoint::max(); }
  std::vector<NodeStatus> nodes() override { return {}; }

 private:
  static constexpr NodeId kSelf{1};

  WorkerTeam team_;
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<StepRunner> runner_;
  std::function<void(ExecutorEvent)> on_event_;
};

// How much likelier the chosen token is than any other, of the logarithm.
double LeadOf(const std::vector<double>& logprobs, TokenId chosen) {
  double others = -std::numeric_limits<double>::infinity();
  for (size_t token = 0; token < logprobs.size(); ++token) {
    if (static_cast<TokenId>(token) != chosen) others = std::max(others, logprobs[token]);
  }
  return logprobs[static_cast<size_t>(chosen)] - others;
}

// How far the random number behind `before` lies inside the part of [0, 1) that is the chosen
// token's; negative: outside. The parts have the order of the tokens.
double InsideOf(const PlannedRequest& request, uint64_t seed, std::span<const TokenId> before,
                const std::vector<double>& logprobs, TokenId chosen) {
  double below = 0, own = 0, total = 0;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    const auto times = static_cast<double>(std::ranges::count(before, token));
    const double weight = std::exp(logprobs[i] - request.frequency_penalty() * times);
    total += weight;
    if (token < chosen) below += weight;
    if (token == chosen) own = weight;
  }
  const double target = Random01(seed, request.prompt.size() + before.size()) * total;
  return std::min(target - below, below + own - target) / total;
}

}  // namespace

Expected::Expected()
    : checkpoint_(TinyCheckpointOptions{.vocab_size = kVocabulary}),
      oracle_(OracleModel::Load(checkpoint_.dir())) {}

Result<std::unique_ptr<Expected>> Expected::Create() {
  std::unique_ptr<Expected> expected(new Expected());
  LAMINA_ASSIGN_OR_RETURN(expected->model_, ModelConfig::Load(expected->model_dir()));
  EngineOptions options;
  options.scheduler.max_model_len = kTokens;
  options.eos_tokens = expected->model_.eos_tokens;
  options.vocab_size = expected->model_.vocab_size;
  SessionLimits limits;
  limits.max_num_seqs = options.scheduler.max_num_seqs;
  limits.max_num_batched_tokens = options.scheduler.max_num_batched_tokens;
  limits.max_model_len = options.scheduler.max_model_len;
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<StepExecutor> executor,
                          DirectExecutor::Create(expected->model_dir(), limits));
  expected->engine_ = std::make_unique<EngineCore>(options, std::move(executor),
                                                   [raw = expected.get()](EngineCore::Event event) {
                                                     raw->events_.push_back(std::move(event));
                                                   });
  return expected;
}

const Result<Answer>& Expected::Of(const PlannedRequest& request, int index) {
  const uint64_t seed =
      request.samples ? ChoiceSeed(request.seed, 0, static_cast<uint64_t>(index)) : 0;
  const Key key{request.prompt, request.samples, seed};
  const auto found = answers_.find(key);
  if (found != answers_.end()) return found->second;
  return answers_.emplace(key, Compute(request, seed)).first->second;
}

Result<Answer> Expected::Compute(const PlannedRequest& request, uint64_t seed) {
  GenerateRequest alone;
  alone.prompt = request.prompt;
  alone.max_new_tokens = kMostNewTokens;
  alone.ignore_eos = true;
  alone.sampling.temperature = request.samples ? 1.0F : 0.0F;
  alone.sampling.seed = seed;
  alone.sampling.frequency_penalty = request.frequency_penalty();
  alone.sampling.num_logprobs = 0;
  Answer answer;
  Status failure;
  const auto take = [&](const TokenEvent& event) {
    if (event.token) {
      answer.tokens.push_back(*event.token);
      answer.logprobs.push_back(event.logprob);
    }
    if (event.finish == FinishReason::kError) failure = event.error;
  };
  LAMINA_RETURN_IF_ERROR(engine_->Submit(std::move(alone), take, kNow).status());
  while (failure.ok() && std::ssize(answer.tokens) < kMostNewTokens) {
    for (const Delivery& delivery : engine_->Turn(kNow).deliveries) delivery.sink(delivery.event);
    for (const EngineCore::Event& event : std::exchange(events_, {})) engine_->Handle(event, kNow);
  }
  LAMINA_RETURN_IF_ERROR(failure);
  LAMINA_RETURN_IF_ERROR(Check(request, seed, answer));
  return answer;
}

Status Expected::Check(const PlannedRequest& request, uint64_t seed, Answer& answer) const {
  const std::vector<std::vector<double>> logprobs =
      oracle_.LogprobsAlong(request.prompt, answer.tokens, /*bf16_kv=*/false);
  bool all_clear = true;
  for (size_t i = 0; i < answer.tokens.size(); ++i) {
    const TokenId token = answer.tokens[i];
    const double of_token = logprobs[i][static_cast<size_t>(token)];
    const double by = request.samples ? InsideOf(request, seed, std::span(answer.tokens).first(i),
                                                 logprobs[i], token)
                                      : LeadOf(logprobs[i], token);
    all_clear &= by > kNarrow;
    answer.num_clear += all_clear ? 1 : 0;
    if (std::fabs(of_token - double{answer.logprobs[i]}) < kTolerance && by > -kTolerance) continue;
    return InternalError(
        fmt::format("token {} of an undisturbed answer: {} with log-probability {}, which the "
                    "reference model gives {}, and chooses by {}",
                    i, token, answer.logprobs[i], of_token, by));
  }
  return OkStatus();
}

}  // namespace lamina::sim
