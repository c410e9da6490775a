// The RDMA devices of this machine, and the choice of the device and port that a connection uses.
#pragma once

#include <infiniband/verbs.h>

#include <boost/asio/ip/address.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// The deleter of a unique_ptr to an object that the libibverbs function kFree destroys.
template <auto kFree>
struct VerbsFree {
  template <typename T>
  void operator()(T* object) const {
    (void)kFree(object);
  }
};

// One active port of a device, with the address by which peers reach it.
struct VerbsPort {
  uint8_t number = 1;          // from 1
  uint8_t gid_index = 0;       // of `gid` in the port's table
  bool is_infiniband = false;  // else RoCE
  uint16_t lid = 0;            // 0 on RoCE
  ibv_gid gid = {};
  ibv_mtu mtu = IBV_MTU_1024;
  uint32_t max_message_bytes = 0;
};

// An open device with the objects that all its connections share: the protection domain, in which
// memory is registered, and the completion channel, on which the owner sleeps. Thread: owner.
class VerbsDevice {
 public:
  // Opens `device`, which is number `index` of VerbsDevices. kNotFound with the cause if this
  // process cannot use it.
  static Result<std::unique_ptr<VerbsDevice>> Open(ibv_device* device, size_t index);

  std::string name() const { return ibv_get_device_name(context_->device); }
  size_t index() const { return index_; }  // in VerbsDevices
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  ibv_comp_channel* channel() const { return channel_.get(); }  // non-blocking
  const ibv_device_attr& attributes() const { return attributes_; }

  // The active port that has the address `local` of this machine, if there is one: on RoCE the port
  // with the RoCE v2 GID made of the address, on InfiniBand the port of the IPoIB interface that
  // has it. Without `local`, the active port whose address reaches farthest: InfiniBand or IPv4
  // before IPv6, and that before an IPv6 address of the link.
  std::optional<VerbsPort> FindPort(const std::optional<boost::asio::ip::address>& local) const;

  // "mlx5_0 (port 1 active, RoCE v2 10.0.0.1)", for messages.
  std::string Describe() const;

 private:
  VerbsDevice() = default;

  size_t index_ = 0;
  std::unique_ptr<ibv_context, VerbsFree<ibv_close_device>> context_;
  std::unique_ptr<ibv_pd, VerbsFree<ibv_dealloc_pd>> domain_;
  std::unique_ptr<ibv_comp_channel, VerbsFree<ibv_destroy_comp_channel>> channel_;
  ibv_device_attr attributes_ = {};
};

// All RDMA devices of this machine that this process can use, or only the one that the environment
// variable LAMINA_VERBS_DEVICE names. Thread: owner.
class VerbsDevices {
 public:
  // kNotFound if no device can be opened; the message says why and what to do.
  static Result<VerbsDevices> OpenAll();

  struct Place {
    VerbsDevice& device;
    VerbsPort port;
  };
  // The device and port for connections from the address `local` of this machine. A device that
  // LAMINA_VERBS_DEVICE names serves every address. kNotFound if no active port has the address;
  // the message lists all devices.
  Result<Place> Find(const boost::asio::ip::address& local) const;

  const std::vector<std::unique_ptr<VerbsDevice>>& all() const { return devices_; }

 private:
  std::vector<std::unique_ptr<VerbsDevice>> devices_;
  bool is_named_ = false;  // LAMINA_VERBS_DEVICE is set
};

}  // namespace lamina
