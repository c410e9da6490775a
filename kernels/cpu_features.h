// Which instruction set the CPU kernels use, decided once at start-up.
#pragma once

#include <string_view>

namespace lamina {

enum class CpuIsa { kScalar, kAvx2, kAvx512 };

// The best this CPU has, or what LAMINA_CPU_ISA=scalar|avx2|avx512 asks for if the CPU has it. All
// give the same bits.
CpuIsa ActiveCpuIsa();

// For tests and benchmarks: every one this CPU can run, best last.
bool CpuSupports(CpuIsa isa);
void SetCpuIsa(CpuIsa isa);  // REQUIRES: CpuSupports(isa), no kernel running
std::string_view CpuIsaName(CpuIsa isa);

}  // namespace lamina
