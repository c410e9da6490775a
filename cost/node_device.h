// What a node computes on, and its name: `device` in the cluster YAML, --device of the daemons.
//
//   cpu               the cores and the memory of its host
//   cuda:N            GPU number N of its host, as CUDA counts them; cuda is cuda:0
//   modelled:NAME     nothing: it takes the time that device NAME of the catalog would
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/clock.h"
#include "base/status.h"
#include "cost/device_catalog.h"

namespace lamina {

struct HostCpu {};
struct CudaGpu {
  int index = 0;
};
using NodeDevice = std::variant<HostCpu, CudaGpu, DeviceSpec>;

// Whether the text has one of these forms; the catalog and the GPUs are not asked.
bool IsDeviceName(std::string_view name);
bool IsModelledName(std::string_view name);
bool IsGpuName(std::string_view name);

// For messages about text that has none.
inline constexpr std::string_view kExpectedDevice =
    "expected cpu, cuda:N with the number of a GPU, or modelled:NAME with a NAME of the device "
    "catalog";

// How long a node polls for the next message before it sleeps. The cores of a host whose device
// computes have nothing else to do; where they compute themselves, other nodes on them do.
Clock::duration PollingPatience(const NodeDevice& device);

// Finds a modelled one in the catalog. kInvalidArgument: no device name, or no catalog. Else as
// DeviceCatalog::Load and Find.
Result<NodeDevice> FindDevice(const std::string& name, const std::string& catalog_path);

// The device that "modelled:NAME" stands for, none for the others. Errors as FindDevice.
Result<std::optional<DeviceSpec>> FindModelledDevice(const std::string& name,
                                                     const std::string& catalog_path);

}  // namespace lamina
