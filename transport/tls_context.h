// The certificate, key and CA of one end, loaded from their files, and what can be checked about
// them without a peer.
#pragma once

#include <openssl/types.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/tls_files.h"
#include "transport/control_handshake.h"

namespace lamina {

// Makes the TLS connections (tls_stream.h) of one end. Shared by the connections of an end, which
// keep it alive. Thread: any.
class TlsContext {
 public:
  // For connections in both roles between processes of a cluster, with TLS 1.3 and no other
  // version: each end shows a certificate. Null if `files` names none. kNotFound if a file does not
  // exist; kInvalidArgument if only some files are named, one cannot be used, or the key is not the
  // certificate's; kInternal if libssl has no TLS 1.3. The message names the file, and what to do
  // behind its last "; ". Who issued the certificate and when it expires is not checked here: peers
  // check it when they connect.
  static Result<std::shared_ptr<const TlsContext>> Load(const TlsFiles& files);

  // For the listening end of connections with anybody, who need no certificate, with TLS 1.2
  // or 1.3. The errors are those of Load.
  static Result<std::shared_ptr<const TlsContext>> LoadServer(const std::string& certificate,
                                                              const std::string& key);

  // Checks what a peer checks of this end in this role: ok if the certificate comes from the CA, is
  // valid now and may be used in the role; else kInvalidArgument with the reason. kInternal if
  // libssl cannot check it.
  Status CheckTrust(ControlRole role) const;

  // Checks what a peer that connects to `host`, a name or an IP address, checks: ok if the
  // certificate is for it; else kInvalidArgument with the names that it is for.
  Status CheckName(const std::string& host) const;

  // Time until the first certificate in the chain from this end's to the CA's expires; negative if
  // one has expired.
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

// The flags for X509_check_host and X509_VERIFY_PARAM_set_hostflags: a host name is looked for
// among the subjectAltNames only, and a wildcard stands for a whole label.
extern const unsigned kTlsNameFlags;

// The first error in this thread's OpenSSL error queue as text, "OpenSSL says: ...". Empties the
// queue.
std::string TakeOpenSslReason();

}  // namespace lamina
