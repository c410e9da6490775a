// The doctor against machines that are described by files, and against this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "cli/doctor/cluster_checks.h"
#include "cli/doctor/host_checks.h"
#include "cli/doctor/planned_memory.h"
#include "manager/resolve_config.h"
#include "tests/support/certificates.h"
#include "tests/support/temporary_folder.h"
#include "transport/connecting.h"
#include "transport/network_interface.h"
#include "transport/probe.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Doctor : public ::testing::Test {
 protected:
  Doctor() {
    needs_.address = "10.0.0.7";
    needs_.transport = TransportKind::kVerbs;
  }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text << "\n";
  }

  // A RoCE port whose GID 3 stands for 10.0.0.7.
  void WriteRoce(const std::string& state, const std::string& type) {
    const std::string port = "/sys/class/infiniband/mlx5_0/ports/1/";
    Write(port + "state", state);
    Write(port + "link_layer", "Ethernet");
    Write(port + "rate", "100 Gb/sec (4X EDR)");
    Write(port + "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000");
    Write(port + "gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0007");
    Write(port + "gid_attrs/types/3", type);
    Write(port + "gid_attrs/ndevs/3", "eth2");
  }

  HostView host() const { return HostView(root_); }

  static Finding Find(const std::vector<Finding>& findings, const std::string& check) {
    for (const Finding& finding : findings) {
      if (finding.check == check) return finding;
    }
    return {check, "no such finding", Level::kFail, "", ""};
  }

  const TemporaryFolder folder_;
  const std::string root_ = folder_.path();
  HostNeeds needs_;
};

// A memory node that listens at 10.0.0.7:7101 and, as UCX once did, on every interface at port
// 45678; a manager; another program.
class DoctorListeners : public Doctor {
 protected:
  DoctorListeners() {
    const std::string heads =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
        "timeout inode\n";
    const std::string rest = " 00000000:00000000 00:00000000 00000000  1000        0 ";
    WriteProcess("41", "lamina-memory-n", {"501", "502", "503"});
    WriteProcess("42", "lamina", {"504"});
    WriteProcess("43", "sshd", {"505"});
    const std::string tcp = heads + "   0: 0700000A:1BBD 00000000:0000 0A" + rest + "501 1\n" +  //
                            "   1: 00000000:B26E 00000000:0000 0A" + rest + "502 1\n" +          //
                            // connected.
                            "   2: 0700000A:1BBD 0900000A:9999 01" + rest + "503 1\n" +
                            "   3: 0100007F:1F40 00000000:0000 0A" + rest + "504 1\n" +  //
                            "   4: 00000000:0016 00000000:0000 0A" + rest + "505 1";
    for (const char* pid : {"41", "42", "43"}) Write("/proc/" + std::string(pid) + "/net/tcp", tcp);
  }

  void WriteProcess(const std::string& pid, const std::string& name,
                    const std::vector<std::string>& inodes) {
    Write("/proc/" + pid + "/comm", name);
    fs::create_directories(root_ + "/proc/" + pid + "/fd");
    for (const std::string& inode : inodes)
      fs::create_symlink("socket:[" + inode + "]", root_ + "/proc/" + pid + "/fd/" + inode);
  }
};

TEST_F(DoctorListeners, WhatANodeHasOpenBeyondTheClustersAddressIsAWarning) {
  needs_.ports = {7101};
  const std::vector<Finding> findings = CheckListeners(host(), needs_);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].subject, "lamina-memory-n 41");
  EXPECT_EQ(findings[0].level, Level::kWarn);
  EXPECT_EQ(findings[0].cause, "tcp 0.0.0.0 port 45678, which is not 10.0.0.7");
  EXPECT_NE(findings[0].fix, "");
  EXPECT_EQ(findings[1].level, Level::kOk);
  EXPECT_EQ(findings[1].cause, "tcp 127.0.0.1 port 8000");
}

