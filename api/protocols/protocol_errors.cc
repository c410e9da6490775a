#include "api/protocols/protocol_errors.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/responses.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

// Fields of chat requests, and what a protocol calls them.
using Names = std::vector<std::pair<std::string, std::string>>;

const Names& NamesOf(std::string_view path) {
  static const Names messages = {{"stop", "stop_sequences"},
                                 {"response_format.json_schema.schema", "output_config.format"},
                                 {"reasoning_effort", "output_config.effort"}};
  static const Names responses = {{"max_tokens", "max_output_tokens"},
                                  {"messages", "input"},
                                  {"response_format.json_schema.schema", "text.format.schema"},
                                  {"reasoning_effort", "reasoning.effort"}};
  static const Names ollama = {{"max_tokens", "num_predict"},
                               {"repetition_penalty", "repeat_penalty"},
                               {"response_format.json_schema.schema", "format"},
                               {"reasoning_effort", "think"}};
  static const Names none;
  if (path.starts_with("/v1/messages")) return messages;
  if (path == "/v1/responses") return responses;
  return path.starts_with("/api/") ? ollama : none;
}

// Names stand in quotes, but for the one that a message may begin with.
std::string Renamed(std::string message, const Names& names) {
  for (const auto& [ours, theirs] : names) {
    if (message.starts_with(ours + " ")) message.replace(0, ours.size(), theirs);
    const std::string quoted = "'" + ours + "'";
    for (size_t at = 0; (at = message.find(quoted, at)) != std::string::npos;) {
      message.replace(at + 1, ours.size(), theirs);
      at += theirs.size();
    }
  }
  return message;
}

}  // namespace

const char* AnthropicErrorType(int http_status) {
  switch (http_status) {
    case 401: return "authentication_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 503: return "overloaded_error";
    default: return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

OutboundResponse InProtocolOf(std::string_view path, OutboundResponse response) {
  const Names& names = NamesOf(path);
  if (response.status < 400 || names.empty()) return response;
  ordered_json body = ordered_json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || !body.contains("error")) return response;
  ordered_json& error = body["error"];
  const std::string message = Renamed(error.value("message", ""), names);
  if (path.starts_with("/v1/messages")) {
    body = {{"type", "error"},
            {"error", {{"type", AnthropicErrorType(response.status)}, {"message", message}}}};
  } else if (path.starts_with("/api/")) {
    body = {{"error", message}};
  } else {
    error["message"] = message;
    for (const auto& [ours, theirs] : names) {
      if (error["param"] == ours) error["param"] = theirs;
    }
  }
  response.body = DumpJson(body);
  return response;
}

}  // namespace lamina
