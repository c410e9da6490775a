#include "compute_node/context_relay.h"

#include <utility>
#include <vector>

#include "base/log.h"

namespace lamina {

NodeId ContextRelay::TakerOf(const Step& step) const {
  const StepCourse& course = step.course();
  const int taker = course.runner_behind();
  return taker == course.place().self ? NodeId{} : others_.node(taker);
}

bool ContextRelay::Take(Step& step) {
  const int from = step.course().runner_before();
  if (!others_.arrived(from, MessageKind::kContext, step.batch())) {
    others_.LoseIfSilent(from, step.course().waits_since());
    return false;
  }
  if (const Status read = Read(step, from); !read.ok()) {
    LAMINA_LOG_ERROR("{}", read.ToString());
    return false;
  }
  step.course().HasContext();
  return true;
}

Status ContextRelay::Read(Step& step, int from) {
  const int64_t start_ns = session_.trace.Now();
  const int slice = step.course().next_slice();
  LAMINA_ASSIGN_OR_RETURN(const std::span<const std::byte> payload,
                          others_.Take(from, ContextOf(step, slice)));
  Result<StepState> state =
      ReadContext(format_, session_.device,
                  {slice, step.slices(), step.rows().size(), step.rows().first_prefill}, payload);
  if (!state.ok()) return others_.Lose(from, state.status().message());
  StepResult so_far = std::move(state->so_far).value_or(StepResult{});
  const std::vector<SuspendedNode> suspended = so_far.suspended;
  step.outcome().GoOnFrom(std::move(so_far));
  std::vector<AskedNode> asked;
  for (const StepState::Asked& node : state->asked)
    asked.push_back({node.node, node.posted_ns, state->clock == ClockId()});
  const Op& attention = step.attention_before();
  step.attention().transfer()->Expect(attention.layer, step.slices().value(attention.output),
                                      asked);
  step.attention().transfer()->GoOnWithout(suspended);
  session_.trace.Ran(StepWork::kTake, step.Traced(attention.layer), start_ns);
  return OkStatus();
}

void ContextRelay::Ask(Step& step) {
  const int64_t start_ns = session_.trace.Now();
  const AttentionValues values = step.values();
  step.attention().transfer()->StartFor(TakerOf(step), values);
  session_.trace.Ran(StepWork::kPost, step.Traced(values.layer), start_ns);
}

void ContextRelay::PassOn(Step& step) {
  const int64_t start_ns = session_.trace.Now();
  StepCourse& course = step.course();
  const int next = course.next_slice() + 1, to = course.runner_behind();
  const int layer = step.attention_behind().layer;
  StepState state;
  state.clock = ClockId();
  for (const AskedNode& node : step.attention().transfer()->asked())
    state.asked.push_back({node.node, node.posted_ns});
  course.Advance();
  const bool leaves = course.next_slice() == course.num_slices();
  step.Account(others_.TakeStale());
  if (leaves) step.TellTimes();
  state.so_far = step.outcome().SoFar();
  const size_t bytes =
      WriteContext(format_, session_.device,
                   {next, step.slices(), step.rows().size(), step.rows().first_prefill},
                   std::move(state), others_.payload(to, MessageKind::kContext, step.batch()));
  // If the post fails, the other node is lost, and all steps end.
  if (!others_.Post(to, ContextOf(step, next), bytes).ok()) return;
  session_.trace.Ran(StepWork::kPost, step.Traced(layer), start_ns);
  course.WaitFromNow();
  if (leaves) step.Leave();
}

}  // namespace lamina
