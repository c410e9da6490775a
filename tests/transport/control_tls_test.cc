// The control channel inside TLS, over real sockets and threads: frames of every size, strangers,
// and peers that stop half-way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <numeric>
#include <optional>
#include <thread>

#include "base/inbox.h"
#include "tests/support/certificates.h"
#include "tests/support/temporary_folder.h"
#include "transport/control_channel.h"
#include "transport/control_handshake.h"
#include "transport/posix.h"
#include "transport/tcp_socket.h"
#include "transport/tls_context.h"

namespace lamina {
namespace control_tls_test {

using lamina::testing::TestCa;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr auto kPatience = seconds(60);  // only a broken test waits so long

// A client that does with TLS what the test wants, on the test's thread.
class RawTlsClient {
 public:
  // Without `files`: shows no certificate. It takes every listener.
  RawTlsClient(boost::asio::io_context& io, const std::string& address, const TlsFiles& files,
               int version = TLS1_3_VERSION)
      : socket_(std::move(*ConnectTcp(io, address, Deadline::After(kPatience)))),
        context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_max_proto_version(context_, version);
    if (!files.empty()) {
      EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context_, files.certificate.c_str()), 1);
      EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context_, files.key.c_str(), SSL_FILETYPE_PEM), 1);
    }
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, socket_.native_handle());
  }
  ~RawTlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  RawTlsClient(const RawTlsClient&) = delete;
  RawTlsClient& operator=(const RawTlsClient&) = delete;

  bool Handshake() {
    return Retry([&] { return SSL_connect(ssl_); }) == 1;
  }
  void Say(const std::string& bytes) {  // as one record
    EXPECT_EQ(Retry([&] { return SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())); }),
              static_cast<int>(bytes.size()));
  }
  // Until the listener closes.
  std::string ReadToEnd() {
    std::string all, bytes(4096, '\0');
    while (true) {
      const int got =
          Retry([&] { return SSL_read(ssl_, bytes.data(), static_cast<int>(bytes.size())); });
      if (got <= 0) return all;
      all.append(bytes, 0, static_cast<size_t>(got));
    }
  }

 private:
  template <typename Call>
  int Retry(Call call) {
    const Deadline deadline = Deadline::After(kPatience);
    while (true) {
      const int result = call();
      const int error = SSL_get_error(ssl_, result);
      if (result > 0 || (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE))
        return result;
      EXPECT_TRUE(WaitForFd(socket_.native_handle(),
                            error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline));
      if (deadline.Passed()) return -1;
    }
  }

  Tcp::socket socket_;
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
};

// Where one end's callbacks go. Outlives the connection.
struct Events {
  ControlConnection::Callbacks callbacks() {
    return {.on_frame = [this](ControlFrame frame) { frames.Push(std::move(frame)); },
            .on_lost = [this](Status status) { lost.Push(std::move(status)); }};
  }
  template <typename T>
  static std::optional<T> Next(Inbox<T>& inbox) {
    const Deadline deadline = Deadline::After(kPatience);
    while (!deadline.Passed()) {
      if (auto item = inbox.TryPop()) return item;
      WaitForFd(inbox.fd(), POLLIN, deadline);
    }
    return std::nullopt;
  }
  Status Lost() { return Next(lost).value_or(InternalError("never lost")); }

  Inbox<ControlFrame> frames;
  Inbox<Status> lost;
};

std::string Encode(uint16_t type, const std::string& payload) {
  const auto header = EncodeControlHeader(type, static_cast<uint32_t>(payload.size()));
  return std::string(header.data(), header.size()) + payload;
}

