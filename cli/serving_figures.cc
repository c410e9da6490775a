#include "cli/serving_figures.h"

#include <fmt/format.h>

#include "base/log.h"

namespace lamina {
namespace {

constexpr auto kFiguresInterval = std::chrono::seconds(10);

}  // namespace

std::string FiguresLine(const Metrics::Totals& before, const Metrics::Totals& now, double seconds,
                        const EngineStatus& status) {
  const SchedulerStats& scheduler = status.scheduler;
  const double prompt = now.prompt_tokens - before.prompt_tokens;
  const double output = now.output_tokens - before.output_tokens;
  const double ended = now.requests - before.requests;
  const int waiting = scheduler.num_waiting + scheduler.num_parked;
  if (prompt + output + ended + scheduler.num_running + waiting == 0) return "";
  int64_t used = 0, capacity = 0;
  for (const NodeUse& node : scheduler.nodes) {
    used += node.used_tokens;
    capacity += node.capacity_tokens;
  }
  std::string line = fmt::format(
      "{:.1f} prompt tokens/s, {:.1f} output tokens/s, {:.0f} sequences ended, {} running, {} "
      "waiting",
      prompt / seconds, output / seconds, ended, scheduler.num_running, waiting);
  if (capacity > 0)
    line += fmt::format(", {:.1f} % of the KV cache in use",
                        100 * static_cast<double>(used) / static_cast<double>(capacity));
  if (scheduler.num_started_tokens > 0)
    line += fmt::format(", {:.1f} % of prompt tokens found in it",
                        100 * static_cast<double>(scheduler.num_shared_tokens) /
                            static_cast<double>(scheduler.num_started_tokens));
  return line;
}

void ServingFigures::Look() {
  if (Clock::now() - last_ < kFiguresInterval) return;
  const Metrics::Totals now = metrics_.totals();
  const std::string line = FiguresLine(before_, now, SecondsSince(last_), engine_.status());
  if (!line.empty()) LAMINA_LOG_INFO("{}", line);
  last_ = Clock::now();
  before_ = now;
}

}  // namespace lamina
