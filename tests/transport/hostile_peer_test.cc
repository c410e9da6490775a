// Peers that do not keep to the protocol: the endpoint ends with a reason, and nothing else
// happens.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <limits>

#include "base/inbox.h"
#include "tests/transport/fabric_pair.h"
#include "transport/mapping.h"
#include "transport/posix.h"
#include "transport/sealed_memory.h"
#include "transport/shm/shm_socket.h"
#include "transport/tcp/tcp_wire.h"
#include "transport/tcp_socket.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

template <typename T>
std::string BytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

class HostilePeer : public ::testing::Test {
 protected:
  explicit HostilePeer(const std::string& kind) : fabric_(OpenTestFabric(kind)) {
    listener_ = std::move(fabric_->Listen(FreshAddress(kind))).value();
  }

  // The next good peer is served, whatever strangers are doing.
  void ExpectStillServing(const std::string& kind) {
    const auto other = OpenTestFabric(kind);
    std::unique_ptr<Endpoint> client;
    std::thread connecting([&] {
      auto made = other->Connect(listener_->address(), {}, Deadline::After(kPatience));
      if (made.ok()) client = std::move(made).value();
    });
    EXPECT_TRUE(AcceptOne(*fabric_, *listener_, {}) != nullptr);
    connecting.join();
    EXPECT_TRUE(client != nullptr);
  }

  void ExpectLost(const std::string& why) {
    ASSERT_TRUE(
        Until([&] { return inbound_.num_lost > 0; }, [&] { inbound_.PollOnce(*endpoint_); }));
    EXPECT_THAT(endpoint_->last_error(), HasSubstr(why));
    EXPECT_EQ(endpoint_->Post({}, 1, 1).code(), StatusCode::kPeerLost);
  }

  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Endpoint> endpoint_;
  Inbound inbound_;
};

// As a well-behaved peer sends it: the `sequence`-th frame of a connection.
std::string Sealed(TcpFrame frame, uint32_t sequence = 0) {
  frame.sequence = sequence;
  frame.checksum = frame.Checksum();
  return BytesOf(frame);
}

class HostileTcpPeer : public HostilePeer {
 protected:
  HostileTcpPeer()
      : HostilePeer("tcp"),
        socket_(
            std::move(ConnectTcp(io_, listener_->address(), Deadline::After(kPatience))).value()) {}

  void Say(const std::string& bytes) {
    ASSERT_EQ(send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  void Greet() {
    Say(BytesOf(TcpGreeting{}));
    endpoint_ = AcceptOne(*fabric_, *listener_, {1000, ""});
    ASSERT_TRUE(endpoint_ != nullptr);
    TcpGreeting answer;  // left unread it would turn this end's close into a reset
    ASSERT_TRUE(WaitForFd(socket_.native_handle(), POLLIN, Deadline::After(kPatience)));
    ASSERT_EQ(recv(socket_.native_handle(), &answer, sizeof(answer), 0),
              static_cast<ssize_t>(sizeof(answer)));
  }

  boost::asio::io_context io_;
  Tcp::socket socket_;
};

TEST_F(HostileTcpPeer, BadMagic) {
  Greet();
  TcpFrame frame;
  frame.magic = 0x1234;
  Say(Sealed(frame));
  ExpectLost("malformed frame: magic");
}

TEST_F(HostileTcpPeer, WritesOutsideTheWindow) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const std::vector<TcpFrame> frames = {{.window_offset = 0, .payload_bytes = 1001},
                                        {.window_offset = 1000, .payload_bytes = 1},
                                        {.window_offset = 1001, .payload_bytes = 0},
                                        {.window_offset = kMax, .payload_bytes = 2},
                                        {.window_offset = 2, .payload_bytes = kMax}};
  for (const TcpFrame& frame : frames) {
    Greet();
    Say(Sealed(frame) + "x");
    ExpectLost("outside this end's window of 1000 bytes");
    inbound_ = {};
    socket_ = std::move(ConnectTcp(io_, listener_->address(), Deadline::After(kPatience))).value();
  }
}

TEST_F(HostileTcpPeer, ADamagedHeaderWritesNothing) {
  TcpFrame frame{.has_notification = 1, .notification = 7, .window_offset = 10, .payload_bytes = 3};
  frame.checksum = frame.Checksum();
  const std::string good = BytesOf(frame);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Greet();
    std::string damaged = good;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    Say(damaged + "abc");
    ExpectLost("malformed frame");
    const std::span<const std::byte> window = endpoint_->window();
    EXPECT_TRUE(
        std::all_of(window.begin(), window.end(), [](std::byte b) { return b == std::byte{0}; }))
        << "bit " << bit;
    EXPECT_TRUE(inbound_.notifications.empty());
    inbound_ = {};
    socket_ = std::move(ConnectTcp(io_, listener_->address(), Deadline::After(kPatience))).value();
  }
}

