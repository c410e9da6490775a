#include "compute_node/step_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/clock.h"

namespace lamina {
namespace {

// As long as this is the only compute node. One with a share of the model never is.
Placement Alone(const LoadedModel& model) {
  return model.share.whole() ? Placement::OfWhole(1)
                             : Placement::OfStages(model.first_slices, model.share.num_ranks);
}

}  // namespace

Result<std::unique_ptr<StepRunner>> StepRunner::Create(const LoadedModel& model,
                                                       const SessionLimits& limits,
                                                       std::unique_ptr<AttentionStrategy> attention,
                                                       ComputeDevice& device) {
  std::unique_ptr<StepRunner> runner(new StepRunner(model, limits, std::move(attention), device));
  for (int batch = 0; batch < std::max(limits.num_batches, 1); ++batch) {
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<SliceRunner> slices,
                            device.MakeSlices(model, limits.max_num_batched_tokens));
    runner->steps_.emplace_back(runner->session_, static_cast<uint32_t>(batch), std::move(slices));
  }
  return runner;
}

StepRunner::StepRunner(const LoadedModel& model, const SessionLimits& limits,
                       std::unique_ptr<AttentionStrategy> attention, ComputeDevice& device)
    : limits_(limits),
      session_{model, device, std::move(attention), KnownSequences(model, limits)},
      placement_(Alone(model)) {
  session_.attention->TraceTo(session_.trace);
}

// A rank whose step waits for a lost memory node is late itself, but not lost. The step may wait
// for each of its memory nodes once, so sums are waited for that many times as long.
void StepRunner::JoinOthers(std::unique_ptr<ContextExchange> others, DType wire_dtype) {
  others_ = std::move(others);
  relay_ = std::make_unique<ContextRelay>(*others_, session_, wire_dtype);
  session_.self = others_->node(others_->self());
  const LoadedModel& model = session_.model;
  if (model.share.whole()) placement_ = Placement::OfWhole(others_->num_nodes());
  if (model.share.num_ranks == 1) return;
  const auto waits = static_cast<int64_t>(session_.attention->paths().size()) + 1;
  for (const Step& step : steps_)
    sums_.emplace_back(*others_, session_.device, model,
                       AllReduceOptions{wire_dtype, step.batch(), waits * limits_.peer_timeout});
}

StepPlace StepRunner::PlaceOf(const ComputeOrder& order) const {
  return {.placement = &placement_,
          .batch = static_cast<int>(order.batch),
          .rotates = order.rotates,
          .rank = session_.model.share.rank,
          .self = others_ == nullptr ? 0 : others_->self()};
}

Status StepRunner::Begin(ComputeOrder&& order) {
  if (order.batch >= steps_.size() || steps_[order.batch].under_way())
    return InvalidArgument("an order for batch " + std::to_string(order.batch) +
                           ", which is not there or has a step under way");
  if (!session_.model.share.whole() && others_ == nullptr)
    return InvalidArgument("an order before this node has joined those with the rest of the model");
  KvCache* const own_kv = session_.attention->capabilities().own_kv;
  if (order.layers_inside != 0 && own_kv == nullptr)
    return InvalidArgument("an order for the layers of a KV cache that is not here");
  if (order.offload_interval) {
    if (*order.offload_interval < 0)
      return InvalidArgument(fmt::format("offload_interval {}", *order.offload_interval));
    session_.model.SetInterval(*order.offload_interval);
  }
  session_.sequences.Update(order);
  for (const SequenceId released : order.released) session_.attention->Release(released);
  if (order.layers_inside != 0)
    LAMINA_RETURN_IF_ERROR(own_kv->SetLayersInside(order.layers_inside));
  Step& step = steps_[order.batch];
  const StepPlace place = PlaceOf(order);
  // Without a slice here others carry it out.
  if (place.NextHere(0, step.course().num_slices()) == step.course().num_slices())
    return OkStatus();
  step.Begin(order, place);
  if (!sums_.empty()) sums_[order.batch].Forget();
  return OkStatus();
}

bool StepRunner::Advance(std::vector<StepResult>& results) {
  if (others_ != nullptr || session_.attention->suspends()) session_.attention->Poll();
  if (others_ != nullptr) {
    others_->Poll();
    if (others_->lost() && any_under_way()) {
      AbandonAll(*others_->lost(), results);
      return true;
    }
  }
  Step* const step = NextReady();
  if (step == nullptr) return false;
  last_ = step->batch();
  if (step->course().when_stored() == WhenStored::kNothing)
    RunSlice(*step);
  else
    GoOn(*step);
  std::ranges::move(std::exchange(results_, {}), std::back_inserter(results));
  return true;
}

