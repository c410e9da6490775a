// The memory node's daemon in this process, over every fabric: who may open its data path, and what
// it does with what they say.
#include "memory_node/memory_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <thread>

#include "base/inbox.h"
#include "manager/cluster_settings.h"
#include "tests/support/temporary_folder.h"
#include "tests/transport/fabric_pair.h"
#include "transport/control_channel.h"
#include "wire/codec.h"
#include "wire/wire_format.h"

namespace lamina {
namespace memory_node_test {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr uint64_t kEpoch = 77;
constexpr WireShape kWire{2, 1, 8, DType::kF32, 4};
const std::string kToken = "the right token!";
const std::string kSecret = "the secret of this cluster";

class MemoryNodeTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    WriteFile(folder_ / "secret", kSecret);
    ASSERT_EQ(chmod((folder_ / "secret").c_str(), 0600), 0);
    MemoryNodeOptions options;
    options.name = "memory";
    if (GetParam() == "verbs") options.listen = FreshAddress("verbs");
    options.secret_file = folder_ / "secret";
    options.memory_bytes = int64_t{1} << 20;
    options.num_threads = 1;
    // No message can name the loopback fabric.
    if (GetParam() == "loopback") {
      options.open_ladder = [](std::span<const std::string> kinds) {
        return Ladder::Open(std::vector<std::string>(kinds.size(), "loopback"));
      };
    }
    auto node = MemoryNode::Create(options);
    ASSERT_TRUE(node.ok()) << node.status();
    node_ = std::move(*node);
    thread_ = std::thread([this] { node_->Run(); });
    auto manager = ConnectControl(node_->address(), {.hello = "manager", .secret = kSecret},
                                  Deadline::After(kPatience));
    ASSERT_TRUE(manager.ok()) << manager.status();
    manager_ = std::move(*manager);
    manager_->Start({.on_frame = [this](ControlFrame frame) { answers_.Push(std::move(frame)); },
                     .on_lost = [this](Status status) { lost_.Push(std::move(status)); }});
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    node_->Stop();
    thread_.join();
  }

  // The fabric of the data path as a message names it.
  static TransportKind Fabric() {
    return kTransportKinds.Named(GetParam()).value_or(TransportKind::kShm);
  }

