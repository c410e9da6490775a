// Which instruction set the CPU kernels use. It is chosen on first use and the same for the whole
// process. All instruction sets give the same bits.
#pragma once

#include <string_view>

namespace lamina {

enum class CpuIsa { kScalar, kAvx2, kAvx512 };

// The instruction set in use: the best that this CPU has, or the one that the environment variable
// LAMINA_CPU_ISA=scalar|avx2|avx512 names if the CPU has it. Thread: any.
CpuIsa ActiveCpuIsa();

// Whether this CPU and its operating system can run the kernels for `isa`. Thread: any.
bool CpuSupports(CpuIsa isa);

// Changes the instruction set in use, for tests and benchmarks. REQUIRES: CpuSupports(isa), and no
// kernel is running.
void SetCpuIsa(CpuIsa isa);

// "scalar", "avx2" or "avx512".
std::string_view CpuIsaName(CpuIsa isa);

}  // namespace lamina
