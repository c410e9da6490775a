// The probe between two hosts, on this one.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/doctor_fixture.h"
#include "transport/connecting.h"
#include "transport/probe.h"

namespace lamina::testing {
namespace {

TEST_F(Doctor, AProbeMeasuresThisHost) {
  for (const char* kind : {"shm", "tcp"}) {
    const std::vector<std::string> kinds = {kind};
    const std::unique_ptr<Ladder> answering = std::move(*Ladder::Open(kinds)),
                                  measuring = std::move(*Ladder::Open(kinds));
    ASSERT_TRUE(answering->Listen("127.0.0.1").ok());
    Status answered;
    std::thread thread(
        [&] { answered = AnswerProbe(*answering, Deadline::After(std::chrono::seconds(30))); });
    const Result<ProbeResult> result =
        Probe(*measuring, answering->offers(), std::chrono::milliseconds(200),
              Deadline::After(std::chrono::seconds(30)));
    thread.join();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(answered.ok()) << answered;
    EXPECT_EQ(result->fabric, kind);
    EXPECT_GT(result->latency_us, 0.02);
    EXPECT_GT(result->bytes_per_second, 1e6);
    EXPECT_LT(result->bytes_per_second, 1e12);
  }
}

// How an end of a probe waits. Thread: the end's.
struct Waits {
  int64_t num_idle_polls = 0;
  // In vain, since it last got something or slept.
  std::optional<TimePoint> polling_since;
  Clock::duration shortest = Clock::duration::max();  // that it polled in vain before it slept
};

// A fabric that watches how its owner waits, around one that does the work.
class WatchedEndpoint final : public Endpoint {
 public:
  WatchedEndpoint(std::unique_ptr<Endpoint> inner, Waits& waits)
      : inner_(std::move(inner)), waits_(waits) {}
  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override {
    return inner_->Post(ops, notify, tag);
  }
  size_t Poll(std::span<Event> out) override {
    const size_t count = inner_->Poll(out);
    waits_.num_idle_polls += count == 0;
    if (count > 0) {
      waits_.polling_since.reset();
    } else if (!waits_.polling_since) {
      waits_.polling_since = Clock::now();
    }
    return count;
  }
  std::span<std::byte> window() override { return inner_->window(); }
  uint64_t peer_window_bytes() const override { return inner_->peer_window_bytes(); }
  const std::string& peer_hello() const override { return inner_->peer_hello(); }
  const std::string& peer_name() const override { return inner_->peer_name(); }
  std::string last_error() const override { return inner_->last_error(); }

 private:
  const std::unique_ptr<Endpoint> inner_;
  Waits& waits_;
};

Result<std::unique_ptr<Endpoint>> Watch(Result<std::unique_ptr<Endpoint>> inner, Waits& waits) {
  if (!inner.ok()) return inner;
  return std::unique_ptr<Endpoint>(std::make_unique<WatchedEndpoint>(std::move(*inner), waits));
}

class WatchedListener final : public Listener {
 public:
  WatchedListener(std::unique_ptr<Listener> inner, Waits& waits)
      : inner_(std::move(inner)), waits_(waits) {}
  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) override {
    return Watch(inner_->Accept(options), waits_);
  }
  const std::string& address() const override { return inner_->address(); }

 private:
  const std::unique_ptr<Listener> inner_;
  Waits& waits_;
};

class WatchedFabric final : public Fabric {
 public:
  WatchedFabric(std::unique_ptr<Fabric> inner, Waits& waits)
      : inner_(std::move(inner)), waits_(waits) {}
  std::string_view name() const override { return inner_->name(); }
  const Limits& limits() const override { return inner_->limits(); }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, inner_->Listen(address));
    return std::unique_ptr<Listener>(
        std::make_unique<WatchedListener>(std::move(listener), waits_));
  }
  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override {
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Connecting> connecting,
                            inner_->StartConnect(address, options, deadline));
    return WithOutcome(std::move(connecting), [this](Result<std::unique_ptr<Endpoint>> endpoint) {
      return Watch(std::move(endpoint), waits_);
    });
  }
  bool Arm() override {  // who is about to sleep calls it
    if (waits_.polling_since)
      waits_.shortest = std::min(waits_.shortest, Clock::now() - *waits_.polling_since);
    waits_.polling_since.reset();
    return inner_->Arm();
  }
  int event_fd() const override { return inner_->event_fd(); }

 private:
  const std::unique_ptr<Fabric> inner_;
  Waits& waits_;
};

std::unique_ptr<Ladder> WatchedLadder(Waits& waits) {
  std::vector<std::unique_ptr<Fabric>> fabrics;
  fabrics.push_back(std::make_unique<WatchedFabric>(std::move(*OpenFabric("shm")), waits));
  return std::make_unique<Ladder>(std::move(fabrics));
}

// A sleeper takes 10 us and more to wake. An end that got no answer for long may sleep, as on a
// machine that is busy otherwise, but only after it has polled: for a sixteenth of its patience of
// 1 ms, or until another took its core for 200 us. Load makes both longer.
TEST_F(Doctor, AProbesLatencyIsNotThatOfWakingUp) {
  for (const auto duration : {std::chrono::milliseconds(1), std::chrono::milliseconds(100)}) {
    Waits answerer, measurer;
    const std::unique_ptr<Ladder> answering = WatchedLadder(answerer),
                                  measuring = WatchedLadder(measurer);
    ASSERT_TRUE(answering->Listen("127.0.0.1").ok());
    std::thread thread(
        [&] { (void)AnswerProbe(*answering, Deadline::After(std::chrono::seconds(30))); });
    const Result<ProbeResult> result =
        Probe(*measuring, answering->offers(), duration, Deadline::After(std::chrono::seconds(30)));
    thread.join();
    ASSERT_TRUE(result.ok()) << result.status();
    for (const Waits& waits : {answerer, measurer}) {
      EXPECT_GT(waits.num_idle_polls, 0);
      EXPECT_GE(waits.shortest, std::chrono::microseconds(50));
    }
  }
}

}  // namespace
}  // namespace lamina::testing
