// What transport.h promises, for every fabric: data, order, limits, back-pressure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "tests/transport/conformance.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_P(FabricConformance, HellosWindowsAndNames) {
  pair_.Connect(pair_.server, pair_.client, {4096, "I serve"},
                {100, std::string(kMaxHelloBytes, 'c')});
  ASSERT_TRUE(pair_.server && pair_.client);
  EXPECT_EQ(pair_.client->peer_hello(), "I serve");
  EXPECT_EQ(pair_.server->peer_hello(), std::string(kMaxHelloBytes, 'c'));
  EXPECT_EQ(pair_.client->peer_window_bytes(), 4096u);
  EXPECT_EQ(pair_.server->peer_window_bytes(), 100u);
  EXPECT_EQ(pair_.server->window().size(), 4096u);
  EXPECT_EQ(pair_.client->window().size(), 100u);
  EXPECT_THAT(pair_.client->peer_name(), HasSubstr(pair_.listener->address()));
  EXPECT_FALSE(pair_.server->peer_name().empty());
  EXPECT_EQ(pair_.client->last_error(), "");
  for (std::byte b : pair_.server->window()) EXPECT_EQ(b, std::byte{0});
}

TEST_P(FabricConformance, EmptyHelloAndWindow) {
  pair_.Connect(pair_.server, pair_.client, {}, {});
  ASSERT_TRUE(pair_.server && pair_.client);
  EXPECT_EQ(pair_.client->peer_window_bytes(), 0u);
  PostSoon({}, 7, 1);
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty(); }, [&] { PollBoth(); }));
  EXPECT_THAT(at_server_.notifications, ElementsAre(7u));
}

TEST_P(FabricConformance, RefusesOptionsBeyondItsLimits) {
  const EndpointOptions long_hello{0, std::string(kMaxHelloBytes + 1, 'x')};
  const EndpointOptions large_window{pair_.client_fabric->limits().max_window_bytes + 1, ""};
  for (const EndpointOptions& options : {long_hello, large_window}) {
    EXPECT_EQ(pair_.listener->Accept(options).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(
        pair_.client_fabric->Connect(pair_.listener->address(), options, Deadline::After(kPatience))
            .status()
            .code(),
        StatusCode::kInvalidArgument);
  }
}

TEST_P(FabricConformance, AllocatesZeroedPages) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, size_t{3} << 20}) {
    auto buffer = pair_.client_fabric->Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_GE((*buffer)->bytes().size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->bytes().data()) % 4096, 0u);
    EXPECT_EQ(std::accumulate((*buffer)->bytes().begin(), (*buffer)->bytes().end(), 0,
                              [](int sum, std::byte b) { return sum + std::to_integer<int>(b); }),
              0);
  }
}

TEST_P(FabricConformance, WhatIsBuiltInThePeersWindowNeedsNoCopy) {
  pair_.Connect(8192);
  const std::span<std::byte> window = pair_.client->peer_window();
  if (window.empty()) GTEST_SKIP() << GetParam() << " cannot write it without a post";
  ASSERT_EQ(window.size(), 8192u);
  const auto data = Pattern(5000, 3);
  std::copy(data.begin(), data.end(), window.begin() + 100);
  const WriteOp op{window.subspan(100, data.size()), 100};
  PostSoon({&op, 1}, 9, 1);
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty(); }, [&] { PollBoth(); }));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), pair_.server->window().begin() + 100));
}

TEST_P(FabricConformance, BytesAreThereWhenTheNotificationIs) {
  constexpr size_t kWindow = size_t{9} << 20;
  pair_.Connect(kWindow);
  const std::vector<size_t> sizes = {0,  1,    2,    3,     7,     63,      64,
                                     65, 4095, 4097, 65535, 65537, 1000003, size_t{8} << 20};
  uint32_t value = 100;
  for (const size_t bytes : sizes) {
    const auto data = Pattern(bytes, value);
    const uint64_t offset = (kWindow - bytes) / 3;
    const WriteOp op{Source(data), offset};
    PostSoon({&op, 1}, value, value);
    const size_t expected = at_server_.notifications.size() + 1;
    ASSERT_TRUE(
        Until([&] { return at_server_.notifications.size() >= expected; }, [&] { PollBoth(); }))
        << bytes;
    EXPECT_EQ(at_server_.notifications.back(), value);
    EXPECT_TRUE(std::equal(data.begin(), data.end(),
                           pair_.server->window().begin() + static_cast<ptrdiff_t>(offset)))
        << bytes;
    ++value;
  }
  ASSERT_TRUE(Until([&] { return at_client_.sent.size() == sizes.size(); }, [&] { PollBoth(); }));
  EXPECT_EQ(at_client_.sent.front(), 100u);
  EXPECT_TRUE(at_client_.sent_lost.empty());
}

TEST_P(FabricConformance, ManyOpsInOnePost) {
  const size_t max_ops = pair_.client_fabric->limits().max_ops;
  pair_.Connect(max_ops * 100);
  std::vector<WriteOp> ops;
  std::vector<std::vector<std::byte>> data;
  for (size_t i = 0; i < max_ops; ++i) {
    data.push_back(Pattern(i % 5 == 0 ? 0 : 1 + i % 99, static_cast<uint32_t>(i)));
    ops.push_back({Source(data.back()), (max_ops - 1 - i) * 100});
  }
  PostSoon(ops, 1, 1);
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty(); }, [&] { PollBoth(); }));
  for (size_t i = 0; i < max_ops; ++i) {
    EXPECT_TRUE(std::equal(data[i].begin(), data[i].end(),
                           pair_.server->window().subspan(ops[i].peer_offset).begin()))
        << i;
  }
  ops.push_back({});
  EXPECT_EQ(pair_.client->Post(ops, 2, 2).code(), StatusCode::kInvalidArgument);
}

