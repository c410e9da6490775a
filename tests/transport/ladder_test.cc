#include "transport/ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/transport/fabric_pair.h"

namespace lamina {
namespace ladder_test {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<Ladder> Open(std::vector<std::string> kinds) {
  Result<std::unique_ptr<Ladder>> ladder = Ladder::Open(kinds);
  if (!ladder.ok()) throw std::runtime_error(ladder.status().ToString());
  return std::move(*ladder);
}

// Connects `client` to `offers` while `server` accepts; the accepted side's path is put into
// `accepted`.
Result<Path> Join(Ladder& server, Ladder& client, const std::string& offers,
                  Path* accepted = nullptr) {
  std::atomic<bool> done = false;
  std::thread acceptor([&] {
    while (!done) {
      Result<Path> path = server.Accept({64, "server"});
      if (path.ok() && accepted != nullptr) *accepted = std::move(*path);
      std::this_thread::yield();
    }
  });
  Result<Path> path = client.Connect(offers, {128, "client"}, Deadline::After(seconds(10)));
  done = true;
  acceptor.join();
  return path;
}

TEST(LadderKinds, AutoIsAllAndANameIsThatOneAlone) {
  EXPECT_THAT(*LadderKinds("auto", false), ElementsAre("shm", "verbs", "ucx", "tcp"));
  EXPECT_THAT(*LadderKinds("verbs", false), ElementsAre("verbs"));
  EXPECT_THAT(*LadderKinds("ucx", true), ElementsAre("ucx", "shm", "verbs", "tcp"));
  EXPECT_THAT(LadderKinds("pigeon", false).status().message(),
              AllOf(HasSubstr("pigeon"), HasSubstr("verbs, ucx, shm and tcp")));
}

TEST(Ladder, NoMoreKindsAreOpenedThanThereAre) {
  const std::vector<std::string> many(10'000, "tcp");
  EXPECT_EQ(Ladder::Open(many).status().code(), StatusCode::kInvalidArgument);
}

TEST(Ladder, AKindIsNamedOnce) {
  const std::vector<std::string> twice = {"tcp", "shm", "tcp"};
  const Status status = Ladder::Open(twice).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("\"tcp\" is named twice"));
}

// A fabric whose listener can accept nobody any more.
class Exhausted final : public Fabric {
 public:
  std::string_view name() const override { return "exhausted"; }
  const Limits& limits() const override { return inner_->limits(); }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  Result<std::unique_ptr<Listener>> Listen(const std::string& /*address*/) override {
    return std::unique_ptr<Listener>(std::make_unique<Refusing>());
  }
  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override {
    return inner_->StartConnect(address, options, deadline);
  }
  bool Arm() override { return inner_->Arm(); }
  int event_fd() const override { return inner_->event_fd(); }

 private:
  class Refusing final : public Listener {
   public:
    Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& /*options*/) override {
      return OutOfSpace("no descriptors");
    }
    const std::string& address() const override { return address_; }

   private:
    const std::string address_ = "nowhere:1";
  };

