#include "cli/api_session.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "manager/api_key.h"

namespace lamina {
namespace {

using nlohmann::json;

constexpr auto kSilenceTimeout = std::chrono::minutes(10);  // a long prompt on a busy server

// The text of one event: completions have "text", chats "delta": {"content"}.
std::string TextOf(const json& event) {
  if (!event.contains("choices") || !event["choices"].is_array() || event["choices"].empty())
    return "";
  const json& choice = event["choices"][0];
  json text = choice.is_object() ? choice.value("text", json()) : json();
  if (text.is_null() && choice.is_object() && choice.value("delta", json()).is_object())
    text = choice["delta"].value("content", json());
  return text.is_string() ? text.get<std::string>() : "";
}

// What a model thinks before it answers.
std::string ReasoningOf(const json& event) {
  const json choices = event.value("choices", json());
  if (!choices.is_array() || choices.empty() || !choices[0].is_object()) return "";
  const json delta = choices[0].value("delta", json());
  const json reasoning = delta.is_object() ? delta.value("reasoning_content", json()) : json();
  return reasoning.is_string() ? reasoning.get<std::string>() : "";
}

int64_t CountOf(const json& usage, const char* key) {
  const json count = usage.value(key, json());
  return count.is_number() ? count.get<int64_t>() : 0;
}

// Collects one streamed answer.
struct Answer {
  std::string text;
  std::string error;
  bool done = false;
  bool reasoned = false;  // what was printed last is reasoning
  int64_t prompt_tokens = 0, output_tokens = 0;
  TimePoint start = Clock::now();
  std::optional<TimePoint> first;

  bool Take(std::string_view data) {
    if (data == "[DONE]") {
      done = true;
      return true;
    }
    const json event = json::parse(data, nullptr, false);
    if (!event.is_object()) return true;
    if (event.contains("error")) {
      error = ErrorMessageOf({0, std::string(data)});
      return true;
    }
    if (const json usage = event.value("usage", json()); usage.is_object()) {
      prompt_tokens = CountOf(usage, "prompt_tokens");
      output_tokens = CountOf(usage, "completion_tokens");
    }
    const std::string thought = ReasoningOf(event), piece = TextOf(event);
    if (!first && !(thought.empty() && piece.empty())) first = Clock::now();
    // Whoever takes the answer from stdout gets the answer alone.
    if (!thought.empty()) std::cerr << thought << std::flush;
    reasoned |= !thought.empty();
    if (piece.empty()) return true;
    if (std::exchange(reasoned, false)) std::cerr << "\n" << std::endl;
    text += piece;
    std::cout << piece << std::flush;
    return static_cast<bool>(std::cout);  // nobody reads any more
  }

  std::string Stats() const {
    const double total = SecondsSince(start);
    const double ttft = first ? std::chrono::duration<double>(*first - start).count() : total;
    const double decode = total - ttft;
    const double rate =
        decode > 0 && output_tokens > 1 ? static_cast<double>(output_tokens - 1) / decode : 0;
    return fmt::format(
        "{} prompt tokens, {} output tokens, first after {:.0f} ms, then {:.1f} tokens/s",
        prompt_tokens, output_tokens, ttft * 1000, rate);
  }
};

}  // namespace

void RequestOptions::AddTo(CLI::App& command) {
  AddOption(command, "--url", url, "Server to ask");
  AddOption(command, "--ca", ca_file,
            "With https: PEM file of the CAs to trust; default: those of the system")
      ->type_name("FILE");
  AddOption(command, "--api-key-file", api_key_file,
            "File of mode 600 with the key that is sent as a bearer token");
  AddOption(command, "--api-key", api_key,
            "The key itself, which other users can see in the list of processes");
  AddOption(command, "--model", model, "Model's name on the server; default: the server's first");
  AddOption(command, "--max-tokens", max_tokens, "Longest answer in tokens, such as 2k")
      ->transform(SizeAsNumber())
      ->check(CLI::PositiveNumber);
  AddOption(command, "--temperature", temperature, "0: always the most likely token")
      ->check(CLI::NonNegativeNumber);
  AddOption(command, "--top-p", top_p,
            "Choose among the most likely tokens with this total probability");
  AddOption(command, "--top-k", top_k, "Choose among this many most likely tokens");
  AddOption(command, "--seed", seed, "Makes the answer repeatable");
  AddOption(command, "--stop", stop, "Text that ends the answer; can be given several times");
  AddOption(command, "--stats", stats, "Afterwards tokens and times on stderr");
}

Result<ApiSession> ApiSession::Open(const RequestOptions& options) {
  HttpClientOptions http;
  LAMINA_ASSIGN_OR_RETURN(http.api_key, FindApiKey(options.api_key, options.api_key_file));
  http.silence_timeout = kSilenceTimeout;
  http.ca_file = options.ca_file;
  LAMINA_ASSIGN_OR_RETURN(HttpClient client, HttpClient::Create(options.url, http));
  ApiSession session(options, std::move(client));
  if (!options.model.empty()) return session;

  const Result<HttpResponse> models = session.client_.Get("/v1/models");
  if (!models.ok()) {
    return Status(models.status().code(),
                  models.status().message() +
                      "; start a server with `lamina serve MODEL`, or name one with --url");
  }
  if (!models->ok())
    return PeerLost(session.client_.address() + " answered with status " +
                    std::to_string(models->status) + ": " + ErrorMessageOf(*models));
  const json body = json::parse(models->body, nullptr, false);
  const json data = body.is_object() ? body.value("data", json()) : json();
  const json id = data.is_array() && !data.empty() && data[0].is_object()
                      ? data[0].value("id", json())
                      : json();
  if (!id.is_string())
    return Corrupt(session.client_.address() +
                   ": /v1/models names no model: is this an OpenAI-compatible server?");
  session.options_.model = id.get<std::string>();
  return session;
}

Result<std::string> ApiSession::Stream(const std::string& path, json request) {
  request["model"] = options_.model;
  if (options_.max_tokens) request["max_tokens"] = *options_.max_tokens;
  request["stream"] = true;
  request["stream_options"] = {{"include_usage", true}};
  if (options_.temperature) request["temperature"] = *options_.temperature;
  if (options_.top_p) request["top_p"] = *options_.top_p;
  if (options_.top_k) request["top_k"] = *options_.top_k;
  if (options_.seed) request["seed"] = *options_.seed;
  if (!options_.stop.empty()) request["stop"] = options_.stop;

  Answer answer;
  // A prompt may hold bytes that are no UTF-8.
  const std::string body = request.dump(-1, ' ', false, json::error_handler_t::replace);
  LAMINA_ASSIGN_OR_RETURN(
      const HttpResponse response,
      client_.PostForEvents(path, body, [&](std::string_view data) { return answer.Take(data); }));
  if (!response.ok())
    return PeerLost(client_.address() + " answered with status " + std::to_string(response.status) +
                    ": " + ErrorMessageOf(response));
  std::cout << std::endl;
  if (!answer.error.empty()) return PeerLost("the server ended the answer early: " + answer.error);
  if (!std::cout) return InternalError("stdout is closed");
  if (!answer.done) return PeerLost(client_.address() + " closed the stream before its end");
  if (options_.stats) std::cerr << answer.Stats() << std::endl;
  return answer.text;
}

}  // namespace lamina
