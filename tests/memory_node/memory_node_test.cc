// The memory node's daemon in this process: who may open its data path.
#include "memory_node/memory_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <thread>

#include "base/inbox.h"
#include "splitter/control.pb.h"
#include "splitter/wire_format.h"
#include "transport/control_channel.h"

namespace lamina {
namespace {

using testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(60);  // only a broken test waits so long
constexpr uint64_t kEpoch = 77;
const std::string kToken = "the right token!";

class MemoryNodeTest : public testing::Test {
 protected:
  void SetUp() override {
    MemoryNodeOptions options;
    options.memory_bytes = int64_t{1} << 20;
    options.num_threads = 1;
    node_ = std::move(*MemoryNode::Create(options));
    thread_ = std::thread([this] { node_->Run(); });
    manager_ = std::move(*ConnectControl(node_->address(), {.hello = "manager"}, Deadline::After(kPatience)));
    manager_->Start({.on_frame = [this](ControlFrame frame) { answers_.Push(std::move(frame)); }, .on_lost = {}});
  }
  void TearDown() override {
    node_->Stop();
    thread_.join();
  }

  control::Configured Configure(const std::string& token) {
    control::ConfigureMemory request;
    request.set_epoch(kEpoch);
    request.add_fabrics("tcp");
    request.set_session_token(token);
    control::AttentionSpec& spec = *request.mutable_attention();
    spec.set_num_layers(1);
    spec.set_num_heads(2);
    spec.set_num_kv_heads(1);
    spec.set_head_dim(8);
    request.mutable_limits()->set_max_num_seqs(kWire.max_rows);
    EXPECT_TRUE(manager_->Send(control::CONFIGURE_MEMORY, request.SerializeAsString()).ok());
    pollfd entry{answers_.fd(), POLLIN, 0};
    poll(&entry, 1, 60'000);
    control::Configured answer;
    const std::optional<ControlFrame> frame = answers_.TryPop();
    EXPECT_TRUE(frame && frame->type == control::CONFIGURED && answer.ParseFromString(frame->payload));
    return answer;
  }

  // Nothing, or that the node closed the connection.
  static bool IsLost(Endpoint& endpoint) {
    std::array<Event, 4> events;
    const size_t count = endpoint.Poll(events);
    return count > 0 && events[count - 1].kind == Event::Kind::kPeerLost;
  }

  static constexpr WireShape kWire{2, 1, 8, DType::kF32, 4};
  Inbox<ControlFrame> answers_;
  std::unique_ptr<MemoryNode> node_;
  std::thread thread_;
  std::unique_ptr<ControlConnection> manager_;
};

TEST_F(MemoryNodeTest, OnlyWhoShowsTheSessionsTokenStaysOnTheDataPath) {
  const control::Configured ready = Configure(kToken);
  ASSERT_EQ(ready.status(), 0u) << ready.message();
  const std::unique_ptr<Fabric> fabric = std::move(*OpenFabric("tcp"));
  const auto connect = [&](const DataHello& hello) {
    return std::move(*fabric->Connect(ready.offers().substr(std::string("tcp=").size()), {kWire.compute_window_bytes(), hello.Encode()},
                                      Deadline::After(kPatience)));
  };
  const std::unique_ptr<Endpoint> member = connect({kEpoch, 1, kToken});
  EXPECT_THAT(member->peer_hello(), testing::Not(HasSubstr(kToken))) << "strangers read it";
  for (const DataHello& hello :
       {DataHello{kEpoch, 1, ""}, DataHello{kEpoch, 1, "the wrong token!"}, DataHello{kEpoch + 1, 1, kToken}, DataHello{0, 0, "x"}}) {
    const std::unique_ptr<Endpoint> stranger = connect(hello);
    const Deadline deadline = Deadline::After(kPatience);
    while (!IsLost(*stranger)) ASSERT_FALSE(deadline.Passed());
  }
  EXPECT_FALSE(IsLost(*member));
}

TEST_F(MemoryNodeTest, ASessionNeedsAToken) {
  for (const std::string& token : {std::string(), std::string("short"), std::string(17, 'x')}) {
    const control::Configured answer = Configure(token);
    EXPECT_EQ(answer.status(), static_cast<uint32_t>(StatusCode::kInvalidArgument));
    EXPECT_THAT(answer.message(), HasSubstr("session token of " + std::to_string(token.size()) + " bytes, expected 16"));
  }
  EXPECT_EQ(Configure(kToken).status(), 0u);
}

}  // namespace
}  // namespace lamina
