#include "transport/modelled/modelled_fabric.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "base/log.h"
#include "transport/checks.h"
#include "transport/connecting.h"
#include "transport/poll_set.h"
#include "transport/posix.h"
#include "transport/rare_warning.h"

namespace lamina {
namespace {

// When the bytes of a post begin to leave the sender's NIC, and how many they are.
struct Segment {
  int64_t departure_ns = 0;  // of CLOCK_MONOTONIC
  uint64_t bytes = 0;
};
// What a notification carries: the segments of its own post and of those since the notification
// before. If they are more than seven the last ones count as one.
struct Stamp {
  uint64_t num_segments = 0;
  std::array<Segment, 7> segments{};
  uint64_t unused = 0;
};
static_assert(sizeof(Stamp) == 128);
// Stamps at the beginning of a window, used in turn: more than any fabric lets notifications be in
// flight, so none is overwritten before it was read.
constexpr size_t kStamps = 1024;
constexpr size_t kStampBytes = kStamps * sizeof(Stamp);
constexpr size_t kMaxOps = 64;
constexpr size_t kBurst = 16;  // events taken from the inner endpoint at a time
// A timer wakes a thread some tens of microseconds late, so it is set so much earlier than the next
// notification, and the owner polls until that is due.
constexpr auto kWakeUp = microseconds(60);
// The longest that a notification is held back: after so long a node that works is lost.
constexpr auto kMostHeldBack = std::chrono::seconds(10);

RareLines modelled_dropped_lines;

class ModelledEndpoint;

class ModelledFabric final : public Fabric {
 public:
  ModelledFabric(std::unique_ptr<Fabric> inner, ModelledNic& nic);

  std::string_view name() const override { return inner_->name(); }
  const Limits& limits() const override { return limits_; }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override;
  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override;
  bool Arm() override;
  int event_fd() const override { return poll_set_.fd(); }

  // Decorates an endpoint of `inner_`. kPeerLost if its peer has no room for stamps.
  Result<std::unique_ptr<Endpoint>> Wrap(std::unique_ptr<Endpoint> endpoint);
  // `options` with room for the peer's stamps in front of the window.
  EndpointOptions WithStamps(EndpointOptions options) const {
    options.window_bytes += kStampBytes;
    return options;
  }

 private:
  friend class ModelledEndpoint;

  const std::unique_ptr<Fabric> inner_;
  ModelledNic& nic_;
  Limits limits_;
  PollSet poll_set_;  // the inner fabric's events, and timer_
  UniqueFd timer_;    // of the next notification that is held back; invalid if none could be made
  std::vector<ModelledEndpoint*> endpoints_;
};

class ModelledEndpoint final : public Endpoint {
 public:
  ModelledEndpoint(ModelledFabric& fabric, std::unique_ptr<Buffer> stamps,
                   std::unique_ptr<Endpoint> inner)
      : fabric_(fabric), stamps_(std::move(stamps)), inner_(std::move(inner)) {
    fabric_.endpoints_.push_back(this);
  }
  ~ModelledEndpoint() override { std::erase(fabric_.endpoints_, this); }

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override;
  size_t Poll(std::span<Event> out) override;
  std::span<std::byte> window() override { return inner_->window().subspan(kStampBytes); }
  uint64_t peer_window_bytes() const override { return inner_->peer_window_bytes() - kStampBytes; }
  std::span<std::byte> peer_window() override {
    const std::span<std::byte> whole = inner_->peer_window();
    return whole.empty() ? whole : whole.subspan(kStampBytes);
  }
  const std::string& peer_hello() const override { return inner_->peer_hello(); }
  const std::string& peer_name() const override { return inner_->peer_name(); }
  std::string last_error() const override { return inner_->last_error(); }
  std::string through() const override { return inner_->through(); }

  // When Poll may return the next event; max() if it holds none back.
  TimePoint next() const { return waiting_.empty() ? TimePoint::max() : waiting_.front().at; }

 private:
  struct Waiting {
    TimePoint at;
    Event event;
  };

  // Adds a post of `bytes` bytes, the last of which leaves the NIC at `sent`.
  void Append(Stamp& stamp, TimePoint sent, uint64_t bytes) const;
  // Queues an event of inner_ until it may be seen.
  void Take(const Event& event);

