// Procedures that wait for others without holding up their thread. A procedure is a coroutine that
// reads like a function that waits; its caller gives it one turn after another and tells it the
// time, so that it runs beside others on one thread, and in virtual time.
//
//   Procedure<Status> Greet(Turns& turns, Peer& peer) {
//     const TimePoint latest = turns.now() + kPatience;
//     while (!peer.has_answered()) {
//       if (turns.now() >= latest) co_return TimedOut("no answer");
//       co_await turns.Next(latest);
//     }
//     co_return OkStatus();
//   }
//
//   Turns turns(Clock::now());
//   Procedure<Status> greet = Greet(turns, peer);
//   greet.Start();
//   while (!greet.done()) {
//     SleepUntil(turns.next());  // or until the peer says something
//     turns.Turn(Clock::now());
//   }
//
// Parameters that are references must outlive the procedure. g++ 12 miscompiles co_await in a
// condition: it stands alone in its statement.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

// Return early from a procedure if `expr` failed; the second assigns its value otherwise.
#define LAMINA_CO_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                            \
    if (::lamina::Status lamina_status_ = (expr); !lamina_status_.ok()) co_return lamina_status_; \
  } while (0)
#define LAMINA_CO_ASSIGN_OR_RETURN(lhs, expr) \
  LAMINA_CO_ASSIGN_OR_RETURN_(LAMINA_CONCAT_(lamina_result_, __LINE__), lhs, expr)
#define LAMINA_CO_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                                \
  if (!tmp.ok()) co_return tmp.status();            \
  lhs = std::move(tmp).value()

namespace lamina {

// The turns of one procedure and of those that it awaits. Thread: one at a time.
class Turns {
 public:
  explicit Turns(TimePoint now) : now_(now), next_(now) {}
  Turns(const Turns&) = delete;

  // The time of this turn.
  TimePoint now() const { return now_; }

  // Awaited: the procedure goes on with the next turn, which is due at `by` and may come before.
  auto Next(TimePoint by) {
    struct Wait {
      Turns& turns;
      TimePoint by;
      bool await_ready() const { return false; }
      void await_suspend(std::coroutine_handle<> waits) const {
        turns.waits_ = waits;
        turns.next_ = by;
      }
      void await_resume() const {}
    };
    return Wait{*this, by};
  }

  // When the next turn is due. REQUIRES: the procedure is not over.
  TimePoint next() const { return next_; }

  // Goes on until the procedure waits again or is over. REQUIRES: it waits.
  void Turn(TimePoint now) {
    now_ = now;
    std::exchange(waits_, nullptr).resume();
  }

 private:
  TimePoint now_, next_;
  std::coroutine_handle<> waits_;
};

// A coroutine that returns a T. It begins with Start, or when another procedure awaits it. One that
// is destroyed ends where it waits, with what it holds.
template <typename T>
class Procedure {
 public:
  struct promise_type {
    std::optional<T> result;
    std::coroutine_handle<> awaited_by;  // null: by nobody

    Procedure get_return_object() {
      return Procedure(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    auto final_suspend() const noexcept {
      struct GoOn {
        bool await_ready() const noexcept { return false; }
        std::coroutine_handle<> await_suspend(
            std::coroutine_handle<promise_type> over) const noexcept {
          const std::coroutine_handle<> next = over.promise().awaited_by;
          return next ? next : std::noop_coroutine();
        }
        void await_resume() const noexcept {}
      };
      return GoOn{};
    }
    template <typename Value>
    void return_value(Value&& value) {
      result.emplace(std::forward<Value>(value));
    }
    void unhandled_exception() const { std::terminate(); }  // own code throws nothing
  };

  Procedure(Procedure&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Procedure& operator=(Procedure&&) = delete;
  ~Procedure() {
    if (handle_) handle_.destroy();
  }

  // Runs until it waits or is over. REQUIRES: called once, and nobody awaits it.
  void Start() { handle_.resume(); }
  bool done() const { return handle_.done(); }
  // REQUIRES: done, and called once.
  T TakeResult() { return *std::move(handle_.promise().result); }

  // For co_await: goes on with the result.
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaits) noexcept {
    handle_.promise().awaited_by = awaits;
    return handle_;
  }
  T await_resume() { return TakeResult(); }

 private:
  explicit Procedure(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

// Room for one procedure that runs beside others and has turns of its own. Thread: one at a time.
template <typename T>
class Task {
 public:
  // Begins the procedure that begin(turns) returns. REQUIRES: none runs.
  template <typename Begin>
  void Start(TimePoint now, Begin begin) {
    running_.emplace(now, std::move(begin));
  }

  // When its next turn is due: it was already if the procedure is over. The end of time: none runs.
  TimePoint next() const {
    if (!running_) return TimePoint::max();
    return running_->procedure.done() ? running_->turns.now() : running_->turns.next();
  }

  // Gives it a turn, which may come before it is due. Returns what came of it when it is over; then
  // none runs.
  std::optional<T> Turn(TimePoint now) {
    if (!running_) return std::nullopt;
    if (!running_->procedure.done()) running_->turns.Turn(now);
    if (!running_->procedure.done()) return std::nullopt;
    std::optional<T> result = running_->procedure.TakeResult();
    running_.reset();
    return result;
  }

  // Ends it where it waits, if one runs.
  void Drop() { running_.reset(); }

 private:
  struct Running {
    template <typename Begin>
    Running(TimePoint now, Begin begin) : turns(now), procedure(begin(turns)) {
      procedure.Start();
    }
    Turns turns;
    Procedure<T> procedure;
  };
  std::optional<Running> running_;
};

}  // namespace lamina
