#include "manager/find_nodes.h"

#include <algorithm>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "manager/compute_places.h"
#include "manager/resolve_config.h"

namespace lamina {
namespace {

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
Procedure<FoundNodes> FindNodes(Turns& turns, const ClusterConfig& config, const ModelConfig& model,
                                std::map<NodeId, std::string> lost, TimePoint until,
                                ConnectMeans means) {
  FoundNodes found;
  const Result<View> view = ViewOf(config, model);
  if (!view.ok()) {
    LAMINA_LOG_ERROR("cannot look for lost nodes: {}", view.status().message());
    co_return found;
  }
  struct Asked {
    Asked(std::unique_ptr<ConnectingNodes> nodes, NodeId id, TimePoint now)
        : asking(std::move(nodes)),
          node(*asking->nodes().Find(id)),
          turns(now),
          answer(asking->AskIfFree(turns, node)) {}
    std::unique_ptr<ConnectingNodes> asking;
    NodeConnections::Node& node;
    Turns turns;
    Procedure<Status> answer;
  };
  std::list<Asked> asked, answered;
  for (size_t i = 0; i < config.nodes.size(); ++i) {
    const NodeId id = config.IdOf(i);
    if (!lost.contains(id)) continue;
    for (const std::string& daemon : DaemonsFor(config, i)) {
      const FilledPlaces filled = FillPlaces(config, {{id, daemon}}, {});
      asked.emplace_back(std::make_unique<ConnectingNodes>(filled.config, model, *view,
                                                           KnownNodes{}, until, means),
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
    const Status ended = co_await means.end(turns, one.asking->Take(), means.on_change);
    if (!ended.ok()) LAMINA_LOG_ERROR("{}", ended.message());
  }
  co_return found;
}

Procedure<Status> KeepReady(Turns& turns, const ClusterConfig& config, const ModelConfig& model,
                            NodeId place, ConnectMeans means, std::function<void()> on_ready) {
  LAMINA_CO_ASSIGN_OR_RETURN(const View view, ViewOf(config, model));
  ConnectingNodes asking(config, model, view, {}, TimePoint::max(), std::move(means));
  NodeConnections& nodes = asking.nodes();
  NodeConnections::Node& node = *nodes.Find(place);
  // Nobody waits for the standby when the procedure ends: it has nothing to lose.
  const auto leave = [&nodes](NodeConnections::Node* standby) { nodes.Leave(*standby); };
  const std::unique_ptr<NodeConnections::Node, decltype(leave)> leaves(&node, leave);
  const Status ready = co_await asking.AskIfFree(turns, node);
  LAMINA_CO_RETURN_IF_ERROR(ready);
  on_ready();
  while (true) {
    const Status lost = nodes.LossOf(node);
    LAMINA_CO_RETURN_IF_ERROR(lost);
    co_await turns.Next(turns.now() + kKeepInterval);
  }
}

}  // namespace lamina
