#include "tests/sim/sim_fabric.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/inbox.h"
#include "transport/checks.h"
#include "transport/mapping.h"
#include "transport/posix.h"

namespace lamina::sim {
namespace {

constexpr Limits kLimits{.max_ops = 64,
                         .max_outstanding = 64,
                         .max_window_bytes = uint64_t{1} << 40,
                         .registered_sources = true,
                         .one_sided = true};
constexpr auto kLeastLatency = microseconds(3);
constexpr auto kMostLatency = microseconds(30);
// Of 100 posts, how many have a part in the peer's window before the rest.
constexpr int kPercentEarly = 10;
// Of 100 posts, how many find no room at first.
constexpr int kPercentFull = 1;

}  // namespace

// A post that has not arrived.
struct Flight {
  std::vector<WriteOp> ops;
  std::optional<uint32_t> notify;
  uint64_t tag = 0;
  std::vector<std::byte> kept;          // the bytes of the ops once the sender is gone
  std::optional<uint64_t> flipped_bit;  // counted from the first byte
  bool sender_lives = true;
  bool cancelled = false;

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const WriteOp& op : ops) sum += op.source.size();
    return sum;
  }
};

// One end of a connection.
struct SimEnd {
  std::string node;
  std::string hello;
  Mapping window;
  testing::Wires::Way way;  // to the other end
  std::deque<uint32_t> notifications;
  std::deque<std::shared_ptr<Flight>> flights;  // that it has posted, until they have arrived
  std::deque<uint64_t> sent;                    // tags of posts that have arrived
  bool closed = false;
  bool peer_left = false;  // and this end has heard of it
};

struct SimConnection {
  SimEnd ends[2];
  bool accepted = false;  // and the connecting end has heard of it
  bool refused = false;   // likewise
};

class SimEndpoint final : public Endpoint {
 public:
  SimEndpoint(SimNetwork& network, std::shared_ptr<SimConnection> connection, int self)
      : network_(network),
        connection_(std::move(connection)),
        self_(self),
        peer_name_("the node " + theirs().node) {
    ++network_.endpoints_[{mine().node, theirs().node}];
  }
  ~SimEndpoint() override;

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override;
  size_t Poll(std::span<Event> out) override;
  std::span<std::byte> window() override { return mine().window.bytes(); }
  uint64_t peer_window_bytes() const override { return theirs().window.bytes().size(); }
  const std::string& peer_hello() const override { return theirs().hello; }
  const std::string& peer_name() const override { return peer_name_; }
  std::string last_error() const override {
    return mine().peer_left ? peer_name_ + " closed the connection" : "";
  }

 private:
  SimEnd& mine() const { return connection_->ends[self_]; }
  SimEnd& theirs() const { return connection_->ends[1 - self_]; }
  Clock::duration Meet(Flight& flight, std::optional<Clock::duration>& again);

  SimNetwork& network_;
  const std::shared_ptr<SimConnection> connection_;
  const int self_;
  const std::string peer_name_;
  bool said_lost_ = false;
};

namespace {

// Writes the first `count` bytes of the post into the window.
void Land(const Flight& flight, SimEnd& receiver, uint64_t count) {
  uint64_t done = 0;
  for (const WriteOp& op : flight.ops) {
    const uint64_t part = std::min<uint64_t>(op.source.size(), count - done);
    if (part == 0) continue;
    const std::byte* const from =
        flight.sender_lives ? op.source.data() : flight.kept.data() + done;
    std::memcpy(receiver.window.bytes().data() + op.peer_offset, from, part);
    if (flight.flipped_bit && *flight.flipped_bit / 8 >= done &&
        *flight.flipped_bit / 8 < done + part)
      receiver.window.bytes()[op.peer_offset + *flight.flipped_bit / 8 - done] ^=
          static_cast<std::byte>(1u << (*flight.flipped_bit % 8));
    done += op.source.size();
  }
}

}  // namespace

SimEndpoint::~SimEndpoint() {
  SimEnd& end = mine();
  --network_.endpoints_[{end.node, theirs().node}];
  end.closed = true;
  for (const std::shared_ptr<Flight>& flight : end.flights) {
    flight->sender_lives = false;
    flight->cancelled = network_.random_.Chance(50);
    if (flight->cancelled) continue;
    for (const WriteOp& op : flight->ops)
      flight->kept.insert(flight->kept.end(), op.source.begin(), op.source.end());
  }
  end.flights.clear();
  network_.wires_.Send(end.way, [connection = connection_, other = 1 - self_] {
    connection->ends[other].peer_left = true;
  });
}

