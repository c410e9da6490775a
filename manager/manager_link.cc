#include "manager/manager_link.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace lamina {
namespace {

// A try to connect goes on for so long, and the next one begins after so long.
constexpr auto kTry = std::chrono::seconds(2);
constexpr auto kPause = std::chrono::milliseconds(100);

}  // namespace

ManagerLink::ManagerLink(const ManagerLinkOptions& options, RemoteRequests& requests,
                         std::function<void()> on_change, TimePoint now)
    : options_(options), requests_(requests), on_change_(std::move(on_change)), next_try_(now) {}

bool ManagerLink::Turn(TimePoint now) {
  bool did = Connect(now);
  did |= TakeHeard(now);
  requests_.Turn(now);
  return SendFrames(now) || did;
}

TimePoint ManagerLink::next_turn() const {
  const TimePoint next = requests_.next_turn();
  return connection_ == nullptr && connecting_ == nullptr ? std::min(next, next_try_) : next;
}

bool ManagerLink::Connect(TimePoint now) {
  if (connection_ != nullptr) return false;
  if (connecting_ == nullptr) {
    if (now < next_try_) return false;
    connecting_ = options_.connect(options_.manager, options_.control, now + kTry, on_change_);
  }
  auto outcome = connecting_->Poll();
  if (!outcome) return false;
  connecting_.reset();
  next_try_ = now + kPause;
  if (outcome->ok()) {
    Adopt(std::move(*outcome).value());
  } else {
    refused_ = outcome->status();
    requests_.OnLost(refused_, now);
  }
  return true;
}

void ManagerLink::Adopt(std::unique_ptr<ControlConnection> connection) {
  connection_ = std::move(connection);
  const auto push = [this, id = ++num_connections_](auto what) {
    heard_.Push({id, std::move(what)});
    on_change_();
  };
  connection_->Start({.on_frame = [push](ControlFrame frame) { push(std::move(frame)); },
                      .on_lost = [push](Status why) { push(std::move(why)); }});
  requests_.OnConnected();
}

bool ManagerLink::TakeHeard(TimePoint now) {
  bool did = false;
  while (std::optional<Heard> heard = heard_.TryPop()) {
    if (connection_ == nullptr || heard->connection != num_connections_) continue;
    did = true;
    const bool was_open = requests_.is_open();
    auto* const frame = std::get_if<ControlFrame>(&heard->what);
    const Status status =
        frame != nullptr ? requests_.TakeFrame(*frame, now) : std::get<Status>(heard->what);
    if (!status.ok()) {
      Drop(status, now);
    } else if (!was_open && requests_.is_open()) {
      LAMINA_LOG_INFO("the manager at {} takes requests", options_.manager);
    }
  }
  return did;
}

bool ManagerLink::SendFrames(TimePoint now) {
  std::vector<ControlFrame> frames = requests_.TakeFrames();
  for (ControlFrame& frame : frames) {
    // That the connection is gone is heard soon; one that takes no more is of no use.
    const Status sent = connection_->Send(frame.type, std::move(frame.payload));
    if (sent.code() != StatusCode::kOutOfSpace) continue;
    Drop(sent, now);
    break;
  }
  return !frames.empty();
}

void ManagerLink::Drop(const Status& why, TimePoint now) {
  if (requests_.is_open()) LAMINA_LOG_WARN("the manager is lost: {}", why.message());
  connection_.reset();
  next_try_ = now + kPause;
  refused_ = why;
  requests_.OnLost(why, now);
}

}  // namespace lamina