class ControlTls : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = ControlListener::Create("127.0.0.1:0", Options("daemon"),
                                        [this](std::unique_ptr<ControlConnection> connection) {
                                          accepted_.Push(std::move(connection));
                                        });
    ASSERT_TRUE(made.ok()) << made.status();
    listener_ = std::move(*made);
  }

  ControlOptions Options(const std::string& hello, const std::string& secret = "") const {
    return {.hello = hello, .secret = secret, .tls = TlsContext::Load(files_).value()};
  }
  Result<std::unique_ptr<ControlConnection>> Connect(const ControlOptions& options,
                                                     Clock::duration patience = kPatience) const {
    return ConnectControl(listener_->address(), options, Deadline::After(patience));
  }
  void ConnectPair() {
    auto made = Connect(Options("manager"));
    ASSERT_TRUE(made.ok()) << made.status();
    client_ = std::move(*made);
    server_ = std::move(Events::Next(accepted_).value());
  }
  Tcp::socket RawPeer() {
    return std::move(*ConnectTcp(io_, listener_->address(), Deadline::After(kPatience)));
  }

  boost::asio::io_context io_;
  const TemporaryFolder folder_;
  const TestCa ca_{folder_.path()};
  const TlsFiles files_ = ca_.Issue("node");
  Inbox<std::unique_ptr<ControlConnection>> accepted_;
  Events at_server_, at_client_;
  std::unique_ptr<ControlListener> listener_;
  std::unique_ptr<ControlConnection> client_, server_;
};

TEST_F(ControlTls, HellosFramesAndGoodbyes) {
  ConnectPair();
  EXPECT_EQ(client_->peer_hello(), "daemon");
  EXPECT_EQ(server_->peer_hello(), "manager");
  client_->Start(at_client_.callbacks());
  server_->Start(at_server_.callbacks());
  // Records hold 16384 bytes, the header is 12.
  for (const size_t bytes : {0, 1, 16371, 16372, 16373, 16384, 100000}) {
    ASSERT_TRUE(client_->Send(kFirstUserType, std::string(bytes, 'o')).ok());
    EXPECT_EQ(Events::Next(at_server_.frames)->payload, std::string(bytes, 'o'));
    ASSERT_TRUE(server_->Send(kFirstUserType + 1, std::string(bytes, 'r')).ok());
    EXPECT_EQ(Events::Next(at_client_.frames)->payload, std::string(bytes, 'r'));
  }
  client_->Close(Deadline::After(kPatience));
  EXPECT_THAT(at_server_.Lost().message(), HasSubstr("closed the connection"));
}

TEST_F(ControlTls, BigFramesCrossBothWaysFromManyThreads) {
  ConnectPair();
  client_->Start(at_client_.callbacks());
  server_->Start(at_server_.callbacks());
  constexpr size_t kThreads = 3, kFrames = 3;
  std::string big(size_t{5} << 20, '\0');
  std::iota(big.begin(), big.end(), '\0');
  std::vector<std::thread> senders;
  for (ControlConnection* end : {client_.get(), server_.get()}) {
    for (size_t thread = 0; thread < kThreads; ++thread) {
      senders.emplace_back([&big, end] {
        for (size_t i = 0; i < kFrames; ++i) {
          EXPECT_TRUE(end->Send(kFirstUserType, big).ok());
          EXPECT_TRUE(end->Send(kFirstUserType, "small").ok());
        }
      });
    }
  }
  for (Events* end : {&at_client_, &at_server_}) {
    size_t num_big = 0, num_small = 0;
    while (num_big + num_small < 2 * kThreads * kFrames) {
      const auto frame = Events::Next(end->frames);
      ASSERT_TRUE(frame.has_value());
      frame->payload == "small" ? ++num_small : ++num_big;
      if (frame->payload != "small") {
        ASSERT_EQ(frame->payload == big, true);  // not EXPECT_EQ: nobody wants to read it
      }
    }
    EXPECT_EQ(num_big, kThreads * kFrames);
  }
  for (std::thread& sender : senders) sender.join();
}

TEST_F(ControlTls, AFrameInTheRecordOfTheHelloIsNotForgotten) {
  RawTlsClient peer(io_, listener_->address(), files_);
  ASSERT_TRUE(peer.Handshake());
  peer.Say(Encode(kControlChallenge, std::string(1 + kNonceBytes, '\0')) +
           Encode(kControlHello, "quick") + Encode(kFirstUserType, "order"));
  server_ = std::move(Events::Next(accepted_).value());
  server_->Start(at_server_.callbacks());
  const auto frame = Events::Next(at_server_.frames);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->payload, "order");
}

