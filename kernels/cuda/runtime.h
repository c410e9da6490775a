// The CUDA runtime API, or its emulation. Host code of this folder includes this instead of either.
#pragma once

#if LAMINA_CUDA_EMULATED
#include "kernels/cuda/emulation/runtime.h"
#else
#include <cuda_runtime_api.h>
#endif
