// The certificate of an HTTPS server, which is renewed while it serves.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/tls_context.h"

namespace lamina {

// Thread: the server's.
class RenewedCertificate {
 public:
  // Files that changed are seen by the first connection after so long.
  static constexpr auto kCheckInterval = std::chrono::seconds(1);

  // Errors are those of TlsContext::LoadServer.
  static Result<std::unique_ptr<RenewedCertificate>> Load(const std::string& certificate,
                                                          const std::string& key);

  // For a connection that begins. Reads the files again if they have changed. As long as what they
  // hold cannot be used, which is so while they are being written, the last certificate stays, and
  // the reason is logged once. Connections keep the one that they began with.
  std::shared_ptr<const TlsContext> Current(TimePoint now);

 private:
  RenewedCertificate(std::string certificate, std::string key)
      : certificate_(std::move(certificate)), key_(std::move(key)) {}
  // Changes with either file.
  std::string Fingerprint() const;

  const std::string certificate_, key_;
  std::shared_ptr<const TlsContext> context_;
  std::string loaded_;      // the fingerprint of the files that context_ is of
  std::string refused_;     // that of files which could not be used
  TimePoint next_check_{};  // before then the files are not looked at
};

}  // namespace lamina