  ModelledFabric& fabric_;
  // The sources of the stamps. Outlives inner_, whose posts read them.
  const std::unique_ptr<Buffer> stamps_;
  const std::unique_ptr<Endpoint> inner_;
  Stamp stamp_;                             // of what was posted since the last notification
  size_t num_sent_ = 0, num_received_ = 0;  // notifications
  std::deque<Waiting> waiting_;             // in the order of inner_'s events
};

class ModelledListener final : public Listener {
 public:
  ModelledListener(ModelledFabric& fabric, std::unique_ptr<Listener> inner)
      : fabric_(fabric), inner_(std::move(inner)) {}

  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) override {
    LAMINA_RETURN_IF_ERROR(CheckOptions(options, fabric_.limits()));
    while (true) {
      LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Endpoint> endpoint,
                              inner_->Accept(fabric_.WithStamps(options)));
      Result<std::unique_ptr<Endpoint>> wrapped = fabric_.Wrap(std::move(endpoint));
      if (wrapped.status().code() != StatusCode::kPeerLost) return wrapped;
      if (const auto rest = modelled_dropped_lines.Admit())
        LAMINA_LOG_WARN("dropped a peer: {}{}", wrapped.status().message(), *rest);
    }
  }
  const std::string& address() const override { return inner_->address(); }

 private:
  ModelledFabric& fabric_;
  const std::unique_ptr<Listener> inner_;
};

ModelledFabric::ModelledFabric(std::unique_ptr<Fabric> inner, ModelledNic& nic)
    : inner_(std::move(inner)),
      nic_(nic),
      limits_(inner_->limits()),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  limits_.max_ops = std::min(limits_.max_ops, kMaxOps) - 1;
  limits_.max_window_bytes -= kStampBytes;
  poll_set_.Add(inner_->event_fd(), EPOLLIN, nullptr);
  if (timer_.valid()) poll_set_.Add(timer_.get(), EPOLLIN, nullptr);
}

Result<std::unique_ptr<Listener>> ModelledFabric::Listen(const std::string& address) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, inner_->Listen(address));
  return std::unique_ptr<Listener>(std::make_unique<ModelledListener>(*this, std::move(listener)));
}

Result<std::unique_ptr<Connecting>> ModelledFabric::StartConnect(const std::string& address,
                                                                 const EndpointOptions& options,
                                                                 Deadline deadline) {
  LAMINA_RETURN_IF_ERROR(CheckOptions(options, limits_));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Connecting> connecting,
                          inner_->StartConnect(address, WithStamps(options), deadline));
  return WithOutcome(std::move(connecting), [this](Result<std::unique_ptr<Endpoint>> endpoint) {
    return endpoint.ok() ? Wrap(*std::move(endpoint)) : std::move(endpoint);
  });
}

Result<std::unique_ptr<Endpoint>> ModelledFabric::Wrap(std::unique_ptr<Endpoint> endpoint) {
  if (endpoint->peer_window_bytes() < kStampBytes)
    return PeerLost(endpoint->peer_name() + ": the peer does not model the network");
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> stamps, inner_->Allocate(kStampBytes));
  return std::unique_ptr<Endpoint>(
      std::make_unique<ModelledEndpoint>(*this, std::move(stamps), std::move(endpoint)));
}

bool ModelledFabric::Arm() {
  TimePoint next = TimePoint::max();
  for (const ModelledEndpoint* endpoint : endpoints_) next = std::min(next, endpoint->next());
  itimerspec timer{};  // zero: off
  if (next != TimePoint::max()) {
    const TimePoint wake = next - kWakeUp;
    // If the next notification is that near, or there is no timer, the owner polls until then.
    if (!timer_.valid() || wake <= Clock::now()) return false;
    const auto since_boot =
        std::chrono::duration_cast<std::chrono::nanoseconds>(wake.time_since_epoch());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
    timer.it_value = {.tv_sec = seconds.count(), .tv_nsec = (since_boot - seconds).count()};
  }
  // Setting the timer also makes it unreadable if it has expired.
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &timer, nullptr);
  return inner_->Arm();
}

