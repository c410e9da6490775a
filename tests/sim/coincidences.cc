#include "tests/sim/coincidences.h"

namespace lamina::sim {

std::string_view NameOf(Coincidence coincidence) {
  switch (coincidence) {
    case Coincidence::kMemoryKilledInPrefill: return "memory node killed in a prefill";
    case Coincidence::kMemoryKilledInDecode: return "memory node killed in a decode step";
    case Coincidence::kComputeKilledInPrefill: return "compute node killed in a prefill";
    case Coincidence::kComputeKilledInDecode: return "compute node killed in a decode step";
    case Coincidence::kKilledInRotation: return "node killed in a rotation";
    case Coincidence::kKilledWhileReconnecting: return "node killed while reconnecting";
    case Coincidence::kStandbyTookPlace: return "standby took a place";
    case Coincidence::kStandbyKilled: return "standby killed while it stood by";
    case Coincidence::kStartedWhileReconnecting: return "daemon started while reconnecting";
    case Coincidence::kStartedInOutage: return "daemon started in an outage";
    case Coincidence::kArrivedInOutage: return "request came in an outage";
    case Coincidence::kArrivedWhileReconnecting: return "request came while reconnecting";
    case Coincidence::kAbortedWhileReconnecting: return "client aborted while reconnecting";
    case Coincidence::kAbortedInPrefill: return "client aborted before its first token";
    case Coincidence::kPausedShort: return "node paused, and nobody lost it";
    case Coincidence::kPausedLong: return "node paused, and lost";
    case Coincidence::kSuspended: return "memory node suspended";
    case Coincidence::kResumed: return "suspended node in time again";
    case Coincidence::kSuspendedAndLost: return "suspended node lost";
    case Coincidence::kSuspendedAmongSeveral:
      return "memory node suspended by one of several compute nodes";
    case Coincidence::kResumedAmongSeveral:
      return "node in time again for all of several compute nodes";
    case Coincidence::kWentOnMeanwhile: return "token told while a node was suspended";
    case Coincidence::kNodeTakenBack: return "lost node taken back";
    case Coincidence::kOneWayCut: return "one direction cut, with steps under way";
    case Coincidence::kControlCutOnly: return "control channel silent, data path alive";
    case Coincidence::kControlBroken: return "control channel broken, both ends alive";
    case Coincidence::kPostCorrupted: return "post corrupted";
    case Coincidence::kPostDuplicated: return "post announced twice";
    case Coincidence::kNotificationLost: return "notification lost";
    case Coincidence::kPostDelayed: return "post delayed";
    case Coincidence::kPostOfTheDead: return "post arrived when its sender was gone";
    case Coincidence::kPostToNobody: return "post arrived when its receiver was gone";
    case Coincidence::kLateMessageDropped: return "late or repeated message dropped";
    case Coincidence::kPreempted: return "sequence preempted";
    case Coincidence::kPrefixShared: return "prefix shared";
    case Coincidence::kPrefixSharedAfterFault: return "prefix shared after a loss";
    case Coincidence::kRanAgain: return "sequence started again with tokens that were told";
    case Coincidence::kKvKept:
      return "sequence went on with kept KV when nodes were connected anew";
    case Coincidence::kKvKeptOfSome: return "sequences went on and others started again then";
    case Coincidence::kSpreadLostNode: return "spread sequences lost a node";
    case Coincidence::kGroupLostNode: return "group of nodes lost one";
    case Coincidence::kEveryMemoryNodeLost: return "no memory node left";
    case Coincidence::kEveryComputeNodeLost: return "no compute node left";
    case Coincidence::kManagerKilledInPrefill: return "manager killed in a prefill";
    case Coincidence::kManagerKilledInDecode: return "manager killed in a decode step";
    case Coincidence::kManagerKilledWhileReconnecting: return "manager killed while reconnecting";
    case Coincidence::kManagerNotConnected: return "manager killed before it served";
    case Coincidence::kWentOnWithNewManager: return "stream went on with a new manager";
    case Coincidence::kWentOnWithLeftKv:
      return "sequence went on with KV that the manager before left";
    case Coincidence::kFrontBroken: return "front lost its connection with requests under way";
    case Coincidence::kFrontCut: return "front cut off with requests under way";
    case Coincidence::kNumCoincidences: break;
  }
  return "";
}

}  // namespace lamina::sim
