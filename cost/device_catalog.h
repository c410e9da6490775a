// The device catalog, a YAML file that says by name what accelerators can do and cost. Used by
// modelled devices, and by planners and simulators, which reckon with devices that are not here.
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

// One device. GB are 10^9 bytes; bandwidths of links are for each direction.
struct DeviceSpec {
  std::string name;
  double bf16_tflops = 0;           // dense peak, also for fp16
  double fp32_tflops = 0;           // of matrix products on float32; 0: unknown
  double fp8_tflops = 0;            // dense peak; 0: unknown or not supported
  int64_t memory_bytes = 0;         // all memory of the device
  double bandwidth_gb_per_s = 0;    // of that memory, as the vendor states it
  double bandwidth_efficiency = 1;  // the share of it that kernels reach, (0, 1]
  double network_gb_per_s = 0;      // of the NIC beside the device; 0: unknown
  // To devices of the same kind in the same machine (NVLink, PCIe); 0: unknown.
  double interconnect_gb_per_s = 0;
  double host_link_gb_per_s = 0;       // from the host's memory (PCIe, NVLink-C2C); 0: unknown
  double host_link_back_gb_per_s = 0;  // to it, at the same time; 0: as the one from it
  // Copies of so many bytes reach 95 % of these rates; 0: copies of any size reach all of them.
  int64_t host_link_95_percent_bytes = 0;
  double load_gb_per_s = 0;   // at which weights come from where they are kept; 0: at once
  double price_usd = 0;       // to buy; 0: unknown
  double price_per_hour = 0;  // to rent, in USD; 0: unknown
  std::string price_source;   // where and when prices come from, and whether they are assumed
  std::vector<MfuPoint> mfu;  // at least one point, batches ascending
  // The utilisation of attention, where `batch` is the number of query rows per token of a kv head.
  // If empty, `mfu` is used.
  std::vector<MfuPoint> attention_mfu;
  std::string source;  // where the other figures come from
  // CSV files of measured layer times, each of one model, which replace the roofline for linear
  // layers.
  std::vector<std::string> profile_paths;
  int tensor_parallel = 1;                   // the number of workers whose rows are read from them
  std::optional<LayerProfile> profile;       // of the first file
  std::vector<LayerProfile> other_profiles;  // of the other files

  // The peak of matrix products on 2-byte elements; on 4-byte ones if asked for and known.
  double peak_flops_per_s(int element_bytes = 2) const {
    return 1e12 * (element_bytes == 4 && fp32_tflops > 0 ? fp32_tflops : bf16_tflops);
  }
  // Of the link from the host: `told_gb_per_s` unless that is 0. kInvalidArgument if nothing says
  // it.
  Result<double> HostLinkBytesPerS(double told_gb_per_s) const;
  // The other way, of the same link.
  double HostLinkBackBytesPerS(double told_gb_per_s) const {
    return 1e9 * (told_gb_per_s > 0             ? told_gb_per_s
                  : host_link_back_gb_per_s > 0 ? host_link_back_gb_per_s
                                                : host_link_gb_per_s);
  }
  // The share of the link's rate that copies of so many bytes reach, if each costs a fixed time
  // besides its bytes'.
  double HostLinkShare(double copy_bytes) const {
    return copy_bytes / (copy_bytes + static_cast<double>(host_link_95_percent_bytes) / 19);
  }
  double reached_bytes_per_s() const { return bandwidth_gb_per_s * 1e9 * bandwidth_efficiency; }

  // Utilisation, interpolated linearly in log(batch) between the points, and constant beyond the
  // first and the last. REQUIRES: the argument is more than 0.
  double Mfu(double batch) const;
  double AttentionMfu(double rows_per_token) const;
};

// Immutable. Thread: any.
class DeviceCatalog {
 public:
  // Reads the file, or takes its text, but does not read profiles yet. A catalog with the key
  // `extends` begins with the devices of that other catalog; an entry with the name of one of them
  // changes only the figures that it gives. kNotFound if the file does not exist; kInvalidArgument
  // "FILE:LINE: what is wrong, what was expected".
  static Result<DeviceCatalog> Load(const std::string& path);
  static Result<DeviceCatalog> Parse(const std::string& yaml, const std::string& path);

  // Returns the device, with its profiles read. kNotFound if the catalog has no such device, with
  // the names that it has, or if a profile's file does not exist; kInvalidArgument if a profile is
  // malformed.
  Result<DeviceSpec> Find(std::string_view name) const;

  const std::vector<DeviceSpec>& devices() const { return devices_; }  // in the file's order

 private:
  static Result<DeviceCatalog> ParseNested(const std::string& yaml, const std::string& path,
                                           int depth);
  static Result<DeviceCatalog> LoadNested(const std::string& path, int depth);

  std::string path_;
  std::vector<DeviceSpec> devices_;
};

// Prefix of the name of a node's device that is one of the catalog (node_device.h).
inline constexpr std::string_view kModelledPrefix = "modelled:";

}  // namespace lamina
