#include "manager/compute_places.h"

#include <algorithm>
#include <vector>

namespace lamina {

FilledPlaces FillPlaces(const ClusterConfig& config, const ComputePlaces& before,
                        const std::set<std::string>& gone) {
  // Who may have a place, in the order in which free ones are given.
  std::vector<NodeConfig> daemons = config.standbys;
  for (const NodeConfig& node : config.nodes) {
    if (node.role == NodeRole::kCompute) daemons.push_back(node);
  }
  std::set<std::string> taken;
  const auto find = [&](const std::string& name) {
    return std::ranges::find(daemons, name, &NodeConfig::name);
  };
  const auto is_free = [&](const NodeConfig& daemon) {
    return !taken.contains(daemon.name) && !gone.contains(daemon.name);
  };
  FilledPlaces filled{config, {}};
  std::vector<size_t> free;  // places, as indices into nodes
  const auto give = [&](size_t place, const NodeConfig& daemon) {
    const NodeId id = config.nodes[place].id;
    filled.config.nodes[place] = daemon;
    filled.config.nodes[place].id = id;
    taken.insert(daemon.name);
  };
  for (size_t i = 0; i < config.nodes.size(); ++i) {
    if (config.nodes[i].role != NodeRole::kCompute) continue;
    const auto had = before.find(config.IdOf(i));
    const auto last = find(had == before.end() ? config.nodes[i].name : had->second);
    if (last != daemons.end() && is_free(*last)) {
      give(i, *last);
    } else {
      free.push_back(i);
    }
  }
  for (const size_t place : free) {
    auto next = find(config.nodes[place].name);
    if (!is_free(*next)) next = std::ranges::find_if(daemons, is_free);
    if (next != daemons.end()) {
      give(place, *next);
      continue;
    }
    const NodeId id = config.IdOf(place);
    filled.empty.insert(id);
    if (const auto had = before.find(id); had != before.end()) {
      const auto last = find(had->second);
      if (last != daemons.end() && !taken.contains(last->name)) give(place, *last);
    }
  }
  filled.config.standbys.clear();
  const auto has_place = [&](const NodeConfig& daemon) {
    return std::ranges::find(filled.config.nodes, daemon.name, &NodeConfig::name) !=
           filled.config.nodes.end();
  };
  for (NodeConfig& daemon : daemons) {
    if (has_place(daemon)) continue;
    daemon.id = {};
    filled.config.standbys.push_back(daemon);
  }
  return filled;
}

}  // namespace lamina
