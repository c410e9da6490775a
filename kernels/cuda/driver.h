// The types of the CUDA driver, or its emulation. Its functions are looked for at run time, as a
// program starts without a driver too.
#pragma once

#if LAMINA_CUDA_EMULATED
#include "kernels/cuda/emulation/driver.h"
#else
#include <cuda.h>
#include <cuda_runtime_api.h>
#endif
