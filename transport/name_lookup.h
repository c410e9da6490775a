// The addresses of a host, for clients that do not want to wait for ever.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace lamina {

// Asks the system for the addresses of `host`, a name or an address. kPeerLost: there are none;
// kTimeout: the system did not know within `timeout`. Its own patience with name servers that do
// not answer is longer, and cannot be cut short: a thread then stays behind until it is over.
// Thread: any.
Result<boost::asio::ip::tcp::resolver::results_type> LookUp(const std::string& host,
                                                            const std::string& port,
                                                            Clock::duration timeout);

}  // namespace lamina
