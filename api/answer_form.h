// How the answer to one request is told where the client does not speak OpenAI's chat completions.
#pragma once

#include <string>
#include <utility>

#include "api/api_error.h"
#include "api/exchange.h"
#include "api/responses.h"

namespace lamina {

// Of one request with one choice. It is told whole, by Whole, or as a stream: SendPiece for each
// piece in order, of which the last one has `finish`, then SendEnd; SendError in the place of what
// does not come any more. Thread: the server's.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;

  // What the server calls the request. Called once, before everything else.
  void NameRequest(const std::string& request_id) { request_id_ = request_id; }

  // The whole answer, as JSON.
  virtual std::string Whole(const ChoiceOutput& answer, const Usage& usage) = 0;

  virtual StreamKind stream_kind() const { return StreamKind::kEvents; }
  // `usage` is that until now.
  virtual void SendPiece(const ChoiceOutput& piece, const Usage& usage, Exchange& exchange) = 0;
  virtual void SendEnd(const Usage& usage, Exchange& exchange) = 0;
  virtual void SendError(const ApiError& error, Exchange& exchange) = 0;

  // What it keeps of the pieces.
  virtual size_t held_bytes() const { return 0; }

 protected:
  const std::string& request_id() const { return request_id_; }

 private:
  std::string request_id_;
};

}  // namespace lamina
