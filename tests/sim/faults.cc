#include "tests/sim/faults.h"

#include <algorithm>
#include <vector>

namespace lamina::sim {
namespace {

using testing::ControlNetwork;

bool IsMemory(const std::string& node) { return node.front() == 'm'; }

bool IsCut(FaultKind kind) {
  return kind == FaultKind::kCutData || kind == FaultKind::kCutControl ||
         kind == FaultKind::kIsolate;
}

PostFault OfPost(FaultKind kind) {
  switch (kind) {
    case FaultKind::kCorrupt: return PostFault::kCorrupt;
    case FaultKind::kDuplicate: return PostFault::kDuplicate;
    case FaultKind::kDelay: return PostFault::kDelay;
    default: return PostFault::kLoseNotification;
  }
}

}  // namespace

void Faults::Begin(const Fault& fault, const UnderWay& under_way) {
  if (IsCut(fault.kind) && fault.one_way && under_way.any()) seen_.Saw(Coincidence::kOneWayCut);
  switch (fault.kind) {
    case FaultKind::kKill: return Kill(fault.node, under_way);
    case FaultKind::kVanish: Cut(fault, true); return Kill(fault.node, under_way);
    case FaultKind::kPause:
      if (cluster_.runs(fault.node)) cluster_.Pause(fault.node);
      return;
    case FaultKind::kSlow: slowness_[fault.node] = fault.factor; return;
    case FaultKind::kCutControl:
      if (under_way.any()) seen_.Saw(Coincidence::kControlCutOnly);
      return Cut(fault, true);
    case FaultKind::kCutData:
    case FaultKind::kIsolate: return Cut(fault, true);
    case FaultKind::kBreakControl:
      if (cluster_.runs(fault.node)) seen_.Saw(Coincidence::kControlBroken);
      return cluster_.network().Break(cluster_.AddressOf(fault.node));
    case FaultKind::kKillManager: return KillManager(under_way);
    case FaultKind::kBreakFront:
      if (under_way.any() && cluster_.serves()) seen_.Saw(Coincidence::kFrontBroken);
      return cluster_.front_network().Break(testing::VirtualCluster::kFrontAddress);
    case FaultKind::kCutFront:
      if (under_way.any() && cluster_.serves()) seen_.Saw(Coincidence::kFrontCut);
      return CutFront(fault, true);
    case FaultKind::kCorrupt:
    case FaultKind::kDuplicate:
    case FaultKind::kLoseNotification:
    case FaultKind::kDelay:
      return data_.Plan(fault.node, fault.other, OfPost(fault.kind), fault.lasts);
  }
}

Status Faults::End(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kKill: return Start(fault.node);
    case FaultKind::kVanish: Cut(fault, false); return Start(fault.node);
    case FaultKind::kKillManager:
      if (--kills_[ControlNetwork::kManager] == 0) cluster_.StartManager();
      break;
    case FaultKind::kCutFront: CutFront(fault, false); break;
    case FaultKind::kPause: Resume(fault.node); break;
    case FaultKind::kSlow: slowness_.erase(fault.node); break;
    case FaultKind::kCutData:
    case FaultKind::kCutControl:
    case FaultKind::kIsolate: Cut(fault, false); break;
    default: break;
  }
  return OkStatus();
}

int Faults::SlownessOf(const std::string& node) const {
  const auto slow = slowness_.find(node);
  return slow == slowness_.end() ? 1 : slow->second;
}

bool Faults::IsLost(const std::string& node) const {
  return std::ranges::any_of(cluster_.status().nodes, [&](const NodeStatus& status) {
    return status.name == node && status.state == NodeState::kLost;
  });
}

void Faults::Kill(const std::string& node, const UnderWay& under_way) {
  if (kills_[node]++ > 0) return;
  NoteKill(node, under_way);
  cluster_.Kill(node);
  const auto is_down = [&](const std::string& other) { return !cluster_.runs(other); };
  if (IsMemory(node) && std::ranges::all_of(scenario_.memory_nodes(), is_down))
    seen_.Saw(Coincidence::kEveryMemoryNodeLost);
  if (!IsMemory(node) && std::ranges::all_of(scenario_.compute_nodes(), is_down))
    seen_.Saw(Coincidence::kEveryComputeNodeLost);
}

