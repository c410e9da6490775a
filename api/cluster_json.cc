#include "api/cluster_json.h"

namespace lamina {

using nlohmann::ordered_json;
namespace {

const char* StateOf(const EngineStatus& status) {
  if (status.given_up) return "given up";
  if (!status.serving) return "outage";
  return status.stands_still ? "reconnecting" : "serving";
}

}  // namespace

ordered_json ClusterStatusJson(const EngineStatus& status) {
  ordered_json nodes = ordered_json::array();
  std::vector<NodeStatus> all = status.nodes;
  all.insert(all.end(), status.standbys.begin(), status.standbys.end());
  for (const NodeStatus& node : all) {
    ordered_json paths = ordered_json::array();
    for (const DataPathStatus& path : node.paths)
      paths.push_back({{"from", path.from},
                       {"fabric", path.fabric},
                       {"through", path.through},
                       {"refused", path.refused}});
    nodes.push_back({{"id", node.id.value},
                     {"name", node.name},
                     {"role", NodeRoleName(node.role)},
                     {"address", node.address},
                     {"state", NodeStateName(node.state)},
                     {"detail", node.detail},
                     {"kv_heads", node.kv_heads},
                     {"holds", node.holds},
                     {"weight_bytes", node.weight_bytes},
                     {"transport", node.transport},
                     {"transport_refused", node.transport_refused},
                     {"capacity_tokens", node.capacity_tokens},
                     {"used_tokens", node.used_tokens},
                     {"num_sequences", node.num_sequences},
                     {"stored_tokens", node.stored_tokens},
                     {"stored_sequences", node.stored_sequences},
                     {"stale_messages", node.stale_messages},
                     {"attention_us", node.attention_us},
                     {"paths", std::move(paths)}});
  }
  ordered_json uses = ordered_json::array();
  for (const NodeUse& use : status.scheduler.nodes) {
    uses.push_back({{"id", use.id.value},
                    {"capacity_tokens", use.capacity_tokens},
                    {"used_tokens", use.used_tokens},
                    {"cached_tokens", use.cached_tokens},
                    {"num_sequences", use.num_sequences}});
  }
  ordered_json scheduler = {{"num_running", status.scheduler.num_running},
                            {"num_waiting", status.scheduler.num_waiting},
                            {"num_parked", status.scheduler.num_parked},
                            {"num_suspended", status.scheduler.num_suspended},
                            {"num_rebuilding", status.num_rebuilding},
                            {"num_preemptions", status.scheduler.num_preemptions},
                            {"num_started_tokens", status.scheduler.num_started_tokens},
                            {"num_shared_tokens", status.scheduler.num_shared_tokens},
                            {"num_left_tokens", status.scheduler.num_left_tokens},
                            {"nodes", std::move(uses)}};
  return {{"serving", status.serving && !status.stands_still},
          {"state", StateOf(status)},
          {"detail", status.detail},
          {"nodes", std::move(nodes)},
          {"scheduler", std::move(scheduler)}};
}

}  // namespace lamina
