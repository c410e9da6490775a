#include "transport/control_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/control_handshake.h"
#include "transport/posix.h"
#include "transport/tcp_socket.h"

namespace lamina {
namespace control_channel_test {

using ::testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(60);  // only a broken test waits so long

// What one connection's callbacks said. Thread: any.
class Heard {
 public:
  ControlConnection::Callbacks callbacks() {
    return {.on_frame =
                [this](ControlFrame frame) {
                  std::lock_guard lock(mutex_);
                  frames_.push_back(std::move(frame));
                  changed_.notify_all();
                },
            .on_lost =
                [this](Status status) {
                  std::lock_guard lock(mutex_);
                  lost_.push_back(std::move(status));
                  changed_.notify_all();
                }};
  }

  bool WaitForFrames(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return frames_.size() >= count; });
  }

  Status WaitForLost() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return !lost_.empty(); });
    return lost_.size() == 1 ? lost_.front()
                             : InternalError("told " + std::to_string(lost_.size()) + " times");
  }

  std::vector<ControlFrame> frames() {
    std::lock_guard lock(mutex_);
    return frames_;
  }

  size_t num_lost() {
    std::lock_guard lock(mutex_);
    return lost_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ControlFrame> frames_;
  std::vector<Status> lost_;
};

class ControlChannel : public ::testing::Test {
 protected:
  void Listen(const ControlOptions& options = {.hello = "manager"}) {
    auto made = ControlListener::Create("127.0.0.1:0", options,
                                        [this](std::unique_ptr<ControlConnection> connection) {
                                          std::lock_guard lock(mutex_);
                                          accepted_.push_back(std::move(connection));
                                          changed_.notify_all();
                                        });
    ASSERT_TRUE(made.ok()) << made.status();
    listener_ = std::move(made).value();
  }