TEST_F(DoctorListeners, WhatANodeHasOpenAtTheClustersAddressIsListed) {
  fs::remove(root_ + "/proc/41/fd/502");
  const std::vector<Finding> findings = CheckListeners(host(), needs_);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].level, Level::kOk);
  EXPECT_EQ(findings[0].cause, "tcp 10.0.0.7 port 7101");
  needs_.address = "10.0.0.8";
  EXPECT_EQ(CheckListeners(host(), needs_)[0].level, Level::kWarn);
  needs_.ports = {7999};  // of another cluster
  EXPECT_EQ(CheckListeners(host(), needs_).size(), 1u);
}

TEST_F(Doctor, NoRdmaDeviceMattersToWhoAskedForOne) {
  EXPECT_EQ(Find(CheckRdma(host(), needs_), "rdma-device").level, Level::kFail);
  EXPECT_NE(Find(CheckRdma(host(), needs_), "rdma-device").fix, "");
  needs_.fallback = true;
  EXPECT_EQ(Find(CheckRdma(host(), needs_), "rdma-device").level, Level::kOk);
}

TEST_F(Doctor, AGoodRocePort) {
  WriteRoce("4: ACTIVE", "RoCE v2");
  const std::vector<Finding> findings = CheckRdma(host(), needs_);
  EXPECT_EQ(WorstOf(findings), Level::kOk);
  EXPECT_EQ(Find(findings, "rdma-port").cause, "ACTIVE, Ethernet, 100 Gb/sec (4X EDR)");
  EXPECT_EQ(Find(findings, "rdma-gid").cause, "GID 3 of mlx5_0 port 1 is RoCE v2 on eth2");
}

TEST_F(Doctor, APortThatIsDown) {
  WriteRoce("1: DOWN", "RoCE v2");
  const std::vector<Finding> findings = CheckRdma(host(), needs_);
  EXPECT_EQ(Find(findings, "rdma-port").level, Level::kWarn);
  EXPECT_THAT(Find(findings, "rdma-port").fix, HasSubstr("ip link set"));
  EXPECT_EQ(Find(findings, "rdma-gid").level, Level::kFail);
}

TEST_F(Doctor, AGidOfTheWrongTypeOrAddress) {
  WriteRoce("4: ACTIVE", "IB/RoCE v1");
  Finding gid = Find(CheckRdma(host(), needs_), "rdma-gid");
  EXPECT_EQ(gid.level, Level::kFail);
  EXPECT_THAT(
      gid.cause,
      HasSubstr("mlx5_0 port 1 has 3 0000:0000:0000:0000:0000:ffff:0a00:0007 (IB/RoCE v1)"));
  WriteRoce("4: ACTIVE", "RoCE v2");
  needs_.address = "192.168.1.7";  // of another interface
  EXPECT_EQ(Find(CheckRdma(host(), needs_), "rdma-gid").level, Level::kFail);
}

TEST_F(Doctor, GidsOfAddresses) {
  EXPECT_EQ(GidOf("10.0.0.7"), "0000:0000:0000:0000:0000:ffff:0a00:0007");
  EXPECT_EQ(GidOf("fe80::1"), "fe80:0000:0000:0000:0000:0000:0000:0001");
  EXPECT_EQ(GidOf("gpu0"), "");
}

TEST_F(Doctor, LockedMemory) {
  Write("/proc/self/status", "Name:\tx\nCapEff:\t0000000000000000");
  Write("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max locked memory         8388608              8388608              bytes");
  Finding memlock = Find(CheckLockedMemory(host(), needs_), "memlock");
  EXPECT_EQ(memlock.level, Level::kFail);
  EXPECT_THAT(memlock.cause, HasSubstr("8MiB"));
  EXPECT_THAT(memlock.fix, HasSubstr("LimitMEMLOCK=infinity"));
  needs_.registered_bytes = 1 << 20;
  EXPECT_EQ(Find(CheckLockedMemory(host(), needs_), "memlock").level, Level::kOk);
  needs_.registered_bytes = int64_t{1} << 40;
  Write("/proc/self/limits",
        "Max locked memory         unlimited            unlimited            bytes");
  EXPECT_EQ(Find(CheckLockedMemory(host(), needs_), "memlock").level, Level::kOk);
  Write("/proc/self/limits",
        "Max locked memory         65536                65536                bytes");
  Write("/proc/self/status", "CapEff:\t000001ffffffffff");  // root
  EXPECT_EQ(Find(CheckLockedMemory(host(), needs_), "memlock").level, Level::kOk);
}

