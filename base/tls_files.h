// The files with which the processes of a cluster authenticate each other by certificate.
#pragma once

#include <string>

namespace lamina {

// Paths of files in PEM format: all three, or none for connections without TLS.
struct TlsFiles {
  // The certificate of this host, followed by intermediate certificates up to the CA, if any.
  std::string certificate;
  // The private key of the certificate, without a passphrase; only its owner may read the file.
  std::string key;
  std::string ca;  // CA certificates, one of which must have issued every peer's certificate

  bool empty() const { return certificate.empty() && key.empty() && ca.empty(); }
};

}  // namespace lamina