  std::unique_ptr<ControlConnection> NextAccepted() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [&] { return !accepted_.empty(); })) return nullptr;
    auto connection = std::move(accepted_.front());
    accepted_.erase(accepted_.begin());
    return connection;
  }

  void ConnectPair(const ControlOptions& options = {.hello = "memory node m0"}) {
    auto made = ConnectControl(listener_->address(), options, Deadline::After(kPatience));
    ASSERT_TRUE(made.ok()) << made.status();
    client_ = std::move(made).value();
    server_ = NextAccepted();
    ASSERT_TRUE(server_ != nullptr);
  }

  // A peer that says what the test wants.
  Tcp::socket RawPeer() {
    return std::move(ConnectTcp(io_, listener_->address(), Deadline::After(kPatience))).value();
  }

  static void Say(Tcp::socket& socket, const std::string& bytes) {
    ASSERT_EQ(send(socket.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  static std::string Encode(uint16_t type, const std::string& payload) {
    const auto header = EncodeControlHeader(type, static_cast<uint32_t>(payload.size()));
    return std::string(header.data(), header.size()) + payload;
  }

  // The greeting of an end without a secret.
  static std::string Greeting(const std::string& hello) {
    return Encode(kControlChallenge, std::string(1 + kNonceBytes, '\0')) +
           Encode(kControlHello, hello);
  }

  boost::asio::io_context io_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<ControlConnection>> accepted_;
  Heard at_server_, at_client_;  // outlive the connections, whose threads use them
  std::unique_ptr<ControlListener> listener_;
  std::unique_ptr<ControlConnection> client_, server_;
};

TEST_F(ControlChannel, HellosAndAddresses) {
  Listen();
  ConnectPair();
  EXPECT_EQ(client_->peer_hello(), "manager");
  EXPECT_EQ(server_->peer_hello(), "memory node m0");
  EXPECT_EQ(client_->peer_address(), listener_->address());
  EXPECT_THAT(server_->peer_address(), HasSubstr("127.0.0.1:"));
}

TEST_F(ControlChannel, FramesArriveInOrderBothWays) {
  Listen();
  ConnectPair();
  server_->Start(at_server_.callbacks());
  client_->Start(at_client_.callbacks());
  for (uint16_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(client_->Send(kFirstUserType, "to server " + std::to_string(i)).ok());
    ASSERT_TRUE(server_->Send(kFirstUserType + i, std::string(i, 'x')).ok());
  }
  ASSERT_TRUE(at_server_.WaitForFrames(1000));
  ASSERT_TRUE(at_client_.WaitForFrames(1000));
  const auto to_server = at_server_.frames(), to_client = at_client_.frames();
  for (uint16_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(to_server[i].payload, "to server " + std::to_string(i));
    ASSERT_EQ(to_client[i].type, kFirstUserType + i);
    ASSERT_EQ(to_client[i].payload, std::string(i, 'x'));
  }
}

TEST_F(ControlChannel, ManyThreadsMaySend) {
  constexpr int kThreads = 4, kFrames = 500;
  Listen();
  ConnectPair();
  server_->Start(at_server_.callbacks());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kFrames; ++i)
        EXPECT_TRUE(
            client_->Send(static_cast<uint16_t>(kFirstUserType + t), std::to_string(i)).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(at_server_.WaitForFrames(kThreads * kFrames));
  std::vector<int> next(kThreads, 0);  // each thread's frames in its order
  for (const ControlFrame& frame : at_server_.frames()) {
    EXPECT_EQ(frame.payload,
              std::to_string(next[static_cast<size_t>(frame.type - kFirstUserType)]++));
  }
}

TEST_F(ControlChannel, LargestFrameArrivesAndLargerIsRefused) {
  Listen();
  ConnectPair();
  server_->Start(at_server_.callbacks());
  std::string payload(kMaxFrameBytes, 'p');
  payload.back() = 'q';
  ASSERT_TRUE(client_->Send(kFirstUserType, payload).ok());
  ASSERT_TRUE(client_->Send(kFirstUserType, "after").ok());
  ASSERT_TRUE(at_server_.WaitForFrames(2));
  EXPECT_TRUE(at_server_.frames()[0].payload == payload);
  payload.push_back('!');
  EXPECT_EQ(client_->Send(kFirstUserType, payload).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->Send(kFirstUserType - 1, "").code(), StatusCode::kInvalidArgument);
}

TEST_F(ControlChannel, FramesBeforeStartAreKept) {
  Listen();
  ConnectPair();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client_->Send(kFirstUserType, std::to_string(i)).ok());
  client_->Close(Deadline::After(milliseconds(20)));  // nobody reads yet
  server_->Start(at_server_.callbacks());
  ASSERT_TRUE(at_server_.WaitForFrames(10));
  EXPECT_EQ(at_server_.WaitForLost().code(), StatusCode::kPeerLost);
}

TEST_F(ControlChannel, CloseSendsWhatIsQueuedAndSaysGoodbye) {
  Listen();
  ConnectPair();
  client_->Start(at_client_.callbacks());
  server_->Start(at_server_.callbacks());
  const std::string payload(size_t{10} << 20, 'x');
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client_->Send(kFirstUserType, payload).ok());
  client_->Close(Deadline::After(kPatience));
  EXPECT_EQ(client_->Send(kFirstUserType, "late").code(), StatusCode::kPeerLost);
  client_.reset();
  ASSERT_TRUE(at_server_.WaitForFrames(10));
  const Status lost = at_server_.WaitForLost();
  EXPECT_EQ(lost.code(), StatusCode::kPeerLost);
  EXPECT_THAT(lost.message(), HasSubstr("memory node m0"));
  EXPECT_THAT(lost.message(), HasSubstr("closed the connection"));
  EXPECT_EQ(at_server_.frames().size(), 10u);
  EXPECT_EQ(at_client_.num_lost(), 0u);  // not for one's own Close
  EXPECT_EQ(server_->Send(kFirstUserType, "gone").code(), StatusCode::kPeerLost);
}

TEST_F(ControlChannel, BothMayCloseAtOnce) {
  Listen();
  ConnectPair();
  client_->Start(at_client_.callbacks());
  server_->Start(at_server_.callbacks());
  const TimePoint start = Clock::now();
  std::thread closing([&] { client_->Close(Deadline::After(kPatience)); });
  server_->Close(Deadline::After(kPatience));
  closing.join();
  EXPECT_LT(SecondsSince(start), 30);
}

TEST_F(ControlChannel, CloseGivesUpAtItsDeadlineWhenThePeerDoesNotRead) {
  Listen();
  ConnectPair();
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(client_->Send(kFirstUserType, std::string(size_t{20} << 20, 'x')).ok());
  const TimePoint start = Clock::now();
  client_->Close(Deadline::After(milliseconds(50)));
  EXPECT_LT(SecondsSince(start), 30);
}

