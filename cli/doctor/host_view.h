// The files by which Linux describes a machine, below a root that tests can replace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lamina {

class HostView {
 public:
  explicit HostView(std::string sysroot = "") : sysroot_(std::move(sysroot)) {}

  // The file's first line without spaces around it; nothing if it cannot be read. `path` is
  // absolute.
  std::optional<std::string> Line(const std::string& path) const;
  std::optional<int64_t> Number(const std::string& path) const;  // decimal
  std::vector<std::string> Lines(const std::string& path) const;

  // Names in a folder, sorted; empty if there is none.
  std::vector<std::string> Names(const std::string& path) const;
  bool Exists(const std::string& path) const;
  std::optional<std::string> Target(const std::string& path) const;  // of a symbolic link

 private:
  std::string sysroot_;
};

// One entry of the GID table of an RDMA port.
struct RdmaGid {
  int index = 0;
  std::string gid;        // eight groups of four hex digits
  std::string type;       // "RoCE v2" | "IB/RoCE v1"
  std::string interface;  // network interface, "" on InfiniBand
};

struct RdmaPort {
  std::string device;  // "mlx5_0"
  int number = 1;
  std::string state;          // "ACTIVE", "DOWN", ...
  std::string link_layer;     // "Ethernet" | "InfiniBand"
  std::string rate;           // "100 Gb/sec (4X EDR)"
  std::vector<RdmaGid> gids;  // those that are set

  std::string Name() const { return device + " port " + std::to_string(number); }
};

std::vector<RdmaPort> RdmaPorts(const HostView& host);

// The GID that stands for an IP address: "::ffff:10.0.0.1" of 10.0.0.1, written as sysfs writes
// GIDs. "" if it is no IP address.
std::string GidOf(const std::string& ip_address);

struct PciDevice {
  std::string address;                     // "0000:17:00.0"
  bool is_gpu = false;                     // NVIDIA display or 3D controller
  bool is_nic = false;                     // Ethernet or InfiniBand controller
  int numa_node = -1;                      // -1: none
  int link_width = 0, max_link_width = 0;  // lanes; 0: not told
};

std::vector<PciDevice> PciDevices(const HostView& host);

}  // namespace lamina
