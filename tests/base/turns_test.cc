#include "base/turns.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace lamina {
namespace {

using std::chrono::seconds;

constexpr TimePoint kStart{seconds(100)};

// What a procedure waits for, and how long it waits.
struct Answer {
  std::optional<int> number;
  Clock::duration patience = seconds(5);
};

Procedure<Result<int>> Await(Turns& turns, Answer& answer) {
  const TimePoint latest = turns.now() + answer.patience;
  while (!answer.number) {
    if (turns.now() >= latest) co_return TimedOut("no answer");
    co_await turns.Next(latest);
  }
  co_return *answer.number;
}

// Of both, one after the other.
Procedure<Result<int>> AwaitSum(Turns& turns, Answer& first, Answer& second) {
  const Result<int> a = co_await Await(turns, first);
  LAMINA_CO_RETURN_IF_ERROR(a.status());
  LAMINA_CO_ASSIGN_OR_RETURN(const int b, co_await Await(turns, second));
  co_return *a + b;
}

TEST(Turns, AProcedureGoesOnWhenWhatItWaitsForIsThere) {
  Turns turns(kStart);
  Answer first, second;
  Procedure<Result<int>> sum = AwaitSum(turns, first, second);
  sum.Start();
  turns.Turn(kStart + seconds(1));
  EXPECT_FALSE(sum.done());
  EXPECT_EQ(turns.next(), kStart + seconds(5));
  first.number = 3;
  turns.Turn(kStart + seconds(2));
  EXPECT_FALSE(sum.done());
  EXPECT_EQ(turns.next(), kStart + seconds(7)) << "it waits for the second from now on";
  second.number = 4;
  turns.Turn(kStart + seconds(7));
  ASSERT_TRUE(sum.done());
  const Result<int> result = sum.TakeResult();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, 7);
}

TEST(Turns, AProcedureEndsAtItsDeadlineAndNotBefore) {
  Turns turns(kStart);
  Answer first, second;
  first.number = 3;
  Procedure<Result<int>> sum = AwaitSum(turns, first, second);
  sum.Start();
  turns.Turn(turns.next() - std::chrono::nanoseconds(1));
  EXPECT_FALSE(sum.done());
  turns.Turn(kStart + seconds(5));
  ASSERT_TRUE(sum.done());
  EXPECT_EQ(sum.TakeResult().status().code(), StatusCode::kTimeout);
}

TEST(Turns, WhatIsThereIsNotWaitedFor) {
  Turns turns(kStart);
  Answer first, second;
  first.number = second.number = 1;
  Procedure<Result<int>> sum = AwaitSum(turns, first, second);
  sum.Start();
  EXPECT_TRUE(sum.done());
}

TEST(Turns, AProcedureThatIsDestroyedGivesBackWhatItHolds) {
  const auto held = std::make_shared<std::string>("a connection");
  Turns turns(kStart);
  const auto hold = [](Turns& of, std::shared_ptr<std::string> holds) -> Procedure<size_t> {
    co_await of.Next(TimePoint::max());
    co_return holds->size();
  };
  {
    Procedure<size_t> holder = hold(turns, held);
    holder.Start();
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Turns, ATaskHasTurnsOfItsOwnAndTellsOnceWhatCameOfIt) {
  Task<Result<int>> task;
  EXPECT_EQ(task.next(), TimePoint::max()) << "none runs";
  EXPECT_FALSE(task.Turn(kStart).has_value());
  Answer answer;
  const auto begin = [&](Turns& turns) { return Await(turns, answer); };
  task.Start(kStart, begin);
  EXPECT_EQ(task.next(), kStart + seconds(5));
  EXPECT_FALSE(task.Turn(kStart + seconds(1)).has_value());
  answer.number = 3;
  const std::optional<Result<int>> result = task.Turn(kStart + seconds(2));
  ASSERT_TRUE(result.has_value() && result->ok());
  EXPECT_EQ(**result, 3);
  EXPECT_EQ(task.next(), TimePoint::max());

  task.Start(kStart, begin);
  EXPECT_EQ(task.next(), kStart) << "it is over, and that is to be told";
  EXPECT_TRUE(task.Turn(kStart).has_value());
  answer.number = std::nullopt;
  task.Start(kStart, begin);
  task.Drop();
  EXPECT_EQ(task.next(), TimePoint::max());
}

}  // namespace
}  // namespace lamina
