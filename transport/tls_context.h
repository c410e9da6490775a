// One end's certificate, key and CA, loaded; and what can be said about them without a peer.
#pragma once

#include <openssl/types.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/tls_files.h"
#include "transport/control_handshake.h"

namespace lamina {

// For connections of both roles, with TLS 1.3 and no other version. Thread: any.
class TlsContext {
 public:
  // Null for no files. kNotFound: a file is not there. kInvalidArgument: one of them cannot be
  // used, or the key is not the certificate's. The message names the file, and behind its last "; "
  // what to do. Neither trust nor time is checked: peers do that when they connect.
  static Result<std::shared_ptr<const TlsContext>> Load(const TlsFiles& files);

  // What a peer checks: ok if the certificate comes from the CA and may be used in this role.
  Status CheckTrust(ControlRole role) const;

  // What a peer that connects to `host`, a name or an IP address, checks: ok if the certificate is
  // valid for it.
  Status CheckName(const std::string& host) const;

  // Until the first of the certificates from this end's to the CA's expires; below zero: it has.
  std::chrono::seconds time_left() const;

  const TlsFiles& files() const { return files_; }
  SSL_CTX* get() const { return context_.get(); }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const;
  };
  using Handle = std::unique_ptr<SSL_CTX, Free>;

  TlsContext(TlsFiles files, Handle context)
      : files_(std::move(files)), context_(std::move(context)) {}

  const TlsFiles files_;
  const Handle context_;
};

// How a name is looked for in a certificate, as X509_check_host and X509_VERIFY_PARAM_set_hostflags
// take it: among the subjectAltNames only.
extern const unsigned kTlsNameFlags;

// The reason of this thread's first OpenSSL error, whose queue it empties.
std::string TakeOpenSslReason();

}  // namespace lamina
