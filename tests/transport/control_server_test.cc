#include "transport/control_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

namespace lamina {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class ControlServerTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<ControlServer>> server =
        ControlServer::Create("127.0.0.1:0", {.hello = "the daemon"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  struct Client {
    Inbox<ControlFrame> frames;
    Inbox<Status> lost;
    std::unique_ptr<ControlConnection> connection;  // first to go: its callbacks use the inboxes
  };

  std::unique_ptr<Client> Connect(const std::string& hello) {
    auto client = std::make_unique<Client>();
    auto connection =
        ConnectControl(server_->address(), {.hello = hello}, Deadline::After(seconds(10)));
    if (!connection.ok()) throw std::runtime_error(connection.status().ToString());
    client->connection = std::move(*connection);
    client->connection->Start(
        {.on_frame = [raw =
                          client.get()](ControlFrame frame) { raw->frames.Push(std::move(frame)); },
         .on_lost = [raw = client.get()](Status status) { raw->lost.Push(std::move(status)); }});
    return client;
  }

  template <typename Queue>
  static auto Next(Queue& queue, int fd) {
    const Deadline deadline = Deadline::After(seconds(10));
    auto item = queue.TryPop();
    while (!item && !deadline.Passed()) {
      pollfd entry{fd, POLLIN, 0};
      poll(&entry, 1, deadline.RemainingMs());
      item = queue.TryPop();
    }
    if (!item) throw std::runtime_error("nothing came within 10 s");
    return std::move(*item);
  }
  ControlEvent NextEvent() { return Next(*server_, server_->fd()); }

  std::unique_ptr<ControlServer> server_;
};

constexpr uint16_t kType = kFirstUserType;

TEST_F(ControlServerTest, FramesOfAConnectionComeInOrderUnderItsNumber) {
  const auto first = Connect("manager one");
  const ControlEvent connected = NextEvent();
  ASSERT_EQ(connected.kind, ControlEvent::Kind::kConnected);
  const auto second = Connect("manager two");
  const ControlEvent other = NextEvent();
  ASSERT_EQ(other.kind, ControlEvent::Kind::kConnected);
  EXPECT_NE(connected.connection, other.connection);
  EXPECT_THAT(server_->PeerName(connected.connection), HasSubstr("manager one at 127.0.0.1:"));

  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE((i % 2 == 0 ? first : second)->connection->Send(kType, std::to_string(i)).ok());
  std::map<uint64_t, std::vector<std::string>> came;
  for (int i = 0; i < 20; ++i) {
    const ControlEvent event = NextEvent();
    ASSERT_EQ(event.kind, ControlEvent::Kind::kFrame);
    EXPECT_EQ(event.frame.type, kType);
    came[event.connection].push_back(event.frame.payload);
  }
  EXPECT_THAT(came[connected.connection],
              testing::ElementsAre("0", "2", "4", "6", "8", "10", "12", "14", "16", "18"));
  EXPECT_THAT(came[other.connection],
              testing::ElementsAre("1", "3", "5", "7", "9", "11", "13", "15", "17", "19"));

  ASSERT_TRUE(server_->Send(other.connection, kType, "to two").ok());
  EXPECT_EQ(Next(second->frames, second->frames.fd()).payload, "to two");
  EXPECT_FALSE(first->frames.TryPop()) << "only the one that was meant";
}

TEST_F(ControlServerTest, APeerThatGoesIsLostAndCannotBeSentTo) {
  auto client = Connect("manager");
  const uint64_t id = NextEvent().connection;
  client.reset();
  const ControlEvent lost = NextEvent();
  EXPECT_EQ(lost.kind, ControlEvent::Kind::kLost);
  EXPECT_EQ(lost.connection, id);
  EXPECT_EQ(lost.status.code(), StatusCode::kPeerLost);
  server_->Close(id);
  EXPECT_EQ(server_->Send(id, kType, "x").code(), StatusCode::kPeerLost);
  EXPECT_EQ(server_->PeerName(id), "a closed connection");
}

TEST_F(ControlServerTest, CloseSendsWhatIsQueuedAndMakesNoEvent) {
  const auto client = Connect("manager");
  const uint64_t id = NextEvent().connection;
  ASSERT_TRUE(server_->Send(id, kType, "last words").ok());
  server_->Close(id);
  EXPECT_EQ(Next(client->frames, client->frames.fd()).payload, "last words");
  EXPECT_EQ(Next(client->lost, client->lost.fd()).code(), StatusCode::kPeerLost);
  EXPECT_FALSE(server_->TryPop());
  server_->Close(id);  // again: nothing happens
}

TEST_F(ControlServerTest, PeersThatAreNotServedMakeRoom) {
  const auto served = Connect("manager");
  const uint64_t id = NextEvent().connection;
  server_->Keep(id);
  std::vector<std::unique_ptr<Client>> others;
  for (int i = 0; i < 80; ++i) others.push_back(Connect("somebody"));
  EXPECT_EQ(Next(others.front()->lost, others.front()->lost.fd()).code(), StatusCode::kPeerLost);
  std::vector<ControlEvent> lost;
  for (int connected = 0; connected < 80;) {
    ControlEvent event = NextEvent();
    if (event.kind == ControlEvent::Kind::kConnected) ++connected;
    if (event.kind == ControlEvent::Kind::kLost) lost.push_back(std::move(event));
  }
  ASSERT_EQ(lost.size(), 16u) << "64 may stay";
  EXPECT_EQ(lost.front().status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(lost.front().status.message(), HasSubstr("somebody at 127.0.0.1:"));
  ASSERT_TRUE(server_->Send(id, kType, "to the manager").ok());
  EXPECT_EQ(Next(served->frames, served->frames.fd()).payload, "to the manager");
  ASSERT_TRUE(others.back()->connection->Send(kType, "hello").ok());
  EXPECT_EQ(NextEvent().frame.payload, "hello") << "who came last is heard";
}

TEST_F(ControlServerTest, WhoSendsWithoutWaitingIsLostUnlessItIsServed) {
  const auto served = Connect("manager");
  const uint64_t id = NextEvent().connection;
  server_->Keep(id);
  const auto other = Connect("somebody");
  const uint64_t stranger = NextEvent().connection;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(served->connection->Send(kType, "order").ok());
    ASSERT_TRUE(other->connection->Send(kType, "flood").ok());
  }
  int orders = 0, floods = 0;
  while (orders < 200) {
    const ControlEvent event = NextEvent();
    if (event.kind == ControlEvent::Kind::kFrame) ++(event.connection == id ? orders : floods);
    if (event.kind != ControlEvent::Kind::kLost) continue;
    EXPECT_EQ(event.connection, stranger);
    EXPECT_THAT(event.status.message(), HasSubstr("somebody at 127.0.0.1:"));
    EXPECT_THAT(event.status.message(), HasSubstr("without waiting"));
    server_->Close(event.connection);
  }
  EXPECT_EQ(orders, 200) << "the one that is served may send ahead";
  EXPECT_LE(floods, 200);
}

TEST_F(ControlServerTest, FramesOfStrangersDoNotPileUp) {
  const auto other = Connect("somebody");
  const uint64_t stranger = NextEvent().connection;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(other->connection->Send(kType, "flood").ok());
  other->connection->Close(Deadline::After(std::chrono::seconds(10)));  // all are sent
  int floods = 0;
  bool lost = false;
  for (int left = 2; left > 0;) {  // for too many, and for leaving
    const ControlEvent event = NextEvent();
    ASSERT_EQ(event.connection, stranger);
    if (event.kind == ControlEvent::Kind::kFrame) ++floods;
    if (event.kind != ControlEvent::Kind::kLost) continue;
    lost = true;
    --left;
  }
  EXPECT_TRUE(lost);
  EXPECT_EQ(floods, 16);
}

// Half a frame is kept until the other half comes. Of strangers there are many, and nobody knows
// what they want.
TEST_F(ControlServerTest, OnlyWhoIsKeptSendsLargeFrames) {
  const auto stranger = Connect("somebody");
  const uint64_t lost = NextEvent().connection;
  ASSERT_TRUE(stranger->connection->Send(kType, std::string(size_t{2} << 20, 'x')).ok());
  const ControlEvent event = NextEvent();
  EXPECT_EQ(event.kind, ControlEvent::Kind::kLost);
  EXPECT_EQ(event.connection, lost);
  EXPECT_THAT(event.status.message(), HasSubstr("with 2097152 bytes; at most 1048576"));

  const auto manager = Connect("manager");
  const uint64_t kept = NextEvent().connection;
  server_->Keep(kept);
  for (const size_t size : {size_t{2} << 20, size_t{1}, kMaxFrameBytes, size_t{1} << 20}) {
    ASSERT_TRUE(manager->connection->Send(kType, std::string(size, 'x')).ok());
    const ControlEvent frame = NextEvent();
    ASSERT_EQ(frame.kind, ControlEvent::Kind::kFrame) << frame.status.message();
    EXPECT_EQ(frame.frame.payload.size(), size);
  }
  server_->Keep(0);
  ASSERT_TRUE(manager->connection->Send(kType, std::string(size_t{2} << 20, 'x')).ok());
  EXPECT_EQ(NextEvent().kind, ControlEvent::Kind::kLost) << "it is a stranger again";
}

TEST_F(ControlServerTest, AnAddressInUseIsRefused) {
  EXPECT_EQ(ControlServer::Create(server_->address(), {}).status().code(), StatusCode::kOutOfSpace);
}

}  // namespace
}  // namespace lamina
