// Memory of a device that one process hands to another: here any memory that has a descriptor.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "tests/transport/fabric_pair.h"
#include "transport/posix.h"

namespace lamina {
namespace {

ino_t InodeOf(int descriptor) {
  struct stat info {};
  return fstat(descriptor, &info) == 0 ? info.st_ino : 0;
}

// Connects two ends and looks at what each got.
void Exchange(const std::string& kind, const DeviceWindow& of_listener,
              const DeviceWindow& of_connecting) {
  const std::unique_ptr<Fabric> fabric = OpenTestFabric(kind), other = OpenTestFabric(kind);
  const std::unique_ptr<Listener> listener = std::move(fabric->Listen(FreshAddress(kind))).value();
  std::unique_ptr<Endpoint> accepted;
  std::thread accepting([&] {
    const Deadline deadline = Deadline::After(kPatience);
    while (accepted == nullptr && !deadline.Passed()) {
      Result<std::unique_ptr<Endpoint>> endpoint =
          listener->Accept({4096, "listener", nullptr, of_listener});
      if (endpoint.ok()) accepted = std::move(*endpoint);
    }
  });
  Result<std::unique_ptr<Endpoint>> endpoint =
      other->Connect(listener->address(), {4096, "connecting", nullptr, of_connecting},
                     Deadline::After(kPatience));
  accepting.join();
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  ASSERT_NE(accepted, nullptr);
  const DeviceWindow seen = (*endpoint)->peer_device_window(),
                     back = accepted->peer_device_window();
  for (const auto& [got, given] : {std::pair(seen, of_listener), std::pair(back, of_connecting)}) {
    const bool handed_over = kind == "shm" && given.descriptor >= 0;
    EXPECT_EQ(got.descriptor >= 0, handed_over);
    EXPECT_EQ(got.bytes, handed_over ? given.bytes : 0);
    if (!handed_over) continue;
    EXPECT_NE(got.descriptor, given.descriptor) << "its own";
    EXPECT_EQ(InodeOf(got.descriptor), InodeOf(given.descriptor));
    EXPECT_EQ(got.device, given.device);
  }
}

class DeviceWindowTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceWindowTest, IsHandedOverByEachEndThatHasOneWhereTheFabricCan) {
  const UniqueFd first(memfd_create("first", MFD_CLOEXEC)),
      second(memfd_create("second", MFD_CLOEXEC));
  DeviceWindow a{first.get(), 12345}, b{second.get(), uint64_t{1} << 40};
  a.device.fill(std::byte{1});
  b.device.fill(std::byte{2});
  Exchange(GetParam(), a, b);
  Exchange(GetParam(), a, {});
  Exchange(GetParam(), {}, b);
  Exchange(GetParam(), {}, {});
}

// Only where NICs reach such memory.
TEST_P(DeviceWindowTest, IsNotPostedTo) {
  FabricPair pair(GetParam());
  std::vector<std::byte> memory(4096);
  const DeviceWindow window{.bytes = memory.size(), .data = memory.data()};
  pair.Connect(pair.server, pair.client, {4096, "server", nullptr, window},
               {4096, "client", nullptr, window});
  for (Endpoint* const end : {pair.server.get(), pair.client.get()}) {
    EXPECT_FALSE(end->posts_to_device());
    EXPECT_EQ(PostToDevice(*end, memory, 0, 1).code(), StatusCode::kInvalidArgument);
  }
}

// Takes a post, and does nothing with it.
class RecordingEndpoint final : public Endpoint {
 public:
  Status Post(std::span<const WriteOp> posted, std::optional<uint32_t> notify,
              uint64_t tag) override {
    ops.assign(posted.begin(), posted.end());
    EXPECT_EQ(notify, std::nullopt);
    EXPECT_EQ(tag, 9u);
    return TryAgain();
  }
  size_t Poll(std::span<Event> /*out*/) override { return 0; }
  std::span<std::byte> window() override { return {}; }
  uint64_t peer_window_bytes() const override { return 0; }
  const std::string& peer_hello() const override { return text; }
  const std::string& peer_name() const override { return text; }
  std::string last_error() const override { return ""; }

  std::vector<WriteOp> ops;
  std::string text;
};

TEST(PostToDevice, WhatSaysThatItIsThereIsWrittenLast) {
  RecordingEndpoint endpoint;
  const std::vector<std::byte> message(100);
  EXPECT_EQ(PostToDevice(endpoint, message, 4096, 9).code(), StatusCode::kTryAgain);
  ASSERT_EQ(endpoint.ops.size(), 2u);
  EXPECT_TRUE(endpoint.ops[0].to_device && endpoint.ops[1].to_device);
  EXPECT_EQ(endpoint.ops[0].source.data(), message.data() + 8);
  EXPECT_EQ(endpoint.ops[0].source.size(), 92u);
  EXPECT_EQ(endpoint.ops[0].peer_offset, 4104u);
  EXPECT_EQ(endpoint.ops[1].source.data(), message.data());
  EXPECT_EQ(endpoint.ops[1].source.size(), 8u);
  EXPECT_EQ(endpoint.ops[1].peer_offset, 4096u);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, DeviceWindowTest, ::testing::Values("shm", "tcp", "modelled-shm"),
                         [](const auto& info) {
                           return info.param == "modelled-shm" ? std::string("modelledshm")
                                                               : info.param;
                         });

}  // namespace
}  // namespace lamina
