// How a client makes sure which HTTPS server it talks to.
#pragma once

#include <openssl/types.h>

#include <string>

#include "base/status.h"

namespace lamina {

// Connections of `context` speak TLS 1.2 or 1.3 and accept certificates of the CAs in `ca_file`
// (PEM form), or, if that is "", of the CAs that the system trusts, for which OpenSSL looks at
// $SSL_CERT_FILE and $SSL_CERT_DIR first. kInvalidArgument if they cannot be read.
Status TrustCas(SSL_CTX* context, const std::string& ca_file);

// Asks for the certificate of `host`, a name or an IP address, and accepts no other one.
// kInvalidArgument if no certificate can be for it. To be called before the handshake.
Status ExpectHost(SSL* connection, const std::string& host);

// Behind a handshake that failed: kInvalidArgument, with the reason and what to do, if it was this
// end that refused the certificate of `authority` ("host:port"); else ok.
Status RefusalOf(SSL* connection, const std::string& authority);

}  // namespace lamina
