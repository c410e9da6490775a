// The device that a node computes on, and its name, which is `device` in the cluster YAML and
// --device of the daemons:
//
//   cpu               the cores and the memory of the node's host
//   cuda:N            GPU number N of the host, as CUDA counts them; cuda is cuda:0
//   modelled:NAME     nothing is computed; the node takes the time that device NAME of the device
//                     catalog would take
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

// Whether the text has one of these forms, that of a modelled device, or that of a GPU. Whether
// such a device exists is not checked.
bool IsDeviceName(std::string_view name);
bool IsModelledName(std::string_view name);
bool IsGpuName(std::string_view name);

// Ends messages about text that has none of the forms.
inline constexpr std::string_view kExpectedDevice =
    "expected cpu, cuda:N with the number of a GPU, or modelled:NAME with a NAME of the device "
    "catalog";

// How long a node polls for the next message before it sleeps. If a GPU or a modelled device
// computes, the host's cores have nothing else to do and poll for long; if the cores compute, other
// nodes on the same cores need them.
Clock::duration PollingPatience(const NodeDevice& device);

// Parses a device name; looks a modelled device up in the catalog, with its profiles. Whether a GPU
// exists is not checked. kInvalidArgument if it is no device name, or a modelled device and
// `catalog_path` is empty or the catalog or a profile malformed; kNotFound if a file does not exist
// or the catalog has no such device.
Result<NodeDevice> FindDevice(const std::string& name, const std::string& catalog_path);

// FindDevice for callers that want modelled devices only: nullopt for the other kinds.
Result<std::optional<DeviceSpec>> FindModelledDevice(const std::string& name,
                                                     const std::string& catalog_path);

}  // namespace lamina