TEST_F(ControlChannel, APeerThatDoesNotReadFillsTheQueue) {
  Listen();
  ConnectPair();
  Status status;
  for (int i = 0; i < 20 && status.ok(); ++i)
    status = client_->Send(kFirstUserType, std::string(kMaxFrameBytes, 'x'));
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(status.message(), HasSubstr("manager"));
}

TEST_F(ControlChannel, HeartbeatsKeepAQuietConnectionAlive) {
  const ControlOptions options{
      .hello = "quiet", .heartbeat = milliseconds(20), .peer_timeout = milliseconds(1000)};
  Listen(options);
  ConnectPair(options);
  client_->Start(at_client_.callbacks());
  server_->Start(at_server_.callbacks());
  // Waits for longer than the timeout: only the end of the time says that nothing was lost.
  std::this_thread::sleep_for(milliseconds(2500));
  EXPECT_EQ(at_client_.num_lost() + at_server_.num_lost(), 0u);
  ASSERT_TRUE(client_->Send(kFirstUserType, "still here").ok());
  EXPECT_TRUE(at_server_.WaitForFrames(1));
}

TEST_F(ControlChannel, SilentPeerTimesOut) {
  Listen({.hello = "manager", .heartbeat = milliseconds(20), .peer_timeout = milliseconds(100)});
  Tcp::socket peer = RawPeer();
  Say(peer, Greeting("mute"));
  server_ = NextAccepted();
  ASSERT_TRUE(server_ != nullptr);
  server_->Start(at_server_.callbacks());
  const Status status = at_server_.WaitForLost();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("mute at 127.0.0.1:"));
  EXPECT_EQ(server_->Send(kFirstUserType, "x").code(), StatusCode::kPeerLost);
}

TEST_F(ControlChannel, SlowCallbacksAreNotTakenForASilentPeer) {
  const ControlOptions options{
      .hello = "busy", .heartbeat = milliseconds(10), .peer_timeout = milliseconds(200)};
  Listen(options);
  ConnectPair(options);
  ControlConnection::Callbacks callbacks = at_server_.callbacks();
  auto on_frame = callbacks.on_frame;
  callbacks.on_frame = [on_frame](ControlFrame frame) {
    std::this_thread::sleep_for(milliseconds(600));
    on_frame(std::move(frame));
  };
  server_->Start(callbacks);
  ASSERT_TRUE(client_->Send(kFirstUserType, "1").ok());
  ASSERT_TRUE(at_server_.WaitForFrames(1));
  ASSERT_TRUE(client_->Send(kFirstUserType, "2").ok());
  ASSERT_TRUE(at_server_.WaitForFrames(2));
  EXPECT_EQ(at_server_.num_lost(), 0u);
}

TEST_F(ControlChannel, BrokenPeerIsLost) {
  Listen();
  Tcp::socket peer = RawPeer();
  Say(peer, Greeting("broken") + Encode(kFirstUserType, "last words"));
  server_ = NextAccepted();
  ASSERT_TRUE(server_ != nullptr);
  peer.close();  // without a goodbye
  server_->Start(at_server_.callbacks());
  EXPECT_EQ(at_server_.WaitForLost().code(), StatusCode::kPeerLost);
  ASSERT_EQ(at_server_.frames().size(), 1u);
  EXPECT_EQ(at_server_.frames()[0].payload, "last words");
}

TEST_F(ControlChannel, CorruptStreamsAreLost) {
  Listen();
  std::string version = Encode(kFirstUserType, "x");
  version[4] = 7;
  const auto large = EncodeControlHeader(kFirstUserType, kMaxFrameBytes + 1);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"this is not a frame", "LMNA"},
      {version, "version 7"},
      {{large.data(), large.size()}, std::to_string(kMaxFrameBytes + 1)},
      {Encode(7, ""), "type 7"},
      {Encode(kControlHello, "again"), "type 1"}};
  for (const auto& [bytes, expected] : cases) {
    Heard heard;
    Tcp::socket peer = RawPeer();
    Say(peer, Greeting("corrupt") + Encode(kFirstUserType, "good") + bytes);
    auto connection = NextAccepted();
    ASSERT_TRUE(connection != nullptr);
    connection->Start(heard.callbacks());
    const Status status = heard.WaitForLost();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(expected));
    EXPECT_THAT(status.message(), HasSubstr("corrupt at 127.0.0.1:"));
    EXPECT_EQ(heard.frames().size(), 1u);
  }
}