Status SimEndpoint::Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                         uint64_t tag) {
  LAMINA_RETURN_IF_ERROR(CheckOps(ops, kLimits, peer_window_bytes()));
  SimEnd& end = mine();
  if (end.peer_left) return PeerLost(last_error());
  if (end.flights.size() + end.sent.size() >= kLimits.max_outstanding) return TryAgain();
  if (network_.random_.Chance(kPercentFull)) {
    ++network_.counts_.without_room;
    network_.wires_.Send(end.way, [] {});  // there is room again: everybody has a turn
    return TryAgain();
  }
  ++network_.counts_.posts;
  const auto flight = std::make_shared<Flight>();
  flight->ops.assign(ops.begin(), ops.end());
  flight->notify = notify;
  flight->tag = tag;
  end.flights.push_back(flight);
  std::optional<Clock::duration> again;
  const Clock::duration delay = notify ? Meet(*flight, again) : Clock::duration::zero();
  const uint64_t bytes = flight->bytes();
  if (bytes > 0 && network_.random_.Chance(kPercentEarly)) {
    const uint64_t part = 1 + network_.random_.Below(bytes);
    network_.wires_.Send(end.way, [this_network = &network_, connection = connection_, flight,
                                   to = 1 - self_, part] {
      if (flight->cancelled || connection->ends[to].closed) return;
      Land(*flight, connection->ends[to], part);
      ++this_network->counts_.landed_early;
    });
  }
  const auto arrive = [network = &network_, connection = connection_, flight, from = self_] {
    SimEnd& sender = connection->ends[from];
    SimEnd& receiver = connection->ends[1 - from];
    if (flight->cancelled) return;
    if (flight->sender_lives) {
      sender.flights.pop_front();
      sender.sent.push_back(flight->tag);
    } else {
      ++network->counts_.after_death;
    }
    if (receiver.closed) {
      ++network->counts_.to_nobody;
      return;
    }
    Land(*flight, receiver, flight->bytes());
    if (flight->notify) receiver.notifications.push_back(*flight->notify);
  };
  network_.wires_.Send(end.way, arrive, delay);
  if (again) {
    // Never before the post itself; later ones may overtake it.
    testing::Wires::Way aside{end.way.from, end.way.to, end.way.last + *again};
    network_.wires_.Send(aside, [connection = connection_, to = 1 - self_, value = *notify] {
      connection->ends[to].notifications.push_back(value);
    });
  }
  return OkStatus();
}

// The fault that is planned for this post, if there is one. Returns how much later it arrives;
// `again` is set to how much later its notification comes once more.
Clock::duration SimEndpoint::Meet(Flight& flight, std::optional<Clock::duration>& again) {
  const auto planned = network_.planned_.find({mine().node, theirs().node});
  if (planned == network_.planned_.end() || planned->second.empty()) return {};
  const SimNetwork::Planned fault = planned->second.front();
  planned->second.pop_front();
  FabricCounts& counts = network_.counts_;
  switch (fault.fault) {
    case PostFault::kCorrupt:
      if (flight.bytes() == 0) break;
      flight.flipped_bit = network_.random_.Below(8 * flight.bytes());
      ++counts.corrupted;
      break;
    case PostFault::kDuplicate:
      again = fault.delay;
      ++counts.duplicated;
      return {};
    case PostFault::kLoseNotification:
      flight.notify.reset();
      ++counts.lost;
      break;
    case PostFault::kDelay: ++counts.delayed; break;
  }
  return fault.delay;
}

size_t SimEndpoint::Poll(std::span<Event> out) {
  SimEnd& end = mine();
  size_t count = 0;
  for (; count < out.size() && !end.sent.empty(); end.sent.pop_front())
    out[count++] = {.kind = Event::Kind::kSent, .tag = end.sent.front()};
  for (; count < out.size() && !end.notifications.empty(); end.notifications.pop_front())
    out[count++] = {.kind = Event::Kind::kNotification, .value = end.notifications.front()};
  if (!end.peer_left) return count;
  for (; count < out.size() && !end.flights.empty(); end.flights.pop_front()) {
    end.flights.front()->cancelled = true;
    out[count++] = {.kind = Event::Kind::kSent,
                    .tag = end.flights.front()->tag,
                    .status = StatusCode::kPeerLost};
  }
  if (count < out.size() && !said_lost_) {
    said_lost_ = true;
    out[count++] = {.kind = Event::Kind::kPeerLost, .status = StatusCode::kPeerLost};
  }
  return count;
}

class SimListener final : public Listener {
 public:
  SimListener(SimNetwork& network, std::string node)
      : network_(network),
        node_(std::move(node)),
        address_(node_ + "/" + std::to_string(++network_.last_listener_)) {
    network_.listeners_[address_] = this;
  }
  ~SimListener() override {
    network_.listeners_.erase(address_);
    for (const std::shared_ptr<SimConnection>& connection : waiting_) Refuse(network_, connection);
  }

  static void Refuse(SimNetwork& network, const std::shared_ptr<SimConnection>& connection) {
    network.wires_.Send(connection->ends[1].way, [connection] { connection->refused = true; });
  }

