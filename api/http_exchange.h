// A request that is worked on, and the way for its answer to the client's connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "api/body_memory.h"
#include "api/exchange.h"
#include "api/http_connection.h"
#include "api/protocols/protocol_errors.h"

namespace lamina {

// Lives as long as its handler wants. Once the connection is closed or has the whole answer,
// further calls do nothing. Thread: the server's.
class HttpExchange final : public Exchange {
 public:
  // Its answer is the one that `connection` began last.
  HttpExchange(const std::shared_ptr<HttpConnection>& connection, uint64_t answer,
               InboundRequest request, BodyMemory::Share body)
      : connection_(connection),
        answer_(answer),
        request_(std::move(request)),
        body_(std::move(body)) {}

  const InboundRequest& request() const override { return request_; }
  std::string TakeBody() override {
    body_.Set(0);
    return std::exchange(request_.body, {});
  }
  void Respond(OutboundResponse response) override {
    if (const auto connection = Live())
      connection->Respond(InProtocolOf(request_.path, std::move(response)));
  }
  void RespondInPieces(PieceWriter write_piece) override {
    if (const auto connection = Live()) connection->RespondInPieces(std::move(write_piece));
  }
  void ExpectStream(StreamKind kind) override {
    if (const auto connection = Live()) connection->ExpectStream(kind);
  }
  using Exchange::SendEvent;
  void SendEvent(std::string_view data, std::string_view name) override {
    if (const auto connection = Live()) connection->SendEvent(data, name);
  }
  void SendEvents(const std::vector<StreamEvent>& events) override {
    if (const auto connection = Live()) connection->SendEvents(events);
  }
  void EndStream() override {
    if (const auto connection = Live()) connection->EndStream();
  }
  bool stream_begun() const override {
    const auto connection = Live();
    return connection != nullptr && connection->stream_begun();
  }
  void NotifyGone(std::function<void()> on_gone) override { on_gone_ = std::move(on_gone); }
  // What NotifyGone was given; null from the second time on. For the owner of the connection.
  std::function<void()> TakeOnGone() { return std::exchange(on_gone_, nullptr); }

 private:
  // The connection while it takes this answer, else null.
  std::shared_ptr<HttpConnection> Live() const {
    std::shared_ptr<HttpConnection> connection = connection_.lock();
    return connection != nullptr && connection->Takes(answer_) ? connection : nullptr;
  }

  std::weak_ptr<HttpConnection> connection_;
  const uint64_t answer_;
  InboundRequest request_;
  BodyMemory::Share body_;
  std::function<void()> on_gone_;
};

}  // namespace lamina
