// Who may stay connected to the server when more clients come than it has places for.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"

namespace lamina {

// When all places are taken, the connection that waits longest for its client makes room: of the
// origin (transport/strangers.h) that has most of them. If every place is taken by a request under
// way, a new connection gets one of a few last places, in which only /health and its like are
// answered; the eldest of those makes room for the next. It knows no sockets. It outlives its
// places. Thread: the server's.
class ConnectionPlaces {
 public:
  explicit ConnectionPlaces(size_t num_places) : num_places_(num_places) {}
  ConnectionPlaces(const ConnectionPlaces&) = delete;
  ConnectionPlaces& operator=(const ConnectionPlaces&) = delete;

  // The place of one connection, until it leaves.
  class Place {
   public:
    // Takes a place for a connection from `origin`, if need be that of another one. `give_way` is
    // called when this one is to make room; it ends the connection and calls Leave.
    Place(ConnectionPlaces& all, std::string origin, std::function<void()> give_way);
    ~Place() { Leave(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    bool is_last() const { return last_.has_value(); }

    // Between these two calls the connection waits for its client and may be closed for another.
    void BeginWaiting();
    void EndWaiting();

    // Its place is free. May be called more than once.
    void Leave();

   private:
    friend class ConnectionPlaces;
    ConnectionPlaces& all_;
    const std::string origin_;
    const std::function<void()> give_way_;
    bool taken_ = true;
    std::optional<std::list<Place*>::iterator> waiting_;  // in all_.waiting_
    std::optional<std::list<Place*>::iterator> last_;     // in all_.last_
  };

 private:
  bool MakeRoom();

  const size_t num_places_;
  size_t num_taken_ = 0;  // last ones too
  // Those that wait, by origin. The one that has waited longest comes first.
  std::map<std::string, std::list<Place*>> waiting_;
  // Those that came when every ordinary place was taken. The eldest comes first.
  std::list<Place*> last_;
  // Until then nothing more is logged about connections that are closed for new ones.
  TimePoint next_warning_;
};

}  // namespace lamina
