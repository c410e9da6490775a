// What has to come together now and then for a simulation to be worth anything. A run counts what
// it has seen of each; over many seeds each is above zero, or the simulation tests less than it
// says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lamina::sim {

enum class Coincidence : uint8_t {
  kMemoryKilledInPrefill,
  kMemoryKilledInDecode,
  kComputeKilledInPrefill,
  kComputeKilledInDecode,
  kKilledInRotation,
  kKilledWhileReconnecting,
  kStandbyTookPlace,
  kStandbyKilled,
  kStartedWhileReconnecting,
  kStartedInOutage,
  kArrivedInOutage,
  kArrivedWhileReconnecting,
  kAbortedWhileReconnecting,
  kAbortedInPrefill,
  kPausedShort,
  kPausedLong,
  kSuspended,
  kResumed,
  kSuspendedAndLost,
  kSuspendedAmongSeveral,
  kResumedAmongSeveral,
  kWentOnMeanwhile,
  kNodeTakenBack,
  kOneWayCut,
  kControlCutOnly,
  kControlBroken,
  kPostCorrupted,
  kPostDuplicated,
  kNotificationLost,
  kPostDelayed,
  kPostOfTheDead,
  kPostToNobody,
  kLateMessageDropped,
  kPreempted,
  kPrefixShared,
  kPrefixSharedAfterFault,
  kRanAgain,
  kKvKept,
  kKvKeptOfSome,
  kSpreadLostNode,
  kGroupLostNode,
  kEveryMemoryNodeLost,
  kEveryComputeNodeLost,
  kManagerKilledInPrefill,
  kManagerKilledInDecode,
  kManagerKilledWhileReconnecting,
  kManagerNotConnected,
  kWentOnWithNewManager,
  kWentOnWithLeftKv,
  kFrontBroken,
  kFrontCut,
  kNumCoincidences,
};

inline constexpr size_t kNumCoincidences = static_cast<size_t>(Coincidence::kNumCoincidences);

// "a memory node killed in a prefill".
std::string_view NameOf(Coincidence coincidence);

// Value type.
class Coincidences {
 public:
  void Saw(Coincidence coincidence, uint64_t times = 1) {
    counts_[static_cast<size_t>(coincidence)] += times;
  }
  uint64_t count(Coincidence coincidence) const {
    return counts_[static_cast<size_t>(coincidence)];
  }
  void Add(const Coincidences& others) {
    for (size_t i = 0; i < kNumCoincidences; ++i) counts_[i] += others.counts_[i];
  }

 private:
  std::array<uint64_t, kNumCoincidences> counts_{};
};

}  // namespace lamina::sim
