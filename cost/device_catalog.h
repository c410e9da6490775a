// The device catalog: what accelerators can do and cost, by name. Read by modelled devices, and by
// whatever plans for devices that are not here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cost/layer_profile.h"

namespace lamina {

// Model FLOPs utilisation measured at one batch size: the share of the peak that linear layers
// reach with that many rows.
struct MfuPoint {
  int batch = 0;
  double mfu = 0;  // (0, 1]
};

struct DeviceSpec {
  std::string name;
  double bf16_tflops = 0;    // dense peak, of fp16 too
  double fp32_tflops = 0;    // of matrix products on float32; 0: unknown
  double fp8_tflops = 0;     // dense peak; 0: unknown, or it has none
  int64_t memory_bytes = 0;  // of all the device's memory
  // Of that memory, as the vendor states it; GB = 10^9 bytes.
  double bandwidth_gb_per_s = 0;
  double bandwidth_efficiency = 1;  // share of it that kernels reach, (0, 1]
  double network_gb_per_s = 0;      // of the NIC beside it, in each direction; 0: unknown
  // To its like in the same machine, in each direction (NVLink, PCIe); 0: unknown.
  double interconnect_gb_per_s = 0;
  double price_usd = 0;       // to buy; 0: unknown
  double price_per_hour = 0;  // to rent, USD; 0: unknown
  // Of the prices: from where and when, and whether they are an assumption.
  std::string price_source;
  std::vector<MfuPoint> mfu;  // at least one, batches ascending
  // Likewise of attention, by the rows that look at a token; empty: as `mfu`.
  std::vector<MfuPoint> attention_mfu;
  std::string source;  // where the other figures come from
  // Of measured layer times, for linear layers instead of the roofline; each of one model.
  std::vector<std::string> profile_paths;
  int tensor_parallel = 1;                   // which of the files' rows this device is
  std::optional<LayerProfile> profile;       // the first file's
  std::vector<LayerProfile> other_profiles;  // the others'

  // Of matrix products on 2-byte elements, or on 4-byte ones if that is known.
  double peak_flops_per_s(int element_bytes = 2) const {
    return 1e12 * (element_bytes == 4 && fp32_tflops > 0 ? fp32_tflops : bf16_tflops);
  }
  double reached_bytes_per_s() const { return bandwidth_gb_per_s * 1e9 * bandwidth_efficiency; }

  // Linear in log(batch) between the points, and the nearest point's beyond them. REQUIRES: batch >
  // 0.
  double Mfu(double batch) const;
  double AttentionMfu(double rows_per_token) const;
};

// Immutable.
class DeviceCatalog {
 public:
  // Profiles are not read yet. A catalog that `extends` another one has that one's devices too,
  // before its own; an entry with a name that is there already changes only what it gives.
  // kNotFound: no such file. kInvalidArgument: "FILE:LINE: what is wrong, what was expected".
  static Result<DeviceCatalog> Load(const std::string& path);
  static Result<DeviceCatalog> Parse(const std::string& yaml, const std::string& path);

  // With its profiles, if it has some: errors as LayerProfile::Load. kNotFound lists the names that
  // the catalog has.
  Result<DeviceSpec> Find(std::string_view name) const;

  const std::vector<DeviceSpec>& devices() const { return devices_; }  // in the file's order

 private:
  static Result<DeviceCatalog> ParseNested(const std::string& yaml, const std::string& path,
                                           int depth);
  static Result<DeviceCatalog> LoadNested(const std::string& path, int depth);

  std::string path_;
  std::vector<DeviceSpec> devices_;
};

// Of a node's device that is one of the catalog's (node_device.h).
inline constexpr std::string_view kModelledPrefix = "modelled:";

}  // namespace lamina
