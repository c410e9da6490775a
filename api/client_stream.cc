#include "api/client_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ssl.hpp>
#include <exception>

#include "transport/server_trust.h"

namespace lamina {

namespace asio = boost::asio;
using boost::system::error_code;

struct ClientTls::Context {
  // OpenSSL counts the connections that use it, which only read it.
  asio::ssl::context context{asio::ssl::context::tls_client};
};

ClientTls::ClientTls(std::unique_ptr<Context> context) : context_(std::move(context)) {}
ClientTls::~ClientTls() = default;

Result<std::shared_ptr<const ClientTls>> ClientTls::Create(const std::string& ca_file,
                                                           bool check_certificate) {
  std::unique_ptr<Context> context;
  try {
    context = std::make_unique<Context>();
  } catch (const std::exception& error) {
    return InternalError(std::string("libssl cannot be used: ") + error.what());
  }
  if (check_certificate)
    LAMINA_RETURN_IF_ERROR(TrustCas(context->context.native_handle(), ca_file));
  return std::shared_ptr<const ClientTls>(new ClientTls(std::move(context)));
}

bool IsCutTls(const error_code& error) { return error == asio::ssl::error::stream_truncated; }

struct ClientStream::Tls {
  Tls(boost::beast::tcp_stream& tcp, asio::ssl::context& context) : stream(tcp, context) {}

  asio::ssl::stream<boost::beast::tcp_stream&> stream;
};

ClientStream::ClientStream(asio::io_context& io) : tcp_(io) {}
ClientStream::~ClientStream() = default;

Status ClientStream::BeginTls(const ClientTls& tls, const std::string& host) {
  try {
    tls_ = std::make_unique<Tls>(tcp_, tls.context_->context);
  } catch (const std::exception& error) {
    return InternalError(std::string("libssl cannot make a connection: ") + error.what());
  }
  return ExpectHost(tls_->stream.native_handle(), host);
}

void ClientStream::Handshake(HandshakeDone done) {
  tls_->stream.async_handshake(asio::ssl::stream_base::client, std::move(done));
}

Status ClientStream::HandshakeError(const error_code& error, const std::string& authority) const {
  LAMINA_RETURN_IF_ERROR(RefusalOf(tls_->stream.native_handle(), authority));
  // What came is no record of TLS, which begins with its type and version.
  const bool is_foreign =
      error.category() == asio::error::get_ssl_category() &&
      ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_WRONG_VERSION_NUMBER;
  if (is_foreign)
    return Corrupt(authority +
                   " does not speak TLS; if it speaks plain HTTP, its URL begins with http://");
  const bool is_closed = IsCutTls(error) || error == asio::error::eof ||
                         error == asio::error::connection_reset ||
                         error == asio::error::broken_pipe;
  return PeerLost(authority + ": TLS handshake: " +
                  (is_closed ? "the server closed the connection; if it speaks plain HTTP, its URL "
                               "begins with http://"
                             : error.message()));
}

void ClientStream::Read(asio::mutable_buffer into, Done done) {
  if (tls_ != nullptr) return tls_->stream.async_read_some(into, std::move(done));
  tcp_.async_read_some(into, std::move(done));
}

void ClientStream::Write(asio::const_buffer from, Done done) {
  if (tls_ != nullptr) return tls_->stream.async_write_some(from, std::move(done));
  tcp_.async_write_some(from, std::move(done));
}

}  // namespace lamina