  void Take(std::shared_ptr<SimConnection> connection) {
    waiting_.push_back(std::move(connection));
  }

  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) override {
    LAMINA_RETURN_IF_ERROR(CheckOptions(options, kLimits));
    while (!waiting_.empty() && waiting_.front()->ends[1].peer_left) waiting_.pop_front();
    if (waiting_.empty()) return TryAgain();
    const std::shared_ptr<SimConnection> connection = waiting_.front();
    waiting_.pop_front();
    if (!CheckMayJoin(options, connection->ends[0].hello).ok()) {
      Refuse(network_, connection);
      return TryAgain();
    }
    SimEnd& end = connection->ends[1];
    LAMINA_ASSIGN_OR_RETURN(end.window, Mapping::Anonymous(options.window_bytes));
    end.hello = options.hello;
    network_.wires_.Send(end.way, [connection] { connection->accepted = true; });
    return std::unique_ptr<Endpoint>(std::make_unique<SimEndpoint>(network_, connection, 1));
  }

  const std::string& address() const override { return address_; }

 private:
  SimNetwork& network_;
  const std::string node_;
  const std::string address_;
  std::deque<std::shared_ptr<SimConnection>> waiting_;
};

class SimConnecting final : public Connecting {
 public:
  // Knocks at `address`.
  SimConnecting(SimNetwork& network, const std::string& node, std::string address, Mapping window,
                const std::string& hello, Deadline deadline)
      : network_(network), address_(std::move(address)), deadline_(deadline) {
    SimEnd& here = connection_->ends[0];
    SimEnd& there = connection_->ends[1];
    here.node = node;
    here.hello = hello;
    here.window = std::move(window);
    there.node = address_.substr(0, address_.find('/'));
    here.way = {here.node, there.node};
    there.way = {there.node, here.node};
    network_.wires_.Send(here.way, [network = &network_, connection = connection_, to = address_] {
      const auto listener = network->listeners_.find(to);
      if (listener == network->listeners_.end()) return SimListener::Refuse(*network, connection);
      listener->second->Take(connection);
    });
  }
  ~SimConnecting() override {
    if (connection_ != nullptr) GiveUp();
  }

  Result<std::unique_ptr<Endpoint>> Poll() override {
    if (connection_->accepted)
      return std::unique_ptr<Endpoint>(
          std::make_unique<SimEndpoint>(network_, std::exchange(connection_, nullptr), 0));
    if (connection_->refused) {
      connection_ = nullptr;
      return PeerLost("sim " + address_ + ": nobody listens there, or it refused this peer");
    }
    if (deadline_.Passed()) return TimedOut("sim " + address_ + ": nobody answers there");
    return TryAgain();
  }

  TimePoint wake_at() const override { return deadline_.at(); }

 private:
  void GiveUp() {
    connection_->ends[0].closed = true;
    network_.wires_.Send(connection_->ends[0].way,
                         [connection = connection_] { connection->ends[1].peer_left = true; });
  }

  SimNetwork& network_;
  const std::string address_;
  const Deadline deadline_;
  std::shared_ptr<SimConnection> connection_ = std::make_shared<SimConnection>();  // null: over
};

class SimFabric final : public Fabric {
 public:
  SimFabric(SimNetwork& network, std::string node) : network_(network), node_(std::move(node)) {}

  std::string_view name() const override { return "sim"; }
  const Limits& limits() const override { return kLimits; }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return AllocateMappedBuffer(bytes);
  }
  Result<std::unique_ptr<Listener>> Listen(const std::string&) override {
    return std::unique_ptr<Listener>(std::make_unique<SimListener>(network_, node_));
  }
  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override {
    LAMINA_RETURN_IF_ERROR(CheckOptions(options, kLimits));
    LAMINA_ASSIGN_OR_RETURN(Mapping window, Mapping::Anonymous(options.window_bytes));
    return std::unique_ptr<Connecting>(std::make_unique<SimConnecting>(
        network_, node_, address, std::move(window), options.hello, deadline));
  }
  bool Arm() override { return true; }
  int event_fd() const override { return never_.fd(); }

 private:
  SimNetwork& network_;
  const std::string node_;
  WakeFd never_;  // nobody sleeps on it
};

SimNetwork::SimNetwork(uint64_t seed)
    : random_(seed), wires_([this]() -> Clock::duration {
        return random_.Between(Clock::duration(kLeastLatency), Clock::duration(kMostLatency));
      }) {}

SimNetwork::~SimNetwork() = default;

OpenLadder SimNetwork::OpenerOf(const std::string& node) {
  return [this, node](std::span<const std::string>) -> Result<std::unique_ptr<Ladder>> {
    std::vector<std::unique_ptr<Fabric>> fabrics;
    fabrics.push_back(std::make_unique<SimFabric>(*this, node));
    return std::make_unique<Ladder>(std::move(fabrics));
  };
}

void SimNetwork::Plan(const std::string& from, const std::string& to, PostFault fault,
                      Clock::duration delay) {
  planned_[{from, to}].push_back({fault, delay});
}

}  // namespace lamina::sim
