// The doctor against hosts that are described by files, and against this one.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/doctor/host_checks.h"
#include "tests/cli/doctor_fixture.h"
#include "transport/network_interface.h"

namespace lamina::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

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
  EXPECT_EQ(Find(CheckRdma(host(), needs_), "rdma-device").level, Level::kNone);
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

TEST_F(Doctor, WhatIsNotThereAndNotNeededIsNoTrouble) {
  std::ostringstream out;
  const std::vector<Finding> findings = {{"fabric", "verbs", Level::kNone, "no RDMA device", ""},
                                         {"port", "h:1", Level::kOk, "free", ""}};
  EXPECT_EQ(WorstOf(findings), Level::kOk);
  PrintFindings(findings, out);
  EXPECT_EQ(out.str(),
            "ok    port         h:1: free\nnone  fabric       verbs: no RDMA device\n\n2 checks: "
            "nothing stands in the way\n");
  const Result<std::vector<Finding>> back =
      FindingsFromJson(nlohmann::json::parse(ToJson(findings).dump()));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->at(0).level, Level::kNone);
  for (const Finding& finding : CheckFabrics({}))
    EXPECT_EQ(finding.level == Level::kOk, finding.cause == "can be used") << finding.cause;
}

TEST_F(Doctor, WhichInstructionsTheKernelsFind) {
  EXPECT_TRUE(CheckCpu(host()).empty());
  const std::string cpu = "processor\t: 0\nmodel name\t: Fast Ten\nflags\t\t: fpu avx2 fma f16c";
  Write("/proc/cpuinfo", cpu + "\n\nprocessor\t: 1\nmodel name\t: Fast Ten\nflags\t\t: fpu");
  Finding finding = Find(CheckCpu(host()), "cpu");
  EXPECT_EQ(finding.level, Level::kOk);
  EXPECT_EQ(finding.cause, "2 logical cores, Fast Ten; kernels use AVX2");
  Write("/proc/cpuinfo", cpu + " avx512f avx512bw");
  EXPECT_THAT(Find(CheckCpu(host()), "cpu").cause, HasSubstr("AVX-512"));
  Write("/proc/cpuinfo", "processor\t: 0\nflags\t: fpu avx512f avx512bw");
  finding = Find(CheckCpu(host()), "cpu");
  EXPECT_EQ(finding.level, Level::kWarn) << "without AVX2 they are not used";
  EXPECT_NE(finding.fix, "");
}

TEST_F(Doctor, NodesNeedTheirMemory) {
  Write("/proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB");
  EXPECT_EQ(Find(CheckMemory(host(), needs_), "memory").cause, "8.2 GB of 16.4 GB are free");
  needs_.memory_bytes = 8'000'000'000;
  EXPECT_EQ(Find(CheckMemory(host(), needs_), "memory").level, Level::kOk);
  needs_.memory_bytes = 9'000'000'000;
  EXPECT_EQ(Find(CheckMemory(host(), needs_), "memory").level, Level::kWarn);
  needs_.memory_bytes = 17'000'000'000;
  const Finding finding = Find(CheckMemory(host(), needs_), "memory");
  EXPECT_EQ(finding.level, Level::kFail);
  EXPECT_THAT(finding.cause, HasSubstr("the nodes here take 17.0 GB"));
}

TEST_F(Doctor, GpusThatTheDriverHas) {
  EXPECT_EQ(Find(CheckGpus(host()), "gpu").level, Level::kNone);
  Write("/proc/driver/nvidia/gpus/0000:17:00.0/information",
        "Model: \t\t NVIDIA H200\nIRQ:   \t\t 16");
  const Finding finding = Find(CheckGpus(host()), "gpu");
  EXPECT_EQ(finding.level, Level::kOk);
  EXPECT_EQ(finding.cause, "NVIDIA H200");
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
            "more\n\n2 checks: 1 failed, and lamina will not work before that is mended; warnings: "
            "0\n");
  EXPECT_EQ(back->at(0).value, 7);
  EXPECT_FALSE(FindingsFromJson(nlohmann::json::parse(R"([{"check": 1}])")).ok());
}

}  // namespace
}  // namespace lamina::testing
