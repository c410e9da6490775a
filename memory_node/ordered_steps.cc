#include "memory_node/ordered_steps.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace lamina {
namespace {

std::vector<OrderedRow> DecodeRowsOf(const MemoryOrder& order) {
  std::vector<OrderedRow> rows;
  for (const DecodeRow& row : order.decode) {
    // Several consecutive rows of one sequence are the rest of a prompt behind a shared prefix. All
    // of them are new in this step, so num_before is what the first of them says.
    const bool goes_on = !rows.empty() && rows.back().sequence == row.sequence;
    const int64_t num_before = goes_on ? rows.back().num_before : row.num_stored;
    rows.push_back({row.sequence, row.num_stored, num_before, row.slot.has_value(), row.position});
  }
  return rows;
}

// Those that are pushed: prompts that are made up have none.
std::vector<OrderedRow> PrefillRowsOf(const MemoryOrder& order) {
  std::vector<OrderedRow> rows;
  if (order.dummy_prefill) return rows;
  for (const PrefillChunk& chunk : order.prefill) {
    for (int64_t i = 0; i < std::ssize(chunk.slots); ++i)
      rows.push_back(
          {chunk.sequence, chunk.num_stored + i, chunk.num_stored, true, chunk.first_position + i});
  }
  return rows;
}

}  // namespace

void OrderedSteps::Add(const MemoryOrder& order) {
  // A step that is ordered again must not count as under way forever.
  if (const auto twice = steps_.find(order.step); twice != steps_.end()) End(twice->second);
  newest_ = std::max(newest_, order.step);
  Step step{.batch = order.batch, .decode = DecodeRowsOf(order), .prefill = PrefillRowsOf(order)};
  if (step.decode.empty() && step.prefill.empty()) return;
  step.under_way = !step.decode.empty() && num_pushed_layers_ == 0;
  step.rows_to_come = std::ssize(step.prefill) * num_pushed_layers_;
  if (step.under_way) times_.BeginStep();
  steps_[order.step] = std::move(step);
}

OrderedSteps::Timing OrderedSteps::TimingOf(const MessageHeader& header) const {
  if (header.epoch != epoch_) return Timing::kStale;
  const StepId step{header.step};
  if (step > newest_) return Timing::kEarly;
  return steps_.contains(step) ? Timing::kDue : Timing::kStale;
}

Result<std::span<const OrderedRow>> OrderedSteps::RowsOf(const MessageHeader& header) const {
  const Step* const step = Find(StepId{header.step});
  if (step == nullptr) return NotFound("no order for step " + std::to_string(header.step));
  const bool pushed = header.kind == MessageKind::kPush;
  const std::vector<OrderedRow>& rows = pushed ? step->prefill : step->decode;
  // Pushes may bring a part of the rows, decode messages must bring all of them. The second
  // comparison is a subtraction because the sum of two numbers from a peer could overflow.
  const bool whole = header.first_row == 0 && header.num_rows == rows.size();
  if (header.first_row > rows.size() || header.num_rows > rows.size() - header.first_row ||
      (!pushed && !whole)) {
    return Corrupt("step " + std::to_string(header.step) + ": rows " +
                   std::to_string(header.first_row) + "+" + std::to_string(header.num_rows) +
                   " of " + std::to_string(rows.size()));
  }
  return std::span<const OrderedRow>(rows).subspan(header.first_row, header.num_rows);
}

// Messages come in the order of their batch's steps, so nothing more can come for an earlier one.
// The exception are pushes where decode messages go elsewhere.
void OrderedSteps::ForgetBefore(StepId step) {
  const auto now = steps_.find(step);
  if (now == steps_.end()) return;
  for (auto it = steps_.begin(); it != now;) {
    const bool over = it->second.batch == now->second.batch && it->second.rows_to_come <= 0;
    if (over) End(it->second);
    it = over ? steps_.erase(it) : std::next(it);
  }
}

void OrderedSteps::FinishDecode(StepId step) {
  if (const auto found = steps_.find(step); found != steps_.end()) End(found->second);
}

void OrderedSteps::CountPushed(StepId step, int64_t num_rows) {
  if (num_pushed_layers_ == 0) return;
  if (const auto found = steps_.find(step); found != steps_.end())
    found->second.rows_to_come -= num_rows;
}

bool OrderedSteps::AllPushedBefore(StepId step) const {
  return std::none_of(steps_.begin(), steps_.lower_bound(step),
                      [](const auto& before) { return before.second.rows_to_come > 0; });
}

const OrderedSteps::Step* OrderedSteps::Find(StepId step) const {
  const auto found = steps_.find(step);
  return found == steps_.end() ? nullptr : &found->second;
}

void OrderedSteps::End(Step& step) {
  if (std::exchange(step.under_way, false)) times_.EndStep();
}

}  // namespace lamina
