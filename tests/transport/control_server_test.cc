#include "transport/control_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <map>
#include <set>

#include "transport/control_frame.h"
#include "transport/control_handshake.h"
#include "transport/tcp_socket.h"

namespace lamina {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr uint16_t kType = kFirstUserType;

class ControlServerTest : public ::testing::Test {
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
  bool AwaitEvents() {
    pollfd entry{server_->fd(), POLLIN, 0};
    return poll(&entry, 1, 10'000) > 0;
  }

  // A peer that greets, sends so much of a frame of 1 MiB, and then says and reads nothing.
  class Greeted {
   public:
    explicit Greeted(const std::string& address, size_t part_bytes = 0) {
      auto socket = ConnectTcp(io_, address, Deadline::After(seconds(10)));
      if (!socket.ok()) throw std::runtime_error(socket.status().ToString());
      socket_.emplace(std::move(*socket));
      const auto say = [&](uint16_t type, const std::string& payload) {
        const auto header = EncodeControlHeader(type, static_cast<uint32_t>(payload.size()));
        const std::string frame = std::string(header.data(), header.size()) + payload;
        boost::asio::write(*socket_, boost::asio::buffer(frame));
      };
      say(kControlChallenge, std::string(1 + kNonceBytes, '\0'));
      say(kControlHello, "silent");
      if (part_bytes == 0) return;
      const auto header = EncodeControlHeader(kType, uint32_t{1} << 20);
      const std::string part =
          std::string(header.data(), header.size()) + std::string(part_bytes, 'x');
      boost::asio::write(*socket_, boost::asio::buffer(part));
    }

   private:
    boost::asio::io_context io_;
    std::optional<Tcp::socket> socket_;
  };

  // Sends, and waits until all is in the server's queue or dropped: the server reads it before the
  // end of the connection.
  static void SendAndGo(Client& client, int count, size_t size) {
    for (int i = 0; i < count; ++i)
      ASSERT_TRUE(client.connection->Send(kType, std::string(size, 'x')).ok());
    client.connection->Close(Deadline::After(seconds(10)));
  }

  // Of all events that are there.
  struct Seen {
    std::map<uint64_t, int> connected, frames, lost;
    std::map<uint64_t, Status> why;
  };
  Seen TakeAll() {
    Seen seen;
    while (auto event = server_->TryPop()) {
      auto& counts = event->kind == ControlEvent::Kind::kConnected ? seen.connected
                     : event->kind == ControlEvent::Kind::kFrame   ? seen.frames
                                                                   : seen.lost;
      ++counts[event->connection];
      if (event->kind == ControlEvent::Kind::kLost) seen.why[event->connection] = event->status;
    }
    return seen;
  }

  std::unique_ptr<ControlServer> server_;
};

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
              ::testing::ElementsAre("0", "2", "4", "6", "8", "10", "12", "14", "16", "18"));
  EXPECT_THAT(came[other.connection],
              ::testing::ElementsAre("1", "3", "5", "7", "9", "11", "13", "15", "17", "19"));

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

// It is how an owner gets rid of somebody: whoever does not close its own end must not hold it up.
TEST_F(ControlServerTest, CloseWaitsForNobodyAndMakesNoEvent) {
  const auto client = Connect("somebody");
  const uint64_t id = NextEvent().connection;
  std::vector<std::unique_ptr<Greeted>> silent;  // they read nothing, and stay
  std::vector<uint64_t> ids = {id};
  for (int i = 0; i < 5; ++i) {
    silent.push_back(std::make_unique<Greeted>(server_->address()));
    ids.push_back(NextEvent().connection);
  }
  ASSERT_TRUE(client->connection->Send(kType, "a message that waits").ok());
  ASSERT_TRUE(AwaitEvents());
  const TimePoint start = Clock::now();
  for (const uint64_t closed : ids) server_->Close(closed);
  server_->Close(id);  // again: nothing happens
  EXPECT_LT(SecondsSince(start), 4) << "a second each is as long as it may wait for a goodbye";
  EXPECT_EQ(Next(client->lost, client->lost.fd()).code(), StatusCode::kPeerLost);
  EXPECT_FALSE(server_->TryPop());
}

TEST_F(ControlServerTest, PeersThatAreNotKeptMakeRoom) {
  const auto served = Connect("manager");
  const uint64_t id = NextEvent().connection;
  server_->Keep(id);
  std::vector<std::unique_ptr<Client>> others;
  std::vector<uint64_t> ids;
  std::vector<ControlEvent> lost;
  for (int i = 0; i < 80; ++i) {
    others.push_back(Connect("somebody"));
    ControlEvent event = NextEvent();
    for (; event.kind == ControlEvent::Kind::kLost; event = NextEvent())
      lost.push_back(std::move(event));
    ASSERT_EQ(event.kind, ControlEvent::Kind::kConnected);
    ids.push_back(event.connection);
  }
  EXPECT_EQ(Next(others.front()->lost, others.front()->lost.fd()).code(), StatusCode::kPeerLost);
  ASSERT_EQ(lost.size(), 16u) << "64 may stay";
  for (size_t i = 0; i < lost.size(); ++i)
    EXPECT_EQ(lost[i].connection, ids[i]) << "who came first goes first";
  EXPECT_EQ(lost.front().status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(lost.front().status.message(), HasSubstr("somebody at 127.0.0.1:"));
  ASSERT_TRUE(server_->Send(id, kType, "to the manager").ok());
  EXPECT_EQ(Next(served->frames, served->frames.fd()).payload, "to the manager");
  ASSERT_TRUE(others.back()->connection->Send(kType, "hello").ok());
  EXPECT_EQ(NextEvent().frame.payload, "hello") << "who came last is heard";
}

// An owner that is busy for long hears of those who are there when it looks, and what they asked;
// of the others nothing is left.
TEST_F(ControlServerTest, OfWhoMadeRoomUnheardNothingIsLeft) {
  std::vector<std::unique_ptr<Client>> others;
  for (int i = 0; i < 80; ++i) {
    others.push_back(Connect("somebody"));
    ASSERT_TRUE(others.back()->connection->Send(kType, "a question").ok());
  }
  for (int i = 0; i < 16; ++i)
    (void)Next(others[static_cast<size_t>(i)]->lost, others[static_cast<size_t>(i)]->lost.fd());
  Seen seen;
  while (seen.frames.size() < 64) {
    ASSERT_TRUE(AwaitEvents());
    const Seen more = TakeAll();
    seen.connected.insert(more.connected.begin(), more.connected.end());
    seen.frames.insert(more.frames.begin(), more.frames.end());
    seen.lost.insert(more.lost.begin(), more.lost.end());
  }
  EXPECT_EQ(seen.connected.size(), 64u);
  EXPECT_EQ(seen.connected.begin()->first, 17u) << "the first ones of all went";
  EXPECT_EQ(seen.frames.begin()->first, 17u);
  EXPECT_TRUE(seen.lost.empty());
}

TEST_F(ControlServerTest, WhoIsServedMaySendAhead) {
  const auto served = Connect("manager");
  const uint64_t id = NextEvent().connection;
  server_->Serve(id);
  SendAndGo(*served, 200, size_t{100} << 10);
  ASSERT_TRUE(AwaitEvents());
  const std::optional<ControlEvent> first = server_->TryPop();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->kind, ControlEvent::Kind::kLost)
      << "what a peer that has gone wanted is not done any more";

  const auto next = Connect("next manager");
  const uint64_t next_id = NextEvent().connection;
  server_->Serve(next_id);
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(next->connection->Send(kType, std::string(size_t{100} << 10, 'x')).ok());
  for (int i = 0; i < 200; ++i) {
    const ControlEvent event = NextEvent();
    ASSERT_EQ(event.kind, ControlEvent::Kind::kFrame) << event.status;
    EXPECT_EQ(event.connection, next_id);
  }
}

TEST_F(ControlServerTest, SeveralMayBeServed) {
  const auto first = Connect("front 1");
  const uint64_t first_id = NextEvent().connection;
  const auto second = Connect("front 2");
  const uint64_t second_id = NextEvent().connection;
  server_->ServeToo(first_id);
  server_->ServeToo(second_id);
  server_->Keep(0);  // concerns neither
  for (const auto& [client, id] : {std::pair(&first, first_id), std::pair(&second, second_id)}) {
    for (int i = 0; i < 40; ++i)
      ASSERT_TRUE((*client)->connection->Send(kType, std::string(size_t{2} << 20, 'x')).ok());
    for (int i = 0; i < 40; ++i) {
      const ControlEvent event = NextEvent();
      ASSERT_EQ(event.kind, ControlEvent::Kind::kFrame) << event.status;
      EXPECT_EQ(event.connection, id);
    }
  }
  server_->ServeToo(4711);  // is gone by now
}

TEST_F(ControlServerTest, FramesOfStrangersDoNotPileUp) {
  const auto other = Connect("somebody");
  const uint64_t stranger = NextEvent().connection;
  SendAndGo(*other, 16, 1);  // so many may wait
  ASSERT_TRUE(AwaitEvents());
  EXPECT_THAT(TakeAll().why[stranger].message(), HasSubstr("closed the connection"));

  const auto flood = Connect("somebody");
  const uint64_t flooding = NextEvent().connection;
  server_->Keep(flooding);  // while its session is opened it has nothing to say either
  for (int i = 0; i < 17; ++i) (void)flood->connection->Send(kType, "flood");
  (void)Next(flood->lost, flood->lost.fd());
  const Seen seen = TakeAll();
  EXPECT_EQ(seen.frames.size(), 0u) << "what it has sent goes with it";
  EXPECT_EQ(seen.lost, (std::map<uint64_t, int>{{flooding, 1}}))
      << "once, whatever becomes of the connection";
  EXPECT_THAT(seen.why.at(flooding).message(), HasSubstr("somebody at 127.0.0.1:"));
  EXPECT_THAT(seen.why.at(flooding).message(), HasSubstr("without waiting"));
}

// However many they are. An owner that loads weights looks at no messages for minutes.
TEST_F(ControlServerTest, FramesOfAllStrangersTogetherTakeNoMoreThanTheirShare) {
  constexpr size_t kMiB = size_t{1} << 20;
  const auto modest = Connect("modest");
  const uint64_t modest_id = NextEvent().connection;
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(modest->connection->Send(kType, std::string(kMiB / 2, 'm')).ok());
  for (int i = 0; i < 20; ++i) {
    const auto flood = Connect("somebody");
    for (int k = 0; k < 10; ++k) (void)flood->connection->Send(kType, std::string(kMiB, 'x'));
    (void)Next(flood->lost, flood->lost.fd());  // while the owner looks at nothing
  }
  std::map<uint64_t, int> frames, lost;
  while (frames[modest_id] < 2 || lost.size() < 20) {
    const ControlEvent event = NextEvent();
    if (event.kind == ControlEvent::Kind::kFrame) ++frames[event.connection];
    if (event.kind != ControlEvent::Kind::kLost) continue;
    ++lost[event.connection];
    EXPECT_EQ(event.status.code(), StatusCode::kOutOfSpace);
    EXPECT_THAT(event.status.message(), HasSubstr("somebody at 127.0.0.1:"));
    EXPECT_THAT(event.status.message(), HasSubstr("peers that are not served may have 4194304"));
  }
  EXPECT_EQ(frames, (std::map<uint64_t, int>{{modest_id, 2}})) << "of the others nothing is left";
  EXPECT_FALSE(lost.contains(modest_id)) << "who sent most goes";
}

// Half a frame is kept until the other half comes. Of strangers there are many, and nobody knows
// what they want.
TEST_F(ControlServerTest, HalfFramesOfStrangersCountToo) {
  constexpr size_t kNum = 8, kHalfBytes = (size_t{1} << 20) - 1;
  std::vector<std::unique_ptr<Greeted>> strangers;
  for (size_t i = 0; i < kNum; ++i)
    strangers.push_back(std::make_unique<Greeted>(server_->address(), kHalfBytes));
  std::map<uint64_t, Status> lost;
  while (lost.size() < kNum - 4) {
    const ControlEvent event = NextEvent();
    EXPECT_NE(event.kind, ControlEvent::Kind::kFrame);
    if (event.kind == ControlEvent::Kind::kLost) lost[event.connection] = event.status;
  }
  for (const auto& [id, why] : lost)
    EXPECT_THAT(why.message(), HasSubstr("peers that are not served may have 4194304"));
}

TEST_F(ControlServerTest, OnlyWhoIsServedSendsLargeFrames) {
  const auto stranger = Connect("somebody");
  const uint64_t lost = NextEvent().connection;
  ASSERT_TRUE(stranger->connection->Send(kType, std::string(size_t{2} << 20, 'x')).ok());
  const ControlEvent event = NextEvent();
  EXPECT_EQ(event.kind, ControlEvent::Kind::kLost);
  EXPECT_EQ(event.connection, lost);
  EXPECT_THAT(event.status.message(), HasSubstr("with 2097152 bytes; at most 1048576"));

  const auto manager = Connect("manager");
  const uint64_t kept = NextEvent().connection;
  server_->Serve(kept);
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
