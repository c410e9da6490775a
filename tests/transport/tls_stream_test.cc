// Two ends of a greeting inside TLS on one thread: who takes whom, and what each end says about the
// other.
#include "transport/tls_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <filesystem>

#include "tests/support/certificates.h"
#include "tests/support/temporary_folder.h"
#include "transport/control_greeting.h"
#include "transport/tcp_socket.h"

namespace lamina {
namespace tls_stream_test {

using lamina::testing::CertificateWishes;
using lamina::testing::TestCa;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(60);  // only a broken test waits so long

struct Outcome {
  Status listener, connector;
};

class TlsStreamTest : public ::testing::Test {
 protected:
  struct End {
    std::unique_ptr<ControlStream> stream;
    ControlGreeting greeting;
    Status status = TryAgain();
  };

  static std::shared_ptr<const TlsContext> Load(const TlsFiles& files) {
    return TlsContext::Load(files).value();
  }

  // A connected pair of sockets: of the listener's end and of the connector's.
  std::pair<UniqueFd, UniqueFd> Sockets() {
    Tcp::acceptor acceptor = std::move(*ListenTcp(io_, "127.0.0.1:0"));
    Tcp::socket connector = std::move(
        *ConnectTcp(io_, BoundAddress(acceptor, "127.0.0.1:0"), Deadline::After(kPatience)));
    acceptor.non_blocking(false);
    Tcp::socket listener = acceptor.accept();
    EXPECT_TRUE(TuneSocket(listener).ok());
    return {UniqueFd(listener.release()), UniqueFd(connector.release())};
  }

  static End MakeEnd(UniqueFd socket, ControlRole role, const std::string& host,
                     const ControlOptions& options) {
    return {std::move(*MakeControlStream(std::move(socket), role, host, options)),
            std::move(*ControlGreeting::Create(role, options))};
  }

  // An end that is done closes its socket if it failed, as in the listener and in ConnectControl.
  static void Advance(End& end) {
    if (end.status.code() != StatusCode::kTryAgain) return;
    end.status = end.greeting.Advance(*end.stream);
    if (!end.status.ok() && end.status.code() != StatusCode::kTryAgain) end.stream.reset();
  }

  Outcome Greet(const ControlOptions& listener_options, const ControlOptions& connector_options,
                const std::string& host = "127.0.0.1") {
    auto [listener_socket, connector_socket] = Sockets();
    End listener =
        MakeEnd(std::move(listener_socket), ControlRole::kListener, "", listener_options);
    End connector =
        MakeEnd(std::move(connector_socket), ControlRole::kConnector, host, connector_options);
    const Deadline deadline = Deadline::After(kPatience);
    const auto undecided = [&] {
      return listener.status.code() == StatusCode::kTryAgain ||
             connector.status.code() == StatusCode::kTryAgain;
    };
    while (undecided() && !deadline.Passed()) {
      Advance(connector);
      Advance(listener);
    }
    return {listener.status, connector.status};
  }

  Outcome GreetWith(const TlsFiles& listener, const TlsFiles& connector,
                    const std::string& host = "127.0.0.1") {
    return Greet({.hello = "daemon", .tls = Load(listener)},
                 {.hello = "manager", .tls = Load(connector)}, host);
  }

  boost::asio::io_context io_;
  const TemporaryFolder folder_;
  const TestCa ca_{folder_.path()};
  const TlsFiles node_ = ca_.Issue("node"), manager_ = ca_.Issue("manager", {.names = ""});
};

TEST_F(TlsStreamTest, CertificatesOfOneCaAreTaken) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const Outcome outcome = GreetWith(node_, manager_, host);
    EXPECT_TRUE(outcome.listener.ok()) << outcome.listener;
    EXPECT_TRUE(outcome.connector.ok()) << outcome.connector;
  }
}

