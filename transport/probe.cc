#include "transport/probe.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/backoff.h"
#include "base/log.h"

namespace lamina {
namespace {

constexpr uint64_t kMessageBytes = uint64_t{256} << 10;
constexpr uint32_t kWindow = 8;  // messages in flight
constexpr uint64_t kWindowBytes = kMessageBytes * kWindow;
constexpr size_t kMaxRounds = 2000;
constexpr uint32_t kTurnsPerLook = 64;  // at the clock
// How long a wait polls before it sleeps. Nodes poll too: the latency shall be that of the path,
// not that of waking a thread.
constexpr auto kPatience = milliseconds(1);
constexpr char kHello[] = "lamina probe 1";

// One end of a probe. Post and Wait return kTimeout at the deadline, kPeerLost if the peer goes,
// and kCorrupt if it has more than kWindow messages under way.
class Prober {
 public:
  Prober(Ladder& ladder, Path& path, Deadline deadline)
      : ladder_(ladder), endpoint_(*path.endpoint), deadline_(deadline) {}

  Status Post(std::span<const WriteOp> ops, uint32_t value) {
    while (true) {
      Status status = endpoint_.Post(ops, value, 0);
      if (status.code() != StatusCode::kTryAgain) return status;
      LAMINA_RETURN_IF_ERROR(Progress());
    }
  }

  // The value of the next notification.
  Result<uint32_t> Wait() {
    while (values_.empty()) LAMINA_RETURN_IF_ERROR(Progress());
    const uint32_t value = values_.front();
    values_.erase(values_.begin());
    return value;
  }

 private:
  Status Progress() {
    std::array<Event, 32> events;
    const size_t count = endpoint_.Poll(events);
    for (size_t i = 0; i < count; ++i) {
      if (events[i].kind == Event::Kind::kNotification) values_.push_back(events[i].value);
      if (events[i].kind == Event::Kind::kPeerLost) return PeerLost(endpoint_.last_error());
    }
    if (values_.size() > kWindow)
      return Corrupt(endpoint_.peer_name() + " sent more than " + std::to_string(kWindow) +
                     " messages without waiting for answers");
    // Looked at now and then also while events come: they may never end.
    if (++turns_ % kTurnsPerLook == 0 && deadline_.Passed()) return Late();
    if (count > 0) {
      backoff_.Reset();
      return OkStatus();
    }
    if (!backoff_.Idle()) return OkStatus();
    if (deadline_.Passed()) return Late();
    ladder_.Sleep({}, deadline_);
    return OkStatus();
  }

  Status Late() const {
    return TimedOut("the probe of " + endpoint_.peer_name() + " was not over in time");
  }

  Ladder& ladder_;
  Endpoint& endpoint_;
  const Deadline deadline_;
  Backoff backoff_{kPatience};
  std::vector<uint32_t> values_;  // of notifications that Wait has not returned
  uint32_t turns_ = 0;
};

Result<double> MeasureLatency(Prober& prober, std::span<const std::byte> source,
                              Clock::duration duration) {
  std::vector<double> microseconds;
  const Deadline end = Deadline::After(duration);
  // Three rounds at least, so that there is a median on a slow path too.
  for (size_t round = 0; round < 3 || (!end.Passed() && round < kMaxRounds); ++round) {
    const TimePoint start = Clock::now();
    const WriteOp op{source.first(8), 0};
    LAMINA_RETURN_IF_ERROR(prober.Post({&op, 1}, 0));
    LAMINA_RETURN_IF_ERROR(prober.Wait().status());
    microseconds.push_back(SecondsSince(start) * 1e6 / 2);
  }
  std::nth_element(microseconds.begin(),
                   microseconds.begin() + static_cast<std::ptrdiff_t>(microseconds.size() / 2),
                   microseconds.end());
  return microseconds[microseconds.size() / 2];
}

// Keeps kWindow messages in flight for `duration`. Only answers in the second half count, when
// buffers and rates have settled.
Result<double> MeasureBandwidth(Prober& prober, std::span<const std::byte> source,
                                Clock::duration duration) {
  const auto send = [&](uint32_t slot) {
    const WriteOp op{source.subspan(slot * kMessageBytes, kMessageBytes), slot * kMessageBytes};
    return prober.Post({&op, 1}, slot);
  };
  for (uint32_t slot = 0; slot < kWindow; ++slot) LAMINA_RETURN_IF_ERROR(send(slot));
  const TimePoint start = Clock::now();
  TimePoint settled = start;
  uint64_t answered = 0;
  while (Clock::now() - start < duration || answered < 2 * kWindow) {
    LAMINA_ASSIGN_OR_RETURN(const uint32_t slot, prober.Wait());
    if (slot >= kWindow) return Corrupt("the other end answered a message that was not sent");
    LAMINA_RETURN_IF_ERROR(send(slot));
    if (settled == start) {
      if (Clock::now() - start >= duration / 2) settled = Clock::now();
    } else {
      ++answered;
    }
  }
  const double rate = static_cast<double>(answered * kMessageBytes) / SecondsSince(settled);
  // Takes the last answers too, so that the other end is not posting one when this end leaves.
  for (uint32_t slot = 0; slot < kWindow; ++slot) LAMINA_RETURN_IF_ERROR(prober.Wait().status());
  return rate;
}

}  // namespace

Status AnswerProbe(Ladder& ladder, Deadline deadline) {
  while (!deadline.Passed()) {
    Result<Path> path = ladder.Accept({kWindowBytes, kHello});
    if (!path.ok()) {
      // A peer that fails on one fabric tries the next one of its ladder, so the wait goes on.
      if (path.status().code() != StatusCode::kTryAgain)
        LAMINA_LOG_WARN("accepting a probe: {}", path.status().message());
      ladder.Sleep({}, deadline.NoLaterThan(Clock::now() + milliseconds(100)));
      continue;
    }
    Prober prober(ladder, *path, deadline);
    while (true) {
      const Result<uint32_t> value = prober.Wait();
      // The other end closes the connection when it has measured enough.
      if (value.status().code() == StatusCode::kPeerLost) return OkStatus();
      if (!value.ok()) return value.status();
      LAMINA_RETURN_IF_ERROR(prober.Post({}, *value));
    }
  }
  return TimedOut("nobody came to measure");
}

Result<ProbeResult> Probe(Ladder& ladder, const std::string& offers, Clock::duration duration,
                          Deadline deadline) {
  LAMINA_ASSIGN_OR_RETURN(Path path, ladder.Connect(offers, {64, kHello}, deadline));
  if (path.endpoint->peer_hello() != kHello || path.endpoint->peer_window_bytes() < kWindowBytes)
    return InternalError(path.endpoint->peer_name() + " is no probe of this version");
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> source,
                          path.fabric->Allocate(kWindowBytes));
  // Untouched pages are all the kernel's one page of zeros, which is cheaper to read than real
  // ones.
  std::memset(source->bytes().data(), 0x5a, source->bytes().size());
  ProbeResult result{std::string(path.fabric->name()), path.endpoint->through(),
                     RefusalText(path.refused), 0, 0};
  {
    Prober prober(ladder, path, deadline);
    LAMINA_ASSIGN_OR_RETURN(result.latency_us,
                            MeasureLatency(prober, source->bytes(), duration / 4));
    LAMINA_ASSIGN_OR_RETURN(result.bytes_per_second,
                            MeasureBandwidth(prober, source->bytes(), duration));
  }
  path.endpoint.reset();  // posts read from `source`, which is freed next
  return result;
}

}  // namespace lamina
