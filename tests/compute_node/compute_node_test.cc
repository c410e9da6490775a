// The compute node's daemon in this process: what becomes of its manager while strangers come, and
// what a stranger is told.
#include "compute_node/compute_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <boost/asio/io_context.hpp>
#include <cmath>
#include <limits>
#include <thread>

#include "base/inbox.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include "transport/control_channel.h"
#include "transport/tcp_socket.h"
#include "wire/codec.h"

namespace lamina {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr auto kPatience = seconds(60);
constexpr int kMoreThanMayStay = 70;

// Its dummy weights are 12 GB, which nobody waits for; its layers are few, as the first report
// comes after they were sliced.
constexpr auto kLargeModel =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
  "hidden_act": "silu", "vocab_size": 1024, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 100,
  "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 1024, "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2})";

class ComputeNodeTest : public ::testing::Test {
 protected:
  struct Client {
    Inbox<ControlFrame> frames;
    Inbox<Status> lost;
    std::unique_ptr<ControlConnection> connection;  // first to go: its callbacks use the inboxes
  };

  void SetUp() override {
    NodeOptions options;
    options.name = "compute";
    options.num_threads = 1;
    auto node = ComputeNode::Create(options);
    ASSERT_TRUE(node.ok()) << node.status();
    node_ = std::move(*node);
    thread_ = std::thread([this] { node_->Run(); });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    node_->Stop();
    thread_.join();
  }

  std::unique_ptr<Client> Connect(const std::string& hello) {
    auto client = std::make_unique<Client>();
    auto connection =
        ConnectControl(node_->address(), {.hello = hello}, Deadline::After(kPatience));
    if (!connection.ok()) throw std::runtime_error(connection.status().ToString());
    client->connection = std::move(*connection);
    client->connection->Start(
        {.on_frame = [raw =
                          client.get()](ControlFrame frame) { raw->frames.Push(std::move(frame)); },
         .on_lost = [raw = client.get()](Status status) { raw->lost.Push(std::move(status)); }});
    return client;
  }

  // With made-up weights.
  static ConfigureCompute TinyStories() {
    ConfigureCompute request;
    request.model = SourcePath("/models/tiny-stories");
    request.load_format = LoadFormat::kDummy;
    AttentionSpec& spec = request.attention;
    spec.num_layers = 4;
    spec.num_heads = 8;
    spec.num_kv_heads = 4;
    spec.head_dim = 32;
    spec.scale = 1.0f / std::sqrt(32.0f);
    request.limits.max_model_len = 100;
    return request;
  }