TEST_F(ControlTls, APeerThatVanishesIsNoticedAndWritingToItHarmless) {
  {
    RawTlsClient peer(io_, listener_->address(), files_);
    ASSERT_TRUE(peer.Handshake());
    peer.Say(Encode(kControlChallenge, std::string(1 + kNonceBytes, '\0')) +
             Encode(kControlHello, "short-lived"));
    server_ = std::move(Events::Next(accepted_).value());
  }
  // The first may still be taken by the kernel.
  const Deadline deadline = Deadline::After(kPatience);
  Status sent;
  while (sent.ok() && !deadline.Passed())
    sent = server_->Send(kFirstUserType, std::string(1000, 'x'));
  EXPECT_EQ(sent.code(), StatusCode::kPeerLost) << sent;
  server_->Start(at_server_.callbacks());
  EXPECT_EQ(at_server_.Lost().code(), StatusCode::kPeerLost);
}

TEST_F(ControlTls, PeersWithoutACertificateOrWithAnOldTlsAreTurnedAway) {
  RawTlsClient without(io_, listener_->address(), {});
  without.Handshake();  // in TLS 1.3 it learns only later that it is not taken
  EXPECT_EQ(without.ReadToEnd(), "");
  RawTlsClient old(io_, listener_->address(), files_, TLS1_2_VERSION);
  EXPECT_FALSE(old.Handshake());
  RawTlsClient good(io_, listener_->address(), files_);
  EXPECT_TRUE(good.Handshake());
  EXPECT_TRUE(Connect(Options("manager")).ok());
  EXPECT_EQ(Events::Next(accepted_).value()->peer_hello(), "manager");
  EXPECT_FALSE(accepted_.TryPop().has_value());
}

TEST_F(ControlTls, PlainPeersAreToldWhyAtBothEnds) {
  const Status plain = Connect({.hello = "plain"}).status();
  EXPECT_EQ(plain.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(plain.message(),
              HasSubstr(listener_->address() +
                        ": the peer speaks TLS, and this end was given no certificate"));
  auto plain_listener = ControlListener::Create("127.0.0.1:0", {.hello = "plain"},
                                                [](std::unique_ptr<ControlConnection>) {});
  ASSERT_TRUE(plain_listener.ok());
  const Status tls =
      ConnectControl((*plain_listener)->address(), Options("manager"), Deadline::After(kPatience))
          .status();
  EXPECT_EQ(tls.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(tls.message(),
              HasSubstr((*plain_listener)->address() +
                        ": the peer does not speak TLS, and this end was given a certificate"));
}

TEST_F(ControlTls, StrangersAreInNobodysWayAndGoAtTheDeadline) {
  // Of a ClientHello.
  const std::string beginning("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  const TimePoint start = Clock::now();
  std::vector<Tcp::socket> strangers;
  for (const std::string& bytes :
       {std::string(), beginning, std::string("GET / HTTP/1.1\r\n\r\n")}) {
    strangers.push_back(RawPeer());
    ASSERT_EQ(send(strangers.back().native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  EXPECT_TRUE(Connect(Options("manager")).ok());
  for (Tcp::socket& stranger : strangers) {
    char byte = 0;
    ssize_t got = 1;
    while (got > 0 && WaitForFd(stranger.native_handle(), POLLIN, Deadline::After(kPatience))) {
      got = recv(stranger.native_handle(), &byte, 1, 0);
    }
    EXPECT_LE(got, 0) << "still connected";
  }
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), 30)
      << "the deadline of a greeting is 5 s";
}

TEST_F(ControlTls, AListenerThatNeverAnswersIsGivenUpAtTheDeadline) {
  // The kernel connects, nobody accepts.
  const Tcp::acceptor silent = std::move(*ListenTcp(io_, "127.0.0.1:0"));
  const auto connection = ConnectControl(BoundAddress(silent, "127.0.0.1:0"), Options("manager"),
                                         Deadline::After(std::chrono::milliseconds(200)));
  EXPECT_EQ(connection.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(connection.status().message(), HasSubstr("does not go on with the TLS handshake"));
}

TEST_F(ControlTls, ACertificateIsProofEnoughOffTheLoopback) {
  const auto nobody = [](std::unique_ptr<ControlConnection>) {};
  EXPECT_FALSE(ControlListener::Create("0.0.0.0:0", {.hello = "daemon"}, nobody).ok());
  EXPECT_TRUE(ControlListener::Create("0.0.0.0:0", Options("daemon"), nobody).ok());
}

}  // namespace control_tls_test
}  // namespace lamina