TEST_F(Doctor, TooLittleLockedMemoryIsAWarningWhereRdmaWouldBeTaken) {
  Write("/proc/self/limits",
        "Max locked memory         8388608              8388608              bytes");
  needs_.transport = TransportKind::kAuto;
  EXPECT_EQ(Find(CheckLockedMemory(host(), needs_), "memlock").level, Level::kOk)
      << "no RDMA device";
  WriteRoce("4: ACTIVE", "RoCE v2");
  EXPECT_EQ(Find(CheckLockedMemory(host(), needs_), "memlock").level, Level::kWarn);
  needs_.transport = TransportKind::kTcp;
  EXPECT_EQ(Find(CheckLockedMemory(host(), needs_), "memlock").level, Level::kOk);
}

TEST_F(Doctor, SecretsCanBeCompared) {
  for (const char* name : {"one", "same", "other"}) {
    std::ofstream(folder_ / name) << (name == std::string("other") ? "fedcba9876543210"
                                                                   : "0123456789abcdef");
    fs::permissions(folder_ / name, fs::perms::owner_read | fs::perms::owner_write);
  }
  const auto value = [&](const std::string& file, const std::string& nonce) {
    needs_.secret_file = folder_ / file;
    needs_.secret_nonce = nonce;
    const Finding finding = Find(CheckSecret(needs_), "secret");
    EXPECT_EQ(finding.level, Level::kOk) << finding.cause;
    return finding.value;
  };
  EXPECT_EQ(value("one", ""), 0);
  EXPECT_EQ(value("one", "n"), value("same", "n"));
  EXPECT_NE(value("one", "n"), value("other", "n"));
  EXPECT_NE(value("one", "n"), value("one", "m")) << "a report of yesterday tells nothing";
}

TEST_F(Doctor, AnotherSecretOnOneHostIsAFailure) {
  EXPECT_TRUE(JudgeSecrets({{"a", 5}, {"b", 5}, {"c", 0}}).empty());
  const std::vector<Finding> findings = JudgeSecrets({{"a", 5}, {"b", 5}, {"c", 6}});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, Level::kFail);
  EXPECT_EQ(findings[0].subject, "c");
  EXPECT_EQ(findings[0].cause, "is another secret than on a");
}

TEST_F(Doctor, PortsThatTheClusterItselfUsesAreRight) {
  std::vector<Finding> findings = {
      {"port", "h 10.0.0.1:7100", Level::kWarn, "in use", "choose another"},
      {"port", "h 10.0.0.1:7101", Level::kWarn, "in use", "choose another"},
      {"memlock", "h 10.0.0.1:7100", Level::kWarn, "x", "y"}};
  ExcuseOwnPorts({"10.0.0.1:7100"}, findings);
  EXPECT_EQ(findings[0].level, Level::kOk);
  EXPECT_EQ(findings[0].fix, "");
  EXPECT_EQ(findings[1].level, Level::kWarn);
  EXPECT_EQ(findings[2].level, Level::kWarn);
}

// Two hosts through a fake ssh; the second has another secret, or does not answer.
TEST_F(Doctor, ComparesTheHostsOfACluster) {
  ClusterConfig config;
  config.transport = TransportKind::kTcp;
  config.controller_host = "one.example";
  config.secret_file = folder_ / "secret";
  config.ssh = folder_ / "fake-ssh";
  config.nodes = {{.name = "c0", .role = NodeRole::kCompute, .host = "one.example", .port = 1},
                  {.name = "m0", .role = NodeRole::kMemory, .host = "two.example", .port = 1}};
  ClusterCheckOptions options;
  options.probe_duration = milliseconds(1);
  const auto check = [&](const std::string& of_two) {
    const std::string report =
        R"({"level": "ok", "findings": [{"check": "secret", "subject": "f", "level": "ok", "cause": "", "fix": "",)";
    std::ofstream(config.ssh)
        << "#!/bin/sh\ncase \"$2\" in *probe*) exit 1;; *date*) echo 1; exit 0;; esac\n"
        << "case $1 in two*) " << of_two << ";; *) v=7;; esac\necho '" << report
        << " \"value\": '$v'}]}'\n";
    fs::permissions(config.ssh, fs::perms::owner_all);
    return CheckCluster(config, options);
  };
  const auto failures_of = [](const std::vector<Finding>& findings, const std::string& check) {
    return std::ranges::count_if(findings, [&](const Finding& finding) {
      return finding.check == check && finding.level == Level::kFail;
    });
  };
  EXPECT_EQ(failures_of(check("v=7"), "secret"), 0);
  EXPECT_EQ(failures_of(check("v=8"), "secret"), 1);
  const std::vector<Finding> unreachable = check("echo no route to host >&2; exit 255");
  EXPECT_EQ(failures_of(unreachable, "host"), 1) << "said once";
  EXPECT_EQ(failures_of(unreachable, "pair"), 0);
}

