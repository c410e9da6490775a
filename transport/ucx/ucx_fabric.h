// The fabric over UCX: one-sided writes into memory that two processes of one machine and one user
// share and, over RDMA devices whose network is trusted (UcxTrustedDevices), between machines.
//
// UCX does not protect a process from strangers. Its transports for TCP and UD copy the content of
// a message to the address that the message names, and ids in messages over any transport may be
// addresses in the receiving process. So lamina lets UCX use only transports over which no stranger
// can send. The files behind UCX's shared memory can be opened by its user only.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina {

// Addresses are "host:port", at which the rendezvous listens. kNotFound if UcxTrustedDevices names
// devices and this machine has none; kOutOfSpace if the process is out of descriptors or may lock
// too little memory for the devices; kInternal with UCX's reason if UCX does not start.
Result<std::unique_ptr<Fabric>> OpenUcxFabric();

}  // namespace lamina
