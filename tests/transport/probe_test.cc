#include "transport/probe.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/transport/fabric_pair.h"

namespace lamina {
namespace {

// A peer that says it is a probe, and how the other end takes what it does.
class AnswerProbeTest : public ::testing::Test {
 protected:
  void Answer(Deadline deadline) {
    ASSERT_TRUE(answering_->Listen("127.0.0.1").ok());
    answered_ = std::async(std::launch::async,
                           [this, deadline] { return AnswerProbe(*answering_, deadline); });
    Result<Path> path = prober_->Connect(answering_->offers(), {64, "lamina probe 1"}, deadline);
    ASSERT_TRUE(path.ok()) << path.status();
    path_ = std::move(*path);
  }
  bool IsAnswered() {
    return answered_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  const std::unique_ptr<Ladder> answering_ = *Ladder::Open(std::vector<std::string>{"shm"});
  const std::unique_ptr<Ladder> prober_ = *Ladder::Open(std::vector<std::string>{"shm"});
  Path path_;
  std::future<Status> answered_;
};

TEST_F(AnswerProbeTest, WhoNeverStopsIsAnsweredUntilTheDeadline) {
  Answer(Deadline::After(std::chrono::seconds(3)));
  Inbound inbound;
  size_t num_posted = 0;
  EXPECT_TRUE(Until([this] { return IsAnswered(); },
                    [&] {
                      if (num_posted < inbound.notifications.size() + 4 &&
                          path_.endpoint->Post({}, 1, 1).ok())
                        ++num_posted;
                      inbound.PollOnce(*path_.endpoint);
                    }));
  EXPECT_EQ(answered_.get().code(), StatusCode::kTimeout);
}

TEST_F(AnswerProbeTest, WhoDoesNotWaitForAnswersIsRefused) {
  Answer(Deadline::After(kPatience));
  Inbound inbound;
  EXPECT_TRUE(Until([this] { return IsAnswered(); },
                    [&] {
                      for (int i = 0; i < 64; ++i) (void)path_.endpoint->Post({}, 1, 1);
                      inbound.PollOnce(*path_.endpoint);
                    }));
  EXPECT_EQ(answered_.get().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace lamina
