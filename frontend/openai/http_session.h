// One connection of the HTTP server.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <set>

#include "frontend/openai/api_service.h"
#include "frontend/openai/http_server.h"

namespace lamina {

class Session;

// What the sessions of a server share; outlives them. Thread: the server's.
struct SessionContext {
  const ServerOptions& options;
  ApiService& service;
  std::set<Session*> sessions;  // those that live
  bool stopping = false;
};

// Serves the connection until it ends. `refuse`: it gets a 503 and is closed.
void StartSession(boost::asio::ip::tcp::socket socket, SessionContext& context, bool refuse);

// The server stops: every session ends as soon as what it has queued is sent.
void ShutdownSessions(SessionContext& context);

}  // namespace lamina
