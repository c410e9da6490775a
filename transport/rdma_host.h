// What this machine lets a process do with RDMA, before a library is asked to do it.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

// There is an RDMA device that a process here can open (/dev/infiniband/uverbs*; a container may
// lack it although its host has a NIC).
bool HasRdmaDevice();

// The RDMA devices that UCX may use, as UCX names them ("mlx5_0:1,mlx5_1:1"), from the environment
// variable of this name; "" if it is not set. Whoever can send packets on their networks can write
// into the memory of this process: UCX connects by a protocol (UD) in which a message names the
// memory that it is written to. So they are named by someone who knows that only the cluster's own
// machines can.
inline constexpr const char* kUcxTrustedDevices = "LAMINA_UCX_TRUSTED_DEVICES";
std::string UcxTrustedDevices();

// Ok if this process may lock `bytes` of memory, as it finds out by doing so for a moment.
// kOutOfSpace names the limit and how it is raised.
Status CheckCanLock(size_t bytes);

// UCX takes megabytes for a device's queues. With 64 KiB UCX 1.13 begins anew without end
// (ucp_worker_create), with 1 MiB it does not.
inline constexpr size_t kUcxLockedBytes = size_t{4} << 20;

// "this process may lock 65536 bytes of memory (RLIMIT_MEMLOCK): raise that with `ulimit -l
// unlimited` ...", "" if there is no limit.
std::string LockedMemoryAdvice();

}  // namespace lamina
