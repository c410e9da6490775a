#include "kernels/cuda/emulation/bulk_copies.h"

#include <cstring>
#include <utility>

namespace lamina::cuda::emulation {
namespace {

// The value that a barrier's bytes hold, so that it shows if something else is written there.
uint64_t MarkOf(const uint64_t* barrier) {
  return 0x6d62617272696572 ^ reinterpret_cast<uintptr_t>(barrier);
}

// The largest transaction count of an mbarrier's phase (PTX ISA, "Contents of the mbarrier
// object").
constexpr size_t kMostExpectedBytes = (1 << 20) - 1;

}  // namespace

std::string Mbarriers::NameOf(const void* shared) const {
  return "the mbarrier at byte " + std::to_string(static_cast<const std::byte*>(shared) - shared_) +
         " of shared memory";
}

std::string Mbarriers::Check(const uint64_t* barrier) const {
  if (!barriers_.contains(barrier)) return NameOf(barrier) + " was not made";
  return *barrier == MarkOf(barrier) ? "" : NameOf(barrier) + " was overwritten";
}

std::string Mbarriers::Init(uint64_t* barrier, int num_arrivals) {
  const auto at = reinterpret_cast<std::byte*>(barrier);
  if (at < shared_ || at + sizeof(*barrier) > shared_ + shared_bytes_ || (at - shared_) % 8 != 0)
    return "an mbarrier is 8 aligned bytes of shared memory";
  if (num_arrivals < 1) return NameOf(barrier) + " is made for no arrivals";
  if (!barriers_.try_emplace(barrier, Mbarrier{.num_arrivals = num_arrivals}).second)
    return NameOf(barrier) + " was made before";
  *barrier = MarkOf(barrier);
  return "";
}

void Mbarriers::EndPhaseIfComplete(Mbarrier& barrier) {
  if (barrier.arrived < barrier.num_arrivals || barrier.started < barrier.expected ||
      !barrier.late.empty())
    return;
  ++barrier.phase;
  barrier.arrived = 0;
  barrier.expected = barrier.started = 0;
}

std::string Mbarriers::Arrive(uint64_t* barrier, int num_bytes) {
  if (std::string wrong = Check(barrier); !wrong.empty()) return wrong;
  Mbarrier& its = barriers_[barrier];
  if (its.arrived == its.num_arrivals) return NameOf(barrier) + " has all arrivals of this phase";
  its.expected += static_cast<size_t>(num_bytes);
  if (num_bytes < 0 || its.expected > kMostExpectedBytes)
    return NameOf(barrier) + " can expect " + std::to_string(kMostExpectedBytes) + " bytes";
  ++its.arrived;
  EndPhaseIfComplete(its);
  return "";
}

std::string Mbarriers::StartCopy(void* to, const void* from, int num_bytes, uint64_t* barrier,
                                 uint64_t fenced) {
  if (std::string wrong = Check(barrier); !wrong.empty()) return wrong;
  const Copy copy = {static_cast<std::byte*>(to), static_cast<const std::byte*>(from),
                     static_cast<size_t>(num_bytes)};
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | copy.bytes) % 16 != 0)
    return "a bulk copy's ends and size are not multiples of 16 bytes";
  if (num_bytes <= 0 || copy.to < shared_ ||
      copy.bytes > static_cast<size_t>(shared_ + shared_bytes_ - copy.to))
    return "a bulk copy of " + std::to_string(num_bytes) + " bytes does not end in shared memory";
  // Memory that no copy has written counts as used since the beginning, so each thread must have
  // fenced once.
  const auto before = brought_.find(copy.to);
  if (fenced <= (before == brought_.end() ? 0 : before->second))
    return "a bulk copy overwrites what some thread has used, and not fenced since";
  Mbarrier& its = barriers_[barrier];
  if (its.started + copy.bytes > its.expected)
    return NameOf(barrier) + " expects " + std::to_string(its.expected) +
           " bytes, and copies bring " + std::to_string(its.started + copy.bytes);
  its.started += copy.bytes;
  if (!eager_copies_) {
    its.late.push_back(copy);
    return "";
  }
  Bring(copy);
  EndPhaseIfComplete(its);
  return "";
}

void Mbarriers::Bring(const Copy& copy) {
  std::memcpy(copy.to, copy.from, copy.bytes);
  brought_[copy.to] = Tick();
}

bool Mbarriers::BringCopies(const uint64_t* barrier) {
  Mbarrier& its = barriers_.at(barrier);
  if (its.arrived < its.num_arrivals || its.started < its.expected) return false;
  for (const Copy& copy : std::exchange(its.late, {})) Bring(copy);
  EndPhaseIfComplete(its);
  return true;
}

std::string Mbarriers::WhatIsMissing(const uint64_t* barrier) const {
  const Mbarrier& its = barriers_.at(barrier);
  if (its.arrived < its.num_arrivals)
    return NameOf(barrier) + ", where " + std::to_string(its.arrived) + " of " +
           std::to_string(its.num_arrivals) + " have arrived";
  return NameOf(barrier) + ", which expects " + std::to_string(its.expected) +
         " bytes, and copies bring " + std::to_string(its.started);
}

std::string Mbarriers::AtEnd() const {
  for (const auto& [barrier, its] : barriers_) {
    if (its.arrived > 0 || its.started > 0)
      return "the block ends in the middle of a phase of " + NameOf(barrier);
  }
  return "";
}

}  // namespace lamina::cuda::emulation
