// The device catalog: what accelerators can do and cost, by name. Read by modelled devices, and by whatever plans for devices that are not
// here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/layer_profile.h"
#include "base/status.h"

namespace lamina {

// Model FLOPs utilisation measured at one batch size: the share of the peak that linear layers reach with that many rows.
struct MfuPoint {
  int batch = 0;
  double mfu = 0;  // (0, 1]
};

struct DeviceSpec {
  std::string name;
  double bf16_tflops = 0;           // dense peak
  int64_t memory_bytes = 0;         // of all the device's memory
  double bandwidth_gb_per_s = 0;    // of that memory, as the vendor states it; GB = 10^9 bytes
  double bandwidth_efficiency = 1;  // share of it that kernels reach, (0, 1]
  double network_gb_per_s = 0;      // of the NIC beside it; 0: unknown
  double price_usd = 0;             // to buy; 0: unknown
  double price_per_hour = 0;        // to rent, USD; 0: unknown
  std::vector<MfuPoint> mfu;        // at least one, batches ascending
  std::string source;               // where the figures come from
  std::string profile_path;         // of measured layer times, for linear layers instead of the roofline; "": none
  int tensor_parallel = 1;          // which of the file's rows this device is
  std::optional<LayerProfile> profile;

  double peak_flops_per_s() const { return bf16_tflops * 1e12; }
  double reached_bytes_per_s() const { return bandwidth_gb_per_s * 1e9 * bandwidth_efficiency; }

  // Linear in log(batch) between the points, and the nearest point's beyond them. REQUIRES: batch > 0.
  double Mfu(double batch) const;
};

// Immutable.
class DeviceCatalog {
 public:
  // Profiles are not read yet. kNotFound: no such file. kInvalidArgument: "FILE:LINE: what is wrong, what was expected".
  static Result<DeviceCatalog> Load(const std::string& path);
  static Result<DeviceCatalog> Parse(const std::string& yaml, const std::string& path);

  // With its profile, if it has one: errors as LayerProfile::Load. kNotFound lists the names that the catalog has.
  Result<DeviceSpec> Find(std::string_view name) const;

  const std::vector<DeviceSpec>& devices() const { return devices_; }  // in the file's order

 private:
  std::string path_;
  std::vector<DeviceSpec> devices_;
};

// A `device` of the cluster YAML or of a daemon's --device is "cpu", or "modelled:NAME" with a device of the catalog.
inline constexpr std::string_view kModelledPrefix = "modelled:";

// The device that "modelled:NAME" stands for; none for "cpu". kInvalidArgument for any other text; else as Load and Find.
Result<std::optional<DeviceSpec>> FindModelledDevice(const std::string& device, const std::string& catalog_path);

}  // namespace lamina
