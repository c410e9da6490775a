// What is special about verbs; the rest is in conformance*_test.cc. Needs an RDMA device:
// tests/softroce/run.sh provides one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <iostream>

#include "tests/transport/fabric_pair.h"
#include "transport/mapping.h"
#include "transport/rdma_host.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

constexpr char kDeviceVariable[] = "LAMINA_VERBS_DEVICE";

class Verbs : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = OpenFabric("verbs").status();
    if (!status.ok()) GTEST_SKIP() << status;
  }
  void TearDown() override { unsetenv(kDeviceVariable); }
};

TEST_F(Verbs, SourcesLieInBuffersOrWindows) {
  FabricPair pair("verbs");
  pair.Connect(8192);
  EXPECT_TRUE(pair.client_fabric->limits().registered_sources);
  auto buffer = std::move(pair.client_fabric->Allocate(4096)).value();
  const std::vector<std::byte> heap(100);
  const auto elsewhere = std::move(pair.server_fabric->Allocate(4096)).value();
  const std::span<const std::byte> across(buffer->bytes().data() + 4000, 200);
  for (const std::span<const std::byte> source :
       {std::span(heap), std::span<const std::byte>(elsewhere->bytes()), across}) {
    const WriteOp op{source, 0};
    const Status status = pair.client->Post({&op, 1}, 1, 1);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("does not lie in a Buffer"));
  }
  const std::array<WriteOp, 2> good = {WriteOp{buffer->bytes(), 0},
                                       WriteOp{pair.client->window().first(100), 4096}};
  ASSERT_TRUE(pair.client->Post(good, 2, 2).ok());
  Inbound at_server, at_client;
  ASSERT_TRUE(Until([&] { return !at_server.notifications.empty() && !at_client.sent.empty(); },
                    [&] {
                      at_server.PollOnce(*pair.server);
                      at_client.PollOnce(*pair.client);
                    }));
  EXPECT_EQ(at_server.notifications, std::vector<uint32_t>{2});
  const WriteOp freed{buffer->bytes(), 0};
  buffer.reset();
  EXPECT_EQ(pair.client->Post({&freed, 1}, 3, 3).code(), StatusCode::kInvalidArgument);
}

// Here the device's memory is any that is none of the fabric's own, registered as that of a GPU
// would be. That the CPU cannot read a GPU's is played: while this end posts, it may not.
TEST_F(Verbs, DeviceWindowsArePostedFromAndTo) {
  constexpr size_t kBytes = 8192;
  std::vector<std::byte> of_server = Pattern(kBytes, 1);
  const Mapping hidden = Mapping::Anonymous(kBytes).value();
  const std::span<std::byte> of_client = hidden.bytes();
  const std::vector<std::byte> pattern = Pattern(kBytes, 2);
  std::copy(pattern.begin(), pattern.end(), of_client.begin());
  const DeviceWindow server_window{
      .bytes = kBytes, .device = {std::byte{7}}, .data = of_server.data()};
  const DeviceWindow client_window{
      .bytes = kBytes, .device = {std::byte{9}}, .data = of_client.data()};
  FabricPair pair("verbs");
  pair.Connect(pair.server, pair.client, {4096, "server", nullptr, server_window},
               {4096, "client", nullptr, client_window});
  ASSERT_TRUE(pair.server->posts_to_device() && pair.client->posts_to_device());
  const DeviceWindow seen = pair.client->peer_device_window();
  EXPECT_EQ(seen.bytes, kBytes);
  EXPECT_EQ(seen.device, server_window.device);
  EXPECT_TRUE(seen.descriptor == -1 && seen.data == nullptr);

  std::vector<std::byte> expected = of_server;
  std::copy_n(of_client.begin() + 256, 1000, expected.begin() + 4000);
  std::copy_n(of_client.begin(), 16, expected.begin());
  const WriteOp small{of_client.first(16), 0, true};  // no longer than inline data
  ASSERT_EQ(mprotect(of_client.data(), kBytes, PROT_NONE), 0);
  ASSERT_TRUE(PostToDevice(*pair.client, of_client.subspan(256, 1000), 4000, 1).ok());
  ASSERT_TRUE(pair.client->Post({&small, 1}, 5, 2).ok());
  ASSERT_EQ(mprotect(of_client.data(), kBytes, PROT_READ | PROT_WRITE), 0);
  Inbound at_server, at_client;
  ASSERT_TRUE(Until([&] { return !at_server.notifications.empty() && at_client.sent.size() == 2; },
                    [&] {
                      at_server.PollOnce(*pair.server);
                      at_client.PollOnce(*pair.client);
                    }));
  EXPECT_EQ(of_server, expected);
  EXPECT_EQ(pair.server->window()[0], std::byte{0}) << "the other window";

  const std::vector<std::byte> heap(64);
  const WriteOp elsewhere{heap, 0, true}, outside{of_client.first(64), kBytes - 32, true};
  EXPECT_THAT(pair.client->Post({&elsewhere, 1}, 6, 3).message(),
              HasSubstr("this end's device window"));
  EXPECT_THAT(pair.client->Post({&outside, 1}, 6, 3).message(),
              HasSubstr("outside the peer's device window of 8192 bytes"));
}

