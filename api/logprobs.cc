#include "api/logprobs.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/utf8.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

// JSON has no -infinity; clients know this number as "never".
constexpr double kNever = -9999.0;

bool IsWholeText(const std::string& bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    size_t length = 0;
    if (ClassifyUtf8(rest, &length) != Utf8Prefix::kComplete) return false;
    rest.remove_prefix(length);
  }
  return true;
}

std::string TokenNumber(TokenId token) { return "token_id:" + std::to_string(token); }

std::string CompletionToken(const std::string& bytes) {
  if (IsWholeText(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) {
    char hex[5];
    std::snprintf(hex, sizeof(hex), "\\x%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(c)));
    text += hex;
  }
  return text;
}

}  // namespace

std::string JsonLogprob(float logprob) {
  return ordered_json(logprob >= kNever ? static_cast<double>(logprob) : kNever).dump();
}

std::string JsonString(const std::string& text) {
  return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

void LogprobRecords::Add(const TokenEvent& event) {
  top_.insert(top_.end(), event.top.begin(), event.top.end());
  tokens_.push_back({*event.token, event.logprob, 0, static_cast<uint32_t>(top_.size())});
}

void LogprobRecords::Place(std::span<const int64_t> offsets, int64_t num_before) {
  size_t token = tokens_.size() - offsets.size();
  for (const int64_t offset : offsets)
    tokens_[token++].text_offset = static_cast<uint32_t>(num_before + offset);
}

LogprobWriter::LogprobWriter(const Options& options, const Tokenizer& tokenizer,
                             const LogprobRecords& records)
    : options_(options),
      columns_(Columns(options.kind)),
      tokenizer_(tokenizer),
      records_(records) {}

const std::vector<LogprobWriter::Column>& LogprobWriter::Columns(ApiKind kind) {
  static const std::vector<Column> completion = {{"tokens", &LogprobWriter::WriteText},
                                                 {"token_logprobs", &LogprobWriter::WriteLogprob},
                                                 {"top_logprobs", &LogprobWriter::WriteTop},
                                                 {"text_offset", &LogprobWriter::WriteOffset}};
  static const std::vector<Column> chat = {{"content", &LogprobWriter::WriteChatToken}};
  return kind == ApiKind::kChat ? chat : completion;
}

bool LogprobWriter::Write(size_t enough_bytes, std::string& json) {
  if (num_tokens() == 0) {
    json += "null";
    return true;
  }
  for (; column_ < columns_.size(); ++column_) {
    if (next_ == 0)
      json += std::string(column_ == 0 ? "{" : ",") + '"' + columns_[column_].name + "\":[";
    for (; next_ < num_tokens(); ++next_) {
      if (next_ > 0 && json.size() >= enough_bytes) return false;
      if (next_ > 0) json += ',';
      (this->*columns_[column_].write)(next_, json);
    }
    json += ']';
    next_ = 0;
  }
  json += '}';
  return true;
}

LogprobWriter::Entry LogprobWriter::EntryOf(size_t i) const {
  if (i < num_echoed()) {
    const PromptScores::Token& token = options_.echo->tokens()[i];
    Entry entry{token.token, std::nullopt, token.text_offset,
                options_.echo->TopOf(i, options_.num_echo_top)};
    if (options_.echo->has(i)) entry.logprob = token.logprob;
    return entry;
  }
  i -= num_echoed();
  const LogprobRecords::Token& token = records_.tokens()[i];
  const size_t begin = i == 0 ? 0 : records_.tokens()[i - 1].top_end;
  return {token.token, token.logprob, token.text_offset,
          std::span(records_.top()).subspan(begin, token.top_end - begin)};
}

std::string LogprobWriter::Text(TokenId token) const {
  return options_.tokens_as_ids ? TokenNumber(token)
                                : CompletionToken(tokenizer_.TokenBytes(token));
}

void LogprobWriter::WriteText(size_t i, std::string& json) const {
  json += JsonString(Text(EntryOf(i).token));
}
void LogprobWriter::WriteLogprob(size_t i, std::string& json) const {
  const Entry entry = EntryOf(i);
  json += entry.logprob ? JsonLogprob(*entry.logprob) : "null";
}
void LogprobWriter::WriteOffset(size_t i, std::string& json) const {
  json += std::to_string(EntryOf(i).text_offset);
}

// The chosen token is always among them. Of tokens with the same text the last one's value stands
// there.
void LogprobWriter::WriteTop(size_t i, std::string& json) const {
  const Entry chosen = EntryOf(i);
  if (!chosen.logprob) {
    json += "null";
    return;
  }
  std::vector<std::pair<std::string, float>> entries;
  const auto set = [&](TokenId token, float logprob) {
    std::string text = Text(token);
    const auto same = std::ranges::find(entries, text, &std::pair<std::string, float>::first);
    if (same == entries.end()) {
      entries.emplace_back(std::move(text), logprob);
    } else {
      same->second = logprob;
    }
  };
  for (const TokenLogprob& info : chosen.top) set(info.token, info.logprob);
  set(chosen.token, *chosen.logprob);
  for (size_t entry = 0; entry < entries.size(); ++entry)
    json += (entry == 0 ? "{" : ",") + JsonString(entries[entry].first) + ':' +
            JsonLogprob(entries[entry].second);
  json += '}';
}

void LogprobWriter::WriteChatToken(size_t i, std::string& json) const {
  const Entry chosen = EntryOf(i);
  WriteChatEntry(chosen.token, *chosen.logprob, json);
  json += ",\"top_logprobs\":[";
  const std::span<const TokenLogprob> top = chosen.top;
  for (size_t entry = 0; entry < top.size(); ++entry) {
    if (entry > 0) json += ',';
    WriteChatEntry(top[entry].token, top[entry].logprob, json);
    json += '}';
  }
  json += "]}";
}

// Without the closing brace.
void LogprobWriter::WriteChatEntry(TokenId token, float logprob, std::string& json) const {
  const std::string bytes = tokenizer_.TokenBytes(token);
  std::string pending = bytes;
  std::string text;
  TakeAllUtf8(pending, text);
  if (options_.tokens_as_ids) text = TokenNumber(token);
  json +=
      "{\"token\":" + JsonString(text) + ",\"logprob\":" + JsonLogprob(logprob) + ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) json += ',';
    json += std::to_string(static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
  }
  json += ']';
}

}  // namespace lamina
