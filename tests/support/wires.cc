#include "tests/support/wires.h"

#include <algorithm>

namespace lamina::testing {

void Wires::Push(Sent sent) {
  under_way_.push_back(std::move(sent));
  std::ranges::push_heap(under_way_, Later);
}

void Wires::Send(Way& way, std::function<void()> arrive, Clock::duration more) {
  way.last = std::max(way.last, Clock::now() + latency_() + more);
  Push({way.last, ++last_number_, way.from, way.to, std::move(arrive)});
}

void Wires::Cut(const std::string& from, const std::string& to) {
  CutWay& cut =
      cuts_.try_emplace({from, to}, CutWay{.since = Clock::now(), .waiting = {}}).first->second;
  ++cut.depth;
}

void Wires::Mend(const std::string& from, const std::string& to) {
  const auto cut = cuts_.find({from, to});
  if (cut == cuts_.end() || --cut->second.depth > 0) return;
  const std::vector<Sent> waiting = std::move(cut->second.waiting);
  cuts_.erase(cut);
  for (const Sent& sent : waiting)
    Push({Clock::now(), sent.number, sent.from, sent.to, sent.arrive});
}

std::optional<TimePoint> Wires::cut_since(const std::string& from, const std::string& to) const {
  const auto cut = cuts_.find({from, to});
  return cut == cuts_.end() ? std::nullopt : std::optional(cut->second.since);
}

bool Wires::Deliver() {
  bool any = false;
  while (next() <= Clock::now()) {
    std::ranges::pop_heap(under_way_, Later);
    Sent sent = std::move(under_way_.back());
    under_way_.pop_back();
    const auto cut = cuts_.empty() ? cuts_.end() : cuts_.find({sent.from, sent.to});
    if (cut != cuts_.end()) {
      cut->second.waiting.push_back(std::move(sent));
      continue;
    }
    sent.arrive();
    any = true;
  }
  return any;
}

}  // namespace lamina::testing
