#include "transport/verbs/verbs_device.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "transport/posix.h"
#include "transport/rendezvous.h"

namespace lamina {
namespace {

namespace ip = boost::asio::ip;

constexpr char kDeviceVariable[] = "LAMINA_VERBS_DEVICE";
constexpr size_t kMaxGids = 256;  // per device; a port has one for each address and type

// The IP address that a RoCE v2 GID stands for; IPv4 addresses are mapped into IPv6 there.
ip::address GidAddress(const ibv_gid& gid) {
  ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), gid.raw, bytes.size());
  return Unwrapped(ip::address_v6(bytes));
}

// `address` without the scope of an IPv6 link-local address, which a GID does not have.
ip::address WithoutScope(const ip::address& address) {
  return address.is_v6() ? ip::address_v6(address.to_v6().to_bytes()) : address;
}

std::vector<ibv_gid_entry> GidsOf(ibv_context* context) {
  std::vector<ibv_gid_entry> entries(kMaxGids);
  const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  entries.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return entries;
}

// The network interface that carries `local`, "" if there is none.
std::string InterfaceOf(const ip::address& local) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::string name;
  for (const ifaddrs* entry = list; entry != nullptr && name.empty(); entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    ip::address address;
    if (entry->ifa_addr->sa_family == AF_INET) {
      address = ip::address_v4(
          ntohl(reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr.s_addr));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      ip::address_v6::bytes_type bytes;
      std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr,
                  bytes.size());
      address = ip::address_v6(bytes);
    }
    if (address == WithoutScope(local)) name = entry->ifa_name;
  }
  freeifaddrs(list);
  return name;
}

// Whether the IPoIB interface that carries `local` belongs to this port.
bool CarriesIpoib(const ip::address& local, const std::string& device, uint8_t port) {
  const std::filesystem::path interface =
      std::filesystem::path("/sys/class/net") / InterfaceOf(local);
  std::error_code ignored;
  if (!std::filesystem::exists(interface / "device/infiniband" / device, ignored)) return false;
  int index = -1;  // of the port, from 0
  std::ifstream(interface / "dev_port") >> index;
  return index + 1 == port;
}

bool IsActive(ibv_context* context, uint32_t port, ibv_port_attr& attributes) {
  return ibv_query_port(context, static_cast<uint8_t>(port), &attributes) == 0 &&
         attributes.state == IBV_PORT_ACTIVE;
}

// Orders the GIDs of a RoCE port, lower is better: addresses that are routed before link-local
// ones.
int Rank(const ibv_gid_entry& entry) {
  const ip::address address = GidAddress(entry.gid);
  if (address.is_v4()) return 0;
  return address.to_v6().is_link_local() ? 2 : 1;
}

}  // namespace

Result<std::unique_ptr<VerbsDevice>> VerbsDevice::Open(ibv_device* device, size_t index) {
  const std::string name = ibv_get_device_name(device);
  std::unique_ptr<VerbsDevice> opened(new VerbsDevice());
  opened->index_ = index;
  opened->context_.reset(ibv_open_device(device));
  if (!opened->context_)
    return NotFound(name + ": " + ErrnoText("ibv_open_device") +
                    "; is /dev/infiniband open to this process?");
  if (const int error = ibv_query_device(opened->context(), &opened->attributes_); error != 0) {
    return NotFound(name + ": " + ErrnoText("ibv_query_device", error));
  }
  opened->domain_.reset(ibv_alloc_pd(opened->context()));
  opened->channel_.reset(ibv_create_comp_channel(opened->context()));
  if (!opened->domain_ || !opened->channel_)
    return NotFound(name + ": " + ErrnoText("ibv_alloc_pd, ibv_create_comp_channel"));
  // VerbsQueuePair::TakeEvents reads until there is no event left.
  const int fd = opened->channel_->fd;
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
    return NotFound(name + ": " + ErrnoText("fcntl"));
  return opened;
}

