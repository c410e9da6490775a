#include "cost/node_device.h"

#include <charconv>
#include <utility>

namespace lamina {
namespace {

constexpr std::string_view kCudaPrefix = "cuda:";
constexpr int kMaxGpus = 1024;  // more than any host has

std::optional<CudaGpu> ParseCuda(std::string_view name) {
  if (name == "cuda") return CudaGpu{0};
  if (!name.starts_with(kCudaPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kCudaPrefix.size());
  CudaGpu gpu;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), gpu.index);
  const bool ok = error == std::errc() && end == digits.data() + digits.size() && gpu.index >= 0 &&
                  gpu.index < kMaxGpus;
  return ok ? std::optional(gpu) : std::nullopt;
}

}  // namespace

bool IsModelledName(std::string_view name) {
  return name.starts_with(kModelledPrefix) && name.size() > kModelledPrefix.size();
}

bool IsGpuName(std::string_view name) { return ParseCuda(name).has_value(); }

bool IsDeviceName(std::string_view name) {
  return name == "cpu" || IsGpuName(name) || IsModelledName(name);
}

Clock::duration PollingPatience(const NodeDevice& device) {
  return std::holds_alternative<HostCpu>(device) ? microseconds(200) : milliseconds(1);
}

Result<NodeDevice> FindDevice(const std::string& name, const std::string& catalog_path) {
  if (!IsDeviceName(name))
    return InvalidArgument("device '" + name + "': " + std::string(kExpectedDevice));
  if (const std::optional<CudaGpu> gpu = ParseCuda(name)) return NodeDevice(*gpu);
  if (!IsModelledName(name)) return NodeDevice(HostCpu{});
  if (catalog_path.empty()) return InvalidArgument("device '" + name + "' needs a device catalog");
  LAMINA_ASSIGN_OR_RETURN(const DeviceCatalog catalog, DeviceCatalog::Load(catalog_path));
  LAMINA_ASSIGN_OR_RETURN(DeviceSpec spec, catalog.Find(name.substr(kModelledPrefix.size())));
  return NodeDevice(std::move(spec));
}

Result<std::optional<DeviceSpec>> FindModelledDevice(const std::string& name,
                                                     const std::string& catalog_path) {
  LAMINA_ASSIGN_OR_RETURN(NodeDevice device, FindDevice(name, catalog_path));
  if (DeviceSpec* const spec = std::get_if<DeviceSpec>(&device))
    return std::optional<DeviceSpec>(std::move(*spec));
  return std::optional<DeviceSpec>();
}

}  // namespace lamina
