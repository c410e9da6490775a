#include "base/net_address.h"

#include <arpa/inet.h>

namespace lamina {

std::string BracketedHost(const std::string& host) {
  const bool needs = host.find(':') != std::string::npos && !host.starts_with('[');
  return needs ? "[" + host + "]" : host;
}

std::string JoinHostPort(const std::string& host, int port) {
  return BracketedHost(host) + ":" + std::to_string(port);
}

std::string CanonicalHost(std::string_view host) {
  const bool in_brackets = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
  const std::string bare(in_brackets ? host.substr(1, host.size() - 2) : host);
  in6_addr address{};
  char text[INET6_ADDRSTRLEN] = "";
  if (inet_pton(AF_INET6, bare.c_str(), &address) != 1) return std::string(host);
  return inet_ntop(AF_INET6, &address, text, sizeof(text)) != nullptr ? text : std::string(host);
}

}  // namespace lamina
