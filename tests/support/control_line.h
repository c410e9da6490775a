// A node's control channel without sockets and threads: the test is the manager, and hands frames
// over when it likes.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/inbox.h"
#include "transport/control_port.h"
#include "wire/codec.h"

namespace lamina {

// The line between the test and one node. Outlives the node. Thread: one owner, that of the node.
class ControlLine {
 public:
  // The end of the node, to be its NodeOptions::open_control. Called once.
  OpenControl Open() {
    return [this](const std::string&, const ControlOptions&) {
      return Result<std::unique_ptr<ControlPort>>(std::make_unique<Port>(*this));
    };
  }

  // The manager connects, sends a message, or is gone. Another number than the default is that of a
  // stranger's connection.
  static constexpr uint64_t kManager = 1;
  void Connect(uint64_t connection = kManager) {
    to_node_.Push({ControlEvent::Kind::kConnected, connection, {}, {}});
  }
  template <typename Message>
  void Send(MessageType type, const Message& message, uint64_t connection = kManager) {
    to_node_.Push({ControlEvent::Kind::kFrame, connection, {FrameType(type), Encode(message)}, {}});
  }
  void Break() {
    to_node_.Push({ControlEvent::Kind::kLost, kManager, {}, PeerLost("the manager is gone")});
  }

  // The oldest message from the node, to whomever, that was not taken yet, which must have this
  // type. nullopt if there is none.
  template <typename Message>
  std::optional<Message> Take(MessageType type) {
    if (from_node_.empty() || from_node_.front().type != FrameType(type)) return std::nullopt;
    Result<Message> message = Decode<Message>(from_node_.front().payload);
    from_node_.pop_front();
    return message.ok() ? std::optional(*std::move(message)) : std::nullopt;
  }

 private:
  class Port final : public ControlPort {
   public:
    explicit Port(ControlLine& line) : line_(line) {}
    std::optional<ControlEvent> TryPop() override { return line_.to_node_.TryPop(); }
    int fd() const override { return line_.to_node_.fd(); }
    Status Send(uint64_t, uint16_t type, std::string payload) override {
      line_.from_node_.push_back({type, std::move(payload)});
      return OkStatus();
    }
    void Keep(uint64_t) override {}
    void Serve(uint64_t) override {}
    void ServeToo(uint64_t) override {}
    void Close(uint64_t) override {}
    const std::string& address() const override { return address_; }
    std::string PeerName(uint64_t) const override { return "the test"; }

   private:
    ControlLine& line_;
    const std::string address_ = "line:0";
  };

  Inbox<ControlEvent> to_node_;
  std::deque<ControlFrame> from_node_;
};

}  // namespace lamina
