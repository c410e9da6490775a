// Feeds foreign bytes to both ends of the control channel's greeting, in pieces. Whatever comes: no
// crash, the same outcome as when it comes at once, and an end that has a secret neither finishes
// nor says its hello, as the bytes cannot hold a proof for its nonce.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "transport/control_handshake.h"

namespace {

using lamina::ControlHandshake;
using lamina::ControlRole;

constexpr std::string_view kHello = "a hello that strangers must not hear";

std::string Run(ControlRole role, const std::string& secret, std::string_view bytes,
                size_t piece_bytes) {
  ControlHandshake end({role, std::string(kHello), secret, std::string(lamina::kNonceBytes, 'n')});
  std::string said = end.TakeOutput();
  lamina::Status status = lamina::TryAgain();
  while (!bytes.empty() && status.code() == lamina::StatusCode::kTryAgain) {
    const std::string_view piece = bytes.substr(0, piece_bytes);
    bytes.remove_prefix(piece.size());
    end.Append(piece);
    status = end.Advance();
    said += end.TakeOutput();
    if (status.code() == lamina::StatusCode::kTryAgain && end.missing_bytes() == 0) std::abort();
  }
  if (!secret.empty() && (status.ok() || said.find(kHello) != std::string::npos)) std::abort();
  return said + status.ToString();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece_bytes = data[0] + size_t{1};
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const ControlRole role : {ControlRole::kListener, ControlRole::kConnector}) {
    for (const char* secret : {"", "a secret of some length"}) {
      if (Run(role, secret, bytes, bytes.size() + 1) != Run(role, secret, bytes, piece_bytes))
        std::abort();
    }
  }
  return 0;
}
