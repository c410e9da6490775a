#include "manager/standbys.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "manager/compute_places.h"
#include "manager/find_nodes.h"

namespace lamina {
namespace {

// Between two looks at one that is about to be ready.
constexpr auto kLookInterval = milliseconds(50);

}  // namespace

Standbys::Standbys(const ClusterConfig& config, const ModelConfig& model, const ConnectMeans& means)
    : model_(model), means_{.connect = means.connect, .end = means.end} {
  std::vector<NodeId> places;
  for (size_t i = 0; i < config.nodes.size(); ++i) {
    if (config.nodes[i].role == NodeRole::kCompute) places.push_back(config.IdOf(i));
  }
  for (size_t i = 0; i < config.standbys.size(); ++i) {
    standbys_.emplace_back(config, config.standbys[i], places[i % places.size()]);
  }
}

Standbys::Standby::Standby(const ClusterConfig& cluster, const NodeConfig& daemon, NodeId place)
    : place(place), config(FillPlaces(cluster, {{place, daemon.name}}, {}).config) {
  status.name = daemon.name;
  status.role = NodeRole::kCompute;
  status.address = ClusterConfig::Address(daemon);
  status.state = NodeState::kLost;
  status.detail = "it was not reached yet";
}

TimePoint Standbys::Turn(TimePoint now) {
  TimePoint next = TimePoint::max();
  for (Standby& standby : standbys_) {
    std::optional<Status> lost = standby.ready.Turn(now);
    if (lost) {
      Set(standby, NodeState::kLost, lost->message());
      standby.retries.Tried(now);
    }
    if (standby.ready.next() == TimePoint::max() && now >= standby.retries.next()) {
      standby.ready.Start(now, [&](Turns& turns) {
        return KeepReady(turns, standby.config, model_, standby.place, means_, [this, &standby] {
          standby.retries.Begin({});
          Set(standby, NodeState::kStandby, "");
        });
      });
    }
    const bool is_ready = standby.status.state == NodeState::kStandby;
    next = std::min({next, is_ready ? TimePoint::max() : now + kLookInterval,
                     std::max(now, standby.ready.next())});
  }
  return next;
}

void Standbys::Set(Standby& standby, NodeState state, std::string detail) {
  MutexLock lock(mutex_);
  if (state == NodeState::kStandby) {
    LAMINA_LOG_INFO("compute node {} stands by", standby.status.name);
  } else if (standby.status.state == NodeState::kStandby) {
    LAMINA_LOG_WARN("{}", detail);
  }
  standby.status.state = state;
  standby.status.detail = std::move(detail);
}

std::vector<NodeStatus> Standbys::nodes() {
  MutexLock lock(mutex_);
  std::vector<NodeStatus> nodes;
  for (const Standby& standby : standbys_) nodes.push_back(standby.status);
  return nodes;
}

bool Standbys::any_ready() {
  MutexLock lock(mutex_);
  return std::ranges::any_of(standbys_, [](const Standby& standby) {
    return standby.status.state == NodeState::kStandby;
  });
}

}  // namespace lamina
