// The endpoint that a benchmark asks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/http_client.h"
#include "base/status.h"
#include "text/tokenizer.h"

namespace lamina {

struct ServedEndpoint {
  HttpUrl url;
  std::string model;          // its name there
  std::string root;           // what the server says it was loaded from; "": it does not say
  int64_t max_model_len = 0;  // tokens of prompt and answer; 0: it does not say
};

// Asks /v1/models. `model` "": the server's first. kPeerLost: no answer, or an error.
Result<ServedEndpoint> FindEndpoint(const std::string& base_url, const std::string& api_key,
                                    const std::string& model);

// Of the folder; models that have none take each byte for a token, as lamina serves them. Errors as
// LoadTokenizer.
Result<std::unique_ptr<Tokenizer>> LoadTokenizerOrBytes(const std::string& dir);

}  // namespace lamina