// 192.0.2.0/24 belongs to nobody.
TEST_F(Doctor, WithoutASecretDaemonsDoNotStartOffTheLoopback) {
  needs_.address = "192.0.2.7";
  EXPECT_TRUE(CheckSecret(needs_).empty()) << "nothing listens";
  needs_.ports = {7100};
  EXPECT_EQ(Find(CheckSecret(needs_), "secret").level, Level::kFail);
  EXPECT_THAT(Find(CheckSecret(needs_), "secret").fix, HasSubstr("openssl rand"));
  needs_.secret_file = folder_ / "secret";
  EXPECT_THAT(Find(CheckSecret(needs_), "secret").cause, HasSubstr(needs_.secret_file));
  EXPECT_EQ(Find(CheckSecret(needs_), "secret").level, Level::kFail) << "there is no such file";
  std::ofstream(needs_.secret_file) << "0123456789abcdef0123456789abcdef\n";
  fs::permissions(needs_.secret_file, fs::perms::owner_read);
  EXPECT_EQ(Find(CheckSecret(needs_), "secret").level, Level::kOk);
  needs_.secret_file.clear();
  for (const char* loopback : {"127.0.0.1", "localhost", "::1"}) {
    needs_.address = loopback;
    EXPECT_TRUE(CheckSecret(needs_).empty()) << loopback;
  }
}

class DoctorOfCluster : public Doctor {
 protected:
  void AddNode(const std::string& host, NodeRole role) {
    NodeConfig node;
    node.role = role;
    node.host = host;
    config_.nodes.push_back(node);
  }

  ClusterConfig config_;
};

TEST_F(DoctorOfCluster, HostsThatExchangeDataArePairs) {
  AddNode("a", NodeRole::kCompute);
  AddNode("b", NodeRole::kCompute);
  AddNode("b", NodeRole::kMemory);
  AddNode("c", NodeRole::kMemory);
  using Pair = std::pair<std::string, std::string>;
  EXPECT_THAT(PairsOf(config_), ::testing::UnorderedElementsAre(Pair("a", "b"), Pair("a", "c"),
                                                                Pair("b", "b"), Pair("b", "c")));
  config_.nodes.clear();
  for (const char* host : {"a", "b", "c"}) AddNode(host, NodeRole::kCompute);
  AddNode("m", NodeRole::kMemory);
  EXPECT_THAT(PairsOf(config_),
              ::testing::UnorderedElementsAre(Pair("a", "m"), Pair("b", "m"), Pair("c", "m"),
                                              Pair("a", "b"), Pair("a", "c"), Pair("b", "c")));
}

