// What this machine lets a process do with RDMA, before a library is asked to do it.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

// There is an RDMA device that a process here can open (/dev/infiniband/uverbs*; a container may lack it although its host has a NIC).
bool HasRdmaDevice();

// Ok if this process may lock `bytes` of memory, as it finds out by doing so for a moment. kOutOfSpace names the limit and how it is
// raised.
Status CheckCanLock(size_t bytes);

// UCX takes megabytes for a device's queues. With 64 KiB UCX 1.13 begins anew without end (ucp_worker_create), with 1 MiB it does not.
inline constexpr size_t kUcxLockedBytes = size_t{4} << 20;

// "this process may lock 65536 bytes of memory (RLIMIT_MEMLOCK): raise that with `ulimit -l unlimited` ...", "" if there is no limit.
std::string LockedMemoryAdvice();

}  // namespace lamina
