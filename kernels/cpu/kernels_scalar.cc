#include "kernels/cpu/all_kernels.h"
#include "kernels/cpu/simd_scalar.h"

namespace lamina {

// A constexpr object is visible to other files only if it is extern.
extern constexpr KernelTable kScalarKernels = MakeKernels<ScalarVec>();

}  // namespace lamina
