#include <fmt/format.h>

#include <set>
#include <sstream>

#include "base/net_address.h"
#include "cli/doctor/host_checks.h"
#include "manager/process.h"
#include "transport/crypto.h"
#include "transport/ladder.h"
#include "transport/network_interface.h"
#include "transport/rdma_host.h"
#include "transport/secret_file.h"
#include "transport/tcp_socket.h"

namespace lamina {

namespace {

// As a daemon would find that listens there.
bool IsLoopbackHost(const std::string& host) {
  boost::asio::io_context context;
  boost::system::error_code error;
  const auto found = Tcp::resolver(context).resolve(host, "", Tcp::resolver::passive, error);
  return !error && !found.empty() && found.begin()->endpoint().address().is_loopback();
}

// Not 0; 0 if libcrypto cannot.
int64_t Fingerprint(const std::string& secret, const std::string& nonce) {
  const Result<std::string> mac = HmacSha256(secret, "lamina doctor " + nonce);
  if (!mac.ok()) return 0;
  int64_t value = 1;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>((*mac)[i]);
  return value;
}

}  // namespace

std::vector<Finding> CheckFabrics(const HostNeeds& needs) {
  std::vector<Finding> findings;
  const Result<std::vector<std::string>> all =
      LadderKinds(TransportKindName(TransportKind::kAuto), false);
  for (const std::string& kind : *all) {
    const Result<std::unique_ptr<Fabric>> fabric = OpenFabric(kind);
    const bool must = kind == TransportKindName(needs.transport) && !needs.fallback;
    findings.push_back(
        {"fabric", kind,
         fabric.ok() ? Level::kOk
         : must      ? Level::kFail
                     : Level::kNone,
         fabric.ok() ? "can be used" : fabric.status().message(),
         !fabric.ok() && must
             ? "the cluster YAML asks for it: mend the cause, or set transport kind: auto"
             : ""});
  }
  return findings;
}

std::vector<Finding> CheckPorts(const HostNeeds& needs) {
  std::vector<Finding> findings;
  boost::asio::io_context context;
  for (const int port : needs.ports) {
    const std::string address = JoinHostPort(needs.address, port);
    const Result<Tcp::acceptor> acceptor = ListenTcp(context, address);
    if (acceptor.ok()) {
      findings.push_back({"port", address, Level::kOk, "free", ""});
    } else if (acceptor.status().code() == StatusCode::kOutOfSpace) {
      findings.push_back(
          {"port", address, Level::kWarn, "in use",
           "right if the cluster is up (`lamina cluster status`), else choose another port"});
    } else {
      findings.push_back({"port", address, Level::kFail, acceptor.status().message(),
                          "check the node's host in the cluster YAML"});
    }
  }
  return findings;
}

std::vector<Finding> CheckSecret(const HostNeeds& needs) {
  if (!needs.secret_file.empty()) {
    const Result<std::string> secret = ReadSecretFile(needs.secret_file);
    const Status& status = secret.status();
    Finding finding{
        "secret", needs.secret_file, status.ok() ? Level::kOk : Level::kFail,
        status.ok() ? "can be read" : status.message(),
        status.ok()
            ? ""
            : "every host of the cluster must have the same file, which only its owner may read"};
    if (status.ok() && !needs.secret_nonce.empty())
      finding.value = Fingerprint(*secret, needs.secret_nonce);
    return {finding};
  }
  if (!needs.tls.empty() || needs.ports.empty() || needs.address.empty() ||
      IsLoopbackHost(needs.address))
    return {};
  return {{"secret", needs.address, Level::kFail,
           "not the loopback, and there is neither a secret nor TLS: daemons refuse to listen here",
           "make a secret with `" + MakeSecretCommand("FILE") +
               "`, copy it to every host, name it in the cluster YAML as cluster.secret_file; "
               "or see docs/tls.md"}};
}

std::vector<Finding> CheckUcx(const HostNeeds& needs) {
  const bool must = needs.transport == TransportKind::kUcx && !needs.fallback;
  const std::string devices = UcxTrustedDevices();
  if (devices.empty()) {  // then it is not asked for anything but shared memory
    return {{"ucx", kUcxTrustedDevices,
             must && !IsLoopbackHost(needs.address) ? Level::kWarn : Level::kNone,
             "not set: UCX joins processes of one host only, in shared memory, and listens on no "
             "network",
             must ? "between hosts take transport verbs or tcp; or, on an RDMA network that only "
                    "the cluster's hosts can send on, see docs/fabrics.md"
                  : ""}};
  }
  // It might never return.
  if (const Status locks = HasRdmaDevice() ? CheckCanLock(kUcxLockedBytes) : OkStatus();
      !locks.ok())
    return {{"ucx", "ucx_info", must ? Level::kFail : Level::kWarn,
             "UCX cannot use the RDMA device here", locks.message()}};
  const Result<CommandOutput> output =
      RunCommand({"ucx_info", "-v", "-d"}, Deadline::After(std::chrono::seconds(20)));
  if (!output.ok() || output->exit_status != 0) {
    return {{"ucx", "ucx_info", must ? Level::kWarn : Level::kNone,
             "cannot be asked what UCX has here",
             must ? "install UCX's tools (Debian: ucx-utils)" : ""}};
  }
  std::string version;
  std::set<std::string> transports;
  std::istringstream lines(output->out);
  for (std::string line; std::getline(lines, line);) {
    if (const size_t at = line.find("# Version "); at == 0) version = line.substr(10);
    if (const size_t at = line.find("Transport: "); at != std::string::npos)
      transports.insert(line.substr(at + 11));
  }
  std::string names;
  bool rdma = false;
  for (const std::string& name : transports) {
    names += (names.empty() ? "" : ", ") + name;
    rdma |= name.starts_with("rc_") || name.starts_with("dc_");
  }
  return {{"ucx", "version " + version, must && !rdma ? Level::kWarn : Level::kOk,
           fmt::format("{} is {}: whoever can send on their networks can write into the nodes' "
                       "memory; {}; transports: {}",
                       kUcxTrustedDevices, devices,
                       rdma ? "has RDMA" : "no RDMA, hosts are not joined", names),
           must && !rdma ? std::string("check the RDMA device and ") + kUcxTrustedDevices : ""}};
}

std::vector<Finding> CheckHost(const HostView& host, const HostNeeds& needs) {
  std::vector<Finding> all;
  const auto add = [&](std::vector<Finding> findings) {
    all.insert(all.end(), findings.begin(), findings.end());
  };
  add(CheckCpu(host));
  add(CheckMemory(host, needs));
  add(CheckGpus(host));
  add(CheckDisk());
  add(CheckFabrics(needs));
  add(CheckRdma(host, needs));
  add(CheckUcx(needs));
  add(CheckLockedMemory(host, needs));
  add(CheckPci(host));
  add(CheckGpuDirect(host));
  add(CheckInterface(host, needs, InterfaceOf(needs.address)));
  add(CheckPorts(needs));
  add(CheckListeners(host, needs));
  add(CheckSecret(needs));
  add(CheckTls(needs));
  return all;
}

}  // namespace lamina
