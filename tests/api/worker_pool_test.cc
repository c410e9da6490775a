#include "api/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "base/clock.h"
#include "text/template_ast.h"
#include "text/template_evaluator.h"
#include "text/time_budget.h"

namespace lamina {
namespace {

using std::chrono::seconds;

TEST(TimeBudget, IsOverByTimeOrOnceItsThreadIsToStop) {
  EXPECT_TRUE(TimeBudget(std::chrono::hours(1), "too long").Check().ok());
  const Status over = TimeBudget(seconds(0), "too long").Check();
  EXPECT_EQ(over.code(), StatusCode::kOutOfSpace);
  EXPECT_EQ(over.message(), "too long");
  std::stop_source stop;
  const TimeBudget budget(std::chrono::hours(1), "too long");
  {
    const StopScope scope(stop.get_token());
    EXPECT_TRUE(budget.Check().ok());
    stop.request_stop();
    EXPECT_EQ(budget.Check().code(), StatusCode::kTryAgain);
  }
  EXPECT_TRUE(budget.Check().ok());
}

// Without a word from the pool each would go on for a minute.
TEST(WorkerPool, GoesAwayWhileHostileTemplatesAreRendered) {
  const Result<chat::Block> endless = chat::Parse(
      "{% macro m(a) %}{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% "
      "endfor %}{% endmacro %}{{ m(1) }}");
  ASSERT_TRUE(endless.ok()) << endless.status();
  std::atomic<int> num_begun = 0, num_stopped = 0;
  auto pool = std::make_unique<WorkerPool>(2);
  for (int i = 0; i < 8; ++i) {
    pool->Post([&] {
      ++num_begun;
      chat::RenderLimits limits;
      limits.max_steps = INT64_MAX / 4;
      limits.max_time = seconds(60);
      num_stopped += chat::Render(*endless, {}, limits).status().code() == StatusCode::kTryAgain;
    });
  }
  const Deadline deadline = Deadline::After(seconds(30));
  while (num_begun < 2 && !deadline.Passed()) std::this_thread::yield();
  ASSERT_EQ(num_begun, 2);
  const auto begin = Clock::now();
  pool.reset();
  EXPECT_LT(Clock::now() - begin, seconds(20));
  EXPECT_EQ(num_stopped, 2);
  EXPECT_EQ(num_begun, 2);  // what had not begun is dropped
}

}  // namespace
}  // namespace lamina
