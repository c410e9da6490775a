#include "plan/simulate/kv_baseline.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "cost/network_cost.h"

namespace lamina {
namespace {

using Kind = KvBaseline::Kind;

bool IsStatic(Kind kind) { return kind == Kind::kStatic || kind == Kind::kStaticAhead; }

template <typename Number>
bool ReadNumber(const std::string& text, Number* number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stop == end;
}

}  // namespace

Result<KvBaseline> KvBaseline::Parse(const std::string& text) {
  constexpr std::pair<const char*, Kind> kKinds[] = {{"swap", Kind::kSwap},
                                                     {"tail", Kind::kTail},
                                                     {"static", Kind::kStatic},
                                                     {"static-ahead", Kind::kStaticAhead}};
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon),
                    number = colon == std::string::npos ? "" : text.substr(colon + 1);
  const auto kind =
      std::ranges::find_if(kKinds, [&](const auto& entry) { return entry.first == name; });
  if (kind != std::end(kKinds)) {
    KvBaseline baseline{kind->second};
    if (baseline.kind == Kind::kSwap) {
      if (colon == std::string::npos) return baseline;
      if (ReadNumber(number, &baseline.page_tokens) && baseline.page_tokens > 0) return baseline;
    } else if (ReadNumber(number, &baseline.expansion) && baseline.expansion > 1 &&
               baseline.expansion <= 1000) {
      return baseline;
    }
  }
  return InvalidArgument("--kv-baseline '" + text +
                         "': expected swap, swap:TOKENS for pages of so many tokens, "
                         "tail:EXPANSION, static:EXPANSION or static-ahead:EXPANSION, where the "
                         "expansion is more than 1");
}

int KvBaseline::LayersInside(int num_layers) const {
  if (kind != Kind::kTail) return num_layers;
  return static_cast<int>(std::ceil(num_layers / expansion - 1e-9));
}

// Of n layers the parts 1 - p stay, and b buffers have room for a part p: n (1 - p) + b p is what
// n / expansion whole layers take.
Result<double> KvBaseline::PortionOutside(int num_layers) const {
  if (!IsStatic(kind)) return 0.0;
  const int buffers = kind == Kind::kStatic ? 1 : 2;
  const double portion =
      num_layers <= buffers ? 2 : (1 - 1 / expansion) * num_layers / (num_layers - buffers);
  if (portion <= 1) return portion;
  return InvalidArgument("an expansion of " + std::to_string(expansion) + " leaves less than " +
                         std::to_string(buffers) + " of " + std::to_string(num_layers) +
                         " layers in memory, which are needed for what comes");
}

Result<int64_t> KvBaseline::TokensInMemory(int num_layers, int64_t layer_token_bytes,
                                           int64_t memory_bytes) const {
  LAMINA_RETURN_IF_ERROR(PortionOutside(num_layers).status());
  const double layers = IsStatic(kind) ? num_layers / expansion : LayersInside(num_layers);
  return static_cast<int64_t>(static_cast<double>(memory_bytes) /
                              (layers * static_cast<double>(layer_token_bytes)));
}

Result<std::unique_ptr<KvBaselineNode>> KvBaselineNode::Create(
    const KvBaseline& baseline, const DeviceSpec& device, const AttentionHeads& heads,
    int num_layers, std::vector<AttentionWindow> windows, int num_batches) {
  std::unique_ptr<KvBaselineNode> node(new KvBaselineNode());
  LAMINA_ASSIGN_OR_RETURN(node->bytes_per_s_, device.HostLinkBytesPerS(0));
  LAMINA_ASSIGN_OR_RETURN(node->portion_, baseline.PortionOutside(num_layers));
  node->back_bytes_per_s_ = device.HostLinkBackBytesPerS(0);
  if (baseline.page_tokens > 0) {
    const double page = static_cast<double>(baseline.page_tokens * KvBytesPerToken(heads, 1)) / 2;
    node->bytes_per_s_ *= device.HostLinkShare(page);
    node->back_bytes_per_s_ *= device.HostLinkShare(page);
  }
  node->baseline_ = baseline;
  node->far_ = device;
  node->heads_ = heads;
  node->num_layers_ = num_layers;
  node->inside_ = baseline.LayersInside(num_layers);
  node->windows_ = std::move(windows);
  node->loads_.resize(static_cast<size_t>(num_batches));
  node->SlowLink(1);
  return node;
}

void KvBaselineNode::SlowLink(double factor) {
  slow_ = factor;
  in_.Slow(factor);
  far_.bandwidth_gb_per_s = bytes_per_s_ / factor * 1e-9;
  far_.bandwidth_efficiency = 1;
}

// Of one layer.
Clock::duration KvBaselineNode::TimeOf(int64_t tokens, double bytes_per_s) const {
  return FromSeconds(static_cast<double>(tokens * KvBytesPerToken(heads_, 1)) / bytes_per_s);
}

TimePoint KvBaselineNode::Begin(const StepPlan& plan, TimePoint at) {
  Load& load = loads_[static_cast<size_t>(plan.batch)];
  load = {};
  if (baseline_.kind == Kind::kSwap) {
    int64_t out = 0, in = 0;
    for (const HeldTokens& held : plan.swapped_out) out += held.num_tokens;
    for (const HeldTokens& held : plan.swapped_in) in += held.num_tokens;
    const Clock::duration copies =
        num_layers_ * (TimeOf(out, back_bytes_per_s_ / slow_) + TimeOf(in, bytes_per_s_ / slow_));
    return at + copies;
  }
  const auto takes_time = [&](const Work& work) { return !work.prefill || !plan.dummy_prefill; };
  int64_t new_tokens = 0;
  for (const Work& work : plan.work) new_tokens += takes_time(work) ? std::ssize(work.tokens) : 0;
  for (const AttentionWindow& window : windows_) {
    AttentionLoad attention;
    int64_t stored = 0;
    for (const Work& work : plan.work) {
      if (!takes_time(work)) continue;
      attention.AddPrefill(work.first_position, std::ssize(work.tokens), window);
      stored += std::min(work.first_position, window.NumAttended(work.first_position));
    }
    load.far.push_back(FromSeconds(AttentionSeconds(far_, heads_, attention)));
    load.come.push_back(FromSeconds(
        portion_ * std::chrono::duration<double>(TimeOf(stored, bytes_per_s_)).count()));
  }
  load.go = FromSeconds(
      portion_ *
      std::chrono::duration<double>(TimeOf(new_tokens, back_bytes_per_s_ / slow_)).count());
  if (baseline_.kind == Kind::kStaticAhead && !load.come.empty())
    load.is_here = in_.Book(at, load.come.front());
  return at;
}

KvBaselineNode::Piece KvBaselineNode::Attend(int batch, int layer, size_t window,
                                             Clock::duration time, TimePoint now) {
  Load& load = loads_[static_cast<size_t>(batch)];
  switch (baseline_.kind) {
    case Kind::kTail: return {now, layer < inside_ ? time : std::max(time, load.far[window])};
    case Kind::kStatic: {
      const TimePoint here = in_.Book(now, load.come[window]);
      return {here + load.go, time};
    }
    case Kind::kStaticAhead: {
      const TimePoint start = std::max(now, load.is_here);
      // Its new tokens go beside what comes. The next step begins with a copy of its own.
      if (layer + 1 < num_layers_) load.is_here = in_.Book(start, load.come[window]);
      return {start, time};
    }
    default: return {now, time};
  }
}

}  // namespace lamina
