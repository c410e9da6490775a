// The files by which the processes of a cluster know each other by certificate.
#pragma once

#include <string>

namespace lamina {

// All in PEM form; all three, or none for connections without TLS.
struct TlsFiles {
  // Of this host, and after it the certificates between it and the CA's, if there are any.
  std::string certificate;
  // The certificate's private key, without a passphrase; only its owner may read it.
  std::string key;
  std::string ca;  // certificates that every peer's certificate must come from

  bool empty() const { return certificate.empty() && key.empty() && ca.empty(); }
};

}  // namespace lamina