// Of LLaMA-65B's shape: a decode message of 64 rows has 64 x (4 + 2 x 2) x 8192 bytes, an output
// half of that.
TEST_F(DoctorOfCluster, LockedMemoryGrowsWithTheModelAndThePeers) {
  AddNode("a", NodeRole::kCompute);
  AddNode("m", NodeRole::kMemory);
  ModelConfig model;
  model.hidden_size = 8192;
  model.num_heads = model.num_kv_heads = 64;
  model.head_dim = 128;
  config_.kv_dtype = DType::kBF16;
  config_.wire_dtype = DType::kF32;
  config_.num_batches = 2;
  const auto planned = [&](const std::string& host) {
    return PlannedLockedBytes(config_, model, *ViewOf(config_, model), host);
  };
  const int64_t once = planned("a");
  EXPECT_GT(once, 2 * (64 * 8 * 8192 + 64 * 4 * 8192));
  EXPECT_EQ(planned("m"), once);
  config_.kv_dtype = DType::kF8;
  EXPECT_LE(planned("a"), once - 2 * 64 * 2 * 8192) << "k and v take half";
  config_.kv_dtype = DType::kBF16;
  AddNode("m2", NodeRole::kMemory);
  EXPECT_EQ(planned("a"), 2 * once);
  EXPECT_EQ(planned("m2"), once);
  AddNode("b", NodeRole::kCompute);
  EXPECT_GE(planned("a"), 2 * once + 2 * 2 * int64_t{512} * 8192 * 4);
  EXPECT_EQ(planned("elsewhere"), 0);
}

// A group's largest memory node counts: of 5 KV heads for two nodes the one with 3.
TEST_F(DoctorOfCluster, LockedMemoryIsThatOfTheMemoryNodeWithMostHeads) {
  AddNode("a", NodeRole::kCompute);
  AddNode("m", NodeRole::kMemory);
  ModelConfig model;
  model.num_heads = model.num_kv_heads = 3;
  model.head_dim = 128;
  config_.kv_dtype = DType::kBF16;
  const int64_t of_three = PlannedLockedBytes(config_, model, *ViewOf(config_, model), "m");
  AddNode("m2", NodeRole::kMemory);
  config_.kv_head_parallel = 2;
  model.num_heads = model.num_kv_heads = 5;
  EXPECT_EQ(PlannedLockedBytes(config_, model, *ViewOf(config_, model), "m"), of_three);
}

TEST_F(Doctor, GpusAndNicsOnTheBus) {
  const auto device = [&](const std::string& address, const char* vendor, const char* type,
                          const char* node, const char* width) {
    const std::string folder = "/sys/bus/pci/devices/" + address + "/";
    Write(folder + "vendor", vendor);
    Write(folder + "class", type);
    Write(folder + "numa_node", node);
    Write(folder + "current_link_width", width);
    Write(folder + "max_link_width", "16");
  };
  device("0000:17:00.0", "0x10de", "0x030200", "0", "16");
  device("0000:ca:00.0", "0x15b3", "0x020700", "1", "8");
  device("0000:00:1f.0", "0x8086", "0x060100", "0", "1");  // a bridge: not of interest
  const std::vector<Finding> findings = CheckPci(host());
  ASSERT_EQ(findings.size(), 3u);
  EXPECT_EQ(findings[0].level, Level::kOk) << "the GPU has all lanes";
  EXPECT_EQ(Find(findings, "gpu-nic-numa").level, Level::kWarn);
  EXPECT_EQ(findings[2].cause, "8 of 16 PCIe lanes");
  EXPECT_EQ(findings[2].level, Level::kWarn);

  EXPECT_THAT(Find(CheckGpuDirect(host()), "gpu-direct").cause, HasSubstr("no NVIDIA driver"));
  Write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.00");
  EXPECT_THAT(Find(CheckGpuDirect(host()), "gpu-direct").fix, HasSubstr("modprobe nvidia_peermem"));
  Write("/proc/modules", "nvidia_peermem 16384 0 - Live 0x0");
  EXPECT_EQ(Find(CheckGpuDirect(host()), "gpu-direct").level, Level::kOk);
}

