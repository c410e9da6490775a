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
  std::string address;  // its IP address or name in the cluster; "": none in particular
  TransportKind transport = TransportKind::kAuto;
  bool fallback = false;
  // Memory that RDMA will lock in one process; without a cluster that of a small model.
  int64_t registered_bytes = int64_t{64} << 20;
  std::vector<int> ports;   // that its daemons will listen at
  std::string secret_file;  // "": none
  // Not "": the secret's finding has a value for comparing hosts.
  std::string secret_nonce;
  TlsFiles tls;             // empty: no TLS
  bool is_manager = false;  // the manager runs here

  bool needs_rdma() const { return transport == TransportKind::kVerbs && !fallback; }
};

// From files alone: RDMA ports and GIDs, locked memory, GPUs and NICs on the PCI bus, modules,
// sockets.
std::vector<Finding> CheckRdma(const HostView& host, const HostNeeds& needs);
std::vector<Finding> CheckLockedMemory(const HostView& host, const HostNeeds& needs);
std::vector<Finding> CheckPci(const HostView& host);
std::vector<Finding> CheckGpuDirect(const HostView& host);
// What lamina's processes have open to others.
std::vector<Finding> CheckListeners(const HostView& host, const HostNeeds& needs);
std::vector<Finding> CheckInterface(const HostView& host, const HostNeeds& needs,
                                    const std::string& interface);

// By trying: opens every fabric, binds the ports, asks UCX what it has.
std::vector<Finding> CheckFabrics(const HostNeeds& needs);
std::vector<Finding> CheckPorts(const HostNeeds& needs);
std::vector<Finding> CheckUcx(const HostNeeds& needs);

// What a peer would say to the files of TLS, and for how long they will do. Nothing without TLS.
std::vector<Finding> CheckTls(const HostNeeds& needs);

// Whether the secret can be read; and, off the loopback, whether there is one, or TLS: without,
// daemons do not start. With a nonce the value is made of both, 32 bits: equal for equal secrets,
// and of no use to who does not know the nonce.
std::vector<Finding> CheckSecret(const HostNeeds& needs);

// All of the above.
std::vector<Finding> CheckHost(const HostView& host, const HostNeeds& needs);

}  // namespace lamina
