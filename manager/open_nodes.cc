#include "manager/open_nodes.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/descriptors.h"
#include "manager/compute_places.h"
#include "manager/resolve_config.h"

namespace lamina {
namespace {

constexpr auto kReachWait = std::chrono::seconds(5);  // for daemons that served just now

// Its socket, and what wakes the connection's thread and who waits for answers.
constexpr size_t kDescriptorsPerNode = 3;

// So many peer timeouts requests wait for the way between compute nodes, when nobody else has their
// parts of the model. What takes longer is an outage.
constexpr int kMendTimeouts = 2;

// Adds the names of the nodes with these ids.
void AddNames(const ClusterConfig& config, const std::map<NodeId, std::string>& nodes,
              std::set<std::string>& names) {
  for (size_t i = 0; i < config.nodes.size(); ++i) {
    if (nodes.contains(config.IdOf(i))) names.insert(config.nodes[i].name);
  }
}

}  // namespace

// A place that has a standby is not waited for as long as one without.
Procedure<OpenedNodes> OpenNodes(Turns& turns, const ClusterConfig& config,
                                 const ModelConfig& model, ConnectMeans means) {
  LAMINA_CO_RETURN_IF_ERROR(CheckDescriptorsLeft(config.nodes.size() * kDescriptorsPerNode));
  LAMINA_CO_ASSIGN_OR_RETURN(const View view, ViewOf(config, model));
  const TimePoint latest = turns.now() + config.start_timeout;
  std::set<std::string> gone;
  FilledPlaces filled = FillPlaces(config, {}, gone);
  bool has_others = !config.standbys.empty();
  KnownNodes known;
  known.held.takes_over = means.manager_id != 0;
  while (true) {
    const Clock::duration patience = latest - turns.now();
    ConnectingNodes connecting(filled.config, model, view, known, TimePoint::max(), means);
    const Status opened = co_await connecting.Open(
        turns, has_others ? std::min<Clock::duration>(patience, kReachWait) : patience, patience);
    if (opened.ok()) co_return connecting.Take();
    if (!has_others || (means.interrupted && means.interrupted())) co_return opened;
    const std::string missing = connecting.MissingComputeNode();
    const Status ended = co_await means.end(turns, connecting.Take(), means.on_change);
    LAMINA_CO_RETURN_IF_ERROR(ended);
    if (!missing.empty()) {
      gone.insert(missing);
      if (means.progress) means.progress(opened.message() + "; a standby is to take its place");
      filled = FillPlaces(config, {}, gone);
    }
    // A memory node, for which nobody stands by, may take the whole time.
    has_others = !missing.empty() && std::ssize(gone) < std::ssize(config.standbys);
  }
}

Procedure<OpenedNodes> OpenNodesWithout(Turns& turns, const ClusterConfig& config,
                                        const ModelConfig& model, KnownNodes known, TimePoint until,
                                        ConnectMeans means) {
  const TimePoint mended =
      turns.now() +
      std::min<Clock::duration>(config.start_timeout, kMendTimeouts * config.peer_timeout);
  // A node that did not notice yet is busy with its session for at most the peer timeout.
  const Clock::duration patience =
      std::min(config.start_timeout, 2 * config.peer_timeout + kQuietWait);
  LAMINA_CO_ASSIGN_OR_RETURN(const View all, ViewOf(config, model));
  std::set<std::string> gone = known.lost_standbys;
  AddNames(FillPlaces(config, known.places, {}).config, known.lost, gone);
  while (true) {
    LAMINA_CO_RETURN_IF_ERROR(CheckDescriptorsLeft(config.nodes.size() * kDescriptorsPerNode));
    const FilledPlaces filled = FillPlaces(config, known.places, gone);
    KnownNodes left = known;
    std::erase_if(left.lost, [&](const auto& one) {
      return all.Find(one.first)->role == NodeRole::kCompute && !filled.empty.contains(one.first);
    });
    for (const NodeId place : filled.empty)
      left.lost.emplace(place, "no standby is left for its place");
    ConnectingNodes connecting(filled.config, model, all, left, until, means);
    LAMINA_CO_RETURN_IF_ERROR(connecting.TooFewLeft());
    const Status opened =
        co_await connecting.Open(turns, std::min<Clock::duration>(patience, kReachWait), patience);
    if (opened.ok()) co_return connecting.Take();
    if (means.interrupted && means.interrupted()) co_return opened;
    const std::map<NodeId, std::string> more = co_await connecting.NewlyLost(turns, opened);
    const bool is_over = more.empty() || turns.now() >= connecting.until();
    const bool has_others = std::ranges::any_of(
        filled.config.standbys, [&](const NodeConfig& one) { return !gone.contains(one.name); });
    const bool is_cut = !has_others && connecting.HasCut() && turns.now() < mended;
    // Nodes that are left are free for the next try then.
    const Status ended = co_await means.end(turns, connecting.Take(), means.on_change);
    LAMINA_CO_RETURN_IF_ERROR(ended);
    if (is_over) co_return opened;
    if (is_cut) continue;
    known.lost.insert(more.begin(), more.end());
    AddNames(filled.config, more, gone);
  }
}

}  // namespace lamina
