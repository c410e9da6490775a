#include "base/huge_memory.h"

#include <sys/mman.h>

#include <cstdint>

namespace lamina {
namespace {

constexpr size_t kPageBytes = 4096;

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

void* Map(size_t size_bytes, int flags = 0) {
  void* p =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

}  // namespace

void* MapHuge(size_t size_bytes) {
  const size_t size = RoundUp(size_bytes, kPageBytes);
  if (size < kHugePageBytes) return Map(size);
  // mmap aligns to small pages only: map one huge page more than is needed, and give back what lies
  // before and after the aligned part.
  void* mapped = Map(size + kHugePageBytes);
  if (mapped == nullptr) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = RoundUp(begin, kHugePageBytes);
  if (aligned > begin) munmap(mapped, aligned - begin);
  munmap(reinterpret_cast<void*>(aligned + size), begin + kHugePageBytes - aligned);
  // Its result does not matter: without huge pages the memory is as usable, in small ones.
  madvise(reinterpret_cast<void*>(aligned), size, MADV_HUGEPAGE);
  return reinterpret_cast<void*>(aligned);
}

void* MapSparse(size_t size_bytes) {
  const size_t size = RoundUp(size_bytes, kPageBytes);
  void* const memory = Map(size, MAP_NORESERVE);
  // With huge pages two megabytes would come for each byte that is touched. A system that has none
  // refuses, and gives none.
  if (memory != nullptr) madvise(memory, size, MADV_NOHUGEPAGE);
  return memory;
}

void ReleasePages(void* begin, size_t size_bytes) { madvise(begin, size_bytes, MADV_DONTNEED); }

void UnmapHuge(void* memory, size_t size_bytes) {
  if (memory != nullptr) munmap(memory, RoundUp(size_bytes, kPageBytes));
}

}  // namespace lamina
