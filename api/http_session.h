// One connection of the HTTP server.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "api/api_service.h"
#include "api/body_memory.h"
#include "api/http_server.h"

namespace lamina {

class Session;

// What the sessions of a server share; outlives them. Thread: the server's.
struct SessionContext {
  SessionContext(const ServerOptions& server_options, ApiService& api)
      : options(server_options),
        service(api),
        bodies(std::make_shared<BodyMemory>(server_options.max_body_bytes_in_flight)),
        discarded(size_t{64} << 10) {}

  const ServerOptions& options;
  ApiService& service;
  std::shared_ptr<BodyMemory> bodies;
  std::set<Session*> sessions;  // those whose sockets are open
  // Those of them that wait for their client's next request, by the client's origin. The one that
  // has waited longest comes first.
  std::map<std::string, std::list<Session*>> waiting;
  // Those that came when every ordinary place was taken. The eldest comes first.
  std::list<Session*> last_places;
  std::vector<char> discarded;  // a buffer for what is read only to be thrown away
  // Until then nothing more is logged about connections that are closed for new ones.
  TimePoint next_warning;
  bool stopping = false;
};

// Serves the connection until it ends. When all places are taken, the connection that waits longest
// for its client makes room: of the origin (transport/strangers.h) that has most of them. If every
// place is taken by a request under way, the new one gets one of a few last places: /health and its
// like are answered there, and everything else with 503.
void StartSession(boost::asio::ip::tcp::socket socket, SessionContext& context);

// The server stops: every session ends as soon as what it has queued is sent.
void ShutdownSessions(SessionContext& context);

}  // namespace lamina
