// The rendezvous without a NIC behind it: order of the handshake, and strangers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/transport/fabric_pair.h"
#include "transport/rendezvous.h"

namespace lamina {
namespace rendezvous_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace ip = boost::asio::ip;

// A connection that does nothing but know its peer.
class FakeEndpoint final : public Endpoint {
 public:
  explicit FakeEndpoint(RendezvousLink link) : link_(std::move(link)) {}
  Status Post(std::span<const WriteOp>, std::optional<uint32_t>, uint64_t) override {
    return link_.CheckAlive();
  }
  size_t Poll(std::span<Event>) override { return 0; }
  std::span<std::byte> window() override { return {}; }
  uint64_t peer_window_bytes() const override { return link_.peer().window_bytes; }
  const std::string& peer_hello() const override { return link_.peer().hello; }
  const std::string& peer_name() const override { return link_.peer().name; }
  std::string last_error() const override { return link_.peer().offer; }

 private:
  RendezvousLink link_;
};

class FakeHost final : public RendezvousHost {
 public:
  class End final : public RendezvousEnd {
   public:
    explicit End(FakeHost& host) : host_(host) {}
    std::string Offer() const override { return host_.offer; }
    Status Join(const RendezvousPeer& peer) override {
      host_.calls.push_back("join " + peer.offer);
      return host_.join_status;
    }
    Result<std::unique_ptr<Endpoint>> Finish(RendezvousLink link) override {
      host_.calls.push_back("finish");
      return std::unique_ptr<Endpoint>(std::make_unique<FakeEndpoint>(std::move(link)));
    }

   private:
    FakeHost& host_;
  };

  FakeHost(std::string kind, std::string its_offer)
      : offer(std::move(its_offer)), kind_(std::move(kind)) {}
  std::string_view name() const override { return kind_; }
  const Limits& limits() const override { return limits_; }
  PollSet& poll_set() override { return poll_set_; }
  boost::asio::io_context& io() override { return io_; }
  Result<std::unique_ptr<RendezvousEnd>> NewEnd(const ip::address& local,
                                                const EndpointOptions&) override {
    calls.push_back("new " + local.to_string());
    return std::unique_ptr<RendezvousEnd>(std::make_unique<End>(*this));
  }

  std::string offer;
  Status join_status;
  std::vector<std::string> calls;

 private:
  const std::string kind_;
  const Limits limits_{.max_window_bytes = 1000};
  PollSet poll_set_;
  boost::asio::io_context io_;
};

class Rendezvous : public ::testing::Test {
 protected:
  // Connects `client` until that is over, and accepts it if it got through.
  void Meet(FakeHost& client) {
    const std::unique_ptr<Connecting> connecting =
        *StartRendezvous(client, listener_->address(), {500, "I come"}, Deadline::After(kPatience));
    server_end_.reset();
    const auto accept = [&] {
      auto endpoint = listener_->Accept({700, "I serve"});
      if (endpoint.ok()) server_end_ = *std::move(endpoint);
    };
    const auto is_over = [&] {
      auto endpoint = connecting->Poll();
      status_ = endpoint.status();
      if (endpoint.ok()) client_end_ = *std::move(endpoint);
      return status_.code() != StatusCode::kTryAgain;
    };
    ASSERT_TRUE(Until(is_over, accept));
    if (!status_.ok()) return;
    EXPECT_TRUE(Until([&] { return server_end_ != nullptr; }, accept));
  }