TEST_F(Doctor, Interfaces) {
  Write("/sys/class/net/eth2/operstate", "down");
  Write("/sys/class/net/eth2/mtu", "9000");
  Write("/sys/class/net/eth2/speed", "100000");
  const std::vector<Finding> findings = CheckInterface(host(), needs_, "eth2");
  EXPECT_EQ(Find(findings, "interface").fix, "`ip link set eth2 up`");
  EXPECT_EQ(Find(findings, "interface-mtu").value, 9000);
  EXPECT_EQ(Find(findings, "interface-speed").value, 100'000);
  EXPECT_EQ(Find(CheckInterface(host(), needs_, ""), "interface").level, Level::kWarn);
  EXPECT_EQ(InterfaceOf("127.0.0.1"), "lo");
  EXPECT_EQ(InterfaceOf("192.0.2.1"), "");
}

TEST_F(Doctor, PairsAndClocks) {
  EXPECT_EQ(JudgePair({"a", "b", "verbs", "", "", 3, 11e9, 100e9}).level, Level::kOk);
  const Finding slow = JudgePair({"a", "b", "verbs", "", "", 3, 1e9, 100e9});
  EXPECT_EQ(slow.level, Level::kWarn);
  EXPECT_THAT(slow.cause, HasSubstr("8 % of the link's 100 Gb/s"));
  EXPECT_THAT(JudgePair({"a", "b", "tcp", "", "verbs: no device", 3, 1e9, 0}).cause,
              HasSubstr("not used: verbs: no device"));
  EXPECT_THAT(JudgePair({"a", "b", "ucx", "tcp/eth0", "", 3, 1e9, 0}).cause,
              HasSubstr("ucx (tcp/eth0): 3.0 us"));
  EXPECT_EQ(JudgeClock("b", 0.3, 0.01).level, Level::kOk);
  EXPECT_EQ(JudgeClock("b", -2, 0.01).level, Level::kWarn);
  EXPECT_EQ(JudgeClock("b", 2, 3).level, Level::kOk) << "not known well enough";
}

TEST_F(Doctor, FindingsSurviveJsonAndArePrintedWithTheirFix) {
  const std::vector<Finding> findings = {{"memlock", "h", Level::kFail, "too little", "more", 7},
                                         {"port", "h:1", Level::kOk, "free", ""}};
  const Result<std::vector<Finding>> back =
      FindingsFromJson(nlohmann::json::parse(ToJson(findings).dump()));
  ASSERT_TRUE(back.ok());
  std::ostringstream before, after;
  PrintFindings(findings, before);
  PrintFindings(*back, after);
  EXPECT_EQ(before.str(), after.str());
  EXPECT_EQ(before.str(),
            "ok    port         h:1: free\nfail  memlock      h: too little\n                   -> "
            "more\n");
  EXPECT_EQ(back->at(0).value, 7);
  EXPECT_FALSE(FindingsFromJson(nlohmann::json::parse(R"([{"check": 1}])")).ok());
}

class DoctorTls : public Doctor {
 protected:
  Finding Judge(const TlsFiles& files, const std::string& check) {
    needs_.tls = files;
    return Find(CheckTls(needs_), check);
  }

  const testing::TestCa ca_{folder_.path()};
  const TlsFiles good_ = ca_.Issue("node", {.names = "IP:10.0.0.7"});
};

TEST_F(DoctorTls, GoodFilesAndNone) {
  EXPECT_TRUE(CheckTls(needs_).empty());
  needs_.tls = good_;
  needs_.ports = {7100};
  needs_.is_manager = true;
  const std::vector<Finding> findings = CheckTls(needs_);
  EXPECT_EQ(findings.size(), 5u) << "files, trust as node, trust as manager, name, expiry";
  EXPECT_EQ(WorstOf(findings), Level::kOk);
  const Finding expiry = Find(findings, "tls-expiry");
  EXPECT_THAT(expiry.value, ::testing::AnyOf(364, 365))
      << "the clock may have moved by a second or not";
  EXPECT_EQ(expiry.cause, "valid for " + std::to_string(expiry.value) + " days");
  const HostView nowhere(root_ + "/nowhere");
  EXPECT_EQ(Find(CheckHost(nowhere, needs_), "tls-name").cause, "is for 10.0.0.7");
}

TEST_F(DoctorTls, FilesThatCannotBeUsed) {
  TlsFiles files = good_;
  files.key = folder_ / "absent.key";
  EXPECT_EQ(Judge(files, "tls-files").level, Level::kFail);
  EXPECT_THAT(Judge(files, "tls-files").cause, HasSubstr("absent.key cannot be opened"));
  files.key = ca_.Issue("other").key;
  EXPECT_THAT(Judge(files, "tls-files").cause, HasSubstr("does not belong to the certificate"));
  EXPECT_EQ(Judge(files, "tls-files").fix, "take the key that the certificate was made with");
  fs::permissions(good_.key, fs::perms::others_read, fs::perm_options::add);
  EXPECT_THAT(Judge(good_, "tls-files").cause, HasSubstr("has mode 604"));
  EXPECT_EQ(Judge(good_, "tls-files").fix, "use `chmod 600 " + good_.key + "`");
}

TEST_F(DoctorTls, WhatAPeerWouldRefuse) {
  TlsFiles foreign = good_;
  foreign.ca = testing::TestCa(folder_.path(), "other-ca").path();
  const Finding trust = Judge(foreign, "tls-trust");
  EXPECT_EQ(trust.level, Level::kFail);
  EXPECT_THAT(trust.cause, HasSubstr("is refused by whoever trusts the CA " + foreign.ca));
  EXPECT_THAT(trust.fix, HasSubstr("make a certificate with that CA"));
  const Finding name = Judge(ca_.Issue("gpu0", {.names = "DNS:gpu0"}), "tls-name");
  EXPECT_EQ(name.level, Level::kFail);
  EXPECT_THAT(name.cause, HasSubstr("is for DNS:gpu0 and not for 10.0.0.7"));
  EXPECT_EQ(Judge(ca_.Issue("client", {.usage = "clientAuth"}), "tls-trust").level, Level::kFail);
  needs_.is_manager = true;  // which listens nowhere, and has no name
  EXPECT_EQ(Judge(ca_.Issue("manager", {.names = "", .usage = "clientAuth"}), "tls-trust").level,
            Level::kOk);
  EXPECT_EQ(Judge(good_, "tls-name").subject, "no such finding");
}

TEST_F(DoctorTls, ExpiryIsToldAMonthAhead) {
  const auto level = [&](int first_day, int last_day) {
    return Judge(ca_.Issue("young", {.first_day = first_day, .last_day = last_day}), "tls-expiry")
        .level;
  };
  EXPECT_EQ(level(-1, 32), Level::kOk);
  EXPECT_EQ(level(-1, 29), Level::kWarn);
  EXPECT_EQ(level(-1, 1), Level::kWarn);
  EXPECT_EQ(level(-9, -3), Level::kFail);
  EXPECT_EQ(Judge(ca_.Issue("old", {.first_day = -9, .last_day = -3}), "tls-expiry").cause,
            "it, or a CA above it, expired 3 days ago");
  EXPECT_EQ(Judge(ca_.Issue("old", {.first_day = -9, .last_day = -3}), "tls-trust").level,
            Level::kFail);
}

TEST_F(Doctor, AProbeMeasuresThisHost) {
  for (const char* kind : {"shm", "tcp"}) {
    const std::vector<std::string> kinds = {kind};
    const std::unique_ptr<Ladder> answering = std::move(*Ladder::Open(kinds)),
                                  measuring = std::move(*Ladder::Open(kinds));
    ASSERT_TRUE(answering->Listen("127.0.0.1").ok());
    Status answered;
    std::thread thread(
        [&] { answered = AnswerProbe(*answering, Deadline::After(std::chrono::seconds(30))); });
    const Result<ProbeResult> result =
        Probe(*measuring, answering->offers(), std::chrono::milliseconds(200),
              Deadline::After(std::chrono::seconds(30)));
    thread.join();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(answered.ok()) << answered;
    EXPECT_EQ(result->fabric, kind);
    EXPECT_GT(result->latency_us, 0.02);
    EXPECT_GT(result->bytes_per_second, 1e6);
    EXPECT_LT(result->bytes_per_second, 1e12);
  }
}

// How an end of a probe waits. Thread: the end's.
struct Waits {
  int64_t num_idle_polls = 0;
  // In vain, since it last got something or slept.
  std::optional<TimePoint> polling_since;
  Clock::duration shortest = Clock::duration::max();  // that it polled in vain before it slept
};

// A fabric that watches how its owner waits, around one that does the work.
class WatchedEndpoint final : public Endpoint {
 public:
  WatchedEndpoint(std::unique_ptr<Endpoint> inner, Waits& waits)
      : inner_(std::move(inner)), waits_(waits) {}
  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override {
    return inner_->Post(ops, notify, tag);
  }
  size_t Poll(std::span<Event> out) override {
    const size_t count = inner_->Poll(out);
    waits_.num_idle_polls += count == 0;
    if (count > 0) {
      waits_.polling_since.reset();
    } else if (!waits_.polling_since) {
      waits_.polling_since = Clock::now();
    }
    return count;
  }
  std::span<std::byte> window() override { return inner_->window(); }
  uint64_t peer_window_bytes() const override { return inner_->peer_window_bytes(); }
  const std::string& peer_hello() const override { return inner_->peer_hello(); }
  const std::string& peer_name() const override { return inner_->peer_name(); }
  std::string last_error() const override { return inner_->last_error(); }

 private:
  const std::unique_ptr<Endpoint> inner_;
  Waits& waits_;
};

Result<std::unique_ptr<Endpoint>> Watch(Result<std::unique_ptr<Endpoint>> inner, Waits& waits) {
  if (!inner.ok()) return inner;
  return std::unique_ptr<Endpoint>(std::make_unique<WatchedEndpoint>(std::move(*inner), waits));
}

class WatchedListener final : public Listener {
 public:
  WatchedListener(std::unique_ptr<Listener> inner, Waits& waits)
      : inner_(std::move(inner)), waits_(waits) {}
  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) override {
    return Watch(inner_->Accept(options), waits_);
  }
  const std::string& address() const override { return inner_->address(); }

 private:
  const std::unique_ptr<Listener> inner_;
  Waits& waits_;
};

