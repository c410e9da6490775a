// One connection of the HTTP server.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "api/api_service.h"
#include "api/body_memory.h"
#include "api/connection_places.h"
#include "api/http_server.h"
#include "api/renewed_certificate.h"

namespace lamina {

class Session;

// What the sessions of a server share; outlives them. Thread: the server's.
struct SessionContext {
  SessionContext(const ServerOptions& server_options,
                 std::unique_ptr<RenewedCertificate> https_certificate, ApiService& api)
      : options(server_options),
        certificate(std::move(https_certificate)),
        service(api),
        places(static_cast<size_t>(server_options.max_connections)),
        bodies(std::make_shared<BodyMemory>(server_options.max_body_bytes_in_flight)),
        discarded(size_t{64} << 10) {}

  const ServerOptions& options;
  const std::unique_ptr<RenewedCertificate> certificate;  // null: plain HTTP
  ApiService& service;
  ConnectionPlaces places;
  std::shared_ptr<BodyMemory> bodies;
  std::set<Session*> sessions;  // those whose sockets are open
  std::vector<char> discarded;  // a buffer for what is read only to be thrown away
  bool stopping = false;
};

// Serves the connection until it ends. ConnectionPlaces says which one ends for it if there are too
// many, and whether it gets a last place: /health and its like are answered there, and everything
// else with 503.
void StartSession(boost::asio::ip::tcp::socket socket, SessionContext& context);

// The server stops: every session ends as soon as what it has queued is sent.
void ShutdownSessions(SessionContext& context);

}  // namespace lamina
