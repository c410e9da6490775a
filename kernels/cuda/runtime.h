// The CUDA runtime, or its emulation: what host code of this folder includes instead of either.
#pragma once

#if LAMINA_CUDA_EMULATED
#include "kernels/cuda/emulation/runtime.h"
#else
#include <cuda_runtime_api.h>
#endif
