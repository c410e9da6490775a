// Web pages that the server has in its program. They load nothing, from here or from elsewhere.
#pragma once

#include <string_view>

#include "api/exchange.h"

namespace lamina {

// With "@NONCE@" where a page's own script and style say that they belong to it.
extern const std::string_view kChatPage;
extern const std::string_view kDocsPage;

// Such a page with a new nonce, and a Content-Security-Policy that lets a browser run what has it
// and nothing else, and talk to this server only.
OutboundResponse PageResponse(std::string_view page);

}  // namespace lamina
