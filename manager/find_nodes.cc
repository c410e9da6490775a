// How nodes without a session are asked whether they could serve: those that are lost, and
// standbys.
#include <fmt/format.h>

#include <list>
#include <utility>

#include "base/log.h"
#include "manager/node_connections.h"
#include "manager/resolve_config.h"
#include "wire/codec.h"
#include "wire/wire_format.h"

namespace lamina {
namespace {

// For a daemon that may not be there; it is asked again later.
constexpr auto kLookWait = std::chrono::seconds(1);

// Between two looks whether a standby is there still; its connection says so earlier where it wakes
// whoever gives turns.
constexpr auto kKeepInterval = std::chrono::seconds(1);

// Who could have the place of a lost node: its daemon and, of a compute node, all that have none of
// the others' places. Those that serve are asked too, and say that they are not free.
std::vector<std::string> DaemonsFor(const ClusterConfig& config, size_t place) {
  std::vector<std::string> names = {config.nodes[place].name};
  if (config.nodes[place].role != NodeRole::kCompute || config.standbys.empty()) return names;
  for (const NodeConfig& daemon : config.daemons()) {
    if (daemon.role == NodeRole::kCompute && daemon.name != names[0]) names.push_back(daemon.name);
  }
  return names;
}

}  // namespace

// All at the same time: one that hangs must not hold up the others.
Procedure<FoundNodes> NodeConnections::LookByTurns(Turns& turns, const ClusterConfig& config,
                                                   const ModelConfig& model,
                                                   std::map<NodeId, std::string> lost,
                                                   TimePoint until, ConnectMeans means) {
  FoundNodes found;
  const Result<View> view = ViewOf(config, model);
  if (!view.ok()) {
    LAMINA_LOG_ERROR("cannot look for lost nodes: {}", view.status().message());
    co_return found;
  }
  struct Asked {
    Asked(std::unique_ptr<NodeConnections> nodes, NodeId id, TimePoint now)
        : asking(std::move(nodes)),
          node(*asking->Find(id)),
          turns(now),
          answer(asking->AskIfFree(turns, node)) {}
    std::unique_ptr<NodeConnections> asking;
    Node& node;
    Turns turns;
    Procedure<Status> answer;
  };
  std::list<Asked> asked, answered;
  for (size_t i = 0; i < config.nodes.size(); ++i) {
    const NodeId id = config.IdOf(i);
    if (!lost.contains(id)) continue;
    for (const std::string& daemon : DaemonsFor(config, i)) {
      const FilledPlaces filled = FillPlaces(config, {{id, daemon}}, {});
      asked.emplace_back(std::unique_ptr<NodeConnections>(
                             new NodeConnections(filled.config, model, *view, {}, until, means)),
                         id, turns.now());
      asked.back().answer.Start();
    }
  }
  while (!asked.empty()) {
    TimePoint next = TimePoint::max();
    for (auto one = asked.begin(); one != asked.end();) {
      const auto here = one++;
      if (here->answer.done()) {
        answered.splice(answered.end(), asked, here);
      } else {
        next = std::min(next, here->turns.next());
      }
    }
    if (asked.empty()) break;
    co_await turns.Next(next);
    for (Asked& one : asked) {
      if (!one.answer.done()) one.turns.Turn(turns.now());
    }
  }
  for (Asked& one : answered) {
    const Status answer = one.answer.TakeResult();
    if (answer.ok()) {
      found.emplace(one.node.id, one.node.config.name);
    } else {
      LAMINA_LOG_DEBUG("{} is not back: {}", one.node.name(), answer.message());
    }
  }
  // Of a group all or none.
  for (const Member& member : view->members()) {
    if (!lost.contains(member.id) || found.contains(member.id)) continue;
    std::erase_if(
        found, [&](const auto& other) { return view->Find(other.first)->group == member.group; });
  }
  for (Asked& one : answered) {
    const Status ended = co_await means.end(turns, std::move(one.asking), means.on_change);
    if (!ended.ok()) LAMINA_LOG_ERROR("{}", ended.message());
  }
  co_return found;
}

// Compute nodes load their weights, which takes no more time then when they are connected in
// earnest.
Procedure<Status> NodeConnections::AskIfFree(Turns& turns, Node& node) {
  LAMINA_CO_ASSIGN_OR_RETURN(const ControlOptions options, control_options());
  const Status connected =
      co_await ConnectNode(turns, node, options, Within(turns.now(), kLookWait));
  LAMINA_CO_RETURN_IF_ERROR(connected);
  const Clock::duration patience = std::max<Clock::duration>(config_.peer_timeout, kLookWait);
  if (node.role == NodeRole::kMemory) {
    ConfigureMemory request;
    request.prepare_only = true;
    LAMINA_CO_RETURN_IF_ERROR(
        node.connection->Send(FrameType(MessageType::kConfigureMemory), Encode(request)));
  } else {
    LAMINA_CO_ASSIGN_OR_RETURN(ConfigureCompute request, ComputeRequest(node));
    request.prepare_only = true;
    LAMINA_CO_RETURN_IF_ERROR(
        node.connection->Send(FrameType(MessageType::kConfigureCompute), Encode(request)));
  }
  const Status configured = co_await AwaitConfigured(turns, node, patience);
  co_return configured;
}

Procedure<Status> NodeConnections::KeepReadyByTurns(Turns& turns, const ClusterConfig& config,
                                                    const ModelConfig& model, NodeId place,
                                                    ConnectMeans means,
                                                    std::function<void()> on_ready) {
  LAMINA_CO_ASSIGN_OR_RETURN(const View view, ViewOf(config, model));
  // Nobody waits for the standby when the procedure ends: it has nothing to lose.
  const auto leave = [place](NodeConnections* nodes) {
    nodes->Leave(*nodes->Find(place));
    delete nodes;
  };
  const std::unique_ptr<NodeConnections, decltype(leave)> nodes(
      new NodeConnections(config, model, view, {}, TimePoint::max(), std::move(means)), leave);
  Node& node = *nodes->Find(place);
  const Status ready = co_await nodes->AskIfFree(turns, node);
  LAMINA_CO_RETURN_IF_ERROR(ready);
  on_ready();
  while (true) {
    const Status lost = nodes->LossOf(node);
    LAMINA_CO_RETURN_IF_ERROR(lost);
    co_await turns.Next(turns.now() + kKeepInterval);
  }
}

}  // namespace lamina