TEST_F(HostileTcpPeer, AFrameThatCameBeforeOrTooEarly) {
  for (const uint32_t sequence : {0u, 2u}) {
    Greet();
    Say(Sealed({.has_notification = 1, .notification = 3}) +
        Sealed({.has_notification = 1, .notification = 4}, sequence));
    ExpectLost("malformed frame: frame 1 fails its checksum or is another one: it says " +
               std::to_string(sequence));
    EXPECT_EQ(inbound_.notifications, std::vector<uint32_t>{3});
    inbound_ = {};
    socket_ = std::move(ConnectTcp(io_, listener_->address(), Deadline::After(kPatience))).value();
  }
}

TEST_F(HostileTcpPeer, GoodFramesBeforeABadOneCount) {
  Greet();
  TcpFrame good{.has_notification = 1, .notification = 77, .window_offset = 10, .payload_bytes = 3};
  TcpFrame bad{.has_notification = 2};
  Say(Sealed(good) + "abc" + Sealed(bad, 1));
  ExpectLost("malformed frame");
  EXPECT_EQ(inbound_.notifications, std::vector<uint32_t>{77});
  EXPECT_EQ(std::memcmp(endpoint_->window().data() + 10, "abc", 3), 0);
}

TEST_F(HostileTcpPeer, BytesInAnyPieces) {
  Greet();
  std::string stream;
  for (uint32_t i = 0; i < 50; ++i) {
    const TcpFrame frame{
        .has_notification = 1, .notification = i, .window_offset = i, .payload_bytes = i};
    stream += Sealed(frame, i) + std::string(i, static_cast<char>('a' + i % 26));
  }
  for (size_t at = 0; at < stream.size(); at += 1 + at % 5) {
    Say(stream.substr(at, 1 + at % 5));
    inbound_.PollOnce(*endpoint_, 3);
  }
  ASSERT_TRUE(Until([&] { return inbound_.notifications.size() == 50; },
                    [&] { inbound_.PollOnce(*endpoint_); }));
  EXPECT_EQ(static_cast<char>(endpoint_->window()[97]), 'a' + 49 % 26);
  EXPECT_EQ(inbound_.num_lost, 0);
}

TEST_F(HostileTcpPeer, EndsInTheMiddleOfAFrame) {
  Greet();
  Say(Sealed({.payload_bytes = 100}) + "only this");
  socket_.close();
  ExpectLost("closed the connection");
}

TEST_F(HostileTcpPeer, BadGreetingsAreDropped) {
  TcpGreeting magic, version, hello;
  magic.magic = {'H', 'T', 'T', 'P'};
  version.version = 9;
  hello.hello_bytes = 60000;
  for (const TcpGreeting& greeting : {magic, version, hello}) {
    Say(BytesOf(greeting));
    ExpectStillServing("tcp");
    socket_ = std::move(ConnectTcp(io_, listener_->address(), Deadline::After(kPatience))).value();
  }
}

TEST_F(HostileTcpPeer, ASilentStrangerBlocksNobody) {
  ExpectStillServing("tcp");
  Say("LM");
  ExpectStillServing("tcp");
}

// More of them than may wait, so that some have to go before the next peer is heard.
TEST_F(HostileTcpPeer, ManySilentStrangersBlockNobody) {
  std::vector<Tcp::socket> strangers;
  for (int i = 0; i < 200; ++i)
    strangers.push_back(
        std::move(ConnectTcp(io_, listener_->address(), Deadline::After(kPatience))).value());
  const TimePoint start = Clock::now();
  ExpectStillServing("tcp");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5))
      << "it did not wait for the strangers' deadline";
}

