// A fabric within this process whose posts reach device windows, as a NIC's do: around loopback,
// with copies by the device.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina::testing {

// In builds with CUDA kernels.
std::unique_ptr<Fabric> OpenGpuNicFabric();

}  // namespace lamina::testing
