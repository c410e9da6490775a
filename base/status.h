// Status and Result<T>, the one way to report failure. Lamina's own code throws no exceptions;
// those of third-party code are caught at the call that may throw.
//
// A code says what the caller has to give up:
//   kOk                                               nothing
//   kInvalidArgument kNotFound kOutOfSpace            this request
//   kTryAgain                                         nothing yet: try later
//   kPeerLost kTimeout                                this peer
//   kCorrupt kUnimplemented kInternal                 this node
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace lamina {

enum class StatusCode {
  kOk,
  kInvalidArgument,
  kNotFound,
  kOutOfSpace,
  kTryAgain,
  kPeerLost,
  kTimeout,
  kCorrupt,
  kUnimplemented,
  kInternal,
};

// "invalid argument", "peer lost", ...
std::string_view CodeName(StatusCode code);

// A code and a message. Value type, cheap when ok. A message for people says what was wrong, where,
// what was expected and what to do.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  std::string ToString() const;  // "peer lost: MESSAGE", or "ok"

  // The same status with "CONTEXT: " in front of its message; ok stays ok.
  Status WithContext(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }
inline Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
inline Status OutOfSpace(std::string message) {
  return {StatusCode::kOutOfSpace, std::move(message)};
}
inline Status TryAgain(std::string message = "") {
  return {StatusCode::kTryAgain, std::move(message)};
}
inline Status PeerLost(std::string message) { return {StatusCode::kPeerLost, std::move(message)}; }
inline Status TimedOut(std::string message) { return {StatusCode::kTimeout, std::move(message)}; }
inline Status Corrupt(std::string message) { return {StatusCode::kCorrupt, std::move(message)}; }
inline Status Unimplemented(std::string message) {
  return {StatusCode::kUnimplemented, std::move(message)};
}
inline Status InternalError(std::string message) {
  return {StatusCode::kInternal, std::move(message)};
}

std::ostream& operator<<(std::ostream& out, const Status& status);

// A T, or the Status that says why there is none. A function returns either directly.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Status status)
      : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor)  REQUIRES: !status.ok()

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }

  // REQUIRES: ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace lamina

// Evaluates an expression of type Status. If it is not ok, returns it from the calling function,
// which must return Status or Result<T>.
#define LAMINA_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                         \
    if (::lamina::Status lamina_status_ = (expr); !lamina_status_.ok()) return lamina_status_; \
  } while (0)

#define LAMINA_CONCAT_INNER_(a, b) a##b
#define LAMINA_CONCAT_(a, b) LAMINA_CONCAT_INNER_(a, b)

// Evaluates an expression of type Result<T>. Assigns its value to `lhs`, which may be a
// declaration; if there is none, returns the status from the calling function. It is several
// statements, so it needs braces under an if.
//   LAMINA_ASSIGN_OR_RETURN(auto file, File::Open(path));
#define LAMINA_ASSIGN_OR_RETURN(lhs, expr) \
  LAMINA_ASSIGN_OR_RETURN_(LAMINA_CONCAT_(lamina_result_, __LINE__), lhs, expr)
#define LAMINA_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return tmp.status();            \
  lhs = std::move(tmp).value()