// Batches take turns. But where they rotate, a step's first slice goes before everything else that
// is ready: it is shorter than the others, so it is done here, and its attention is under way,
// before the next batches arrive at this node.
Step* StepRunner::NextReady() {
  for (size_t i = 1; i <= steps_.size(); ++i) {
    Step& step = steps_[(last_ + i) % steps_.size()];
    const StepCourse& course = step.course();
    if (step.under_way() && course.place().rotates && course.next_slice() == 0 && !Reducing(step) &&
        course.when_stored() == WhenStored::kNothing)
      return &step;
  }
  for (size_t i = 1; i <= steps_.size(); ++i) {
    Step& step = steps_[(last_ + i) % steps_.size()];
    if (step.under_way() && Ready(step)) return &step;
  }
  return nullptr;
}

bool StepRunner::Ready(Step& step) {
  if (step.course().when_stored() != WhenStored::kNothing)
    return step.attention().transfer()->Stored();
  if (Reducing(step)) return sums_[step.batch()].Ready();
  if (step.course().next_slice() == 0) return true;
  if (step.course().lacks_context() && !relay_->Take(step)) return false;
  return step.attention().Finish();
}

void StepRunner::RunSlice(Step& step) {
  if (!Reducing(step))
    step.Enter();
  else if (!TakeSum(step))
    return;  // a rank is lost, and Advance ends all steps
  if (!step.course().at_last_slice()) return RunToAttention(step);
  if (const Op* const sum = step.Run()) return Reduce(step, *sum);
  if (others_ == nullptr) return End(step);
  PutOff(step, WhenStored::kEnd);
}

void StepRunner::RunToAttention(Step& step) {
  if (session_.attention->capabilities().queries_first && !step.course().sent_queries()) {
    if (const Op* const sum = step.RunToQueries()) return Reduce(step, *sum);
    step.SendQueries(relay_ == nullptr ? NodeId{} : relay_->TakerOf(step));
  }
  if (const Op* const sum = step.Run()) return Reduce(step, *sum);
  if (step.course().runner_behind() == step.course().place().self) return step.StartAttention();
  relay_->Ask(step);
  PutOff(step, WhenStored::kPassOn);
}

void StepRunner::PutOff(Step& step, WhenStored then, const Op* sum) {
  step.course().WaitUntilStored(then, sum);
  if (step.attention().transfer()->Stored()) GoOn(step);
}

void StepRunner::GoOn(Step& step) {
  switch (step.course().TakeWhenStored()) {
    case WhenStored::kNothing: return;
    case WhenStored::kPassOn: return relay_->PassOn(step);
    case WhenStored::kHandOver: return HandOver(step);
    case WhenStored::kEnd: return End(step);
  }
}

void StepRunner::End(Step& step) {
  step.Account(others_ == nullptr ? 0 : others_->TakeStale());
  results_.push_back(step.End());
}

void StepRunner::AbandonAll(const LostNode& lost, std::vector<StepResult>& results) {
  for (Step& step : steps_) {
    if (step.under_way()) results.push_back(step.Abandon(lost));
  }
}

void StepRunner::Reduce(Step& step, const Op& op) {
  AllReduce& sum = sums_[step.batch()];
  if (sum.EndsHere(op)) return PutOff(step, WhenStored::kHandOver, &op);
  const int64_t start_ns = session_.trace.Now();
  sum.Start(step.id(), op, step.num_rows(), step.slices());
  session_.trace.Ran(StepWork::kPost, step.Traced(step.course().next_slice()), start_ns);
}

// The sum ends the step here: this rank hands rank 0 its part together with what it knows of the
// step: failures, times, traffic.
void StepRunner::HandOver(Step& step) {
  step.Account(others_->TakeStale());
  step.TellTimes();
  if (sums_[step.batch()].HandOver(step.id(), *step.course().sum(), step.num_rows(), step.slices(),
                                   step.outcome().SoFar()))
    step.Leave();
}

// With the step's last sum come the other ranks' results, which are added to this one's.
bool StepRunner::TakeSum(Step& step) {
  const int64_t start_ns = session_.trace.Now();
  std::vector<StepResult> told;
  if (!sums_[step.batch()].Finish(step.slices(), told)) return false;
  for (const StepResult& rank : told) step.outcome().AddRank(rank);
  session_.trace.Ran(StepWork::kTake, step.Traced(step.course().next_slice()), start_ns);
  return true;
}

}  // namespace lamina
