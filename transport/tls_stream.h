// A ControlStream inside TLS 1.3, in which both ends show a certificate of the cluster's CA.
#pragma once

#include <memory>
#include <string>

#include "transport/control_stream.h"
#include "transport/tls_context.h"

namespace lamina {

// What a TLS listener sends to a peer that does not speak TLS before it closes: the fatal alert
// protocol_version (RFC 8446, section 6). By its first byte ControlHandshake::Advance at the peer
// recognises TLS.
inline constexpr std::string_view kTlsRefusal = {"\x15\x03\x03\x00\x02\x02\x46", 7};

// A stream over `socket`, which it owns. A connector accepts the peer only if its certificate is
// valid for `host`, a name or an IP address; a listener accepts any certificate of the CA and
// ignores `host`. kInvalidArgument if `host` cannot be in a certificate; kInternal if libssl is out
// of memory. REQUIRES: `socket` is connected and non-blocking, `context` is not null.
Result<std::unique_ptr<ControlStream>> MakeTlsStream(UniqueFd socket, ControlRole role,
                                                     const std::string& host,
                                                     std::shared_ptr<const TlsContext> context);

}  // namespace lamina
