// A control connection inside TLS 1.3, where both ends show a certificate of the CA.
#pragma once

#include <memory>
#include <string>

#include "transport/control_stream.h"
#include "transport/tls_context.h"

namespace lamina {

// What a TLS end says to a peer that does not speak TLS, before it closes: the fatal alert
// protocol_version (RFC 8446, section 6). Its first byte tells the other end why
// (ControlHandshake::Advance).
inline constexpr std::string_view kTlsRefusal = {"\x15\x03\x03\x00\x02\x02\x46", 7};

// `socket` is connected and non-blocking. A connector takes the peer only if its certificate is
// valid for `host`, a name or an IP address; a listener takes any certificate of the CA. kInternal
// if libssl is out of memory.
Result<std::unique_ptr<ControlStream>> MakeTlsStream(UniqueFd socket, ControlRole role,
                                                     const std::string& host,
                                                     std::shared_ptr<const TlsContext> context);

}  // namespace lamina
