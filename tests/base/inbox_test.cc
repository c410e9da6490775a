#include "base/inbox.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace lamina {
namespace {

bool Readable(int fd, int timeout_ms = 0) {
  pollfd p = {fd, POLLIN, 0};
  return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN) != 0;
}

TEST(WakeFd, IsReadableWhileSignalled) {
  WakeFd wake;
  EXPECT_FALSE(Readable(wake.fd()));
  wake.Signal();
  wake.Signal();
  EXPECT_TRUE(Readable(wake.fd()));
  wake.Clear();
  EXPECT_FALSE(Readable(wake.fd()));
  wake.Clear();  // nothing to clear: does not block
  wake.Signal();
  EXPECT_TRUE(Readable(wake.fd()));
}

TEST(Inbox, GivesItemsBackInOrder) {
  Inbox<int> inbox;
  EXPECT_EQ(inbox.TryPop(), std::nullopt);
  for (int i = 0; i < 5; ++i) inbox.Push(i);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(inbox.TryPop(), i);
  EXPECT_EQ(inbox.TryPop(), std::nullopt);
}

TEST(Inbox, IsReadableWhileItHoldsItems) {
  Inbox<int> inbox;
  EXPECT_FALSE(Readable(inbox.fd()));
  inbox.Push(1);
  inbox.Push(2);
  EXPECT_TRUE(Readable(inbox.fd()));
  inbox.TryPop();
  EXPECT_TRUE(Readable(inbox.fd())) << "one is left";
  inbox.TryPop();
  EXPECT_FALSE(Readable(inbox.fd()));
  inbox.Push(3);
  EXPECT_TRUE(Readable(inbox.fd()));
}

TEST(Inbox, CarriesMoveOnlyItems) {
  Inbox<std::unique_ptr<int>> inbox;
  inbox.Push(std::make_unique<int>(4));
  const auto item = inbox.TryPop();
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(**item, 4);
}

// Several producers, one consumer that sleeps on the descriptor whenever the queue is empty:
// nothing is lost, nothing out of order per producer, and no wake-up is missed (a missed one runs
// into the deadline).
TEST(Inbox, WakesTheConsumerForEveryItem) {
  constexpr int kProducers = 3, kItems = 5000;
  Inbox<std::pair<int, int>> inbox;
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&inbox, p] {
      for (int i = 0; i < kItems; ++i) inbox.Push({p, i});
    });
  }
  std::vector<int> next(kProducers, 0);
  int left = kProducers * kItems;
  const Deadline deadline = Deadline::After(std::chrono::seconds(60));
  while (left > 0 && Readable(inbox.fd(), deadline.RemainingMs())) {
    while (const auto item = inbox.TryPop()) {
      EXPECT_EQ(item->second, next[static_cast<size_t>(item->first)]++);
      --left;
    }
  }
  EXPECT_EQ(left, 0);
  for (std::thread& producer : producers) producer.join();
  EXPECT_FALSE(Readable(inbox.fd()));
}

}  // namespace
}  // namespace lamina
