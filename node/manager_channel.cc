#include "node/manager_channel.h"

#include <poll.h>

#include <optional>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "transport/posix.h"
#include "transport/secret_file.h"
#include "transport/tls_context.h"
#include "wire/codec.h"

namespace lamina {
namespace {

// Most events that are handled before sessions have their turn: who floods the control channel does
// not stop the data path.
constexpr int kEventsPerTurn = 64;

}  // namespace

std::string ManagerConnection::name() const { return channel_->control_->PeerName(id_); }

std::string ManagerConnection::listening_host() const { return channel_->control_->host(); }

void ManagerConnection::Send(MessageType type, std::string message) const {
  const Status sent = channel_->control_->Send(id_, FrameType(type), std::move(message));
  if (sent.ok()) return;
  if (const auto rest = channel_->unsent_lines_.Admit())
    LAMINA_LOG_WARN("{}{}", sent.message(), *rest);
}

void ManagerConnection::Answer(const Result<Configured>& outcome) const {
  if (outcome.ok()) return Send(MessageType::kConfigured, Encode(*outcome));
  const Status status = outcome.status().WithContext(channel_->name_);
  Configured answer;
  answer.status = Status(status.code(), Briefly(status.message()));  // it may quote the request
  if (const auto rest = channel_->refused_lines_.Admit())
    LAMINA_LOG_ERROR("{}{}", answer.status.ToString(), *rest);
  Send(MessageType::kConfigured, Encode(answer));
}

void ManagerConnection::Keep() const { channel_->control_->Keep(id_); }

void ManagerConnection::Release() const { channel_->control_->Keep(0); }

void ManagerConnection::AnswerOpening(const Result<Configured>& outcome) const {
  if (outcome.ok())
    channel_->control_->Serve(id_);
  else
    Release();
  Answer(outcome);
}

void ManagerConnection::Drop(const ControlFrame& frame, bool has_session) const {
  if (const auto rest = channel_->dropped_lines_.Admit())
    LAMINA_LOG_WARN("dropped a control message of type {} from {}: malformed or not expected now{}",
                    frame.type, name(), *rest);
  if (!has_session) channel_->control_->Close(id_);
}

Result<std::unique_ptr<ManagerChannel>> ManagerChannel::Open(const std::string& kind,
                                                             const NodeOptions& options) {
  const std::string name = kind + " " + options.name;
  ControlOptions greeting{.hello = name};
  LAMINA_ASSIGN_OR_RETURN(greeting.secret, ReadSecretFile(options.secret_file));
  LAMINA_ASSIGN_OR_RETURN(greeting.tls, TlsContext::Load(options.tls));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ControlPort> control,
                          options.open_control(options.listen, greeting));
  return std::unique_ptr<ManagerChannel>(new ManagerChannel(name, options, std::move(control)));
}

ManagerChannel::ManagerChannel(const std::string& name, const NodeOptions& options,
                               std::unique_ptr<ControlPort> control)
    : name_(name), control_(std::move(control)), departure_(options.drain_timeout) {}

bool ManagerChannel::Turn(const Handlers& handlers) {
  bool any = false;
  for (int i = 0; i < kEventsPerTurn; ++i) {
    const std::optional<ControlEvent> event = control_->TryPop();
    if (!event) break;
    any = true;
    const ManagerConnection from(this, event->connection);
    switch (event->kind) {
      case ControlEvent::Kind::kConnected:
        if (const auto rest = connected_lines_.Admit())
          LAMINA_LOG_INFO("{} connected{}", from.name(), *rest);
        break;
      case ControlEvent::Kind::kFrame: handlers.on_frame(from, event->frame); break;
      case ControlEvent::Kind::kLost:
        handlers.on_lost(from, event->status);
        control_->Close(event->connection);
        break;
    }
  }
  return any;
}

void ManagerChannel::Sleep(TimePoint latest) const {
  const auto [events, leave] = fds();
  std::array<pollfd, 2> polls = {pollfd{events, POLLIN, 0}, pollfd{leave, POLLIN, 0}};
  WaitForAnyFd(polls, Deadline(latest));
}

}  // namespace lamina