TEST_F(HostileTcpPeer, ConnectNamesAnotherVersion) {
  boost::asio::io_context io;
  auto acceptor = std::move(ListenTcp(io, "127.0.0.1:0")).value();
  std::thread server([&] {
    acceptor.non_blocking(false);
    auto peer = acceptor.accept();
    TcpGreeting greeting;
    greeting.version = 9;
    send(peer.native_handle(), &greeting, sizeof(greeting), MSG_NOSIGNAL);
  });
  const Status status =
      fabric_->Connect(BoundAddress(acceptor, "127.0.0.1:0"), {}, Deadline::After(kPatience))
          .status();
  server.join();
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_THAT(status.message(), HasSubstr("version 9"));
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1:"));
}

class HostileShmPeer : public HostilePeer {
 protected:
  HostileShmPeer()
      : HostilePeer("shm"), socket_(std::move(TryConnectShm(listener_->address())).value()) {}

  // A proper handshake, after which this test holds both segments.
  void Greet() {
    own_fd_ = std::move(CreateSealedMemory(kShmControlBytes + 100)).value();
    own_ = std::move(Mapping::Shared(own_fd_.get(), kShmControlBytes + 100)).value();
    ASSERT_TRUE(SendShmGreeting(socket_.get(), {100, "evil"}, own_fd_.get(), wake_.fd()).ok());
    endpoint_ = AcceptOne(*fabric_, *listener_, {1000, ""});
    ASSERT_TRUE(endpoint_ != nullptr);
    auto peer = ReceiveShmGreeting(socket_.get());
    ASSERT_TRUE(peer.ok()) << peer.status();
    theirs_ = std::move(Mapping::Shared(peer->segment.get(), kShmControlBytes + 1000)).value();
  }

  static ShmControl& ControlOf(Mapping& segment) {
    return *reinterpret_cast<ShmControl*>(segment.bytes().data());
  }

  UniqueFd socket_;
  WakeFd wake_;
  UniqueFd own_fd_;
  Mapping own_, theirs_;
};

TEST_F(HostileShmPeer, NotificationOutOfTurn) {
  Greet();
  ControlOf(theirs_).ring[0] = uint64_t{kShmRingSlots + 1} << 32;
  ExpectLost("corrupted the ring: notification 513 where 1 belongs");
}

TEST_F(HostileShmPeer, NotificationWithTheNumberOfTheLast) {
  Greet();
  for (const uint64_t slot : {0, 1, 2}) ControlOf(theirs_).ring[slot] = (slot + 1) << 32 | slot;
  ASSERT_TRUE(Until([&] { return inbound_.notifications.size() == 3; },
                    [&] { inbound_.PollOnce(*endpoint_); }));
  EXPECT_EQ(inbound_.notifications, (std::vector<uint32_t>{0, 1, 2}));
  ControlOf(theirs_).ring[3] = uint64_t{3} << 32;
  ExpectLost("corrupted the ring: notification 3 where 4 belongs");
  EXPECT_EQ(inbound_.notifications.size(), 3u);
}

TEST_F(HostileShmPeer, TailBeyondWhatWasWritten) {
  Greet();
  ControlOf(own_).tail = 5000;
  Status status;
  for (uint32_t i = 0;
       i < 2 * kShmRingSlots && (status.ok() || status.code() == StatusCode::kTryAgain); ++i) {
    status = endpoint_->Post({}, i, i);
    inbound_.PollOnce(*endpoint_);
  }
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  ExpectLost("corrupted its ring");
}

TEST_F(HostileShmPeer, ScribblesOverItsOwnAndTheOtherControlPage) {
  Greet();
  std::memset(own_.bytes().data(), 0xff, kShmControlBytes);
  std::memset(theirs_.bytes().data(), 0xff, kShmControlBytes);
  fabric_->Arm();
  ExpectLost("corrupted");
}

TEST_F(HostileShmPeer, TalksOnTheSocket) {
  Greet();
  ASSERT_EQ(send(socket_.get(), "hi", 2, 0), 2);
  ExpectLost("does not belong on the socket");
}

