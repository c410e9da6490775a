// Finds out what a benchmarked server says of itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/http_client.h"
#include "base/status.h"
#include "text/tokenizer.h"

namespace lamina {

// A server and the model that is asked of it.
struct ServedEndpoint {
  HttpUrl url;
  std::string model;  // its name on the server
  // What the server says the model was loaded from; "": it does not say.
  std::string root;
  // Tokens of prompt and answer; 0: the server does not say.
  int64_t max_model_len = 0;
};

// Asks for /v1/models. If `model` is "" it is the first one there. A server that answers with an
// error is taken at the caller's word if `model` is given. kPeerLost if the server names no model
// and none is given; other errors are those of HttpClient.
Result<ServedEndpoint> FindEndpoint(const std::string& base_url, const HttpClientOptions& http,
                                    const std::string& model);

// The tokenizer of the folder. A model that has none takes each byte for a token, as lamina serves
// it. kNotFound if the folder has neither a tokenizer nor a model; other errors say what is wrong
// with the tokenizer's file.
Result<std::unique_ptr<Tokenizer>> LoadTokenizerOrBytes(const std::string& dir);

}  // namespace lamina
