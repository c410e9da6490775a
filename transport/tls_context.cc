#include "transport/tls_context.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cerrno>

#include "transport/posix.h"
#include "transport/private_file.h"

namespace lamina {
namespace {

// Four times what the longest RSA keys in use take.
constexpr size_t kMaxKeyBytes = size_t{64} << 10;

// ChaCha20 first: unlike AES-GCM it has no limit on what one key may encrypt, and these connections
// live for months.
constexpr char kCipherSuites[] =
    "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256";

template <auto kFree>
struct FreeWith {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioHandle = std::unique_ptr<BIO, FreeWith<BIO_free>>;
using KeyHandle = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using VerifyHandle = std::unique_ptr<X509_STORE_CTX, FreeWith<X509_STORE_CTX_free>>;

Status CheckComplete(const TlsFiles& files) {
  const char* missing = files.certificate.empty() ? "certificate"
                        : files.key.empty()       ? "key"
                        : files.ca.empty()        ? "ca"
                                                  : nullptr;
  if (missing == nullptr) return OkStatus();
  return InvalidArgument(
      std::string("TLS needs a certificate, a key and a CA, and there is no ") + missing +
      "; name all three files (" +
      "daemons: --tls-certificate, --tls-key, --tls-ca; cluster YAML: cluster.tls), or none");
}

Status CheckReadable(const std::string& what, const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.valid()) return OkStatus();
  const StatusCode code = errno == ENOENT ? StatusCode::kNotFound : StatusCode::kInvalidArgument;
  return Status(code, what + " " + path + " cannot be opened, " + ErrnoText("open") +
                          "; copy it there (docs/tls.md says how to make one)");
}

// Called by OpenSSL for a key with a passphrase. A daemon must not ask for it on a terminal.
int RefusePassphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

Result<KeyHandle> ReadKey(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(
      std::string bytes,
      ReadPrivateFile(
          {path, "TLS key", "copy it there (docs/tls.md says how to make one)", kMaxKeyBytes}));
  bool asked = false;
  const BioHandle bio(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
  KeyHandle key(PEM_read_bio_PrivateKey(bio.get(), nullptr, RefusePassphrase, &asked));
  OPENSSL_cleanse(bytes.data(), bytes.size());  // no copy of the key stays in freed memory
  if (asked) {
    return InvalidArgument(
        "TLS key " + path +
        " has a passphrase, which nobody could type; take it off with `openssl pkey -in " + path +
        " -out FILE`");
  }
  if (key == nullptr) {
    return InvalidArgument("TLS key " + path + " is not a private key in PEM form, " +
                           TakeOpenSslReason() + "; docs/tls.md says how to make one");
  }
  return key;
}

Status UseCertificate(SSL_CTX* context, const std::string& certificate,
                      const std::string& key_file) {
  LAMINA_RETURN_IF_ERROR(CheckReadable("TLS certificate", certificate));
  if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    return InvalidArgument("TLS certificate " + certificate + " cannot be used, " +
                           TakeOpenSslReason() +
                           "; it must be in PEM form, and docs/tls.md says how to make one");
  }
  LAMINA_ASSIGN_OR_RETURN(const KeyHandle key, ReadKey(key_file));
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    return InvalidArgument("TLS key " + key_file + " does not belong to the certificate " +
                           certificate + ", " + TakeOpenSslReason() +
                           "; take the key that the certificate was made with");
  }
  return OkStatus();
}

Status TrustCa(SSL_CTX* context, const std::string& ca) {
  LAMINA_RETURN_IF_ERROR(CheckReadable("TLS CA", ca));
  if (SSL_CTX_load_verify_file(context, ca.c_str()) != 1) {
    return InvalidArgument("TLS CA " + ca + " cannot be used, " + TakeOpenSslReason() +
                           "; it must hold the CA's certificate in PEM form");
  }
  return OkStatus();
}

// What holds for all of this program's connections.
void SetModes(SSL_CTX* context) {
  // A write that is tried again may come from another buffer with the same bytes
  // (ControlStream::Write).
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // No sessions are resumed: each connection shows its certificates anew.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
}

// Verifies the context's certificate against its CA, for an OpenSSL purpose such as "ssl_server".
// X509_STORE_CTX_get_error of what it returns says how that ended; null if OpenSSL has no memory.
VerifyHandle Verified(SSL_CTX* context, const char* purpose, unsigned long flags) {
  VerifyHandle check(X509_STORE_CTX_new());
  STACK_OF(X509)* between = nullptr;
  SSL_CTX_get0_chain_certs(context, &between);
  X509* own = SSL_CTX_get0_certificate(context);
  if (check == nullptr ||
      X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context), own, between) != 1)
    return nullptr;
  X509_STORE_CTX_set_default(check.get(), purpose);
  X509_STORE_CTX_set_flags(check.get(), flags);
  X509_verify_cert(check.get());
  ERR_clear_error();
  return check;
}

