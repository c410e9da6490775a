#include "kernels/cpu/all_kernels.h"
#include "kernels/cpu/simd_avx2.h"

namespace lamina {

extern constexpr KernelTable kAvx2Kernels = MakeKernels<Avx2Vec>();

}  // namespace lamina
