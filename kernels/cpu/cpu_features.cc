#include "kernels/cpu_features.h"

#include <cpuid.h>

#include <atomic>
#include <cstdlib>

#include "kernels/cpu/kernel_table.h"

namespace lamina {
namespace {

// clang 14's __builtin_cpu_supports does not take "f16c".
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// An unknown name or an instruction set this CPU lacks counts as unset.
CpuIsa ChooseIsa() {
  const char* asked = std::getenv("LAMINA_CPU_ISA");
  CpuIsa best = CpuIsa::kScalar;
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (!CpuSupports(isa)) continue;
    if (asked != nullptr && CpuIsaName(isa) == asked) return isa;
    best = isa;
  }
  return best;
}

std::atomic<CpuIsa>& CurrentIsa() {
  static std::atomic<CpuIsa> isa{ChooseIsa()};
  return isa;
}

}  // namespace

CpuIsa ActiveCpuIsa() { return CurrentIsa().load(std::memory_order_relaxed); }

bool CpuSupports(CpuIsa isa) {
  if (isa == CpuIsa::kScalar) return true;
  // These builtins also ask whether the operating system saves the registers. F16C has no registers
  // of its own, so its bit alone is enough.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  return avx2 && (isa == CpuIsa::kAvx2 ||
                  (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")));
}

void SetCpuIsa(CpuIsa isa) { CurrentIsa().store(isa, std::memory_order_relaxed); }

std::string_view CpuIsaName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar: return "scalar";
    case CpuIsa::kAvx2: return "avx2";
    case CpuIsa::kAvx512: return "avx512";
  }
  return "unknown";
}

const KernelTable& ActiveKernels() {
  switch (ActiveCpuIsa()) {
    case CpuIsa::kAvx512: return kAvx512Kernels;
    case CpuIsa::kAvx2: return kAvx2Kernels;
    case CpuIsa::kScalar: break;
  }
  return kScalarKernels;
}

}  // namespace lamina
