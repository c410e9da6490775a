#include "frontend/openai/logprobs.h"

#include <algorithm>
#include <cstdio>

#include "frontend/text/utf8.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

// JSON has no -infinity; clients know this number as "never".
constexpr double kNever = -9999.0;

double JsonLogprob(float logprob) { return logprob >= kNever ? static_cast<double>(logprob) : kNever; }

bool IsWholeText(const std::string& bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    size_t length = 0;
    if (ClassifyUtf8(rest, &length) != Utf8Prefix::kComplete) return false;
    rest.remove_prefix(length);
  }
  return true;
}

std::string CompletionToken(const std::string& bytes) {
  if (IsWholeText(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) {
    char hex[5];
    std::snprintf(hex, sizeof(hex), "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    text += hex;
  }
  return text;
}

ordered_json ChatToken(const std::string& bytes, float logprob) {
  std::string pending = bytes;
  std::string text;
  TakeAllUtf8(pending, text);
  ordered_json byte_list = ordered_json::array();
  for (const char c : bytes) byte_list.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return {{"token", text}, {"logprob", JsonLogprob(logprob)}, {"bytes", std::move(byte_list)}};
}

}  // namespace

void LogprobCollector::Clear() {
  empty_ = true;
  if (kind_ == ApiKind::kChat) {
    collected_ = {{"content", ordered_json::array()}};
  } else {
    collected_ = {{"tokens", ordered_json::array()},
                  {"token_logprobs", ordered_json::array()},
                  {"top_logprobs", ordered_json::array()},
                  {"text_offset", ordered_json::array()}};
  }
}

void LogprobCollector::Add(const TokenEvent& event) {
  empty_ = false;
  if (kind_ == ApiKind::kChat) {
    AddChat(event);
  } else {
    AddCompletion(event);
  }
}

void LogprobCollector::AddCompletion(const TokenEvent& event) {
  const std::string token = CompletionToken(tokenizer_.TokenBytes(*event.token));
  ordered_json top = ordered_json::object();
  for (const TokenLogprobInfo& info : event.top) top[CompletionToken(tokenizer_.TokenBytes(info.token))] = JsonLogprob(info.logprob);
  top[token] = JsonLogprob(event.logprob);  // the chosen token is always among them
  collected_["tokens"].push_back(token);
  collected_["token_logprobs"].push_back(JsonLogprob(event.logprob));
  collected_["top_logprobs"].push_back(std::move(top));
  collected_["text_offset"].push_back(text_offset_);
  text_offset_ += static_cast<int64_t>(CountCodePoints(token));
}

void LogprobCollector::AddChat(const TokenEvent& event) {
  ordered_json entry = ChatToken(tokenizer_.TokenBytes(*event.token), event.logprob);
  entry["top_logprobs"] = ordered_json::array();
  for (const TokenLogprobInfo& info : event.top)
    entry["top_logprobs"].push_back(ChatToken(tokenizer_.TokenBytes(info.token), info.logprob));
  collected_["content"].push_back(std::move(entry));
}

ordered_json LogprobCollector::Take() {
  if (empty_) return nullptr;
  ordered_json taken = std::move(collected_);
  Clear();
  return taken;
}

}  // namespace lamina
