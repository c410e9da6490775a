// Hosts and ports as text: "10.0.0.1:7101", "node-3:7101", "[fd00::7]:7101".
#pragma once

#include <string>
#include <string_view>

namespace lamina {

// The host as it stands before a port or in a URL: an IPv6 address in brackets, any other host as
// it is. Brackets that are there stay.
std::string BracketedHost(const std::string& host);

// BracketedHost(host):port.
std::string JoinHostPort(const std::string& host, int port);

// One text for one address, so that hosts can be compared as text: IPv6 addresses without brackets
// and in their shortest form. Anything else is returned as it is.
std::string CanonicalHost(std::string_view host);

}  // namespace lamina