  // Of a session with a memory node, which is to connect to the node here at `memory_node`.
  static ConfigureCompute WithMemoryNode(const std::string& memory_node) {
    ConfigureCompute request = TinyStories();
    request.limits.max_num_seqs = 1;
    request.limits.max_num_batched_tokens = 8;
    request.limits.peer_timeout = milliseconds(60'000);
    request.session_token = std::string(16, 't');
    request.fabrics.push_back(TransportKind::kTcp);
    MemoryNodeAddress& memory = request.memory_nodes.emplace_back();
    memory.node = NodeId{1};
    memory.group = NodeId{1};
    memory.name = "silent";
    memory.num_kv_heads = 4;
    memory.offers = "tcp=" + memory_node;
    return request;
  }

  // Of a model whose weights take minutes to make.
  ConfigureCompute Large() {
    WriteFile(folder_ / "config.json", kLargeModel);
    ConfigureCompute request = TinyStories();
    request.model = folder_.path();
    request.limits.max_num_seqs = 1;
    request.limits.max_num_batched_tokens = 8;
    return request;
  }

  // So many come that all have to make room who are not kept.
  void CrowdOut() {
    std::vector<std::unique_ptr<Client>> others;
    for (int i = 0; i < kMoreThanMayStay; ++i) others.push_back(Connect("somebody"));
    EXPECT_TRUE(Next(others.front()->lost)) << "none had to make room";
  }

  // How far the weights are by the next message, which says that.
  static int64_t LoadedBytes(Client& client) {
    const std::optional<ControlFrame> frame = Next(client.frames);
    if (!frame || frame->type != FrameType(MessageType::kWeightsProgress))
      throw std::runtime_error("it did not say how far the weights are");
    const WeightsProgress progress = Decode<WeightsProgress>(frame->payload).value();
    EXPECT_GT(progress.total_bytes, progress.loaded_bytes);
    return progress.loaded_bytes;
  }
  static void Send(const Client& client, const ConfigureCompute& request) {
    EXPECT_TRUE(
        client.connection->Send(FrameType(MessageType::kConfigureCompute), Encode(request)).ok());
  }

  template <typename T>
  static std::optional<T> Next(Inbox<T>& inbox) {
    pollfd entry{inbox.fd(), POLLIN, 0};
    poll(&entry, 1, Deadline::After(kPatience).RemainingMs());
    return inbox.TryPop();
  }

  static Configured Configure(Client& client, const std::string& request) {
    EXPECT_TRUE(client.connection->Send(FrameType(MessageType::kConfigureCompute), request).ok());
    const std::optional<ControlFrame> frame = Next(client.frames);
    if (!frame || frame->type != FrameType(MessageType::kConfigured))
      throw std::runtime_error("it did not answer");
    return Decode<Configured>(frame->payload).value();
  }

  const TemporaryFolder folder_;
  std::unique_ptr<ComputeNode> node_;
  std::thread thread_;
};

TEST_F(ComputeNodeTest, WhoWaitsForWeightsStaysWhoeverComesAndAStopWaitsForNone) {
  ConfigureCompute request = Large();
  request.prepare_only = true;
  const auto manager = Connect("manager");
  Send(*manager, request);
  ASSERT_TRUE(Next(manager->frames));  // they load
  CrowdOut();
  while (manager->frames.TryPop()) {
  }
  const std::optional<ControlFrame> more = Next(manager->frames);
  ASSERT_TRUE(more);
  EXPECT_EQ(more->type, FrameType(MessageType::kWeightsProgress))
      << "the manager is told how they load";
  EXPECT_FALSE(manager->lost.TryPop());

  const TimePoint start = Clock::now();
  node_->Leave();
  thread_.join();
  EXPECT_LT(SecondsSince(start), 20) << "the rest of them took minutes";
}

TEST_F(ComputeNodeTest, WhoAsksWhileWeightsLoadIsAnsweredAtOnce) {
  const auto manager = Connect("manager");
  Send(*manager, Large());
  LoadedBytes(*manager);
  EXPECT_THAT(Configure(*Connect("other"), Encode(TinyStories())).status.message(),
              HasSubstr("it serves"));
  LoadedBytes(*manager);
}

TEST_F(ComputeNodeTest, AModelThatIsPreparedMakesWayForASession) {
  ConfigureCompute prepared = Large();
  prepared.prepare_only = true;
  const auto manager = Connect("manager");
  Send(*manager, prepared);
  LoadedBytes(*manager);

  ConfigureCompute session = TinyStories();
  session.local_kv_tokens = 100;
  session.limits.max_num_seqs = 1;
  session.limits.max_num_batched_tokens = 8;
  const auto other = Connect("other");
  Send(*other, session);
  std::optional<ControlFrame> frame = Next(other->frames);
  while (frame && frame->type == FrameType(MessageType::kWeightsProgress))
    frame = Next(other->frames);
  ASSERT_TRUE(frame);
  const Status opened = Decode<Configured>(frame->payload).value().status;
  EXPECT_TRUE(opened.ok()) << opened;

  frame = Next(manager->frames);
  while (frame && frame->type == FrameType(MessageType::kWeightsProgress))
    frame = Next(manager->frames);
  ASSERT_TRUE(frame);
  EXPECT_THAT(Decode<Configured>(frame->payload).value().status.message(),
              HasSubstr("load another model"));
}

TEST_F(ComputeNodeTest, WhoTakesThePlaceOfAModelThatIsPreparedStays) {
  ConfigureCompute request = Large();
  request.prepare_only = true;
  const auto manager = Connect("manager");
  Send(*manager, request);
  LoadedBytes(*manager);
  request.prepare_only = false;
  request.dummy_seed = 1;  // other weights
  const auto other = Connect("other");
  Send(*other, request);
  std::optional<ControlFrame> frame = Next(manager->frames);
  while (frame && frame->type == FrameType(MessageType::kWeightsProgress))
    frame = Next(manager->frames);
  ASSERT_TRUE(frame) << "the place was not taken";
  CrowdOut();
  EXPECT_FALSE(other->lost.TryPop()) << "the session's manager had to make room";
}

TEST_F(ComputeNodeTest, OneModelIsPreparedAtATime) {
  ConfigureCompute request = Large();
  request.prepare_only = true;
  const auto manager = Connect("manager");
  Send(*manager, request);
  LoadedBytes(*manager);
  EXPECT_THAT(Configure(*Connect("other"), Encode(request)).status.message(),
              HasSubstr("it loads a model for"));
  CrowdOut();
  EXPECT_FALSE(manager->lost.TryPop()) << "who waits for it had to make room";
}

TEST_F(ComputeNodeTest, WhatAManagerBeganToLoadTheNextOneFinds) {
  ConfigureCompute request = Large();
  request.prepare_only = true;
  auto manager = Connect("manager");
  Send(*manager, request);
  int64_t loaded = 0;
  for (int i = 0; i < 100 && loaded == 0; ++i) loaded = LoadedBytes(*manager);
  ASSERT_GT(loaded, 0);
  manager.reset();
  request.prepare_only = false;
  const auto next = Connect("next");
  Send(*next, request);
  EXPECT_GE(LoadedBytes(*next), loaded);
}

TEST_F(ComputeNodeTest, AStopWaitsForNoMemoryNodeThatDoesNotAnswer) {
  // It takes connections and says nothing.
  boost::asio::io_context context;
  Tcp::acceptor silent = *ListenTcp(context, "127.0.0.1:0");
  const ConfigureCompute request = WithMemoryNode(BoundAddress(silent, "127.0.0.1:0"));
  const auto manager = Connect("manager");
  ASSERT_TRUE(
      manager->connection->Send(FrameType(MessageType::kConfigureCompute), Encode(request)).ok());
  pollfd entry{silent.native_handle(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, Deadline::After(kPatience).RemainingMs()), 1) << "it connects";

  const TimePoint start = Clock::now();
  node_->Leave();
  thread_.join();
  EXPECT_LT(SecondsSince(start), 10) << "it would have waited for 20 s";
}

TEST_F(ComputeNodeTest, AManagerWhoseSessionOpensKeepsItsConnectionWhateverItSays) {
  boost::asio::io_context context;
  Tcp::acceptor silent = *ListenTcp(context, "127.0.0.1:0");
  const std::string request = Encode(WithMemoryNode(BoundAddress(silent, "127.0.0.1:0")));
  const auto manager = Connect("manager");
  ASSERT_TRUE(manager->connection->Send(FrameType(MessageType::kConfigureCompute), request).ok());
  pollfd entry{silent.native_handle(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, Deadline::After(kPatience).RemainingMs()), 1) << "it connects";

  ASSERT_TRUE(
      manager->connection->Send(FrameType(MessageType::kComputeOrder), "not an order").ok());
  ASSERT_TRUE(manager->connection->Send(FrameType(MessageType::kConfigureCompute), request).ok());
  std::optional<ControlFrame> frame = Next(manager->frames);
  while (frame && frame->type == FrameType(MessageType::kWeightsProgress))
    frame = Next(manager->frames);
  ASSERT_TRUE(frame) << "the node served a connection that it had closed";
  EXPECT_THAT(Decode<Configured>(frame->payload).value().status.message(), HasSubstr("it serves"));
  EXPECT_FALSE(manager->lost.TryPop());
}

TEST_F(ComputeNodeTest, WhatCannotBeParsedOrDoneMakesNobodyServed) {
  ConfigureCompute request;
  request.model = "/nowhere";
  for (const std::string& refused : {std::string("\xff"), Encode(request)}) {
    const auto client = Connect("somebody");
    EXPECT_FALSE(Configure(*client, refused).status.ok());
    ASSERT_TRUE(
        client->connection
            ->Send(FrameType(MessageType::kConfigureCompute), std::string(size_t{2} << 20, 'x'))
            .ok());
    EXPECT_TRUE(Next(client->lost)) << "frames of this size are for who is served";
  }
}

TEST_F(ComputeNodeTest, LimitsThatTakeAllMemoryAreRefusedBeforeAnythingIsMade) {
  constexpr int kMost = std::numeric_limits<int32_t>::max();
  for (const int num_seqs : {1, kMost}) {
    ConfigureCompute request = TinyStories();
    request.local_kv_tokens = 100;
    request.limits.max_num_seqs = num_seqs;
    request.limits.max_num_batched_tokens = kMost;
    EXPECT_THAT(Configure(*Connect("somebody"), Encode(request)).status.message(),
                HasSubstr("2147483647 tokens in a step"));
  }
}

TEST_F(ComputeNodeTest, ARefusalQuotesALongRequestBriefly) {
  ConfigureCompute request;
  const std::string long_text(size_t{900} << 10, '\n');
  for (const bool prepare_only : {false, true}) {
    request.model = "/" + long_text;
    request.prepare_only = prepare_only;
    const Configured answer = Configure(*Connect("somebody"), Encode(request));
    EXPECT_THAT(answer.status.message(), HasSubstr("compute node compute: "));
    EXPECT_LT(answer.status.message().size(), 1100u);
  }
}

}  // namespace
}  // namespace lamina
