// https URLs, as a person, a hub's redirect or its Link header gives them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace lamina {

// Value type. Its parts have no spaces and no control characters, so that none of them can end a
// line of a request.
struct HttpsUrl {
  std::string host;  // a name or an address, an IPv6 address without brackets
  std::string port = "443";
  std::string target = "/";  // path and query, begins with '/'

  // kInvalidArgument says what is wrong: another scheme, a user name, no host, no port.
  static Result<HttpsUrl> Parse(const std::string& url);

  // The URL that `location` means in an answer from this one: a whole URL, "//host/...", or a path
  // of the same host. Errors of Parse.
  Result<HttpsUrl> Follow(const std::string& location) const;

  // What the Host header says: the port only if it is not 443.
  std::string authority() const;
  std::string origin() const { return "https://" + authority(); }
  std::string text() const { return origin() + target; }
};

// The text with all bytes but letters, digits and "-._~" as %XX. A '/' stays if it separates parts
// of a path.
std::string PercentEncoded(std::string_view text, bool is_path);

}  // namespace lamina
