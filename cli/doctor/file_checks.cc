#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>

#include "base/units.h"
#include "cli/doctor/host_checks.h"
#include "transport/tcp_socket.h"

namespace lamina {
namespace {

constexpr int kIpcLock = 14;  // CAP_IPC_LOCK: no limit on locked memory

// A lack that only matters to who asked for RDMA.
Level Lack(const HostNeeds& needs) { return needs.needs_rdma() ? Level::kFail : Level::kNone; }

std::string GidList(const RdmaPort& port) {
  std::string text;
  for (const RdmaGid& gid : port.gids)
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", gid.index, gid.gid, gid.type);
  return text.empty() ? "none" : text;
}

Finding CheckPort(const RdmaPort& port) {
  Finding finding{"rdma-port", port.Name(), Level::kOk,
                  fmt::format("{}, {}, {}", port.state, port.link_layer, port.rate), ""};
  if (port.state == "ACTIVE") return finding;
  finding.level = Level::kWarn;
  finding.fix = port.link_layer == "InfiniBand"
                    ? "check the cable; is a subnet manager (opensm) running in this fabric?"
                    : "check the cable and `ip link set INTERFACE up` of its network interface";
  return finding;
}

// The port must carry the address that the cluster gives this host, as a RoCE v2 GID or on
// InfiniBand at all.
Finding CheckGid(const std::vector<RdmaPort>& ports, const HostNeeds& needs) {
  const std::string wanted = GidOf(needs.address);
  Finding finding{"rdma-gid", needs.address, Level::kOk, "", ""};
  for (const RdmaPort& port : ports) {
    for (const RdmaGid& gid : port.gids) {
      if (gid.gid != wanted || gid.type != "RoCE v2") continue;
      finding.cause =
          fmt::format("GID {} of {} is RoCE v2 on {}", gid.index, port.Name(), gid.interface);
      if (port.state == "ACTIVE") return finding;
      finding.level = needs.needs_rdma() ? Level::kFail : Level::kWarn;
      finding.cause += ", but the port is " + port.state;
      finding.fix = "bring the port up, see rdma-port";
      return finding;
    }
    if (port.link_layer == "InfiniBand" && port.state == "ACTIVE") {
      finding.cause = port.Name() + " is InfiniBand and active: no GID has to match";
      return finding;
    }
  }
  finding.level = needs.needs_rdma() ? Level::kFail : Level::kWarn;
  finding.cause = "no RDMA port has a RoCE v2 GID for this address";
  for (const RdmaPort& port : ports)
    finding.cause += fmt::format("; {} has {}", port.Name(), GidList(port));
  finding.fix =
      "give the node's `host` in the cluster YAML the IP address of the NIC's interface, or set "
      "RoCE v2 for it";
  return finding;
}

}  // namespace

std::vector<Finding> CheckRdma(const HostView& host, const HostNeeds& needs) {
  const std::vector<RdmaPort> ports = RdmaPorts(host);
  if (ports.empty()) {
    return {
        {"rdma-device", "this host", Lack(needs), "no RDMA device",
         needs.needs_rdma()
             ? "install the NIC's driver (`rdma link` lists devices), or set transport kind: auto"
             : ""}};
  }
  std::vector<Finding> findings;
  for (const RdmaPort& port : ports) findings.push_back(CheckPort(port));
  if (!GidOf(needs.address).empty() && !needs.address.starts_with("127."))
    findings.push_back(CheckGid(ports, needs));
  return findings;
}

std::vector<Finding> CheckLockedMemory(const HostView& host, const HostNeeds& needs) {
  for (const std::string& line : host.Lines("/proc/self/status")) {
    if (!line.starts_with("CapEff:")) continue;
    uint64_t capabilities = 0;
    const size_t digits = line.find_first_not_of(" \t", 7);
    if (digits != std::string::npos)
      std::from_chars(line.data() + digits, line.data() + line.size(), capabilities, 16);
    if ((capabilities >> kIpcLock & 1) != 0)
      return {{"memlock", "this process", Level::kOk, "has CAP_IPC_LOCK: no limit", ""}};
  }
  for (const std::string& line : host.Lines("/proc/self/limits")) {
    if (!line.starts_with("Max locked memory")) continue;
    const std::string soft = line.substr(std::min(line.size(), line.find_first_not_of(' ', 17)));
    if (soft.starts_with("unlimited"))
      return {{"memlock", "this process", Level::kOk, "no limit", ""}};
    int64_t limit = 0;
    std::from_chars(soft.data(), soft.data() + soft.size(), limit);
    const bool enough = limit >= needs.registered_bytes;
    const bool may_use_rdma = needs.transport != TransportKind::kTcp &&
                              needs.transport != TransportKind::kShm && !RdmaPorts(host).empty();
    const Level lack = needs.needs_rdma() ? Level::kFail : may_use_rdma ? Level::kWarn : Level::kOk;
    return {
        {"memlock", "this process", enough ? Level::kOk : lack,
         fmt::format("at most {} of locked memory, RDMA needs {}", FormatSize(limit),
                     FormatSize(needs.registered_bytes)),
         enough ? "" : "for RDMA: `ulimit -l unlimited`, in a systemd unit LimitMEMLOCK=infinity"}};
  }
  return {{"memlock", "this process", Level::kWarn,
           "/proc/self/limits does not tell the limit of locked memory", ""}};
}

std::vector<Finding> CheckPci(const HostView& host) {
  std::vector<Finding> findings;
  std::set<int> nic_nodes;
  const std::vector<PciDevice> devices = PciDevices(host);
  for (const PciDevice& device : devices) {
    if (device.is_nic) nic_nodes.insert(device.numa_node);
  }
  for (const PciDevice& device : devices) {
    const std::string name = (device.is_gpu ? "GPU " : "NIC ") + device.address;
    if (device.link_width > 0 && device.max_link_width > 0) {
      const bool narrow = device.link_width < device.max_link_width;
      findings.push_back(
          {"pcie-width", name, narrow ? Level::kWarn : Level::kOk,
           fmt::format("{} of {} PCIe lanes", device.link_width, device.max_link_width),
           narrow ? "reseat the card, or use a slot with all lanes" : ""});
    }
    if (device.is_gpu && device.numa_node >= 0 && !nic_nodes.empty()) {
      const bool near = nic_nodes.contains(device.numa_node);
      findings.push_back(
          {"gpu-nic-numa", name, near ? Level::kOk : Level::kWarn,
           fmt::format("NUMA node {}, {}", device.numa_node, near ? "as a NIC" : "no NIC there"),
           near ? "" : "put GPU and NIC on the same CPU socket: data crosses the socket link now"});
    }
  }
  return findings;
}

std::vector<Finding> CheckGpuDirect(const HostView& host) {
  const std::vector<PciDevice> devices = PciDevices(host);
  if (std::none_of(devices.begin(), devices.end(),
                   [](const PciDevice& device) { return device.is_gpu; }))
    return {};
  const std::vector<std::string> modules = host.Lines("/proc/modules");
  const bool peermem = std::any_of(modules.begin(), modules.end(), [](const std::string& line) {
    return line.starts_with("nvidia_peermem ");
  });
  const std::optional<std::string> driver = host.Line("/proc/driver/nvidia/version");
  if (!driver)
    return {{"gpu-direct", "driver", Level::kWarn, "there is a GPU, but no NVIDIA driver",
             "install the NVIDIA driver"}};
  // Only those hand out DMA-BUFs.
  const bool open = driver->find("Open Kernel Module") != std::string::npos;
  return {{"gpu-direct", "driver", open || peermem ? Level::kOk : Level::kWarn,
           open      ? "open kernel modules: GPU memory can be registered by DMA-BUF"
           : peermem ? "nvidia_peermem is loaded"
                     : "neither DMA-BUF nor nvidia_peermem",
           open || peermem ? ""
                           : "`modprobe nvidia_peermem`, or install the open kernel modules; else "
                             "data is staged in host memory"}};
}

std::vector<Finding> CheckInterface(const HostView& host, const HostNeeds& needs,
                                    const std::string& interface) {
  if (needs.address.empty()) return {};
  if (interface.empty()) {
    return {{"interface", needs.address, Level::kWarn,
             "no network interface of this host has this address",
             "name the host in the cluster YAML by the IP address of the interface that carries "
             "the data"}};
  }
  const std::string folder = "/sys/class/net/" + interface;
  const std::string state = host.Line(folder + "/operstate").value_or("unknown");
  const int64_t mtu = host.Number(folder + "/mtu").value_or(0),
                speed = host.Number(folder + "/speed").value_or(0);
  std::vector<Finding> findings = {
      {"interface", needs.address, Level::kOk, interface + " is " + state, ""}};
  if (state == "down") {
    findings[0].level = Level::kFail;
    findings[0].fix = "`ip link set " + interface + " up`";
  }
  findings.push_back(
      {"interface-mtu", interface, Level::kOk, fmt::format("{} bytes", mtu), "", mtu});
  if (speed > 0)
    findings.push_back(
        {"interface-speed", interface, Level::kOk, fmt::format("{} Mb/s", speed), "", speed});
  return findings;
}

namespace {

using boost::asio::ip::address;

constexpr uint64_t kTcpListens = 0x0A;      // the state of a socket that takes connections
constexpr uint64_t kUdpUnconnected = 0x07;  // and of one that takes datagrams from anybody
// Of lamina-memory-node and lamina-compute-node; /proc keeps 15 characters of a name.
constexpr std::string_view kNode = "lamina-";

struct Listening {
  std::string protocol;  // "tcp" | "udp"
  address host;
  int port = 0;

