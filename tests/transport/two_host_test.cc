// A fabric between two hosts: the same program runs on both, as rank 0, which listens, and rank 1,
// which connects. Listed only where LAMINA_TEST_RANK and LAMINA_TEST_PEER (the other host's
// address) are set; tests/softroce/run.sh does that.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/transport/fabric_pair.h"

namespace lamina {
namespace {

constexpr int kFirstPort = 17'700;

class TwoHosts : public ::testing::TestWithParam<std::string> {
 protected:
  TwoHosts() : is_server_(Variable("LAMINA_TEST_RANK") == "0"), port_(++last_port_) {}

  // Opens the fabric and connects to the other host.
  void Meet(uint64_t window_bytes) {
    if (!fabric_) fabric_ = OpenTestFabric(GetParam());
    const EndpointOptions options{window_bytes, is_server_ ? "rank 0" : "rank 1"};
    if (is_server_) {
      if (!listener_)
        listener_ = std::move(fabric_->Listen(Variable("LAMINA_TEST_RDMA_ADDR") + ":" +
                                              std::to_string(port_)))
                        .value();
      endpoint_ = AcceptOne(*fabric_, *listener_, options);
    } else {
      auto made = fabric_->Connect(Variable("LAMINA_TEST_PEER") + ":" + std::to_string(port_),
                                   options, Deadline::After(kPatience));
      EXPECT_TRUE(made.ok()) << made.status();
      endpoint_ = made.ok() ? std::move(made).value() : nullptr;
    }
    inbound_ = {};
    ASSERT_TRUE(endpoint_ != nullptr);
    EXPECT_EQ(endpoint_->peer_hello(), is_server_ ? "rank 1" : "rank 0");
  }

  bool SleepUntil(const std::function<bool()>& done) {
    return Until(done, [&] {
      if (inbound_.PollOnce(*endpoint_) == 0 && !done())
        Sleep(*fabric_, {}, Deadline::After(kPatience));
    });
  }

  bool SleepUntilNotified(size_t count) {
    return SleepUntil(
               [&] { return inbound_.notifications.size() >= count || inbound_.num_lost > 0; }) &&
           inbound_.notifications.size() >= count;
  }

  bool PostSoon(std::span<const WriteOp> ops, uint32_t notify) {
    Status status = TryAgain("not posted yet");
    const auto posted = [&] {  // once: SleepUntil asks again what it has heard already
      if (status.code() == StatusCode::kTryAgain) status = endpoint_->Post(ops, notify, notify);
      return status.code() != StatusCode::kTryAgain;
    };
    return SleepUntil(posted) && status.ok();
  }

  // Whoever waits sees the other end close the connection; before that, both have all they wait
  // for.
  void Part(bool waits) {
    if (waits) {
      EXPECT_TRUE(SleepUntil([&] { return inbound_.num_lost > 0; }));
    } else {
      EXPECT_TRUE(
          SleepUntil([&] { return inbound_.sent.size() == num_posted_ || inbound_.num_lost > 0; }));
    }
    endpoint_.reset();
  }

