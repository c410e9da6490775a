// The RDMA devices of this machine, and which of them a connection goes through.
#pragma once

#include <infiniband/verbs.h>

#include <boost/asio/ip/address.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// An rdma-core call that frees what a unique_ptr holds.
template <auto kFree>
struct VerbsFree {
  template <typename T>
  void operator()(T* object) const {
    (void)kFree(object);
  }
};

// One port of a device, with the address that peers reach it by.
struct VerbsPort {
  uint8_t number = 1;
  uint8_t gid_index = 0;
  bool is_infiniband = false;  // else RoCE
  uint16_t lid = 0;            // 0 on RoCE
  ibv_gid gid = {};
  ibv_mtu mtu = IBV_MTU_1024;
  uint32_t max_message_bytes = 0;
};

// An open device. Thread: owner.
class VerbsDevice {
 public:
  // kNotFound with the cause if this process may not use it.
  static Result<std::unique_ptr<VerbsDevice>> Open(ibv_device* device, size_t index);

  std::string name() const { return ibv_get_device_name(context_->device); }
  size_t index() const { return index_; }  // in VerbsDevices
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  ibv_comp_channel* channel() const { return channel_.get(); }  // non-blocking
  const ibv_device_attr& attributes() const { return attributes_; }

  // The active port that has the address `local` of this machine: on RoCE the port with the RoCE v2
  // GID made of it, on InfiniBand the port of the IPoIB interface that carries it. Without `local`,
  // the first active port that peers can reach.
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

// All devices of this machine, or the one that the environment variable LAMINA_VERBS_DEVICE names.
// Thread: owner.
class VerbsDevices {
 public:
  // kNotFound if there is none, saying why and what to do.
  static Result<VerbsDevices> OpenAll();

  struct Place {
    VerbsDevice& device;
    VerbsPort port;
  };
  // Where connections from the address `local` of this machine go. The named device serves every
  // address. kNotFound lists all devices.
  Result<Place> Find(const boost::asio::ip::address& local) const;

  const std::vector<std::unique_ptr<VerbsDevice>>& all() const { return devices_; }

 private:
  std::vector<std::unique_ptr<VerbsDevice>> devices_;
  bool is_named_ = false;
};

}  // namespace lamina