// One end has none: nothing is posted to the other's.
TEST_F(Verbs, DeviceWindowsTakeTwo) {
  std::vector<std::byte> memory(4096);
  const DeviceWindow window{.bytes = memory.size(), .data = memory.data()},
      hidden{.bytes = memory.size()};
  FabricPair pair("verbs");
  pair.Connect(pair.server, pair.client, {4096, "server", nullptr, window},
               {4096, "client", nullptr, hidden});
  for (Endpoint* const end : {pair.server.get(), pair.client.get()}) {
    EXPECT_FALSE(end->posts_to_device());
    EXPECT_EQ(PostToDevice(*end, memory, 0, 1).code(), StatusCode::kInvalidArgument);
  }
}

// Posts far beyond what the receive queue holds, in both directions at once, while each end polls
// only now and then.
TEST_F(Verbs, CreditsNeverRunDry) {
  constexpr uint32_t kPosts = 20'000;
  FabricPair pair("verbs");
  pair.Connect(64);
  struct Side {
    Endpoint& endpoint;
    uint32_t posted = 0;
    Inbound inbound = {};
    void Step() {
      while (posted < kPosts && endpoint.Post({}, posted, posted).ok()) ++posted;
      inbound.PollOnce(endpoint, 100);
    }
    bool Done() const {
      return inbound.notifications.size() == kPosts && inbound.sent.size() == kPosts;
    }
  };
  Side server{*pair.server}, client{*pair.client};
  EXPECT_TRUE(Until([&] { return server.Done() && client.Done(); },
                    [&] {
                      server.Step();
                      client.Step();
                    }));
  for (uint32_t i = 0; i < kPosts; ++i)
    ASSERT_TRUE(server.inbound.notifications[i] == i && client.inbound.notifications[i] == i);
  EXPECT_EQ(server.inbound.num_lost + client.inbound.num_lost, 0)
      << pair.server->last_error() << pair.client->last_error();
}

TEST_F(Verbs, AnAddressWithoutDeviceIsRefusedAndDevicesAreListed) {
  const auto fabric = OpenTestFabric("verbs");
  const Status status = fabric->Listen("127.0.0.1:0").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1"));
  EXPECT_THAT(status.message(), HasSubstr("RoCE v2"));
}

TEST_F(Verbs, ANamedDeviceServesEveryAddress) {
  setenv(kDeviceVariable, "rxe0", 1);
  if (!OpenFabric("verbs").ok()) GTEST_SKIP() << "there is no rxe0";
  const auto server = OpenTestFabric("verbs"), client = OpenTestFabric("verbs");
  const auto listener = std::move(server->Listen("127.0.0.1:0")).value();
  std::unique_ptr<Endpoint> client_end;
  std::thread connecting([&] {
    auto made = client->Connect(listener->address(), {}, Deadline::After(kPatience));
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) client_end = std::move(made).value();
  });
  const auto server_end = AcceptOne(*server, *listener, {});
  connecting.join();
  ASSERT_TRUE(server_end && client_end);
  ASSERT_TRUE(client_end->Post({}, 7, 7).ok());
  Inbound inbound;
  EXPECT_TRUE(Until([&] { return !inbound.notifications.empty(); },
                    [&] { inbound.PollOnce(*server_end); }));
}

TEST_F(Verbs, AnUnknownDeviceIsRefusedAndTheOthersAreNamed) {
  setenv(kDeviceVariable, "mlx9_9", 1);
  const Status status = OpenFabric("verbs").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("\"mlx9_9\" of LAMINA_VERBS_DEVICE; there are: "));
}

TEST_F(Verbs, TheLimitOnLockedMemoryIsNamed) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become a user to whom the limit applies";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setuid(65534) != 0) _exit(1);
    const auto fabric = OpenFabric("verbs");
    if (!fabric.ok()) _exit(2);
    const Status status = (*fabric)->Allocate(size_t{16} << 20).status();
    std::cerr << status << "\n";
    const bool says_why = status.message().find("1048576") != std::string::npos &&
                          status.message().find("ulimit -l") != std::string::npos;
    _exit(status.code() == StatusCode::kOutOfSpace && says_why ? 0 : 3);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// By itself UCX begins its set-up anew without end; alarm() turns that into a failure.
TEST_F(Verbs, UcxIsRefusedWhereItMayLockTooLittleMemory) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become a user to whom the limit applies";
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const rlimit limit{64 << 10, 64 << 10};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setuid(65534) != 0) _exit(1);
    setenv(kUcxTrustedDevices, "rxe0:1", 1);
    const Status status = OpenFabric("ucx").status();
    std::cerr << status << "\n";
    if (status.message().find("no transport ucx") != std::string::npos) _exit(0);  // of this build
    const bool says_why = status.message().find("65536") != std::string::npos &&
                          status.message().find(kUcxTrustedDevices) != std::string::npos;
    if (status.code() != StatusCode::kOutOfSpace || !says_why) _exit(2);
    unsetenv(kUcxTrustedDevices);
    _exit(OpenFabric("ucx").ok() ? 0 : 3);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace lamina
