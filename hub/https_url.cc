#include "hub/https_url.h"

#include <algorithm>
#include <cstdlib>

#include "base/net_address.h"
#include "base/printable.h"

namespace lamina {
namespace {

constexpr std::string_view kHttps = "https://";
constexpr size_t kMaxUrlBytes = 8192;

bool IsPort(const std::string& text) {
  const bool has_digits = !text.empty() && text.size() <= 5 &&
                          text.find_first_not_of("0123456789") == std::string::npos;
  return has_digits && std::atoi(text.c_str()) >= 1 && std::atoi(text.c_str()) <= 65535;
}

// Of a name, or of an IPv6 address that stood in brackets.
bool IsHost(const std::string& text) {
  return !text.empty() && text.size() <= 255 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == ':';
  });
}

}  // namespace

Result<HttpsUrl> HttpsUrl::Parse(const std::string& url) {
  const auto wrong = [&url](const std::string& why) {
    return InvalidArgument("'" + Briefly(url, 200) + "' " + why);
  };
  if (url.size() > kMaxUrlBytes) return wrong("is too long for a URL");
  if (!std::ranges::all_of(url, [](char c) { return c > ' ' && c < '\x7f'; }))
    return wrong("is no URL: it has a space or another character that URLs cannot have");
  if (!url.starts_with(kHttps))
    return wrong("does not begin with https://, and models are not downloaded without TLS");
  std::string rest = url.substr(kHttps.size(), url.find('#') - kHttps.size());
  HttpsUrl parsed;
  const size_t end = std::min(rest.find_first_of("/?"), rest.size());
  parsed.target = rest.substr(end);
  if (!parsed.target.starts_with('/')) parsed.target.insert(0, "/");
  rest.resize(end);
  if (rest.find('@') != std::string::npos) return wrong("has a user name, which is not sent");

  const bool has_brackets = rest.starts_with('[');
  const size_t bracket = has_brackets ? rest.find(']') : 0;
  if (bracket == std::string::npos) return wrong("has a '[' and no ']'");
  const size_t colon = rest.find(':', bracket);
  if (colon != std::string::npos) {
    parsed.port = rest.substr(colon + 1);
    rest.resize(colon);
  }
  parsed.host = has_brackets ? rest.substr(1, bracket - 1) : rest;
  if (!IsHost(parsed.host) || (has_brackets && rest.size() != bracket + 1))
    return wrong("names no host, as in https://huggingface.co");
  if (!IsPort(parsed.port)) return wrong("has no port behind its ':'; ports are 1 to 65535");
  return parsed;
}

Result<HttpsUrl> HttpsUrl::Follow(const std::string& location) const {
  if (location.starts_with("//")) return Parse("https:" + location);
  if (location.starts_with('/')) return Parse(origin() + location);
  return Parse(location);
}

std::string HttpsUrl::authority() const {
  return BracketedHost(host) + (port == "443" ? "" : ":" + port);
}

std::string PercentEncoded(std::string_view text, bool is_path) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~' ||
                          (is_path && c == '/');
    if (is_plain) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return encoded;
}

}  // namespace lamina