Status ModelledEndpoint::Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                              uint64_t tag) {
  LAMINA_RETURN_IF_ERROR(CheckOps(ops, fabric_.limits(), peer_window_bytes()));
  std::array<WriteOp, kMaxOps> shifted;
  size_t num_ops = 0;
  uint64_t bytes = 0;
  for (const WriteOp& op : ops) {
    shifted[num_ops++] = {op.source, op.peer_offset + kStampBytes};
    bytes += op.source.size();
  }
  ModelledNic& nic = fabric_.nic_;
  // Copies, which take effect only if the inner endpoint takes the post.
  DeviceTimeline egress = nic.egress;
  Stamp stamp = stamp_;
  Append(stamp, egress.Book(Clock::now(), nic.CostOf(bytes)), bytes);
  if (notify.has_value()) {
    const size_t offset = num_sent_ % kStamps * sizeof(Stamp);
    const std::span<std::byte> place = stamps_->bytes().subspan(offset, sizeof(Stamp));
    std::memcpy(place.data(), &stamp, sizeof(stamp));
    shifted[num_ops++] = {place, offset};
  }
  LAMINA_RETURN_IF_ERROR(inner_->Post({shifted.data(), num_ops}, notify, tag));
  nic.egress = egress;
  stamp_ = notify.has_value() ? Stamp{} : stamp;
  if (notify.has_value()) ++num_sent_;
  return OkStatus();
}

void ModelledEndpoint::Append(Stamp& stamp, TimePoint sent, uint64_t bytes) const {
  const bool is_full = stamp.num_segments == stamp.segments.size();
  Segment& segment = stamp.segments[is_full ? stamp.num_segments - 1 : stamp.num_segments++];
  segment.bytes = (is_full ? segment.bytes : 0) + bytes;
  const TimePoint departure = sent - fabric_.nic_.CostOf(segment.bytes);
  segment.departure_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(departure.time_since_epoch()).count();
}

size_t ModelledEndpoint::Poll(std::span<Event> out) {
  std::array<Event, kBurst> events;
  const size_t taken = inner_->Poll(events);
  size_t count = 0;
  for (size_t i = 0; i < taken; ++i) Take(events[i]);
  // TimePoint{} is the time of events before the first notification: they are not held back.
  while (count < out.size() && !waiting_.empty() &&
         (waiting_.front().at == TimePoint{} || waiting_.front().at <= Clock::now())) {
    out[count++] = waiting_.front().event;
    waiting_.pop_front();
  }
  return count;
}

// The peer is not trusted. What it writes into a stamp changes only when messages are seen: its own
// and, as all peers share the NIC, those of others.
void ModelledEndpoint::Take(const Event& event) {
  // Not before the event in front of it: events stay in order.
  Waiting waiting{waiting_.empty() ? TimePoint{} : waiting_.back().at, event};
  if (event.kind == Event::Kind::kNotification) {
    Stamp stamp;
    std::memcpy(&stamp, inner_->window().data() + num_received_++ % kStamps * sizeof(Stamp),
                sizeof(stamp));
    ModelledNic& nic = fabric_.nic_;
    const TimePoint now = Clock::now(), latest = now + kMostHeldBack;
    for (size_t i = 0; i < std::min<size_t>(stamp.num_segments, stamp.segments.size()); ++i) {
      const Segment& segment = stamp.segments[i];
      const TimePoint departure{std::chrono::duration_cast<Clock::duration>(
          std::chrono::nanoseconds(segment.departure_ns))};
      // Clamped before they are added to anything, which could overflow.
      const TimePoint ready = std::clamp(departure, now - kMostHeldBack, latest) + nic.link.latency;
      const bool too_many =
          static_cast<double>(segment.bytes) > nic.link.bytes_per_s * kMostHeldBack.count();
      const Clock::duration cost = nic.link.bytes_per_s > 0 && too_many
                                       ? Clock::duration(kMostHeldBack)
                                       : nic.CostOf(segment.bytes);
      waiting.at = std::max(waiting.at, nic.ingress.Book(ready, cost, latest));
    }
  }
  waiting_.push_back(waiting);
}

}  // namespace

TimePoint IngressTimeline::Book(TimePoint ready, Clock::duration cost, TimePoint latest) {
  // How long a booking is remembered: longer than the times of messages that contend differ.
  constexpr auto kMemory = milliseconds(20);
  std::erase_if(busy_, [&](const Busy& busy) { return busy.end + kMemory < ready; });
  TimePoint begin = ready;
  auto next = busy_.begin();
  for (; next != busy_.end() && next->begin < begin + cost; ++next)
    begin = std::max(begin, next->end);
  const TimePoint end = begin + std::max(cost, Clock::duration::zero());
  if (end > latest) return latest;
  if (end > begin) busy_.insert(next, {begin, end});
  return end;
}

std::unique_ptr<Fabric> MakeModelledFabric(std::unique_ptr<Fabric> inner, ModelledNic& nic) {
  return std::make_unique<ModelledFabric>(std::move(inner), nic);
}

}  // namespace lamina
