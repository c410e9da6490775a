#include "api/prompt_fields.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

namespace lamina {
namespace {

using nlohmann::json;

constexpr size_t kMaxRequestNameBytes = 128;

bool IsTokenList(const json& value) {
  return value.is_array() && !value.empty() && value[0].is_number();
}

}  // namespace

void ReadPrompts(FieldReader& reader, const std::string& name, int64_t vocab_size, size_t max_count,
                 std::vector<Prompt>& prompts) {
  const json* value = reader.Find(name);
  if (value == nullptr) return reader.Fail(name, "'" + name + "' is missing");
  const auto add = [&](const json& prompt) {
    if (prompt.is_string()) {
      prompts.emplace_back(prompt.get<std::string>());
    } else if (IsTokenList(prompt)) {
      json holder = {{name, prompt}};
      FieldReader tokens_reader(holder);
      std::vector<TokenId> tokens;
      tokens_reader.ReadTokens(name, vocab_size, kMaxTokensOfField, tokens);
      if (tokens_reader.error()) return reader.Fail(name, tokens_reader.error()->message);
      prompts.emplace_back(std::move(tokens));
    } else {
      reader.Fail(name, "'" + name +
                            "' must be a string, a list of strings, a list of token ids or a list "
                            "of such lists, and not empty");
    }
  };
  if (!value->is_array() || IsTokenList(*value)) return add(*value);
  if (value->empty()) return reader.Fail(name, "'" + name + "' must not be an empty list");
  if (value->size() > max_count)
    return reader.Fail(name, "'" + name + "' has " + std::to_string(value->size()) +
                                 " entries; at most " + std::to_string(max_count) +
                                 " are possible");
  for (const json& prompt : *value) add(prompt);
}

void ReadTruncation(FieldReader& reader, std::string side, GenerationOptions& out) {
  int64_t length = 0;
  reader.ReadInteger("truncate_prompt_tokens", -1, INT32_MAX, length);
  if (length == 0 && reader.Find("truncate_prompt_tokens") != nullptr)
    reader.Fail("truncate_prompt_tokens",
                "'truncate_prompt_tokens' must not be 0: no prompt is empty");
  if (length != 0) out.truncate_prompt_tokens = length;
  reader.Read("truncation_side", side);
  if (side != "left" && side != "right")
    reader.Fail("truncation_side", "'truncation_side' must be \"left\" or \"right\"");
  out.keep_first_tokens = side == "right";
}

void ReadUrgency(FieldReader& reader, GenerationOptions& out) {
  int64_t priority = 0;
  reader.ReadInteger("priority", INT32_MIN, INT32_MAX, priority);
  out.priority = static_cast<int>(priority);
  const json* value = reader.Find("slo");
  if (value == nullptr) return;
  if (!value->is_object())
    return reader.Fail("slo", "'slo' must be an object, not " + JsonTypeName(*value));
  FieldReader inner(*value);
  constexpr auto kLongest =
      std::chrono::duration_cast<std::chrono::milliseconds>(kLongestObjective).count();
  int64_t ttft_ms = 0, tpot_ms = 0;
  inner.ReadInteger("ttft_ms", 1, kLongest, ttft_ms);
  inner.ReadInteger("tpot_ms", 1, kLongest, tpot_ms);
  if (inner.error()) return reader.Fail("slo." + inner.error()->param, inner.error()->message);
  if (const std::vector<std::string> unknown = inner.Unknown(1); !unknown.empty())
    return reader.Fail("slo." + unknown.front(),
                       "'slo' has 'ttft_ms' and 'tpot_ms', and no '" + unknown.front() + "'");
  if (ttft_ms == 0 && tpot_ms == 0) return reader.Fail("slo", "'slo' needs 'ttft_ms' or 'tpot_ms'");
  out.slo = {std::chrono::milliseconds(ttft_ms), std::chrono::milliseconds(tpot_ms)};
}

void ReadIdentity(FieldReader& reader, GenerationOptions& out) {
  reader.Read("request_id", out.request_id);
  const bool printable =
      std::ranges::all_of(out.request_id, [](char c) { return c > ' ' && c < 127; });
  if (!printable || out.request_id.size() > kMaxRequestNameBytes)
    reader.Fail("request_id",
                "'request_id' must have at most 128 letters, digits and signs of ASCII, without "
                "spaces");
}

}  // namespace lamina