  // The answer to a control message of these bytes.
  template <typename Answer>
  Answer Ask(MessageType type, const std::string& request, MessageType answer_type) {
    EXPECT_TRUE(manager_->Send(FrameType(type), request).ok());
    pollfd entry{answers_.fd(), POLLIN, 0};
    poll(&entry, 1, 60'000);
    const std::optional<ControlFrame> frame = answers_.TryPop();
    if (!frame || frame->type != FrameType(answer_type))
      throw std::runtime_error("the node did not answer");
    return Decode<Answer>(frame->payload).value();
  }

  Configured Configure(const std::string& token, const AttentionSpec& dtypes = {}) {
    ConfigureMemory request;
    request.epoch = kEpoch;
    request.fabrics = {Fabric()};
    request.session_token = token;
    request.payload_checksum = Switch::kAuto;
    AttentionSpec& spec = request.attention;
    spec = dtypes;
    spec.num_layers = 1;
    spec.num_heads = 2;
    spec.num_kv_heads = 1;
    spec.head_dim = 8;
    request.limits.max_num_seqs = kWire.max_rows;
    return ConfigureWith(Encode(request));
  }

  // Of a Configure message of these bytes.
  Configured ConfigureWith(const std::string& request) {
    return Ask<Configured>(MessageType::kConfigureMemory, request, MessageType::kConfigured);
  }

  bool IsManagerLost() {
    pollfd entry{lost_.fd(), POLLIN, 0};
    return poll(&entry, 1, 60'000) > 0;
  }

  MemoryStats Stats() {
    return Ask<MemoryStats>(MessageType::kStatsRequest, Encode(StatsRequest{kEpoch}),
                            MessageType::kStats);
  }

  // A compute node's end of the data path.
  Path Connect(const std::string& offers, const DataHello& hello) {
    Result<Path> path = ladder_->Connect(offers, {kWire.compute_window_bytes(), hello.Encode()},
                                         Deadline::After(kPatience));
    EXPECT_TRUE(path.ok()) << path.status();
    return path.ok() ? std::move(*path) : Path();
  }

  // A compute node's end after the node was configured; empty if that failed.
  Path JoinedMember() {
    const Configured ready = Configure(kToken);
    EXPECT_TRUE(ready.status.ok()) << ready.status;
    return Connect(ready.offers, {kEpoch, 1, kToken});
  }

  // Writes a message without a payload into the area that `notification` is about, and posts the
  // notification, whether the header goes with it or not.
  void Announce(const Path& member, const Notification& notification, MessageHeader header) {
    Result<std::unique_ptr<Buffer>> buffer = member.fabric->Allocate(sizeof(header));
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    header = Seal(header, {}, true);
    std::memcpy((*buffer)->bytes().data(), &header, sizeof(header));
    const int slot = static_cast<int>(notification.slot);
    const WriteOp write{(*buffer)->bytes().first(sizeof(header)),
                        notification.kind == MessageKind::kPush ? kWire.push_offset(slot)
                                                                : kWire.decode_offset(slot)};
    ASSERT_TRUE(member.endpoint->Post({&write, 1}, notification.Pack(), 0).ok());
    messages_.push_back(std::move(*buffer));
  }

  // Nothing, or that the node closed the connection.
  static bool IsLost(Endpoint& endpoint) {
    std::array<Event, 4> events;
    const size_t count = endpoint.Poll(events);
    return count > 0 && events[count - 1].kind == Event::Kind::kPeerLost;
  }

  const TemporaryFolder folder_;
  Inbox<ControlFrame> answers_;
  Inbox<Status> lost_;
  std::unique_ptr<MemoryNode> node_;
  std::thread thread_;
  std::unique_ptr<ControlConnection> manager_;
  std::unique_ptr<Ladder> ladder_ = std::move(*Ladder::Open(std::vector<std::string>{GetParam()}));
  std::vector<std::unique_ptr<Buffer>> messages_;  // borrowed by posts until they are sent
};

TEST_P(MemoryNodeTest, OnlyWhoShowsTheSessionsTokenJoinsTheDataPath) {
  const Configured ready = Configure(kToken);
  ASSERT_TRUE(ready.status.ok()) << ready.status;
  const Path member = Connect(ready.offers, {kEpoch, 1, kToken});
  ASSERT_NE(member.endpoint, nullptr);
  EXPECT_THAT(member.endpoint->peer_hello(), ::testing::Not(HasSubstr(kToken)))
      << "strangers read it";
  for (const DataHello& hello : {DataHello{kEpoch, 1, ""}, DataHello{kEpoch, 1, "the wrong token!"},
                                 DataHello{kEpoch + 1, 1, kToken}, DataHello{0, 0, "x"}}) {
    const Result<Path> stranger = ladder_->Connect(
        ready.offers, {kWire.compute_window_bytes(), hello.Encode()}, Deadline::After(kPatience));
    EXPECT_EQ(stranger.status().code(), StatusCode::kPeerLost) << stranger.status();
  }
  EXPECT_FALSE(IsLost(*member.endpoint));
}

TEST_P(MemoryNodeTest, KeepsKvIn8BitsButTakesNoQueriesInThem) {
  AttentionSpec dtypes;
  dtypes.kv_dtype = DType::kF8;
  dtypes.wire_dtype = DType::kF8;
  const Configured refused = Configure(kToken, dtypes);
  EXPECT_EQ(refused.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status.message(), HasSubstr("cannot travel in fp8"));
  dtypes.wire_dtype = DType::kF32;
  const Configured ready = Configure(kToken, dtypes);
  ASSERT_TRUE(ready.status.ok()) << ready.status;
  EXPECT_EQ(ready.capacity_tokens, (1 << 20) / (2 * 8)) << "K and V of 8 elements, 1 byte each";
}

TEST_P(MemoryNodeTest, CountsTheBytesOfScales) {
  AttentionSpec dtypes;
  dtypes.kv_dtype = dtypes.wire_dtype = DType::kI8Scaled;
  const Configured refused = Configure(kToken, dtypes);
  EXPECT_EQ(refused.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status.message(), HasSubstr("cannot travel in int8_per_token_head"));
  dtypes.wire_dtype = DType::kF32;
  const Configured ready = Configure(kToken, dtypes);
  ASSERT_TRUE(ready.status.ok()) << ready.status;
  EXPECT_EQ(ready.capacity_tokens, (1 << 20) / (2 * (8 + 4))) << "K and V of 8 codes and a scale";
}

TEST_P(MemoryNodeTest, MessagesOfAnotherEpochAreDroppedAndCounted) {
  const Path member = JoinedMember();
  ASSERT_NE(member.endpoint, nullptr);
  int64_t num_sent = 0;
  uint32_t number = 0;
  for (const uint64_t epoch : {kEpoch - 1, kEpoch + 1, uint64_t{0}}) {
    ++number;
    for (const MessageKind kind : {MessageKind::kDecode, MessageKind::kPush}) {
      Announce(member, {kind, 0, number},
               {.kind = kind, .epoch = epoch, .step = 1, .num_rows = 0, .number = number});
      ++num_sent;
      const Deadline deadline = Deadline::After(kPatience);
      while (Stats().stale_messages < num_sent) {
        ASSERT_FALSE(deadline.Passed());
        ASSERT_FALSE(IsLost(*member.endpoint)) << member.endpoint->last_error();
      }
    }
  }
  EXPECT_EQ(Stats().stale_messages, num_sent);
  EXPECT_EQ(Stats().attention_rows, 0);
}

TEST_P(MemoryNodeTest, AMessageAnnouncedTwiceIsHandledOnce) {
  const Path member = JoinedMember();
  ASSERT_NE(member.endpoint, nullptr);
  const Notification push{MessageKind::kPush, 2, 1};
  Announce(member, push, {.kind = MessageKind::kPush, .epoch = kEpoch, .step = 0, .number = 1});
  const uint32_t announced = push.Pack();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.endpoint->Post({}, announced, 0).ok());
  std::vector<uint32_t> answers;
  const Deadline deadline = Deadline::After(kPatience);
  // It belongs to no step, and came three times more.
  while (Stats().stale_messages < 4 || answers.empty()) {
    ASSERT_FALSE(deadline.Passed());
    std::array<Event, 8> events;
    const size_t count = member.endpoint->Poll(events);
    for (size_t i = 0; i < count; ++i) {
      if (events[i].kind == Event::Kind::kNotification) answers.push_back(events[i].value);
    }
  }
  EXPECT_THAT(answers, ::testing::ElementsAre(Notification{MessageKind::kPushDone, 2, 1}.Pack()));
  EXPECT_FALSE(IsLost(*member.endpoint));
}

TEST_P(MemoryNodeTest, AMessageThatIsNotTheAnnouncedOneEndsTheConnection) {
  const Path member = JoinedMember();
  ASSERT_NE(member.endpoint, nullptr);
  Announce(member, {MessageKind::kPush, 0, 1},
           {.kind = MessageKind::kPush, .epoch = kEpoch, .step = 0, .number = 2});
  const Deadline deadline = Deadline::After(kPatience);
  while (!IsLost(*member.endpoint)) ASSERT_FALSE(deadline.Passed());
}

// They would be kept until the order comes.
TEST_P(MemoryNodeTest, WhoPilesUpNotificationsBehindAMessageThatWaitsIsDropped) {
  const Path member = JoinedMember();
  ASSERT_NE(member.endpoint, nullptr);
  Announce(member, {MessageKind::kDecode, 0, 1},
           {.kind = MessageKind::kDecode, .epoch = kEpoch, .step = 9, .number = 1});
  const uint32_t link = Notification{MessageKind::kLink, 0, 1}.Pack();
  int num_links = 0;
  for (const Deadline deadline = Deadline::After(kPatience); !IsLost(*member.endpoint);) {
    ASSERT_FALSE(deadline.Passed());
    num_links += member.endpoint->Post({}, link, 0).ok();
  }
  EXPECT_GT(num_links, 40) << "as many as there are messages that may wait";
}

TEST_P(MemoryNodeTest, AManagerWithAnotherSecretOrNoneIsToldNothing) {
  for (const char* secret : {"the secret of another cluster", ""}) {
    const auto stranger = ConnectControl(node_->address(), {.hello = "stranger", .secret = secret},
                                         Deadline::After(kPatience));
    EXPECT_EQ(stranger.status().code(), StatusCode::kInvalidArgument) << secret;
  }
  EXPECT_TRUE(Configure(kToken).status.ok()) << "it serves those who know the secret";
}

TEST_P(MemoryNodeTest, ASessionNeedsAToken) {
  for (const std::string& token : {std::string(), std::string("short"), std::string(17, 'x')}) {
    const Configured answer = Configure(token);
    EXPECT_EQ(answer.status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(
        answer.status.message(),
        HasSubstr("session token of " + std::to_string(token.size()) + " bytes, expected 16"));
  }
  EXPECT_TRUE(Configure(kToken).status.ok());
}

TEST_P(MemoryNodeTest, WhatCannotBeParsedMakesNobodyKept) {
  EXPECT_THAT(ConfigureWith("\xff").status.message(),
              HasSubstr("the Configure message cannot be parsed"));
  std::vector<std::unique_ptr<ControlConnection>> others;
  for (int i = 0; i < 64; ++i) {
    auto other = ConnectControl(node_->address(), {.hello = "other", .secret = kSecret},
                                Deadline::After(kPatience));
    ASSERT_TRUE(other.ok()) << other.status();
    others.push_back(std::move(*other));
  }
  EXPECT_TRUE(IsManagerLost()) << "it came first, so it makes room for the others first";
}

TEST_P(MemoryNodeTest, WhoIsRefusedIsAStrangerAgain) {
  EXPECT_FALSE(Configure("no token").status.ok());
  ASSERT_TRUE(
      manager_->Send(FrameType(MessageType::kConfigureMemory), std::string(size_t{2} << 20, 'x'))
          .ok());
  EXPECT_TRUE(IsManagerLost()) << "frames of this size are for who is served";
}

TEST_P(MemoryNodeTest, MessagesThatTheHostHasNoMemoryForAreRefusedAndTheNodeGoesOn) {
  ConfigureMemory request;
  request.session_token = kToken;
  request.fabrics = {Fabric()};
  AttentionSpec& spec = request.attention;
  spec.num_layers = 1;
  spec.num_heads = 1024;
  spec.num_kv_heads = 1;
  spec.head_dim = 256;
  request.limits.max_num_seqs = 65536;
  request.limits.num_batches = kMaxBatches;
  const Configured answer = ConfigureWith(Encode(request));
  EXPECT_EQ(answer.status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(answer.status.message(),
              MatchesRegex("memory node memory: a compute node's messages of 65536 sequences in 16 "
                           "batches need [0-9.]+ GB of this host's memory, which has [0-9.]+ GB "
                           "available"));
  EXPECT_TRUE(Configure(kToken).status.ok());
}

TEST_P(MemoryNodeTest, ARefusalIsShortHoweverMuchWasAskedFor) {
  ConfigureMemory request;
  AttentionSpec& spec = request.attention;
  spec.num_layers = 1;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 8;
  request.limits.max_num_seqs = 4;
  for (int i = 0; i < 100'000; ++i) spec.windows.push_back({i});
  const Configured many_windows = ConfigureWith(Encode(request));
  EXPECT_THAT(many_windows.status.message(),
              HasSubstr("attention shape not supported: 1 layers, 100000 windows"));
  EXPECT_LT(many_windows.status.message().size(), 400u);

  spec.windows.clear();
  request.session_token = kToken;
  request.fabrics.assign(100'000, TransportKind::kTcp);
  const Configured many_fabrics = ConfigureWith(Encode(request));
  EXPECT_THAT(many_fabrics.status.message(), HasSubstr("memory node memory: "));
  EXPECT_LT(many_fabrics.status.message().size(), 1100u);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, MemoryNodeTest,
                         ::testing::ValuesIn(WithRdma({"loopback", "shm", "tcp"})),
                         [](const auto& kind) { return kind.param; });

}  // namespace memory_node_test
}  // namespace lamina
