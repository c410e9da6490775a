#include "kernels/cpu/all_kernels.h"
#include "kernels/cpu/simd_avx2.h"

namespace lamina {

// A constexpr object is visible to other files only if it is extern.
extern constexpr KernelTable kAvx2Kernels = MakeKernels<Avx2Vec>();

}  // namespace lamina
