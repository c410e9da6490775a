// The greeting over real sockets: who is let in, who is turned away, and how long strangers are
// waited for.
#include "transport/control_greeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <thread>

#include "base/inbox.h"
#include "transport/control_channel.h"
#include "transport/tcp_socket.h"

namespace lamina {
namespace control_greeting_test {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kPatience = seconds(60);  // only a broken test waits so long
const std::string kSecret = "a secret that both ends know";

class ControlGreetingTest : public ::testing::Test {
 protected:
  void Listen(const std::string& secret, const std::string& address = "127.0.0.1:0") {
    auto made = ControlListener::Create(address, {.hello = "daemon", .secret = secret},
                                        [this](std::unique_ptr<ControlConnection> connection) {
                                          accepted_.Push(std::move(connection));
                                        });
    ASSERT_TRUE(made.ok()) << made.status();
    listener_ = std::move(*made);
  }

  static Result<std::unique_ptr<ControlConnection>> Connect(const std::string& address,
                                                            const std::string& secret,
                                                            Clock::duration patience = kPatience) {
    return ConnectControl(address, {.hello = "manager", .secret = secret},
                          Deadline::After(patience));
  }

  std::unique_ptr<ControlConnection> NextAccepted() {
    const Deadline deadline = Deadline::After(kPatience);
    while (!deadline.Passed()) {
      if (auto connection = accepted_.TryPop()) return std::move(*connection);
      WaitForFd(accepted_.fd(), POLLIN, deadline);
    }
    return nullptr;
  }

  // Until the daemon closes; what it said.
  static std::string ReadToEnd(Tcp::socket& socket) {
    std::string all;
    char bytes[4096];
    while (WaitForFd(socket.native_handle(), POLLIN, Deadline::After(kPatience))) {
      const ssize_t got = recv(socket.native_handle(), bytes, sizeof(bytes), 0);
      if (got <= 0) return all;
      all.append(bytes, static_cast<size_t>(got));
    }
    return all + " and then nothing for too long";
  }

  boost::asio::io_context io_;
  Inbox<std::unique_ptr<ControlConnection>> accepted_;
  std::unique_ptr<ControlListener> listener_;
};

// An address of this machine that is not on the loopback, "" if it has none.
std::string OwnAddress() {
  ifaddrs* interfaces = nullptr;
  std::string found;
  if (getifaddrs(&interfaces) != 0) return found;
  for (const ifaddrs* entry = interfaces; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    const uint32_t address =
        ntohl(reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr.s_addr);
    if (address >> 24 != 127) found = boost::asio::ip::address_v4(address).to_string();
  }
  freeifaddrs(interfaces);
  return found;
}

TEST_F(ControlGreetingTest, TheSameSecretIsLetInAndItsFramesArrive) {
  Listen(kSecret);
  auto client = Connect(listener_->address(), kSecret);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->peer_hello(), "daemon");
  ASSERT_TRUE((*client)->Send(kFirstUserType, "order").ok());
  const auto server = NextAccepted();
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(server->peer_hello(), "manager");
  Inbox<ControlFrame> frames;
  server->Start(
      {.on_frame = [&](ControlFrame frame) { frames.Push(std::move(frame)); }, .on_lost = {}});
  ASSERT_TRUE(WaitForFd(frames.fd(), POLLIN, Deadline::After(kPatience)));
  EXPECT_EQ(frames.TryPop()->payload, "order");
  server->Close(Deadline::After(milliseconds(1)));
}

TEST_F(ControlGreetingTest, OthersGetOneClearSentenceAndTheListenerServesOn) {
  Listen(kSecret);
  const Status other = Connect(listener_->address(), "a secret that one end knows").status();
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(other.message(),
              AllOf(HasSubstr(listener_->address()), HasSubstr("another cluster secret")));
  const Status none = Connect(listener_->address(), "").status();
  EXPECT_EQ(none.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(none.message(),
              AllOf(HasSubstr(listener_->address()), HasSubstr("this end was given none")));
  EXPECT_TRUE(Connect(listener_->address(), kSecret).ok());
  EXPECT_NE(NextAccepted(), nullptr);
  EXPECT_FALSE(accepted_.TryPop().has_value());

  Listen("");
  EXPECT_THAT(Connect(listener_->address(), kSecret).status().message(),
              HasSubstr("the peer was given no cluster secret"));
}

TEST_F(ControlGreetingTest, StrangersHearNothingButAChallengeAndGoAtTheDeadline) {
  Listen(kSecret);
  const TimePoint start = Clock::now();
  std::vector<Tcp::socket> strangers;
  for (const std::string& bytes : {std::string(), std::string("LMNA"),
                                   std::string("GET / HTTP/1.1\r\n\r\n"), std::string(200, '\0')}) {
    strangers.push_back(
        std::move(*ConnectTcp(io_, listener_->address(), Deadline::After(kPatience))));
    ASSERT_EQ(send(strangers.back().native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  EXPECT_TRUE(Connect(listener_->address(), kSecret).ok()) << "they are in nobody's way";
  for (Tcp::socket& stranger : strangers)
    EXPECT_LE(ReadToEnd(stranger).size(), kControlHeaderBytes + 1 + kNonceBytes);
  EXPECT_LT(SecondsSince(start), 30) << "the deadline of a greeting is 5 s";
}

TEST_F(ControlGreetingTest, APeerThatTricklesIsGivenUpAtTheDeadline) {
  auto acceptor = std::move(*ListenTcp(io_, "127.0.0.1:0"));
  std::atomic<bool> stop{false};
  std::thread trickling([&] {
    acceptor.non_blocking(false);
    Tcp::socket peer = acceptor.accept();
    const auto header = EncodeControlHeader(kControlChallenge, 1 + kNonceBytes);
    for (size_t i = 0; !stop; ++i) {
      const char byte = i < header.size() ? header[i] : '\1';
      if (i < header.size() + kNonceBytes) send(peer.native_handle(), &byte, 1, MSG_NOSIGNAL);
      std::this_thread::sleep_for(milliseconds(2));
    }
  });
  const Status status =
      Connect(BoundAddress(acceptor, "127.0.0.1:0"), kSecret, milliseconds(200)).status();
  stop = true;
  trickling.join();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
}

TEST_F(ControlGreetingTest, OffTheLoopbackOneNeedsASecret) {
  const auto nobody = [](std::unique_ptr<ControlConnection>) {};
  for (const std::string address : {"0.0.0.0:0", ":0"}) {
    const Status status = ControlListener::Create(address, {.hello = "daemon"}, nobody).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("without a cluster secret"),
                                        HasSubstr("(umask 077 && openssl rand -hex 32 > FILE)")));
  }
  EXPECT_TRUE(ControlListener::Create("localhost:0", {.hello = "daemon"}, nobody).ok());
  EXPECT_FALSE(
      ControlListener::Create("127.0.0.1:0", {.hello = "daemon", .secret = "short"}, nobody).ok());

  if (OwnAddress().empty()) GTEST_SKIP() << "this machine has no address but the loopback's";
  Listen(kSecret, OwnAddress() + ":0");
  const Status status = Connect(listener_->address(), "").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("refusing to connect without a cluster secret"));
  EXPECT_TRUE(Connect(listener_->address(), kSecret).ok());
}

}  // namespace control_greeting_test
}  // namespace lamina
