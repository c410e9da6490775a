#include "transport/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace lamina {
namespace {

// One Write is at most one TLS record: what OpenSSL has encrypted must be tried again with the same
// bytes.
constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;

// Alerts by which a peer says that it refuses this end's certificate (RFC 8446, section 6.2).
constexpr int kCertificateAlerts[] = {SSL_AD_BAD_CERTIFICATE,     SSL_AD_UNSUPPORTED_CERTIFICATE,
                                      SSL_AD_CERTIFICATE_REVOKED, SSL_AD_CERTIFICATE_EXPIRED,
                                      SSL_AD_CERTIFICATE_UNKNOWN, SSL_AD_UNKNOWN_CA,
                                      SSL_AD_ACCESS_DENIED,       TLS13_AD_CERTIFICATE_REQUIRED};

// Verification results that mean that the certificate comes from another CA.
constexpr long kForeignResults[] = {
    X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT,       X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
    X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT,     X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN,
    X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, X509_V_ERR_CERT_SIGNATURE_FAILURE};

class TlsStream final : public ControlStream {
 public:
  TlsStream(UniqueFd socket, ControlRole role, const std::string& host,
            std::shared_ptr<const TlsContext> context)
      : socket_(std::move(socket)), role_(role), host_(host), context_(std::move(context)) {}

  Status Open();  // called once, before anything else

  int fd() const override { return socket_.get(); }
  Status Handshake() override;
  short wanted_events() const override { return wanted_events_; }
  Result<size_t> Read(std::span<char> into) override;
  bool has_buffered() const override { return SSL_pending(ssl_.get()) > 0 || !broken_.ok(); }
  Result<size_t> Write(std::string_view first, std::string_view second) override;
  void EndOutput() override;

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  // How OpenSSL reads and writes the socket. Its own socket BIO would raise SIGPIPE on write.
  static const BIO_METHOD* SocketMethod();
  static int ReadSocket(BIO* bio, char* into, int size);
  static int WriteSocket(BIO* bio, const char* bytes, int size);

  // The cause of a failed OpenSSL call that returned `result`. kTryAgain if the socket must become
  // ready first (wanted_events_), kNotFound if the peer has closed its end.
  Status Failure(int result);
  Status Explain() const;         // the cause of SSL_ERROR_SSL, from OpenSSL's error queue
  Status ExplainRefusal() const;  // why this end refuses the peer's certificate
  void SayWhy();

  const UniqueFd socket_;
  const ControlRole role_;
  const std::string host_;
  const std::shared_ptr<const TlsContext> context_;  // shared by all connections of this end
  std::unique_ptr<SSL, Free> ssl_;
  short wanted_events_ = POLLIN;
  bool heard_ = false;          // the peer's first byte has come
  bool peer_is_plain_ = false;  // the first byte was that of a control frame without TLS
  bool peer_closed_ = false;
  int io_error_ = 0;  // errno of the socket's last failure
  Status broken_;     // what the next Read returns
  std::array<char, kRecordBytes> record_;
};

const BIO_METHOD* TlsStream::SocketMethod() {
  static BIO_METHOD* const kMethod = [] {
    BIO_METHOD* method =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "lamina control channel");
    if (method == nullptr) return method;
    BIO_meth_set_read(method, ReadSocket);
    BIO_meth_set_write(method, WriteSocket);
    BIO_meth_set_ctrl(
        method, [](BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1L : 0L; });
    return method;
  }();
  return kMethod;
}

int TlsStream::ReadSocket(BIO* bio, char* into, int size) {
  auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(stream.fd(), into, static_cast<size_t>(size), 0);
  if (got == 0) stream.peer_closed_ = true;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    BIO_set_retry_read(bio);
  } else if (got < 0) {
    stream.io_error_ = errno;
  }
  if (got > 0 && !stream.heard_) {
    stream.heard_ = true;
    // No TLS record begins with the first byte of a control frame.
    stream.peer_is_plain_ = into[0] == static_cast<char>(kControlMagic & 0xff);
  }
  return static_cast<int>(got);
}

