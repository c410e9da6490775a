#include "transport/network_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <memory>

namespace lamina {

std::string InterfaceOf(const std::string& ip_address) {
  in_addr v4{};
  in6_addr v6{};
  const bool is_v4 = inet_pton(AF_INET, ip_address.c_str(), &v4) == 1;
  const bool is_v6 = inet_pton(AF_INET6, ip_address.c_str(), &v6) == 1;
  ifaddrs* first = nullptr;
  if ((!is_v4 && !is_v6) || getifaddrs(&first) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(first, freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;  // an interface without an address
    const int family = entry->ifa_addr->sa_family;
    const bool found =
        (is_v4 && family == AF_INET &&
         reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr.s_addr == v4.s_addr) ||
        (is_v6 && family == AF_INET6 &&
         IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr,
                            &v6) != 0);
    if (found) return entry->ifa_name;
  }
  return "";
}

}  // namespace lamina