class WatchedFabric final : public Fabric {
 public:
  WatchedFabric(std::unique_ptr<Fabric> inner, Waits& waits)
      : inner_(std::move(inner)), waits_(waits) {}
  std::string_view name() const override { return inner_->name(); }
  const Limits& limits() const override { return inner_->limits(); }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, inner_->Listen(address));
    return std::unique_ptr<Listener>(
        std::make_unique<WatchedListener>(std::move(listener), waits_));
  }
  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override {
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Connecting> connecting,
                            inner_->StartConnect(address, options, deadline));
    return WithOutcome(std::move(connecting), [this](Result<std::unique_ptr<Endpoint>> endpoint) {
      return Watch(std::move(endpoint), waits_);
    });
  }
  bool Arm() override {  // who is about to sleep calls it
    if (waits_.polling_since)
      waits_.shortest = std::min(waits_.shortest, Clock::now() - *waits_.polling_since);
    waits_.polling_since.reset();
    return inner_->Arm();
  }
  int event_fd() const override { return inner_->event_fd(); }

 private:
  const std::unique_ptr<Fabric> inner_;
  Waits& waits_;
};

std::unique_ptr<Ladder> WatchedLadder(Waits& waits) {
  std::vector<std::unique_ptr<Fabric>> fabrics;
  fabrics.push_back(std::make_unique<WatchedFabric>(std::move(*OpenFabric("shm")), waits));
  return std::make_unique<Ladder>(std::move(fabrics));
}