int TlsStream::WriteSocket(BIO* bio, const char* bytes, int size) {
  auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const ssize_t sent = send(stream.fd(), bytes, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
    BIO_set_retry_write(bio);
  } else if (sent < 0) {
    stream.io_error_ = errno;
  }
  return static_cast<int>(sent);
}

Status TlsStream::Open() {
  ssl_.reset(SSL_new(context_->get()));
  BIO* bio = SocketMethod() == nullptr ? nullptr : BIO_new(SocketMethod());
  if (ssl_ == nullptr || bio == nullptr) {
    BIO_free(bio);
    return InternalError("no TLS connection, " + TakeOpenSslReason());
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);  // takes the BIO
  if (role_ == ControlRole::kListener) {
    SSL_set_accept_state(ssl_.get());
    return OkStatus();
  }
  SSL_set_connect_state(ssl_.get());
  X509_VERIFY_PARAM* wanted = SSL_get0_param(ssl_.get());
  X509_VERIFY_PARAM_set_hostflags(wanted, kTlsNameFlags);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host_.c_str()) == 1 ||
      X509_VERIFY_PARAM_set1_host(wanted, host_.data(), host_.size()) == 1) {
    return OkStatus();
  }
  return InvalidArgument("\"" + host_ + "\" is no host that a certificate could be for");
}

Status TlsStream::Handshake() {
  if (SSL_is_init_finished(ssl_.get())) return OkStatus();
  // Here and below: SSL_get_error is right only if the thread's error queue was empty before the
  // call (SSL_get_error(3)).
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    wanted_events_ = POLLIN;
    return OkStatus();
  }
  const Status failure = Failure(result);
  if (failure.code() == StatusCode::kTryAgain)
    return TryAgain("the peer does not go on with the TLS handshake");
  SayWhy();
  if (failure.code() == StatusCode::kNotFound)
    return PeerLost("the peer closed the connection during the TLS handshake");
  return failure;
}

Result<size_t> TlsStream::Read(std::span<char> into) {
  size_t filled = 0;
  while (broken_.ok() && filled < into.size()) {
    ERR_clear_error();
    size_t got = 0;
    const int result = SSL_read_ex(ssl_.get(), into.data() + filled, into.size() - filled, &got);
    if (result == 1) {
      filled += got;
      continue;
    }
    const Status failure = Failure(result);
    if (failure.code() == StatusCode::kTryAgain)
      return filled > 0 ? Result<size_t>(filled) : failure;
    if (failure.code() == StatusCode::kNotFound) return filled;  // the next Read returns 0
    // What was read before the failure comes first.
    broken_ = failure;
  }
  if (filled > 0) return filled;
  return broken_;
}

Result<size_t> TlsStream::Write(std::string_view first, std::string_view second) {
  std::string_view bytes = first.empty() ? second : first;
  // Header and payload go into one record together: a small frame is one record, not two.
  if (!first.empty() && !second.empty()) {
    const size_t first_bytes = first.copy(record_.data(), record_.size());
    bytes = {record_.data(),
             first_bytes + second.copy(record_.data() + first_bytes, record_.size() - first_bytes)};
  }
  ERR_clear_error();
  size_t written = 0;
  const int result =
      SSL_write_ex(ssl_.get(), bytes.data(), std::min(bytes.size(), kRecordBytes), &written);
  if (result == 1) return written;
  const Status failure = Failure(result);
  if (failure.code() == StatusCode::kNotFound)
    return PeerLost("write: the peer has closed the connection");
  return failure;
}

// A peer that reads to the end knows by the alert close_notify that nobody cut it short.
void TlsStream::EndOutput() {
  ERR_clear_error();
  if (SSL_is_init_finished(ssl_.get())) SSL_shutdown(ssl_.get());
  ERR_clear_error();
  shutdown(fd(), SHUT_WR);
}