  static inline int last_port_ = kFirstPort;  // the same on both hosts, as both run the same tests
  const bool is_server_;
  const int port_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Endpoint> endpoint_;
  Inbound inbound_;
  size_t num_posted_ = 0;
};

TEST_P(TwoHosts, BytesAreThereWhenTheNotificationIs) {
  constexpr size_t kWindow = size_t{5} << 20;
  const std::vector<size_t> sizes = {
      0, 1, 3, 63, 64, 65, 1023, 4095, 4096, 4097, 65537, 1000003, size_t{4} << 20};
  ASSERT_NO_FATAL_FAILURE(Meet(kWindow));
  auto buffer = std::move(fabric_->Allocate(kWindow)).value();
  for (uint32_t round = 0; round < sizes.size(); ++round) {
    const auto data = Pattern(sizes[round], round);
    const uint64_t offset = (kWindow - data.size()) / 3;
    if (!is_server_) {
      std::copy(data.begin(), data.end(), buffer->bytes().begin());
      const WriteOp op{buffer->bytes().first(data.size()), offset};
      ASSERT_TRUE(PostSoon({&op, 1}, round)) << endpoint_->last_error();
      ASSERT_TRUE(SleepUntilNotified(round + 1)) << endpoint_->last_error();  // it has been read
    } else {
      ASSERT_TRUE(SleepUntilNotified(round + 1)) << endpoint_->last_error();
      EXPECT_EQ(inbound_.notifications.back(), round);
      EXPECT_TRUE(std::equal(data.begin(), data.end(),
                             endpoint_->window().begin() + static_cast<ptrdiff_t>(offset)))
          << data.size();
      ASSERT_TRUE(PostSoon({}, round)) << endpoint_->last_error();
    }
  }
  num_posted_ = sizes.size();
  Part(!is_server_);
}

// Devices may read a source long after the post: kSent says when they are done.
TEST_P(TwoHosts, ASourceMayChangeOnceItIsSent) {
  constexpr size_t kBytes = size_t{300} << 10;
  constexpr uint32_t kPosts = 40;
  ASSERT_NO_FATAL_FAILURE(Meet(kBytes * kPosts));
  auto buffer = std::move(fabric_->Allocate(kBytes)).value();
  for (uint32_t i = 0; i < kPosts && !is_server_; ++i) {
    const auto data = Pattern(kBytes, i);
    std::copy(data.begin(), data.end(), buffer->bytes().begin());
    const WriteOp op{buffer->bytes(), i * kBytes};
    ASSERT_TRUE(PostSoon({&op, 1}, i)) << endpoint_->last_error();
    ASSERT_TRUE(SleepUntil([&] { return inbound_.sent.size() == i + 1 || inbound_.num_lost > 0; }));
  }
  if (is_server_) {
    ASSERT_TRUE(SleepUntilNotified(kPosts)) << endpoint_->last_error();
    for (uint32_t i = 0; i < kPosts; ++i) {
      const auto data = Pattern(kBytes, i);
      EXPECT_TRUE(std::equal(data.begin(), data.end(),
                             endpoint_->window().begin() + static_cast<ptrdiff_t>(i * kBytes)))
          << i;
    }
  }
  num_posted_ = is_server_ ? 0 : kPosts;
  Part(is_server_);
}

TEST_P(TwoHosts, BackPressureLosesNothing) {
  constexpr uint32_t kPosts = 3000;
  constexpr size_t kBytes = size_t{16} << 10;
  ASSERT_NO_FATAL_FAILURE(Meet(kBytes));
  auto buffer = std::move(fabric_->Allocate(kBytes)).value();
  if (is_server_) {
    ASSERT_TRUE(SleepUntilNotified(kPosts)) << endpoint_->last_error();
    for (uint32_t i = 0; i < kPosts; ++i) ASSERT_EQ(inbound_.notifications[i], i);
  } else {
    for (uint32_t i = 0; i < kPosts; ++i) {
      const WriteOp op{buffer->bytes().first(i % 8 == 0 ? kBytes : i % 50), 0};
      ASSERT_TRUE(PostSoon({&op, 1}, i)) << i << endpoint_->last_error();
    }
    num_posted_ = kPosts;
  }
  Part(is_server_);
  if (!is_server_) {
    for (uint32_t i = 0; i < kPosts; ++i) ASSERT_EQ(inbound_.sent[i], i);
  }
}

TEST_P(TwoHosts, ReconnectsAfterEitherEndCloses) {
  for (uint32_t round = 0; round < 6; ++round) {
    ASSERT_NO_FATAL_FAILURE(Meet(64));
    ASSERT_TRUE(PostSoon({}, round)) << endpoint_->last_error();
    num_posted_ = 1;
    ASSERT_TRUE(SleepUntilNotified(1)) << endpoint_->last_error();
    Part(is_server_ == (round % 2 == 0));
  }
}

// A process of one host is killed while it posts; the other host sees all posts that came, in
// order, and then the loss.
TEST_P(TwoHosts, AKilledPeerIsNoticed) {
  constexpr size_t kBytes = size_t{64} << 10;
  if (!is_server_) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      Meet(64);
      if (!endpoint_) _exit(1);
      auto buffer = std::move(fabric_->Allocate(kBytes)).value();
      const WriteOp op{buffer->bytes(), 0};
      for (uint32_t i = 0;; ++i) {
        if (!PostSoon({&op, 1}, i)) _exit(1);
        inbound_.PollOnce(*endpoint_);
        // once.
        if (inbound_.notifications.size() == 1 && write(ends[1], "x", 1) == 1)
          inbound_.notifications.push_back(0);
      }
    }
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ends[0]);
    close(ends[1]);
    return;
  }
  ASSERT_NO_FATAL_FAILURE(Meet(kBytes));
  ASSERT_TRUE(SleepUntilNotified(50)) << endpoint_->last_error();
  ASSERT_TRUE(endpoint_->Post({}, 1, 1).ok());  // kill now
  const TimePoint start = Clock::now();
  ASSERT_TRUE(SleepUntil([&] { return inbound_.num_lost > 0; }));
  EXPECT_LT(SecondsSince(start), 30);
  for (uint32_t i = 0; i < inbound_.notifications.size(); ++i)
    ASSERT_EQ(inbound_.notifications[i], i);
  EXPECT_FALSE(endpoint_->last_error().empty());
}

// The host that is posted to is killed: every post comes back.
TEST_P(TwoHosts, AKilledPeerGivesEveryTagBack) {
  constexpr size_t kBytes = size_t{256} << 10;
  if (is_server_) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      Meet(kBytes);
      if (!endpoint_) _exit(1);
      if (!SleepUntilNotified(1) || write(ends[1], "x", 1) != 1) _exit(1);
      while (true) pause();
    }
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ends[0]);
    close(ends[1]);
    return;
  }
  ASSERT_NO_FATAL_FAILURE(Meet(64));
  auto buffer = std::move(fabric_->Allocate(kBytes)).value();
  const WriteOp op{buffer->bytes(), 0};
  uint64_t posted = 0;
  while (endpoint_->Post({&op, 1}, 1, posted).ok()) ++posted;
  ASSERT_TRUE(SleepUntil([&] { return inbound_.num_lost > 0; }));
  EXPECT_EQ(inbound_.sent.size() + inbound_.sent_lost.size(), posted);
  EXPECT_FALSE(inbound_.after_lost);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TwoHosts);
INSTANTIATE_TEST_SUITE_P(Fabrics, TwoHosts,
                         ::testing::ValuesIn(Variable("LAMINA_TEST_RANK").empty()
                                                 ? std::vector<std::string>()
                                                 : WithRdma({"tcp"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lamina
