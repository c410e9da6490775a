// Hosts and ports as text: "10.0.0.1:7101", "node-3:7101", "[fd00::7]:7101".
#pragma once

#include <string>
#include <string_view>

namespace lamina {

// The host as it is written before a port or in a URL: an IPv6 address gets brackets unless it has
// them, any other host stays as it is.
std::string BracketedHost(const std::string& host);

// BracketedHost(host):port.
std::string JoinHostPort(const std::string& host, int port);

// A unique text for each address, so that hosts can be compared as text: an IPv6 address without
// brackets in its shortest form; anything else as it is.
std::string CanonicalHost(std::string_view host);

}  // namespace lamina