  const std::unique_ptr<Fabric> inner_ = *OpenFabric("tcp");
};

TEST(Ladder, OneThatCannotAcceptDoesNotKeepPeersFromTheOthers) {
  std::vector<std::unique_ptr<Fabric>> fabrics;
  fabrics.push_back(std::make_unique<Exhausted>());
  fabrics.push_back(*OpenFabric("tcp"));
  Ladder server(std::move(fabrics));
  ASSERT_TRUE(server.Listen("127.0.0.1").ok());
  EXPECT_EQ(server.Accept({64, ""}).status().code(), StatusCode::kOutOfSpace) << "nobody is there";
  const std::unique_ptr<Ladder> client = Open({"tcp"});
  const Result<Path> path = Join(server, *client, server.offers());
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(path->fabric->name(), "tcp");
}

TEST(Ladder, OneHostTakesSharedMemoryAndBytesFlow) {
  const std::vector<std::string> kinds = *LadderKinds("auto", false);
  const auto server = Open(kinds), client = Open(kinds);
  ASSERT_TRUE(server->Listen("127.0.0.1").ok());
  EXPECT_THAT(server->offers(), AllOf(HasSubstr("shm=lamina-"), HasSubstr("tcp=127.0.0.1:")));
  Path accepted;
  Result<Path> path = Join(*server, *client, server->offers(), &accepted);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(path->fabric->name(), "shm");
  EXPECT_EQ(accepted.fabric->name(), "shm");
  EXPECT_EQ(path->endpoint->peer_hello(), "server");
  EXPECT_THAT(RefusalText(path->refused), Not(HasSubstr("shm: ")));

  const std::unique_ptr<Buffer> buffer = *path->fabric->Allocate(5);
  std::memcpy(buffer->bytes().data(), "hello", 5);
  const WriteOp write{buffer->bytes().first(5), 3};
  ASSERT_TRUE(path->endpoint->Post({&write, 1}, 42, 1).ok());
  const Deadline deadline = Deadline::After(seconds(10));
  std::array<Event, 4> events;
  size_t count = 0;
  while ((count = accepted.endpoint->Poll(events)) == 0 && !deadline.Passed())
    server->Sleep({}, deadline);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(events[0].value, 42u);
  EXPECT_EQ(std::memcmp(accepted.endpoint->window().data() + 3, "hello", 5), 0);
}

TEST(Ladder, OneThatWasNamedIsTakenOnOneHostTooIfItWorks) {
  const std::vector<std::string> kinds = *LadderKinds("tcp", true);
  const auto server = Open(kinds), client = Open(kinds);
  ASSERT_TRUE(server->Listen("127.0.0.1").ok());
  const Result<Path> path = Join(*server, *client, server->offers());
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(path->fabric->name(), "tcp");
}

TEST(Ladder, AnotherHostTakesTheNextRungAndSaysWhy) {
  const auto server = Open({"shm", "tcp"}), client = Open({"shm", "tcp"});
  ASSERT_TRUE(server->Listen("127.0.0.1").ok());
  std::string offers = server->offers();
  const size_t at = offers.find('@');
  offers.replace(at + 1, offers.find(',', at) - at - 1, "another-boot.1");
  const Result<Path> path = Join(*server, *client, offers);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(path->fabric->name(), "tcp");
  EXPECT_EQ(RefusalText(path->refused), "shm: the other node is on another host");
}

TEST(Ladder, AFabricThatFailsIsPassedOver) {
  const auto server = Open({"shm", "tcp"}), client = Open({"shm", "tcp"});
  ASSERT_TRUE(server->Listen("127.0.0.1").ok());
  std::string offers = server->offers();
  offers.replace(offers.find("shm=") + 4, 6, "nobody");  // the name of a listener that is not there
  const Result<Path> path = Join(*server, *client, offers);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(path->fabric->name(), "tcp");
  EXPECT_THAT(RefusalText(path->refused), HasSubstr("shm: "));
}

TEST(Ladder, APathThatIsGivenUpLeavesNothingBehind) {
  const std::string rdma = Variable("LAMINA_TEST_RDMA_ADDR");
  for (const std::string& kind : WithRdma({"shm", "tcp"})) {
    const auto server = Open({kind}), client = Open({kind});
    ASSERT_TRUE(server->Listen(kind == "verbs" && !rdma.empty() ? rdma : "127.0.0.1").ok());
    // What a fabric keeps from its first connection is there after it.
    EXPECT_TRUE(Join(*server, *client, server->offers()).ok());
    const size_t before = NumOpenDescriptors();
    for (int steps = 0; steps < 6; ++steps) {
      SCOPED_TRACE(kind + ", given up after " + std::to_string(steps) + " steps");
      auto connecting =
          *client->StartConnect(server->offers(), {128, "client"}, Deadline::After(seconds(10)));
      Path connected, accepted;
      for (int i = 0; i < steps && connected.endpoint == nullptr; ++i) {
        Result<Path> path = i % 2 == 0 ? connecting->Poll() : server->Accept({64, "server"});
        if (path.ok()) (i % 2 == 0 ? connected : accepted) = *std::move(path);
      }
      connecting.reset();
      connected.endpoint.reset();
      accepted.endpoint.reset();
      EXPECT_TRUE(Until([&] { return NumOpenDescriptors() <= before; },
                        [&] {
                          (void)server->Accept({64, "server"});
                        }));
      const Result<Path> path = Join(*server, *client, server->offers());
      EXPECT_TRUE(path.ok()) << path.status();
    }
  }
}

TEST(Ladder, OneThatWasNamedIsNotReplaced) {
  const auto server = Open({"tcp"}), client = Open({"shm"});
  ASSERT_TRUE(server->Listen("127.0.0.1").ok());
  const Result<Path> path = client->Connect(server->offers(), {}, Deadline::After(seconds(1)));
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.status().message(), "no data path: shm: the other node does not offer it");
}

TEST(Ladder, UcxIsNotOpenedBehindOthersUnlessDevicesAreNamedForIt) {
  const auto ladder = Open({"shm", "ucx", "tcp"});
  ASSERT_EQ(ladder->missing().size(), 1u);
  EXPECT_EQ(ladder->missing()[0].fabric, "ucx");
  EXPECT_THAT(ladder->missing()[0].why, HasSubstr("LAMINA_UCX_TRUSTED_DEVICES"));
}

TEST(Ladder, WhatThisMachineLacksIsNamed) {
  const std::vector<std::string> kinds = {"pigeon"};
  const Status status = Ladder::Open(kinds).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("pigeon: "));
  const auto ladder = Open({"pigeon", "tcp"});
  ASSERT_EQ(ladder->missing().size(), 1u);
  ASSERT_TRUE(ladder->Listen("127.0.0.1").ok());
  EXPECT_THAT(ladder->offers(), Not(HasSubstr("pigeon")));
}

TEST(Ladder, TextThatIsNoOfferIsRefused) {
  const auto ladder = Open({"tcp"});
  for (const char* text : {"", "tcp", "=x", "10.0.0.1:7000"}) {
    EXPECT_EQ(ladder->Connect(text, {}, Deadline::After(seconds(1))).status().code(),
              StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace ladder_test
}  // namespace lamina