std::chrono::seconds TimeLeft(const X509* certificate) {
  int days = 0, seconds = 0;
  // The date cannot be read: counts as expired.
  if (ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(certificate)) != 1)
    return std::chrono::seconds(-1);
  return std::chrono::hours(24) * days + std::chrono::seconds(seconds);
}

// "DNS:gpu0, IP Address:10.0.0.1"
std::string NamesIn(const X509* certificate) {
  const int at = X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
  const BioHandle text(BIO_new(BIO_s_mem()));
  if (at < 0 || X509V3_EXT_print(text.get(), X509_get_ext(certificate, at), 0, 0) != 1)
    return "no name at all";
  char* begin = nullptr;
  const long size = BIO_get_mem_data(text.get(), &begin);
  return {begin, static_cast<size_t>(size)};
}

}  // namespace

const unsigned kTlsNameFlags =
    X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS;

std::string TakeOpenSslReason() {
  const unsigned long error = ERR_get_error();
  const char* reason = ERR_SYSTEM_ERROR(error) ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  return reason == nullptr ? "OpenSSL does not say why" : std::string("OpenSSL says: ") + reason;
}

void TlsContext::Free::operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

Result<std::shared_ptr<const TlsContext>> TlsContext::Load(const TlsFiles& files) {
  if (files.empty()) return std::shared_ptr<const TlsContext>();
  LAMINA_RETURN_IF_ERROR(CheckComplete(files));
  ERR_clear_error();  // TakeOpenSslReason must find no error of an earlier call
  Handle handle(SSL_CTX_new(TLS_method()));
  SSL_CTX* context = handle.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kCipherSuites) != 1) {
    return InternalError("libssl has no TLS 1.3, " + TakeOpenSslReason());
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SetModes(context);
  LAMINA_RETURN_IF_ERROR(UseCertificate(context, files.certificate, files.key));
  LAMINA_RETURN_IF_ERROR(TrustCa(context, files.ca));
  return std::shared_ptr<const TlsContext>(new TlsContext(files, std::move(handle)));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::LoadServer(const std::string& certificate,
                                                                 const std::string& key) {
  ERR_clear_error();
  Handle handle(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* context = handle.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
    return InternalError("libssl has no TLS 1.2, " + TakeOpenSslReason());
  SetModes(context);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);  // of the many that only wait
  LAMINA_RETURN_IF_ERROR(UseCertificate(context, certificate, key));
  return std::shared_ptr<const TlsContext>(
      new TlsContext({.certificate = certificate, .key = key, .ca = ""}, std::move(handle)));
}

Status TlsContext::CheckTrust(ControlRole role) const {
  const VerifyHandle check =
      Verified(get(), role == ControlRole::kListener ? "ssl_server" : "ssl_client", 0);
  if (check == nullptr) return InternalError("libssl cannot verify a certificate");
  const int error = X509_STORE_CTX_get_error(check.get());
  if (error == X509_V_OK) return OkStatus();
  return InvalidArgument("TLS certificate " + files_.certificate +
                         " is refused by whoever trusts the CA " + files_.ca + ", " +
                         X509_verify_cert_error_string(error) +
                         "; make a certificate with that CA (docs/tls.md)");
}

Status TlsContext::CheckName(const std::string& host) const {
  X509* own = SSL_CTX_get0_certificate(get());
  const bool is_for_host =
      X509_check_ip_asc(own, host.c_str(), 0) == 1 ||
      X509_check_host(own, host.data(), host.size(), kTlsNameFlags, nullptr) == 1;
  ERR_clear_error();
  if (is_for_host) return OkStatus();
  return InvalidArgument("TLS certificate " + files_.certificate + " is for " + NamesIn(own) +
                         " and not for " + host +
                         "; make one with that subjectAltName, or call the host in the cluster "
                         "YAML as the certificate does");
}

std::chrono::seconds TlsContext::time_left() const {
  // Without regard to time, or there would be no chain once a certificate has expired.
  const VerifyHandle check = Verified(get(), "default", X509_V_FLAG_NO_CHECK_TIME);
  std::chrono::seconds least = TimeLeft(SSL_CTX_get0_certificate(get()));
  const STACK_OF(X509)* chain = check == nullptr ? nullptr : X509_STORE_CTX_get0_chain(check.get());
  for (int i = 0; i < sk_X509_num(chain); ++i)
    least = std::min(least, TimeLeft(sk_X509_value(chain, i)));
  return least;
}

}  // namespace lamina
