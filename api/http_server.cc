#include "api/http_server.h"

#include <unistd.h>

#include <boost/asio.hpp>
#include <future>
#include <thread>
#include <utility>

#include "api/http_session.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/net_address.h"

namespace lamina {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kAcceptsPerTurn = 64;
// After running out of file descriptors, for example.
constexpr auto kAcceptRetry = milliseconds(100);

Result<tcp::endpoint> Resolve(asio::io_context& io, const std::string& host, uint16_t port) {
  error_code error;
  const auto found =
      tcp::resolver(io).resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty())
    return InvalidArgument("cannot listen on '" + host +
                           "': " + (error ? error.message() : "unknown host"));
  return found.begin()->endpoint();
}

}  // namespace

std::string OpenServerWarning(const std::string& address, bool has_api_key) {
  error_code error;
  const asio::ip::address parsed = asio::ip::make_address(address, error);
  if (has_api_key || (!error && parsed.is_loopback())) return "";
  return "the HTTP server listens on " + address +
         " without an API key: whoever reaches it can use the model; give it one with "
         "--api-key-file FILE, or --host 127.0.0.1";
}

// The thread, its sockets and the service.
class HttpServer::Loop {
 public:
  Loop(const ServerOptions& options, std::unique_ptr<RenewedCertificate> certificate,
       ServedModel model, Metrics& metrics)
      : options_(options),
        service_(options.service, std::move(model), metrics),
        context_(options_, std::move(certificate), service_) {}

  ~Loop() { Stop(Clock::duration::zero()); }

  Status Listen() {
    LAMINA_ASSIGN_OR_RETURN(const tcp::endpoint endpoint,
                            Resolve(io_, options_.host, options_.port));
    error_code error;
    events_.assign(dup(service_.events_fd()), error);
    if (error) return OutOfSpace("cannot start the HTTP server: " + error.message());
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) acceptor_.non_blocking(true, error);
    const std::string where =
        "cannot listen on " + JoinHostPort(options_.host, options_.port) + ": ";
    if (error == asio::error::address_in_use)
      return InvalidArgument(
          where + "the port is in use by another program; stop it or choose another port");
    if (error == asio::error::access_denied)
      return InvalidArgument(where + "not permitted; choose a port above 1023");
    if (error) return InvalidArgument(where + error.message());
    port_ = acceptor_.local_endpoint(error).port();
    const std::string warning =
        OpenServerWarning(endpoint.address().to_string(), !options_.service.api_key.empty());
    if (!warning.empty()) LAMINA_LOG_WARN("{}", warning);
    return OkStatus();
  }

  void Start() {
    MutexLock lock(control_mutex_);
    if (thread_.joinable()) return;
    asio::co_spawn(io_, Accept(), asio::detached);
    asio::co_spawn(io_, DeliverEvents(), asio::detached);
    thread_ = std::thread([this] { io_.run(); });
  }

  void SetEngine(Engine* engine) {
    MutexLock lock(control_mutex_);
    if (!thread_.joinable()) return service_.SetEngine(engine);
    std::promise<void> done;
    asio::post(io_, [&] {
      service_.SetEngine(engine);
      done.set_value();
    });
    done.get_future().wait();
  }

  size_t Stop(Clock::duration grace) {
    MutexLock one_at_a_time(stop_mutex_);
    if (!started()) return 0;
    std::promise<void> idle;
    asio::post(io_, [&] { service_.Drain([&idle] { idle.set_value(); }); });
    idle.get_future().wait_for(grace);
    MutexLock lock(control_mutex_);
    asio::post(io_, [this] { CloseAll(); });
    thread_.join();  // io_ runs out of work: everything that waited was closed
    return service_.num_failed_draining();
  }

  uint16_t port() const { return port_; }

 private:
  bool started() {
    MutexLock lock(control_mutex_);
    return thread_.joinable();
  }

  void CloseAll() {
    service_.FailAll(TryAgain("the server is shutting down"));
    service_.SetEngine(nullptr);
    error_code ignored;
    acceptor_.close(ignored);
    accept_retry_.cancel();
    events_.close(ignored);
    ShutdownSessions(context_);
  }

  asio::awaitable<void> Accept() {
    while (acceptor_.is_open()) {
      error_code error;
      tcp::socket socket(io_);
      co_await acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
      if (error) {
        if (!acceptor_.is_open()) break;
        LAMINA_LOG_WARN("cannot accept a connection: {}", error.message());
        accept_retry_.expires_after(kAcceptRetry);
        co_await accept_retry_.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      StartSession(std::move(socket), context_);
      AcceptWaiting();
    }
  }

  // Those that wait already, so that a newcomer does not wait for a turn of every session for each
  // one before it.
  void AcceptWaiting() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      error_code error;
      tcp::socket socket(io_);
      acceptor_.accept(socket, error);
      if (error) return;  // none waits any more; other errors come again, to the one that waits
      StartSession(std::move(socket), context_);
    }
  }

  asio::awaitable<void> DeliverEvents() {
    error_code error;
    while (!error) {
      co_await events_.async_wait(asio::posix::stream_descriptor::wait_read,
                                  asio::redirect_error(asio::use_awaitable, error));
      if (!error) service_.DeliverEvents();
    }
  }

  const ServerOptions options_;
  ApiService service_;
  SessionContext context_;
  // Sessions die with it at the latest: declared behind what they use.
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer accept_retry_{io_};
  asio::posix::stream_descriptor events_{io_};  // a second descriptor of the service's eventfd
  uint16_t port_ = 0;
  Mutex stop_mutex_;     // held by the thread in Stop; taken before control_mutex_
  Mutex control_mutex_;  // SetEngine must not meet the thread's beginning or end
  std::thread thread_ GUARDED_BY(control_mutex_);
};

Result<std::unique_ptr<HttpServer>> HttpServer::Create(const ServerOptions& options,
                                                       ServedModel model, Metrics& metrics) {
  std::unique_ptr<RenewedCertificate> certificate;
  if (options.ssl_certfile.empty() != options.ssl_keyfile.empty())
    return InvalidArgument("HTTPS needs both --ssl-certfile and --ssl-keyfile");
  if (!options.ssl_certfile.empty()) {
    LAMINA_ASSIGN_OR_RETURN(certificate,
                            RenewedCertificate::Load(options.ssl_certfile, options.ssl_keyfile));
  }
  auto loop = std::make_unique<Loop>(options, std::move(certificate), std::move(model), metrics);
  LAMINA_RETURN_IF_ERROR(loop->Listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(loop)));
}

HttpServer::HttpServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
HttpServer::~HttpServer() = default;

void HttpServer::Start() { loop_->Start(); }
void HttpServer::SetEngine(Engine* engine) { loop_->SetEngine(engine); }
size_t HttpServer::Stop(Clock::duration grace) { return loop_->Stop(grace); }
uint16_t HttpServer::port() const { return loop_->port(); }

}  // namespace lamina
