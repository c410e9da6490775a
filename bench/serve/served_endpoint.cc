#include "bench/serve/served_endpoint.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/model_config.h"
#include "text/byte_tokenizer.h"

namespace lamina {
namespace {

using nlohmann::json;

std::string TextAt(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

Result<ServedEndpoint> FindEndpoint(const std::string& base_url, const HttpClientOptions& http,
                                    const std::string& model) {
  ServedEndpoint endpoint;
  LAMINA_ASSIGN_OR_RETURN(endpoint.url, HttpUrl::Parse(base_url));
  const std::string list = endpoint.url.text() + "/v1/models";
  LAMINA_ASSIGN_OR_RETURN(const HttpClient client, HttpClient::Create(base_url, http));
  LAMINA_ASSIGN_OR_RETURN(const HttpResponse response, client.Get("/v1/models"));
  if (!response.ok()) {
    if (!model.empty()) {  // a server without the list can still be asked
      endpoint.model = model;
      return endpoint;
    }
    return PeerLost(fmt::format("{} answered with status {}: {}; name the model with --model", list,
                                response.status, ErrorMessageOf(response)));
  }
  const json body = json::parse(response.body, nullptr, false);
  const json data = body.is_object() ? body.value("data", json()) : json();
  for (const json& entry : data) {
    if (!entry.is_object() || (!model.empty() && TextAt(entry, "id") != model)) continue;
    endpoint.model = TextAt(entry, "id");
    endpoint.root = TextAt(entry, "root");
    if (const auto length = entry.find("max_model_len");
        length != entry.end() && length->is_number_integer())
      endpoint.max_model_len = *length;
    break;
  }
  if (endpoint.model.empty()) endpoint.model = model;
  if (!endpoint.model.empty()) return endpoint;
  return PeerLost(
      list + " names no model: is this an OpenAI-compatible server? Name the model with --model");
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizerOrBytes(const std::string& dir) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(dir);
  // A tokenizer that is there but broken is an error, and not taken for none.
  if (tokenizer.status().code() != StatusCode::kNotFound) return tokenizer;
  const Result<ModelConfig> config = ModelConfig::Load(dir);
  if (!config.ok()) return tokenizer;
  return MakeByteTokenizer(config->vocab_size, config->bos_token, config->first_eos());
}

}  // namespace lamina