// A sleeper takes 10 us and more to wake. An end that got no answer for long may sleep, as on a
// machine that is busy otherwise, but only after it has polled: for a sixteenth of its patience of
// 1 ms, or until another took its core for 200 us. Load makes both longer.
TEST_F(Doctor, AProbesLatencyIsNotThatOfWakingUp) {
  for (const auto duration : {std::chrono::milliseconds(1), std::chrono::milliseconds(100)}) {
    Waits answerer, measurer;
    const std::unique_ptr<Ladder> answering = WatchedLadder(answerer),
                                  measuring = WatchedLadder(measurer);
    ASSERT_TRUE(answering->Listen("127.0.0.1").ok());
    std::thread thread(
        [&] { (void)AnswerProbe(*answering, Deadline::After(std::chrono::seconds(30))); });
    const Result<ProbeResult> result =
        Probe(*measuring, answering->offers(), duration, Deadline::After(std::chrono::seconds(30)));
    thread.join();
    ASSERT_TRUE(result.ok()) << result.status();
    for (const Waits& waits : {answerer, measurer}) {
      EXPECT_GT(waits.num_idle_polls, 0);
      EXPECT_GE(waits.shortest, std::chrono::microseconds(50));
    }
  }
}

}  // namespace
}  // namespace lamina