TEST_F(HostileShmPeer, SegmentThatCouldShrinkIsRefused) {
  const UniqueFd unsealed(memfd_create("evil", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), 1 << 20), 0);
  ASSERT_TRUE(SendShmGreeting(socket_.get(), {100, ""}, unsealed.get(), wake_.fd()).ok());
  ExpectStillServing("shm");
}

TEST_F(HostileShmPeer, SegmentSmallerThanItsWindowIsRefused) {
  const UniqueFd small = std::move(CreateSealedMemory(kShmControlBytes + 100)).value();
  ASSERT_TRUE(SendShmGreeting(socket_.get(), {100'000, ""}, small.get(), wake_.fd()).ok());
  ExpectStillServing("shm");
  EXPECT_FALSE(ReceiveShmGreeting(socket_.get()).ok());
}

TEST_F(HostileShmPeer, WrongDescriptorsAreRefused) {
  const UniqueFd segment = std::move(CreateSealedMemory(kShmControlBytes + 100)).value();
  ASSERT_TRUE(SendShmGreeting(socket_.get(), {100, ""}, segment.get(), segment.get()).ok());
  ExpectStillServing("shm");
}

TEST_F(HostileShmPeer, AnEventFdThatIsFullBlocksNobody) {
  ASSERT_EQ(fcntl(wake_.fd(), F_SETFL, 0), 0);  // it blocks
  Greet();
  const uint64_t most = 0xfffffffffffffffe;
  ASSERT_EQ(write(wake_.fd(), &most, sizeof(most)), static_cast<ssize_t>(sizeof(most)));
  ControlOf(own_).owner_sleeps = 1;
  EXPECT_TRUE(endpoint_->Post({}, 1, 1).ok());
  EXPECT_EQ(ControlOf(own_).owner_sleeps, 0u) << "it was to be woken";
}

TEST_F(HostileShmPeer, ADeviceWindowThatIsNotHandedOverIsRefused) {
  const UniqueFd segment = std::move(CreateSealedMemory(kShmControlBytes + 100)).value();
  ShmGreeting greeting;
  greeting.window_bytes = 100;
  greeting.device_window_bytes = 1 << 20;
  ASSERT_TRUE(
      // Three, none told of.
      SendShmGreeting(socket_.get(), {100, "", nullptr, {segment.get(), 0, {}}}, segment.get(),
                      wake_.fd())
          .ok());
  ExpectStillServing("shm");
  socket_ = std::move(TryConnectShm(listener_->address())).value();
  // Told of, none there.
  ASSERT_GE(send(socket_.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL), 0);
  ExpectStillServing("shm");
}

TEST_F(HostileShmPeer, GarbageGreetingsAreDropped) {
  for (const std::string& garbage : {std::string("x"), std::string(16, 'x'), BytesOf(ShmGreeting{}),
                                     std::string(100'000, 'x')}) {
    ASSERT_GE(send(socket_.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    ExpectStillServing("shm");
    socket_ = std::move(TryConnectShm(listener_->address())).value();
  }
}

TEST_F(HostileShmPeer, ASilentStrangerBlocksNobody) { ExpectStillServing("shm"); }

TEST_F(HostileShmPeer, NamesAreChecked) {
  for (const std::string& name : {std::string(), std::string(200, 'n')}) {
    EXPECT_EQ(fabric_->Listen(name).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(fabric_->Connect(name, {}, Deadline::After(kPatience)).status().code(),
              StatusCode::kInvalidArgument);
  }
}

TEST(TcpAddress, Parses) {
  EXPECT_EQ(ParseHostPort("10.0.0.1:7000")->host, "10.0.0.1");
  EXPECT_EQ(ParseHostPort("10.0.0.1:7000")->port, "7000");
  EXPECT_EQ(ParseHostPort("[::1]:0")->host, "::1");
  EXPECT_EQ(ParseHostPort(":80")->host, "");
  for (const char* bad : {"", "host", "host:", "host:x", "host:65536", "host:-1", "::1:80",
                          "host:99999999999999999999", "host:80x"}) {
    const Status status = ParseHostPort(bad).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("host:port")) << bad;
  }
}

}  // namespace
}  // namespace lamina
