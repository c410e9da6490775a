#include "transport/strangers.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <map>
#include <string_view>

namespace lamina {
namespace {

// The part of an IPv6 address that names the network. A provider gives a customer at least one
// network of this size.
constexpr size_t kNetworkBytes = 8;

}  // namespace

std::string OriginOf(const std::string& peer_address) {
  std::string_view host = std::string_view(peer_address).substr(0, peer_address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(std::string(host), error);
  if (error) return peer_address;
  if (address.is_v4()) return address.to_string();
  auto v6 = address.to_v6();
  // What a socket of both families calls an IPv4 peer: without this, all of them were one origin.
  if (v6.is_v4_mapped())
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, v6).to_string();
  auto bytes = v6.to_bytes();
  std::fill(bytes.begin() + kNetworkBytes, bytes.end(), uint8_t{0});
  return boost::asio::ip::address_v6(bytes).to_string() + "/64";
}

std::optional<size_t> WhoMakesRoom(std::span<const Stranger> strangers) {
  struct Share {
    size_t count = 0;
    size_t eldest = 0;
  };
  std::map<std::string_view, Share> shares;
  for (size_t i = 0; i < strangers.size(); ++i) {
    Share& share = shares[strangers[i].origin];
    if (share.count++ == 0) share.eldest = i;
  }
  const auto less = [&](const auto& a, const auto& b) {
    if (a.second.count != b.second.count) return a.second.count < b.second.count;
    return strangers[a.second.eldest].since > strangers[b.second.eldest].since;
  };
  const auto largest = std::ranges::max_element(shares, less);
  return largest == shares.end() ? std::nullopt : std::optional(largest->second.eldest);
}

}  // namespace lamina
