// A fabric within this process whose posts reach device windows, as a NIC's do: around loopback, with copies by the device.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina::testing {

std::unique_ptr<Fabric> OpenGpuNicFabric();

}  // namespace lamina::testing