void Faults::KillManager(const UnderWay& under_way) {
  if (kills_[ControlNetwork::kManager]++ > 0) return;
  if (!cluster_.serves()) seen_.Saw(Coincidence::kManagerNotConnected);
  if (cluster_.reconnecting()) seen_.Saw(Coincidence::kManagerKilledWhileReconnecting);
  if (under_way.prefill) seen_.Saw(Coincidence::kManagerKilledInPrefill);
  if (under_way.decode) seen_.Saw(Coincidence::kManagerKilledInDecode);
  cluster_.KillManager();
}

void Faults::CutFront(const Fault& fault, bool cut) {
  testing::Wires& wires = cluster_.front_network().wires();
  const std::string front = ControlNetwork::kManager,  // who connects
      manager = testing::VirtualCluster::kFrontAddress;
  cut ? wires.Cut(front, manager) : wires.Mend(front, manager);
  if (fault.one_way) return;
  cut ? wires.Cut(manager, front) : wires.Mend(manager, front);
}

void Faults::NoteKill(const std::string& node, const UnderWay& under_way) {
  const auto stands_by = [&](const NodeStatus& status) {
    return status.name == node && status.state == NodeState::kStandby;
  };
  if (std::ranges::any_of(cluster_.status().standbys, stands_by))
    return seen_.Saw(Coincidence::kStandbyKilled);
  const bool memory = IsMemory(node);
  const ClusterShape& shape = scenario_.shape;
  if (cluster_.reconnecting()) seen_.Saw(Coincidence::kKilledWhileReconnecting);
  if (under_way.prefill)
    seen_.Saw(memory ? Coincidence::kMemoryKilledInPrefill : Coincidence::kComputeKilledInPrefill);
  if (!under_way.decode) return;
  seen_.Saw(memory ? Coincidence::kMemoryKilledInDecode : Coincidence::kComputeKilledInDecode);
  if (shape.rotates()) seen_.Saw(Coincidence::kKilledInRotation);
  if (memory && shape.spread_tokens > 0) seen_.Saw(Coincidence::kSpreadLostNode);
  if (memory && shape.kv_head_parallel > 1) seen_.Saw(Coincidence::kGroupLostNode);
}

Status Faults::Start(const std::string& node) {
  if (--kills_[node] > 0) return OkStatus();
  if (!cluster_.status().serving)
    seen_.Saw(Coincidence::kStartedInOutage);
  else if (cluster_.reconnecting())
    seen_.Saw(Coincidence::kStartedWhileReconnecting);
  return cluster_.Start(node);
}

// The process that was paused may be gone.
void Faults::Resume(const std::string& node) {
  if (!cluster_.paused(node)) return;
  seen_.Saw(IsLost(node) ? Coincidence::kPausedLong : Coincidence::kPausedShort);
  cluster_.Resume(node);
}

void Faults::Cut(const Fault& fault, bool cut) {
  const std::string& node = fault.node;
  const bool one_way = fault.one_way && fault.kind != FaultKind::kVanish;
  if (fault.kind != FaultKind::kCutControl) {
    std::vector<std::string> others = {fault.other};
    if (fault.kind != FaultKind::kCutData) {
      others = scenario_.compute_nodes();
      const std::vector<std::string> memory = scenario_.memory_nodes();
      others.insert(others.end(), memory.begin(), memory.end());
      const std::vector<std::string> standbys = scenario_.standbys();
      others.insert(others.end(), standbys.begin(), standbys.end());
      std::erase(others, node);
    }
    for (const std::string& other : others) {
      CutData(node, other, cut);
      if (!one_way) CutData(other, node, cut);
    }
  }
  if (fault.kind == FaultKind::kCutData) return;
  CutControl(node, /*to_manager=*/true, cut);
  if (!one_way) CutControl(node, /*to_manager=*/false, cut);
}

void Faults::CutData(const std::string& from, const std::string& to, bool cut) {
  if (cut)
    data_.wires().Cut(from, to);
  else
    data_.wires().Mend(from, to);
}

void Faults::CutControl(const std::string& node, bool to_manager, bool cut) {
  testing::Wires& wires = cluster_.network().wires();
  const std::string address = cluster_.AddressOf(node), manager = ControlNetwork::kManager;
  const std::string& from = to_manager ? address : manager;
  const std::string& to = to_manager ? manager : address;
  if (cut)
    wires.Cut(from, to);
  else
    wires.Mend(from, to);
}

}  // namespace lamina::sim
