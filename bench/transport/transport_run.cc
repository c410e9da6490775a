#include "bench/transport/transport_run.h"

#include <algorithm>
#include <array>

namespace lamina {
namespace {

constexpr int kTimedTogether = 8;  // round trips between two readings of the clock
constexpr auto kConnectDeadline = std::chrono::seconds(20);

// One end of a case. Both ends poll without sleeping, as nodes do while they have work.
class Player {
 public:
  explicit Player(Endpoint& endpoint) : endpoint_(endpoint) {}

  uint64_t posted() const { return posted_; }
  uint64_t sent() const { return sent_; }
  uint64_t notified() const { return notified_; }
  uint32_t last_value() const { return last_value_; }

  // Posts once the queue takes it.
  Status Post(std::span<const WriteOp> ops, uint32_t value) {
    while (true) {
      Status status = endpoint_.Post(ops, value, posted_);
      if (status.ok()) ++posted_;
      if (status.code() != StatusCode::kTryAgain) return status;
      LAMINA_RETURN_IF_ERROR(PollOnce());
    }
  }

  Status WaitForNotifications(uint64_t count) {
    while (notified_ < count) LAMINA_RETURN_IF_ERROR(PollOnce());
    return OkStatus();
  }

  Status WaitForSent(uint64_t count) {
    while (sent_ < count) LAMINA_RETURN_IF_ERROR(PollOnce());
    return OkStatus();
  }

 private:
  Status PollOnce() {
    const size_t count = endpoint_.Poll(events_);
    for (const Event& event : std::span(events_).first(count)) {
      if (event.kind == Event::Kind::kPeerLost) return PeerLost(endpoint_.last_error());
      if (event.kind == Event::Kind::kSent) ++sent_;
      if (event.kind == Event::Kind::kNotification) {
        ++notified_;
        last_value_ = event.value;
      }
    }
    return OkStatus();
  }

  Endpoint& endpoint_;
  std::array<Event, 64> events_;  // made once: filling it takes as long as a poll
  uint64_t posted_ = 0;
  uint64_t sent_ = 0;
  uint64_t notified_ = 0;
  uint32_t last_value_ = 0;
};

// What the peer of a bandwidth case sends: that the warm-up has arrived, that all has arrived, and
// the verdict on what has arrived.
constexpr uint64_t kBandwidthReplies = 3;
constexpr uint32_t kIntact = 1;

bool HasPattern(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != TransportPattern(i)) return false;
  }
  return true;
}

Result<std::unique_ptr<Buffer>> PatternBuffer(Fabric& fabric, uint64_t bytes) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, fabric.Allocate(bytes));
  for (size_t i = 0; i < bytes; ++i) buffer->bytes()[i] = TransportPattern(i);
  return buffer;
}

// Seconds per round trip of `count` messages; the clock is read once for every `together` of them.
Result<std::vector<double>> TimeRoundTrips(Player& player, const WriteOp& op, int count,
                                           int together) {
  std::vector<double> seconds;
  seconds.reserve(static_cast<size_t>(count / together + 1));
  uint64_t answers = player.notified();
  TimePoint start = Clock::now();
  for (int i = 1; i <= count; ++i) {
    LAMINA_RETURN_IF_ERROR(player.Post({&op, 1}, 0));
    LAMINA_RETURN_IF_ERROR(player.WaitForNotifications(++answers));
    if (i % together != 0) continue;
    const TimePoint end = Clock::now();
    seconds.push_back(std::chrono::duration<double>(end - start).count() / together);
    start = end;
  }
  return seconds;
}

// The median is taken from several round trips at once, as reading the clock takes a quarter as
// long as the fastest of them. The p99 needs each by itself.
Result<TransportSample> MeasureLatency(Player& player, const WriteOp& op,
                                       const TransportCase& test) {
  LAMINA_RETURN_IF_ERROR(TimeRoundTrips(player, op, test.warm_up, 1).status());
  const int first = test.iterations / 2;
  LAMINA_ASSIGN_OR_RETURN(const std::vector<double> together,
                          TimeRoundTrips(player, op, first, kTimedTogether));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<double> singly,
                          TimeRoundTrips(player, op, test.iterations - first, 1));
  return TransportSample{LatencySample(together).value, LatencySample(singly).p99_us};
}

