// What can be said about one machine without touching another one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/tls_files.h"
#include "cli/doctor/finding.h"
#include "cli/doctor/host_view.h"
#include "manager/cluster_settings.h"

namespace lamina {

// What the cluster wants of this machine.
struct HostNeeds {
  // The machine's IP address or name in the cluster. "": it has none in particular.
  std::string address;
  // The data path that is wanted, and whether another one will do.
  TransportKind transport = TransportKind::kAuto;
  bool fallback = false;
  // The memory that RDMA will lock in one process. The default is enough for a small model.
  int64_t registered_bytes = int64_t{64} << 20;
  // What the nodes here will take of the machine's memory: KV caches and weights. 0: unknown.
  int64_t memory_bytes = 0;
  // The ports at which daemons will listen here.
  std::vector<int> ports;
  // The file of the cluster's secret. "": there is none.
  std::string secret_file;
  // If it is not "", the finding about the secret has a value by which hosts can be compared.
  std::string secret_nonce;
  // The files of TLS. Empty: the cluster does without TLS.
  TlsFiles tls;
  // Whether the manager runs here.
  bool is_manager = false;

  bool needs_rdma() const { return transport == TransportKind::kVerbs && !fallback; }
};

// The first checks read files of the machine and touch nothing else, so that they can be tested
// with the files of another machine.

// Which vector instructions the kernels will find.
std::vector<Finding> CheckCpu(const HostView& host);
// Whether what the nodes will take is there.
std::vector<Finding> CheckMemory(const HostView& host, const HostNeeds& needs);
// Which GPUs the NVIDIA driver has.
std::vector<Finding> CheckGpus(const HostView& host);

// RDMA ports: their state, their GIDs, and whether one of them has the machine's address.
std::vector<Finding> CheckRdma(const HostView& host, const HostNeeds& needs);
// Whether processes may lock as much memory as RDMA will.
std::vector<Finding> CheckLockedMemory(const HostView& host, const HostNeeds& needs);
// Whether GPUs and NICs use all their PCIe lanes, and whether each GPU has a NIC on its NUMA node.
std::vector<Finding> CheckPci(const HostView& host);
// Whether NICs can read and write the memory of GPUs, by DMA-BUF or the module nvidia_peermem.
// Without a GPU there is nothing to find.
std::vector<Finding> CheckGpuDirect(const HostView& host);
// Where lamina's processes listen. A node that listens at another address than the machine's in the
// cluster is a warning.
std::vector<Finding> CheckListeners(const HostView& host, const HostNeeds& needs);
// The state, the MTU and the speed of `interface`, which has the machine's address; "": none has
// it. Without an address there is nothing to find.
std::vector<Finding> CheckInterface(const HostView& host, const HostNeeds& needs,
                                    const std::string& interface);

// The next checks try what they check.

// How much room there is where logs and temporary files go.
std::vector<Finding> CheckDisk();
// Opens every fabric.
std::vector<Finding> CheckFabrics(const HostNeeds& needs);
// Binds the ports that daemons will listen at, and releases them again.
std::vector<Finding> CheckPorts(const HostNeeds& needs);
// Asks UCX which transports and devices it has.
std::vector<Finding> CheckUcx(const HostNeeds& needs);

// What a peer would say to the files of TLS, and for how long they will do. Without TLS there is
// nothing to find.
std::vector<Finding> CheckTls(const HostNeeds& needs);
// The files of the manager's HTTPS, which `lamina cluster status` asks at `address`.
std::vector<Finding> CheckHttps(const TlsFiles& https, const std::string& address);

// Whether the secret can be read. If the machine's address is no loopback address, also whether
// there is a secret or TLS, as daemons do not start without either. With a nonce the finding has a
// value of 32 bits that is made of both. It is equal for equal secrets, and of no use to anybody
// who does not know the nonce.
std::vector<Finding> CheckSecret(const HostNeeds& needs);

// Does all the checks above.
std::vector<Finding> CheckHost(const HostView& host, const HostNeeds& needs);

}  // namespace lamina