TEST_F(ControlChannel, StrangersAreDroppedAndOthersServed) {
  Listen();
  std::vector<Tcp::socket> strangers;
  for (const std::string& bytes :
       {std::string(), std::string("LM"), std::string("GET / HTTP/1.1\r\n\r\n"),
        Encode(kFirstUserType, "no hello"), Encode(kControlHello, std::string(5000, 'x'))}) {
    strangers.push_back(RawPeer());
    Say(strangers.back(), bytes);
  }
  ConnectPair();
  EXPECT_EQ(server_->peer_hello(), "memory node m0");
}

TEST_F(ControlChannel, ConnectSaysThatThePeerHasAnotherVersion) {
  auto acceptor = std::move(ListenTcp(io_, "127.0.0.1:0")).value();
  const std::string address = BoundAddress(acceptor, "127.0.0.1:0");
  std::thread server([&] {
    acceptor.non_blocking(false);
    auto peer = acceptor.accept();
    std::string hello = Encode(kControlHello, "old manager");
    hello[4] = 9;
    Say(peer, hello);
  });
  const Status status = ConnectControl(address, {}, Deadline::After(kPatience)).status();
  server.join();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr(address));
  EXPECT_THAT(status.message(), HasSubstr("version 9"));
  EXPECT_THAT(status.message(), HasSubstr("version " + std::to_string(kControlVersion)));
}

TEST_F(ControlChannel, ConnectTimesOutOnAPeerThatDoesNotGreet) {
  auto acceptor = std::move(ListenTcp(io_, "127.0.0.1:0")).value();  // accepts nobody
  const std::string address = BoundAddress(acceptor, "127.0.0.1:0");
  const Status status = ConnectControl(address, {}, Deadline::After(milliseconds(50))).status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr(address));
}

TEST_F(ControlChannel, ConnectRetriesWhileRefusedUntilItsDeadline) {
  Listen();
  const std::string address = listener_->address();
  listener_.reset();
  const Status status = ConnectControl(address, {}, Deadline::After(milliseconds(50))).status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr(address));
  EXPECT_THAT(status.message(), HasSubstr("refused"));

  std::thread connecting([&] {
    client_ = std::move(ConnectControl(address, {.hello = "patient"}, Deadline::After(kPatience)))
                  .value();
  });
  auto made = ControlListener::Create(address, {.hello = "late"},
                                      [](std::unique_ptr<ControlConnection>) {});
  connecting.join();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(client_->peer_hello(), "late");
}

TEST_F(ControlChannel, BadAddressesAndOptions) {
  Listen();
  const auto nobody = [](std::unique_ptr<ControlConnection>) {};
  const Status in_use = ControlListener::Create(listener_->address(), {}, nobody).status();
  EXPECT_EQ(in_use.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(in_use.message(), HasSubstr("port in use"));
  EXPECT_THAT(in_use.message(), HasSubstr(listener_->address()));
  EXPECT_EQ(ControlListener::Create("nonsense", {}, nobody).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(ConnectControl("nonsense", {}, Deadline::After(kPatience)).status().code(),
            StatusCode::kInvalidArgument);
  const ControlOptions long_hello{.hello = std::string(5000, 'x')};
  EXPECT_EQ(
      ConnectControl(listener_->address(), long_hello, Deadline::After(kPatience)).status().code(),
      StatusCode::kInvalidArgument);
  const ControlOptions no_heartbeat{.hello = "", .heartbeat = Clock::duration::zero()};
  EXPECT_EQ(ControlListener::Create("127.0.0.1:0", no_heartbeat, nobody).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(ControlChannel, CanBeDestroyedAtAnyTime) {
  Listen();
  for (int round = 0; round < 40; ++round) {
    ConnectPair();
    if (round % 2 == 0)
      server_->Start({[echo = server_.get()](ControlFrame frame) {
                        (void)echo->Send(frame.type, std::move(frame.payload));
                      },
                      {}});
    if (round % 3 == 0) client_->Start(at_client_.callbacks());
    for (int i = 0; i < round; ++i)
      (void)client_->Send(kFirstUserType, std::string(static_cast<size_t>(round) * 1000, 'x'));
    if (round % 5 == 0) server_->Close(Deadline::After(milliseconds(1)));
    if (round % 7 == 0) client_.reset();
    server_.reset();
    client_.reset();
  }
  Tcp::socket half_way = RawPeer();
  Say(half_way, "LMNA");
  listener_.reset();
}

}  // namespace control_channel_test
}  // namespace lamina
