#include "kernels/cpu/all_kernels.h"
#include "kernels/cpu/simd_scalar.h"

namespace lamina {

extern constexpr KernelTable kScalarKernels = MakeKernels<ScalarVec>();

}  // namespace lamina
