#include "kernels/cpu/all_kernels.h"
#include "kernels/cpu/simd_avx512.h"

namespace lamina {

// A constexpr object is visible to other files only if it is extern.
extern constexpr KernelTable kAvx512Kernels = MakeKernels<Avx512Vec>();

}  // namespace lamina
