// How a cluster executor gets its connections (open_nodes.h), for callers that wait and for
// those that do not.
#include <poll.h>

#include <utility>

#include "base/inbox.h"
#include "manager/cluster_executor.h"
#include "manager/find_nodes.h"
#include "manager/open_nodes.h"

namespace lamina {
namespace {

// Makes a procedure, which begin(turns, on_change) returns, and waits for it.
template <typename T, typename Begin>
Result<T> Await(Begin begin) {
  LAMINA_ASSIGN_OR_RETURN(WakeFd created, WakeFd::Create());
  // Shared with connections' threads, which outlive the wait.
  const auto wake = std::make_shared<WakeFd>(std::move(created));
  const auto on_change = [wake] { wake->Signal(); };
  Turns turns(Clock::now());
  Procedure<T> procedure = begin(turns, on_change);
  procedure.Start();
  while (!procedure.done()) {
    pollfd entry{wake->fd(), POLLIN, 0};
    if (poll(&entry, 1, Deadline(turns.next()).RemainingMs()) > 0) wake->Clear();
    turns.Turn(Clock::now());
  }
  return procedure.TakeResult();
}

}  // namespace

Result<std::unique_ptr<ClusterExecutor>> ClusterExecutor::Connect(const ClusterConfig& config,
                                                                  const ModelConfig& model,
                                                                  const StartProgress& progress,
                                                                  std::function<bool()> interrupted,
                                                                  uint64_t manager_id) {
  LAMINA_ASSIGN_OR_RETURN(Connected connected,
                          Await<Connected>([&](Turns& turns, std::function<void()> on_change) {
                            return ConnectByTurns(turns, config, model,
                                                  {.progress = progress,
                                                   .interrupted = interrupted,
                                                   .manager_id = manager_id,
                                                   .end = EndAtOnce,
                                                   .on_change = std::move(on_change)});
                          }));
  return connected;
}

Result<std::unique_ptr<ClusterExecutor>> ClusterExecutor::ConnectWithout(
    const ClusterConfig& config, const ModelConfig& model, std::map<NodeId, std::string> lost,
    Deadline until, const StartProgress& progress, std::function<bool()> interrupted) {
  LAMINA_ASSIGN_OR_RETURN(
      Connected connected, Await<Connected>([&](Turns& turns, std::function<void()> on_change) {
        return ConnectWithoutByTurns(turns, config, model, {std::move(lost)}, until.at(),
                                     {.progress = progress,
                                      .interrupted = interrupted,
                                      .end = EndAtOnce,
                                      .on_change = std::move(on_change)});
      }));
  return connected;
}

Procedure<ClusterExecutor::Connected> ClusterExecutor::ConnectByTurns(Turns& turns,
                                                                      const ClusterConfig& config,
                                                                      const ModelConfig& model,
                                                                      ConnectMeans means) {
  OpenedNodes opened = co_await OpenNodes(turns, config, model, means);
  LAMINA_CO_RETURN_IF_ERROR(opened.status());
  co_return std::unique_ptr<ClusterExecutor>(new ClusterExecutor(*std::move(opened), model, means));
}

Procedure<ClusterExecutor::Connected> ClusterExecutor::ConnectWithoutByTurns(
    Turns& turns, const ClusterConfig& config, const ModelConfig& model, KnownNodes known,
    TimePoint until, ConnectMeans means) {
  OpenedNodes opened =
      co_await OpenNodesWithout(turns, config, model, std::move(known), until, means);
  LAMINA_CO_RETURN_IF_ERROR(opened.status());
  co_return std::unique_ptr<ClusterExecutor>(new ClusterExecutor(*std::move(opened), model, means));
}

namespace {

// REQUIRES: what is handed over by reference outlives the procedure.
Procedure<Reconnected> ConnectFor(Turns& turns, const ClusterConfig& config,
                                  const ModelConfig& model, KnownNodes known, TimePoint until,
                                  ConnectMeans means,
                                  const std::function<void(ClusterExecutor&)>& use) {
  ClusterExecutor::Connected executor = co_await ClusterExecutor::ConnectWithoutByTurns(
      turns, config, model, std::move(known), until, std::move(means));
  LAMINA_CO_RETURN_IF_ERROR(executor.status());
  if (use != nullptr) use(**executor);
  co_return std::unique_ptr<StepExecutor>(*std::move(executor));
}

ConnectMeans WithOnChange(ConnectMeans means, OnChange on_change) {
  means.on_change = std::move(on_change);
  return means;
}

}  // namespace

Reconnect ReconnectTo(const ClusterConfig& config, const ModelConfig& model,
                      const ConnectMeans& means, std::function<void(ClusterExecutor&)> use) {
  return [=](Turns& turns, KnownNodes known, TimePoint until, OnChange on_change) {
    return ConnectFor(turns, config, model, std::move(known), until,
                      WithOnChange(means, std::move(on_change)), use);
  };
}

LookForNodes LookAmong(const ClusterConfig& config, const ModelConfig& model,
                       const ConnectMeans& means) {
  return
      [=](Turns& turns, std::map<NodeId, std::string> lost, TimePoint until, OnChange on_change) {
        return FindNodes(turns, config, model, std::move(lost), until,
                         WithOnChange(means, std::move(on_change)));
      };
}

}  // namespace lamina
