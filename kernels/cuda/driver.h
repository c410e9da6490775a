// The types of the CUDA driver API, or of its emulation. Programs must start without a driver too,
// so its functions are looked up at run time (shared_buffer.cc) and never linked.
#pragma once

#if LAMINA_CUDA_EMULATED
#include "kernels/cuda/emulation/driver.h"
#else
#include <cuda.h>
#include <cuda_runtime_api.h>
#endif
