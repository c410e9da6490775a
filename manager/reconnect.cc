#include "manager/reconnect.h"

#include <atomic>
#include <thread>
#include <utility>

namespace lamina {

Procedure<Status> EndOnAThread(Turns& turns, std::shared_ptr<void> what, OnChange on_change) {
  if (what == nullptr) co_return OkStatus();
  std::atomic<bool> is_gone = false;
  const std::jthread ends([&] {
    what.reset();
    is_gone = true;
    on_change();
  });
  while (!is_gone) co_await turns.Next(TimePoint::max());
  co_return OkStatus();
}

Procedure<Status> EndAtOnce(Turns&, std::shared_ptr<void> what, OnChange) {
  what.reset();
  co_return OkStatus();
}

Procedure<Reconnected> ReconnectByTurns(Turns& turns, ReconnectTask task,
                                        const ReconnectMeans& means) {
  const Status ended = co_await means.end(turns, std::move(task.before), means.on_change);
  LAMINA_CO_RETURN_IF_ERROR(ended);
  FoundNodes answer;
  TimePoint until = task.until;
  if (means.look != nullptr && !task.doubtful.empty())
    answer = co_await means.look(turns, task.doubtful, until, means.on_change);
  for (const auto& [node, why] : task.doubtful) {
    if (!answer.contains(node)) task.known.lost.emplace(node, why);
  }
  for (const auto& [node, daemon] : answer) task.known.places.insert_or_assign(node, daemon);
  // Only weights take that long to load, and now they are there.
  if (!answer.empty() && turns.now() >= until) until = turns.now() + means.after_weights;
  Reconnected after =
      co_await means.reconnect(turns, std::move(task.known), until, means.on_change);
  co_return after;
}

}  // namespace lamina
