// Finds out what this machine lets a process do with RDMA before an RDMA library is called, so that
// a failure comes with its reason.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

// Whether there is a device file by which this process could use an RDMA device
// (/dev/infiniband/uverbs*). A container may lack it although its host has a NIC.
bool HasRdmaDevice();

// The value of the environment variable kUcxTrustedDevices: the RDMA devices that ucx may use, as
// UCX names them ("mlx5_0:1,mlx5_1:1"); "" if it is not set. Whoever can send packets on their
// networks can write into the memory of this process: UCX connects by a protocol (UD) in which a
// message names the memory that it is written to. So lamina uses none by itself; the variable is
// for an operator who knows that only the cluster's own machines can send there.
inline constexpr const char* kUcxTrustedDevices = "LAMINA_UCX_TRUSTED_DEVICES";
std::string UcxTrustedDevices();

// Ok if this process may lock `bytes` more bytes of memory: it locks them for a moment. kOutOfSpace
// names the limit and how to raise it.
Status CheckCanLock(size_t bytes);

// Memory that the process must be able to lock before ucx opens an RDMA device. UCX locks megabytes
// for a device's queues; with a limit of 64 KiB ucp_worker_create of UCX 1.13 retries without end,
// with 1 MiB it does not.
inline constexpr size_t kUcxLockedBytes = size_t{4} << 20;

// How to raise the limit on locked memory: "this process may lock 65536 bytes of memory
// (RLIMIT_MEMLOCK): raise that with `ulimit -l unlimited` ...". "" if there is no limit.
std::string LockedMemoryAdvice();

}  // namespace lamina