Status TlsStream::Failure(int result) {
  const int error = SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    wanted_events_ = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return TryAgain();
  }
  if (error == SSL_ERROR_SSL) {
    Status cause = Explain();
    ERR_clear_error();
    return cause;
  }
  if (error == SSL_ERROR_ZERO_RETURN || peer_closed_) return NotFound("");
  return PeerLost(ErrnoText("TLS", io_error_));
}

Status TlsStream::Explain() const {
  if (peer_is_plain_) {
    return InvalidArgument(
        "the peer does not speak TLS, and this end was given a certificate: pass "
        "--tls-certificate, --tls-key and "
        "--tls-ca to every daemon, or set cluster.tls in the cluster YAML");
  }
  // The last error is libssl's; below it in the queue may be those of the libraries that it uses.
  const unsigned long error = ERR_peek_last_error();
  const int reason = ERR_GET_REASON(error);
  const bool is_ssl = ERR_GET_LIB(error) == ERR_LIB_SSL;
  if (is_ssl && reason == SSL_R_CERTIFICATE_VERIFY_FAILED) return ExplainRefusal();
  if (is_ssl && reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    return InvalidArgument("the peer showed no certificate: give it one of the CA in " +
                           context_->files().ca);
  }
  if (is_ssl && reason > SSL_AD_REASON_OFFSET) {
    const int alert = reason - SSL_AD_REASON_OFFSET;
    const std::string text = SSL_alert_desc_string_long(alert);
    if (std::ranges::find(kCertificateAlerts, alert) == std::end(kCertificateAlerts)) {
      return PeerLost("the peer ended TLS with the alert \"" + text + "\"");
    }
    return InvalidArgument("the peer refused the certificate of this end, " +
                           context_->files().certificate + ": " + text +
                           "; every node needs a certificate of the same CA, for the name by which "
                           "it is connected to");
  }
  return Corrupt("the peer does not speak TLS 1.3 as it should, " + TakeOpenSslReason());
}

Status TlsStream::ExplainRefusal() const {
  const long result = SSL_get_verify_result(ssl_.get());
  if (result == X509_V_ERR_HOSTNAME_MISMATCH || result == X509_V_ERR_IP_ADDRESS_MISMATCH) {
    return InvalidArgument(
        "the peer's certificate is not for \"" + host_ +
        "\", which was connected to: make it one with that " +
        "subjectAltName, or call the node's host in the cluster YAML as its certificate does");
  }
  if (std::ranges::find(kForeignResults, result) != std::end(kForeignResults)) {
    return InvalidArgument("the peer's certificate does not come from the CA in " +
                           context_->files().ca + ": give every node a certificate of the same CA");
  }
  return InvalidArgument(std::string("the peer's certificate is refused: ") +
                         X509_verify_cert_error_string(result));
}

// Lets the peer say what went wrong too. OpenSSL has sent its alert already; a peer without TLS
// gets one that it recognises.
void TlsStream::SayWhy() {
  if (peer_is_plain_ && role_ == ControlRole::kListener) {
    [[maybe_unused]] const ssize_t sent =
        send(fd(), kTlsRefusal.data(), kTlsRefusal.size(), MSG_NOSIGNAL);
  }
  // Closing with bytes unread would reset the connection, and the alert might get lost.
  for (size_t i = 0; i < 4 && recv(fd(), record_.data(), record_.size(), 0) > 0; ++i) {
  }
}

}  // namespace

Result<std::unique_ptr<ControlStream>> MakeTlsStream(UniqueFd socket, ControlRole role,
                                                     const std::string& host,
                                                     std::shared_ptr<const TlsContext> context) {
  auto stream = std::make_unique<TlsStream>(std::move(socket), role, host, std::move(context));
  LAMINA_RETURN_IF_ERROR(stream->Open());
  return std::unique_ptr<ControlStream>(std::move(stream));
}

}  // namespace lamina