TEST_P(FabricConformance, LaterOpsOverwriteEarlierOnes) {
  pair_.Connect(1000);
  const auto first = Pattern(1000, 1), second = Pattern(500, 2);
  const std::array<WriteOp, 2> ops = {WriteOp{Source(first), 0}, WriteOp{Source(second), 250}};
  PostSoon(ops, 1, 1);
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty(); }, [&] { PollBoth(); }));
  EXPECT_EQ(std::memcmp(pair_.server->window().data() + 250, second.data(), 500), 0);
  EXPECT_EQ(std::memcmp(pair_.server->window().data() + 750, first.data() + 750, 250), 0);
}

TEST_P(FabricConformance, PostsWithoutNotificationAreVisibleWithTheNextOne) {
  pair_.Connect(4096);
  const auto data = Pattern(4096, 5);
  for (uint64_t i = 0; i < 4; ++i) {
    const WriteOp op{Source({data.begin() + static_cast<ptrdiff_t>(i * 1024),
                             data.begin() + static_cast<ptrdiff_t>((i + 1) * 1024)}),
                     i * 1024};
    PostSoon({&op, 1}, std::nullopt, i);
  }
  PostSoon({}, 9, 4);
  ASSERT_TRUE(
      Until([&] { return !at_server_.notifications.empty() && at_client_.sent.size() == 5; },
            [&] { PollBoth(); }));
  EXPECT_THAT(at_server_.notifications, ElementsAre(9u));
  EXPECT_THAT(at_client_.sent, ElementsAre(0u, 1u, 2u, 3u, 4u));
  EXPECT_EQ(std::memcmp(pair_.server->window().data(), data.data(), data.size()), 0);
}

TEST_P(FabricConformance, RejectsWritesOutsideTheWindow) {
  pair_.Connect(100);
  const auto data = Pattern(101, 1);
  const std::span<std::byte> source = Source(data);
  const std::vector<WriteOp> bad = {{source, 0},
                                    {source.first(1), 100},
                                    {source.first(0), 101},
                                    {source.first(50), 51},
                                    {source.first(2), ~uint64_t{0}}};
  for (const WriteOp& op : bad) {
    const std::array<WriteOp, 2> ops = {WriteOp{source.first(1), 0}, op};
    const Status status = pair_.client->Post(ops, 1, 1);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("100 bytes"));
  }
  const WriteOp good{source.first(100), 0};
  PostSoon({&good, 1}, 2, 2);
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty() && !at_client_.sent.empty(); },
                    [&] { PollBoth(); }));
  EXPECT_THAT(at_server_.notifications, ElementsAre(2u));  // nothing of the bad ones was posted
  EXPECT_THAT(at_client_.sent, ElementsAre(2u));
}

TEST_P(FabricConformance, BackPressureLosesNothing) {
  constexpr size_t kBytes = size_t{64} << 10;
  constexpr uint32_t kPosts = 3000;
  pair_.Connect(kBytes);
  const std::span<std::byte> source = Source(Pattern(kBytes, 3));
  uint32_t posted = 0;
  bool pushed_back = false;
  const auto post_all = [&] {
    for (; posted < kPosts; ++posted) {
      const WriteOp op{source.first(posted % 100 == 0 ? kBytes : 8), 0};
      const Status status = pair_.client->Post({&op, 1}, posted, posted);
      if (status.code() == StatusCode::kTryAgain) {
        pushed_back = true;
        return;
      }
      ASSERT_TRUE(status.ok()) << status;
    }
  };
  post_all();  // nobody polls: the limit is finite
  EXPECT_TRUE(pushed_back);
  ASSERT_TRUE(Until(
      [&] { return at_server_.notifications.size() == kPosts && at_client_.sent.size() == kPosts; },
      [&] {
        PollBoth();
        post_all();
      }));
  for (uint32_t i = 0; i < kPosts; ++i) {
    ASSERT_EQ(at_server_.notifications[i], i);
    ASSERT_EQ(at_client_.sent[i], i);
  }
  PollBoth();
  EXPECT_EQ(at_server_.num_events() + at_client_.num_events(), 2 * kPosts);
}

TEST_P(FabricConformance, PollFillsAnyNumberOfEvents) {
  pair_.Connect(0);
  for (uint32_t i = 0; i < 20; ++i) PostSoon({}, i, i);
  EXPECT_EQ(at_client_.PollOnce(*pair_.client, 0), 0u);
  EXPECT_EQ(at_client_.PollOnce(*pair_.client, 1), 1u);
  ASSERT_TRUE(Until([&] { return at_server_.notifications.size() == 20; },
                    [&] {
                      EXPECT_LE(at_server_.PollOnce(*pair_.server, 3), 3u);
                      at_client_.PollOnce(*pair_.client, 1);
                    }));
  ASSERT_TRUE(Until([&] { return at_client_.sent.size() == 20; }, [&] { PollBoth(); }));
}

INSTANTIATE_TEST_SUITE_P(Fabrics, FabricConformance, ::testing::ValuesIn(ConformingFabrics()),
                         NameOfFabric);

TEST(OpenFabric, NamesTheKindsThereAre) {
  const Status status = OpenFabric("pigeon").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("pigeon"));
  EXPECT_THAT(status.message(), HasSubstr("tcp, shm, verbs, ucx and loopback"));
}

}  // namespace
}  // namespace lamina