  std::string Text() const {
    return protocol + " " + host.to_string() + " port " + std::to_string(port);
  }
};

struct Process {
  std::string pid;
  std::string name;
  std::vector<Listening> sockets;
};

// Of "0100007F", or of 32 such digits: words as they lie in this machine's memory.
std::optional<address> AddressOf(const std::string& hex) {
  std::array<unsigned char, 16> bytes{};
  if (hex.size() != 8 && hex.size() != 32) return std::nullopt;
  for (size_t i = 0; i < hex.size() / 2; ++i) {
    const size_t word = i / 4 * 4;
    bytes[word + 3 - i % 4] =
        static_cast<unsigned char>(std::strtoul(hex.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  if (hex.size() == 8) return boost::asio::ip::address_v4({bytes[0], bytes[1], bytes[2], bytes[3]});
  const boost::asio::ip::address_v6 wide(bytes);
  if (wide.is_v4_mapped())
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, wide);
  return wide;
}

// A line of /proc/PID/net/tcp: "0: 0100007F:1BBD 00000000:0000 0A 00000000:00000000 00:00000000
// 00000000 0 0 4711 ...".
std::optional<Listening> ListeningOf(const std::string& line, const std::string& table,
                                     const std::set<std::string>& inodes) {
  std::istringstream words(line);
  std::array<std::string, 10> word;  // 1: local address, 3: state, 9: inode
  for (std::string& text : word) words >> text;
  const size_t colon = word[1].find(':');
  if (!words || colon == std::string::npos || !inodes.contains(word[9])) return std::nullopt;
  const std::string protocol = table.substr(0, 3);
  if (std::strtoul(word[3].c_str(), nullptr, 16) !=
      (protocol == "tcp" ? kTcpListens : kUdpUnconnected))
    return std::nullopt;
  const std::optional<address> host = AddressOf(word[1].substr(0, colon));
  if (!host) return std::nullopt;
  return Listening{protocol, *host,
                   static_cast<int>(std::strtoul(word[1].substr(colon + 1).c_str(), nullptr, 16))};
}

std::vector<Listening> SocketsOf(const HostView& host, const std::string& folder) {
  constexpr std::string_view kSocket = "socket:[";
  std::set<std::string> inodes;
  for (const std::string& descriptor : host.Names(folder + "/fd")) {
    const std::string target = host.Target(folder + "/fd/" + descriptor).value_or("");
    if (target.starts_with(kSocket))
      inodes.insert(target.substr(kSocket.size(), target.size() - kSocket.size() - 1));
  }
  std::vector<Listening> sockets;
  for (const std::string table : {"tcp", "tcp6", "udp", "udp6"}) {
    for (const std::string& line : host.Lines(folder + "/net/" + table)) {
      if (std::optional<Listening> socket = ListeningOf(line, table, inodes))
        sockets.push_back(*std::move(socket));
    }
  }
  return sockets;
}

// Those that this user may look into.
std::vector<Process> LaminaProcesses(const HostView& host) {
  std::vector<Process> processes;
  for (const std::string& pid : host.Names("/proc")) {
    if (!std::all_of(pid.begin(), pid.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      continue;
    const std::string name = host.Line("/proc/" + pid + "/comm").value_or("");
    if (name != "lamina" && !name.starts_with(kNode)) continue;
    processes.push_back({pid, name, SocketsOf(host, "/proc/" + pid)});
  }
  return processes;
}

std::set<address> AddressesOf(const std::string& host) {
  std::set<address> addresses;
  boost::asio::io_context context;
  boost::system::error_code error;
  for (const auto& found :
       Tcp::resolver(context).resolve(host, "", Tcp::resolver::passive, error)) {
    addresses.insert(found.endpoint().address());
  }
  return addresses;
}

}  // namespace

std::vector<Finding> CheckListeners(const HostView& host, const HostNeeds& needs) {
  const std::set<address> configured =
      needs.address.empty() ? std::set<address>() : AddressesOf(needs.address);
  const auto is_beyond = [&](const Listening& socket) {
    if (socket.host.is_loopback() || configured.contains(socket.host)) return false;
    return !needs.address.empty() || socket.host.is_unspecified();
  };
  const auto is_of_cluster = [&](const Listening& socket) {
    return needs.ports.empty() ||
           std::find(needs.ports.begin(), needs.ports.end(), socket.port) != needs.ports.end();
  };
  std::vector<Finding> findings;
  for (const Process& process : LaminaProcesses(host)) {
    const bool is_node = process.name.starts_with(kNode);
    if (process.sockets.empty() ||
        (is_node && std::none_of(process.sockets.begin(), process.sockets.end(), is_of_cluster)))
      continue;
    std::string all, beyond;
    for (const Listening& socket : process.sockets) {
      all += (all.empty() ? "" : ", ") + socket.Text();
      if (is_node && is_beyond(socket)) beyond += (beyond.empty() ? "" : ", ") + socket.Text();
    }
    const std::string subject = process.name + " " + process.pid;
    if (beyond.empty()) {
      findings.push_back({"listens", subject, Level::kOk, all, ""});
    } else {
      findings.push_back({"listens", subject, Level::kWarn,
                          beyond + (needs.address.empty() ? "" : ", which is not " + needs.address),
                          "whoever reaches that can talk to this node: no part of this version "
                          "listens there, so stop the process, and start "
                          "it with --listen at the cluster's address"});
    }
  }
  return findings;
}

}  // namespace lamina