std::optional<VerbsPort> VerbsDevice::FindPort(const std::optional<ip::address>& local) const {
  std::optional<VerbsPort> best;
  int best_rank = 3;
  for (const ibv_gid_entry& entry : GidsOf(context())) {
    ibv_port_attr port;
    if (!IsActive(context(), entry.port_num, port)) continue;
    const bool is_infiniband = port.link_layer == IBV_LINK_LAYER_INFINIBAND;
    // An InfiniBand port always has a GID 0. On RoCE a port has GIDs of both versions for each
    // address; only those of v2 can be routed.
    if (is_infiniband ? entry.gid_index != 0 : entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    const auto number = static_cast<uint8_t>(entry.port_num);
    if (local.has_value() && !(is_infiniband ? CarriesIpoib(*local, name(), number)
                                             : GidAddress(entry.gid) == WithoutScope(*local))) {
      continue;
    }
    if (const int rank = is_infiniband ? 0 : Rank(entry); rank < best_rank) {
      best_rank = rank;
      best = VerbsPort{number,         static_cast<uint8_t>(entry.gid_index),
                       is_infiniband,  port.lid,
                       entry.gid,      port.active_mtu,
                       port.max_msg_sz};
    }
  }
  return best;
}

std::string VerbsDevice::Describe() const {
  std::string text = name() + " (";
  for (uint8_t number = 1; number <= attributes_.phys_port_cnt; ++number) {
    ibv_port_attr port;
    const bool is_active = IsActive(context(), number, port);
    text += (number == 1 ? "port " : "; port ") + std::to_string(number) +
            (is_active ? " active" : " down");
    if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) text += ", InfiniBand";
    for (const ibv_gid_entry& entry : GidsOf(context())) {
      if (entry.port_num == number && entry.gid_type == IBV_GID_TYPE_ROCE_V2)
        text += ", RoCE v2 " + GidAddress(entry.gid).to_string();
    }
  }
  return text + ")";
}

Result<VerbsDevices> VerbsDevices::OpenAll() {
  int count = 0;
  const std::unique_ptr<ibv_device*, VerbsFree<ibv_free_device_list>> list(
      ibv_get_device_list(&count));
  const char* const wanted = std::getenv(kDeviceVariable);
  VerbsDevices devices;
  devices.is_named_ = wanted != nullptr;
  std::string seen;
  for (int i = 0; i < count; ++i) {
    const std::string name = ibv_get_device_name(list.get()[i]);
    seen += (seen.empty() ? "" : ", ") + name;
    if (wanted != nullptr && name != wanted) continue;
    Result<std::unique_ptr<VerbsDevice>> device =
        VerbsDevice::Open(list.get()[i], devices.devices_.size());
    if (device.ok()) {
      devices.devices_.push_back(std::move(device).value());
    } else {  // passed over; the reason is told only if there is no other
      seen += " [" + device.status().message() + "]";
    }
  }
  if (!devices.devices_.empty()) return devices;
  if (count <= 0) {
    return NotFound(
        "transport verbs: this machine has no RDMA device (ibv_devices lists none); load the "
        "driver of its NIC, "
        "or use transport tcp");
  }
  const std::string which =
      wanted == nullptr ? "" : " \"" + std::string(wanted) + "\" of " + kDeviceVariable;
  return NotFound("transport verbs: cannot use the RDMA device" + which + "; there are: " + seen);
}

Result<VerbsDevices::Place> VerbsDevices::Find(const ip::address& local) const {
  for (const auto& device : devices_) {
    if (const auto port = device->FindPort(local)) return Place{*device, *port};
  }
  std::string described;
  for (const auto& device : devices_) {
    if (is_named_) {
      if (const auto port = device->FindPort(std::nullopt)) return Place{*device, *port};
    }
    described += (described.empty() ? "" : ", ") + device->Describe();
  }
  return NotFound("no active RDMA port has the address " + local.to_string() +
                  " that the connection goes through; devices: " + described +
                  ". Use an address of one of them as host, or name a device in " +
                  kDeviceVariable);
}

}  // namespace lamina
