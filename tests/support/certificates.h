// Certificates for tests: a CA, and what it issues.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>

#include "base/tls_files.h"

namespace lamina::testing {

struct CertificateWishes {
  std::string names = "IP:127.0.0.1,DNS:localhost";  // subjectAltName as in openssl.cnf; "": none
  int first_day = -1;                                // from today
  int last_day = 365;
  std::string usage = "";  // extendedKeyUsage: "serverAuth", "clientAuth"; "": any
};

// Writes into a folder that outlives it. Throws std::runtime_error if OpenSSL or the disk does not
// do as it should.
class TestCa {
 public:
  // FOLDER/NAME.pem, valid from yesterday for `last_day` days.
  explicit TestCa(std::string folder, const std::string& name = "ca", int last_day = 3650);
  ~TestCa();

  const std::string& path() const { return path_; }

  // FOLDER/NAME.pem and FOLDER/NAME.key, mode 600.
  TlsFiles Issue(const std::string& name, const CertificateWishes& wishes = {}) const;

 private:
  struct Identity;  // a certificate and its key

  std::string folder_, path_;
  std::unique_ptr<Identity> own_;
};

}  // namespace lamina::testing