// Sends `count` messages and waits until the peer says that it has them all.
Status SendAll(Player& player, const WriteOp& op, int count) {
  const uint64_t replies = player.notified() + 1;
  for (int i = 0; i < count; ++i) {
    if (player.posted() - player.sent() >= kBandwidthWindow) {
      LAMINA_RETURN_IF_ERROR(player.WaitForSent(player.posted() - kBandwidthWindow + 1));
    }
    LAMINA_RETURN_IF_ERROR(player.Post({&op, 1}, 0));
  }
  return player.WaitForNotifications(replies);
}

Result<TransportSample> MeasureBandwidth(Player& player, const WriteOp& op,
                                         const TransportCase& test) {
  LAMINA_RETURN_IF_ERROR(SendAll(player, op, test.warm_up));
  const TimePoint start = Clock::now();
  LAMINA_RETURN_IF_ERROR(SendAll(player, op, test.iterations));
  const double seconds = SecondsSince(start);
  LAMINA_RETURN_IF_ERROR(player.WaitForNotifications(kBandwidthReplies));
  if (player.last_value() != kIntact)
    return Corrupt("what arrived at the peer is not what was sent");
  return BandwidthSample(test, seconds);
}

Result<std::unique_ptr<Endpoint>> AcceptPeer(Fabric& fabric, Listener& listener, ChildProcess& peer,
                                             const EndpointOptions& options) {
  const Deadline deadline = Deadline::After(kConnectDeadline);
  while (!deadline.Passed() && peer.running()) {
    Result<std::unique_ptr<Endpoint>> endpoint = listener.Accept(options);
    if (endpoint.ok() || endpoint.status().code() != StatusCode::kTryAgain) return endpoint;
    Sleep(fabric, {}, Deadline::After(milliseconds(20)));
  }
  return TimedOut("the peer's process did not connect to " + listener.address() + "; it " +
                  (peer.running() ? "still runs" : peer.exit_description()));
}

}  // namespace

Result<TransportSample> RunOverFabric(Fabric& fabric, const TransportCase& test,
                                      const std::string& address, const SpawnPeer& spawn) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Listener> listener, fabric.Listen(address));
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> source, PatternBuffer(fabric, test.bytes));
  LAMINA_ASSIGN_OR_RETURN(ChildProcess peer, spawn(test, listener->address()));
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Endpoint> endpoint,
                          AcceptPeer(fabric, *listener, peer, {test.bytes, ""}));
  Player player(*endpoint);
  const WriteOp op{source->bytes().first(test.bytes), 0};
  if (test.measure == TransportMeasure::kBandwidth) return MeasureBandwidth(player, op, test);
  LAMINA_ASSIGN_OR_RETURN(const TransportSample sample, MeasureLatency(player, op, test));
  if (!HasPattern(endpoint->window()))
    return Corrupt("what arrived here is not what the peer sent");
  return sample;
}

Status ServeOverFabric(const TransportCase& test, const std::string& address) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Fabric> fabric, OpenFabric(test.fabric));
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> source, PatternBuffer(*fabric, test.bytes));
  LAMINA_ASSIGN_OR_RETURN(
      const std::unique_ptr<Endpoint> endpoint,
      fabric->Connect(address, {test.bytes, ""}, Deadline::After(kConnectDeadline)));
  Player player(*endpoint);
  const WriteOp op{source->bytes().first(test.bytes), 0};
  if (test.measure == TransportMeasure::kLatency) {
    for (int i = 0; i < test.warm_up + test.iterations; ++i) {
      LAMINA_RETURN_IF_ERROR(player.WaitForNotifications(static_cast<uint64_t>(i) + 1));
      LAMINA_RETURN_IF_ERROR(player.Post({&op, 1}, 0));
    }
  } else {
    LAMINA_RETURN_IF_ERROR(player.WaitForNotifications(static_cast<uint64_t>(test.warm_up)));
    LAMINA_RETURN_IF_ERROR(player.Post({}, 0));
    LAMINA_RETURN_IF_ERROR(
        player.WaitForNotifications(static_cast<uint64_t>(test.warm_up + test.iterations)));
    LAMINA_RETURN_IF_ERROR(player.Post({}, 0));  // ends the timed part
    LAMINA_RETURN_IF_ERROR(player.Post({}, HasPattern(endpoint->window()) ? kIntact : 0));
  }
  LAMINA_RETURN_IF_ERROR(player.WaitForSent(player.posted()));
  // The measuring end leaves first, when it has the verdict.
  const Status end = player.WaitForNotifications(player.notified() + 1);
  return end.code() == StatusCode::kPeerLost ? OkStatus()
                                             : InternalError("a message too many came");
}

}  // namespace lamina
