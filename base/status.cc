#include "base/status.h"

namespace lamina {

std::string_view CodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kNotFound: return "not found";
    case StatusCode::kOutOfSpace: return "out of space";
    case StatusCode::kTryAgain: return "try again";
    case StatusCode::kPeerLost: return "peer lost";
    case StatusCode::kTimeout: return "timed out";
    case StatusCode::kCorrupt: return "corrupt";
    case StatusCode::kUnimplemented: return "not implemented";
    case StatusCode::kInternal: return "internal error";
  }
  return "unknown";
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return std::string(CodeName(code_)) + ": " + message_;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  return {code_, std::string(context) + ": " + message_};
}

std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << status.ToString();
}

}  // namespace lamina
