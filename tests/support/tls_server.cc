#include "tests/support/tls_server.h"

#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cctype>
#include <list>
#include <thread>

namespace lamina::testing {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

struct TlsServer::State {
  State(const TlsFiles& files, Script to_say) : script(std::move(to_say)) {
    context.use_certificate_chain_file(files.certificate);
    context.use_private_key_file(files.key, asio::ssl::context::pem);
  }

  void Accept();
  void Serve(std::shared_ptr<tcp::socket> socket);

  Script script;
  asio::ssl::context context{asio::ssl::context::tls_server};
  asio::io_context io;
  tcp::acceptor acceptor{io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
  mutable std::mutex mutex;
  bool stopping = false;
  std::vector<TlsRequest> requests;
  std::list<std::shared_ptr<tcp::socket>> sockets;
  std::list<std::thread> threads;
};

void TlsServer::State::Accept() {
  while (true) {
    auto socket = std::make_shared<tcp::socket>(io);
    error_code error;
    acceptor.accept(*socket, error);
    const std::lock_guard lock(mutex);
    if (error || stopping) return;
    sockets.push_back(socket);
    threads.emplace_back([this, socket] { Serve(socket); });
  }
}

void TlsServer::State::Serve(std::shared_ptr<tcp::socket> socket) {
  error_code error;
  asio::ssl::stream<tcp::socket&> stream(*socket, context);
  stream.handshake(asio::ssl::stream_base::server, error);
  beast::flat_buffer buffer;
  bool keeps = true;
  while (keeps && !error) {
    http::request<http::string_body> message;
    http::read(stream, buffer, message, error);
    if (error) break;
    TlsRequest request{std::string(message.target()), {}};
    for (const auto& field : message) {
      std::string name(field.name_string());
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      request.headers[name] = std::string(field.value());
    }
    {
      const std::lock_guard lock(mutex);
      requests.push_back(request);
    }
    const TlsAnswer answer = script(request);
    keeps = answer.keep;
    asio::write(stream, asio::buffer(answer.bytes), error);
    while (!answer.endless.empty() && !error)
      asio::write(stream, asio::buffer(answer.endless), error);
    char ignored = 0;
    if (answer.hang && !error) stream.read_some(asio::buffer(&ignored, 1), error);
  }
  socket->shutdown(tcp::socket::shutdown_both, error);
}

TlsServer::TlsServer(const TlsFiles& files, Script script)
    : state_(std::make_unique<State>(files, std::move(script))) {
  state_->threads.emplace_back([state = state_.get()] { state->Accept(); });
}

TlsServer::~TlsServer() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    error_code ignored;
    ::shutdown(state_->acceptor.native_handle(), SHUT_RDWR);
    for (const auto& socket : state_->sockets)
      socket->shutdown(tcp::socket::shutdown_both, ignored);
  }
  // The accepting thread is the first; it adds no more.
  for (std::thread& thread : state_->threads) thread.join();
}

int TlsServer::port() const { return state_->acceptor.local_endpoint().port(); }

std::vector<TlsRequest> TlsServer::requests() const {
  const std::lock_guard lock(state_->mutex);
  return state_->requests;
}

}  // namespace lamina::testing