  // A stranger says `bytes`: the next peer is served, and the listener hangs up.
  void ExpectDropped(const std::string& bytes) {
    boost::asio::io_context io;
    Tcp::socket socket =
        std::move(ConnectTcp(io, listener_->address(), Deadline::After(kPatience))).value();
    ASSERT_EQ(send(socket.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    FakeHost& good = NewClient("fake", "good");
    Meet(good);
    EXPECT_TRUE(server_end_ != nullptr && client_end_ != nullptr) << status_;
    EXPECT_EQ(server_end_->peer_hello(), "I come");
    const auto hung_up = [&] {
      char byte;
      return recv(socket.native_handle(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
    };
    EXPECT_TRUE(Until(hung_up, [&] { (void)listener_->Accept({}); }));
  }

  FakeHost& NewClient(const std::string& kind, const std::string& offer) {
    return clients_.emplace_back(kind, offer);
  }

  FakeHost server_{"fake", "server's offer"};
  std::list<FakeHost> clients_;  // hosts outlive their ends
  std::unique_ptr<Listener> listener_ =
      std::move(RendezvousListener::Create(server_, "127.0.0.1:0")).value();
  std::unique_ptr<Endpoint> server_end_, client_end_;
  Status status_;
};

template <typename T>
std::string BytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

TEST_F(Rendezvous, BothEndsLearnWhatTheOtherOffers) {
  FakeHost& client = NewClient("fake", std::string(kMaxOfferBytes, 'o'));
  Meet(client);
  ASSERT_TRUE(server_end_ && client_end_) << status_;
  EXPECT_EQ(server_end_->peer_hello(), "I come");
  EXPECT_EQ(server_end_->peer_window_bytes(), 500u);
  EXPECT_EQ(client_end_->peer_hello(), "I serve");
  EXPECT_EQ(client_end_->peer_window_bytes(), 700u);
  EXPECT_EQ(client_end_->peer_name(), listener_->address());
  EXPECT_THAT(server_.calls, ElementsAre("new 127.0.0.1", "join " + client.offer, "finish"));
  EXPECT_THAT(client.calls, ElementsAre("new 127.0.0.1", "join server's offer", "finish"));
}

TEST_F(Rendezvous, TheSocketTellsOfThePeersEnd) {
  FakeHost& client = NewClient("fake", "");
  Meet(client);
  ASSERT_TRUE(server_end_ && client_end_) << status_;
  EXPECT_TRUE(server_end_->Post({}, {}, 0).ok());
  client_end_.reset();
  Status status;
  ASSERT_TRUE(Until([&] { return !(status = server_end_->Post({}, {}, 0)).ok(); }, [] {}));
  EXPECT_THAT(status.message(), HasSubstr("closed the connection"));
}

TEST_F(Rendezvous, AnotherKindOfFabricIsNamed) {
  FakeHost& other = NewClient("pigeon", "");
  Meet(other);
  EXPECT_EQ(status_.code(), StatusCode::kPeerLost);
  EXPECT_THAT(status_.message(),
              HasSubstr("the peer uses transport \"fake\", this end \"pigeon\""));
  EXPECT_THAT(status_.message(), HasSubstr(listener_->address()));
  EXPECT_TRUE(server_.calls.empty());
}

TEST_F(Rendezvous, AnOfferThatIsRefusedEndsThatPeerOnly) {
  server_.join_status = PeerLost("nonsense");
  FakeHost& client = NewClient("fake", "");
  Meet(client);
  EXPECT_EQ(status_.code(), StatusCode::kPeerLost);
  EXPECT_EQ(server_end_, nullptr);
  server_.join_status = OkStatus();
  Meet(client);
  EXPECT_TRUE(server_end_ && client_end_) << status_;
}

TEST_F(Rendezvous, StrangersAreDroppedAndBlockNobody) {
  RendezvousGreeting magic, version, kind, hello, offer, unready;
  magic.magic = {'H', 'T', 'T', 'P'};
  version.version = 9;
  kind.kind = {'x'};
  for (RendezvousGreeting* greeting : {&hello, &offer, &unready})
    greeting->kind = {'f', 'a', 'k', 'e'};
  hello.hello_bytes = kMaxHelloBytes + 1;
  offer.offer_bytes = kMaxOfferBytes + 1;
  for (const RendezvousGreeting& greeting : {magic, version, kind, hello, offer})
    ExpectDropped(BytesOf(greeting));
  ExpectDropped(BytesOf(unready) + "X");
}

TEST_F(Rendezvous, ASilentStrangerBlocksNobody) {
  boost::asio::io_context io;
  const Tcp::socket silent =
      std::move(ConnectTcp(io, listener_->address(), Deadline::After(kPatience))).value();
  FakeHost& client = NewClient("fake", "");
  Meet(client);
  EXPECT_TRUE(server_end_ && client_end_) << status_;
}

}  // namespace rendezvous_test
}  // namespace lamina