TEST_F(TlsStreamTest, ACertificateOfAnotherCaIsRefused) {
  const TestCa other_ca(folder_.path(), "other-ca");
  const TlsFiles other = other_ca.Issue("stranger");
  // It trusts this CA, and is not trusted.
  const TlsFiles mixed = {other.certificate, other.key, ca_.path()};
  const Outcome listens = GreetWith(mixed, manager_);
  EXPECT_EQ(listens.connector.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(listens.connector.message(),
              HasSubstr("the peer's certificate does not come from the CA in " + ca_.path()));
  EXPECT_THAT(listens.listener.message(),
              HasSubstr("the peer refused the certificate of this end, " + other.certificate +
                        ": unknown CA"));
  const Outcome connects = GreetWith(node_, mixed);
  EXPECT_EQ(connects.listener.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(connects.listener.message(),
              HasSubstr("the peer's certificate does not come from the CA in " + ca_.path()));
  EXPECT_THAT(connects.connector.message(),
              HasSubstr("the peer refused the certificate of this end, " + other.certificate +
                        ": unknown CA"));
}

TEST_F(TlsStreamTest, ACaOfTheSameNameIsAnotherCa) {
  std::filesystem::create_directory(folder_ / "impostor");
  const TestCa impostor(folder_ / "impostor");  // "ca", as the other
  const TlsFiles forged = impostor.Issue("node");
  const Outcome outcome = GreetWith({forged.certificate, forged.key, ca_.path()}, manager_);
  EXPECT_THAT(outcome.connector.message(),
              HasSubstr("the peer's certificate does not come from the CA in " + ca_.path()));
  EXPECT_FALSE(outcome.listener.ok());
}

TEST_F(TlsStreamTest, ExpiredAndFutureCertificatesAreRefused) {
  const Outcome expired =
      GreetWith(ca_.Issue("expired", {.first_day = -9, .last_day = -1}), manager_);
  EXPECT_EQ(expired.connector.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(expired.connector.message(),
            "the peer's certificate is refused: certificate has expired");
  EXPECT_THAT(expired.listener.message(), HasSubstr("certificate expired"));
  const Outcome future = GreetWith(node_, ca_.Issue("future", {.first_day = 2}));
  EXPECT_EQ(future.listener.message(),
            "the peer's certificate is refused: certificate is not yet valid");
  EXPECT_THAT(future.connector.message(),
              HasSubstr("the peer refused the certificate of this end"));
}

TEST_F(TlsStreamTest, ThePeerMustBeTheHostThatWasConnectedTo) {
  const TlsFiles gpu0 = ca_.Issue("gpu0", {.names = "DNS:gpu0.cluster,IP:10.0.0.1"});
  for (const char* host : {"gpu0.cluster", "10.0.0.1"})
    EXPECT_TRUE(GreetWith(gpu0, manager_, host).connector.ok()) << host;
  for (const char* host : {"gpu1.cluster", "gpu0", "127.0.0.1", "10.0.0.2"}) {
    const Outcome outcome = GreetWith(gpu0, manager_, host);
    EXPECT_EQ(outcome.connector.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(outcome.connector.message(),
                HasSubstr("the peer's certificate is not for \"" + std::string(host) + "\""));
    EXPECT_FALSE(outcome.listener.ok());
  }
}

TEST_F(TlsStreamTest, ACertificateForServersOnlyDoesNotConnect) {
  const TlsFiles server = ca_.Issue("server", {.usage = "serverAuth"}),
                 client = ca_.Issue("client", {.usage = "clientAuth"});
  EXPECT_TRUE(GreetWith(server, client).listener.ok());
  EXPECT_THAT(GreetWith(server, server).listener.message(),
              HasSubstr("the peer's certificate is refused: unsuitable certificate purpose"));
  EXPECT_THAT(GreetWith(client, client).connector.message(),
              HasSubstr("unsuitable certificate purpose"));
}

TEST_F(TlsStreamTest, OnlyOneEndWithTlsIsSaidAtBoth) {
  const ControlOptions tls = {.hello = "with", .tls = Load(node_)}, plain = {.hello = "without"};
  const std::string with = "the peer does not speak TLS, and this end was given a certificate";
  const std::string without = "the peer speaks TLS, and this end was given no certificate";
  const Outcome listens = Greet(tls, plain), connects = Greet(plain, tls);
  EXPECT_THAT(listens.listener.message(), HasSubstr(with));
  EXPECT_THAT(listens.connector.message(), HasSubstr(without));
  EXPECT_THAT(connects.listener.message(), HasSubstr(without));
  EXPECT_THAT(connects.connector.message(), HasSubstr(with));
  for (const Status& status :
       {listens.listener, listens.connector, connects.listener, connects.connector}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("--tls-certificate"), HasSubstr("cluster.tls")));
  }
}

TEST_F(TlsStreamTest, TheSecretIsProvedInsideToo) {
  const auto greet = [&](const std::string& listener, const std::string& connector) {
    return Greet({.hello = "daemon", .secret = listener, .tls = Load(node_)},
                 {.hello = "manager", .secret = connector, .tls = Load(manager_)});
  };
  const Outcome same = greet("a secret of both ends", "a secret of both ends");
  EXPECT_TRUE(same.listener.ok() && same.connector.ok()) << same.listener << same.connector;
  const Outcome other = greet("a secret of both ends", "a secret of one end");
  EXPECT_THAT(other.listener.message(), HasSubstr("the peer's proof is wrong"));
  EXPECT_THAT(other.connector.message(), HasSubstr("the peer refused this end's proof"));
  const Outcome none = greet("a secret of both ends", "");
  EXPECT_THAT(none.listener.message(), HasSubstr("the peer was given no cluster secret"));
  EXPECT_THAT(none.connector.message(), HasSubstr("this end was given none"));
}

TEST_F(TlsStreamTest, WhatIsWrittenCannotBeReadOnTheWay) {
  const std::string hello = "a hello that is easy to find";
  auto [listener_socket, connector_socket] = Sockets();
  const int raw = listener_socket.get();
  const ControlOptions options = {.hello = hello, .tls = Load(node_)};
  End listener = MakeEnd(std::move(listener_socket), ControlRole::kListener, "", options);
  End connector =
      MakeEnd(std::move(connector_socket), ControlRole::kConnector, "127.0.0.1", options);
  std::string seen;
  const Deadline deadline = Deadline::After(kPatience);
  while (listener.status.code() == StatusCode::kTryAgain && !deadline.Passed()) {
    std::array<char, 65536> bytes;
    Advance(connector);
    const ssize_t peeked = recv(raw, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (peeked > 0) seen.append(bytes.data(), static_cast<size_t>(peeked));
    Advance(listener);
  }
  ASSERT_TRUE(listener.status.ok()) << listener.status;
  EXPECT_EQ(listener.greeting.peer_hello(), hello);
  EXPECT_GT(seen.size(), hello.size());
  EXPECT_EQ(seen.find("easy to find"), std::string::npos);
}

TEST_F(TlsStreamTest, GarbageEndsItAtOnce) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(200, '\0'), std::string(200, '\xff'),
        std::string("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10),
        std::string("\x16\x03\x01\xff\xff", 5)}) {
    auto [listener_socket, peer] = Sockets();
    End listener = MakeEnd(std::move(listener_socket), ControlRole::kListener, "",
                           {.hello = "daemon", .tls = Load(node_)});
    ASSERT_EQ(send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    const Deadline deadline = Deadline::After(kPatience);
    while (listener.status.code() == StatusCode::kTryAgain && !deadline.Passed()) Advance(listener);
    EXPECT_EQ(listener.status.code(), StatusCode::kCorrupt) << listener.status;
    EXPECT_THAT(listener.status.message(),
                HasSubstr("the peer does not speak TLS 1.3 as it should"));
  }
}

TEST_F(TlsStreamTest, ATruncatedHelloIsWaitedForUntilThePeerCloses) {
  auto [listener_socket, peer] = Sockets();
  End listener = MakeEnd(std::move(listener_socket), ControlRole::kListener, "",
                         {.hello = "daemon", .tls = Load(node_)});
  const std::string beginning("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  ASSERT_EQ(send(peer.get(), beginning.data(), beginning.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(beginning.size()));
  ASSERT_TRUE(WaitForFd(listener.stream->fd(), POLLIN, Deadline::After(kPatience)));
  Advance(listener);
  EXPECT_EQ(listener.status.code(), StatusCode::kTryAgain);
  EXPECT_EQ(listener.stream->wanted_events(), POLLIN);
  peer.Reset();
  const Deadline deadline = Deadline::After(kPatience);
  while (listener.status.code() == StatusCode::kTryAgain && !deadline.Passed()) Advance(listener);
  EXPECT_EQ(listener.status.code(), StatusCode::kPeerLost);
  EXPECT_THAT(listener.status.message(),
              HasSubstr("the peer closed the connection during the TLS handshake"));
}

}  // namespace tls_stream_test
}  // namespace lamina
