#include "api/prompt_scores.h"

#include <algorithm>

#include "api/logprobs.h"
#include "text/utf8.h"

namespace lamina {

PromptScores::PromptScores(std::span<const TokenId> prompt, std::span<const int64_t> offsets)
    : num_known_(std::min<size_t>(prompt.size(), 1)) {
  tokens_.reserve(prompt.size());
  for (size_t i = 0; i < prompt.size(); ++i) {
    Token& token = tokens_.emplace_back();
    token.token = prompt[i];
    if (i < offsets.size()) token.text_offset = static_cast<uint32_t>(offsets[i]);
  }
}

void PromptScores::Add(std::span<const TokenScore> scored) {
  for (const TokenScore& one : scored) {
    if (complete()) return;
    top_.insert(top_.end(), one.top.begin(), one.top.end());
    Token& token = tokens_[num_known_++];
    token.logprob = one.logprob;
    token.rank = one.rank;
    token.top_end = static_cast<uint32_t>(top_.size());
  }
}

std::span<const TokenLogprob> PromptScores::TopOf(size_t i, size_t count) const {
  if (!has(i)) return {};
  const size_t begin = tokens_[i - 1].top_end;
  return std::span(top_).subspan(begin, std::min(tokens_[i].top_end - begin, count));
}

bool PromptScoresWriter::Write(size_t enough_bytes, std::string& json) {
  if (next_ == 0) json += '[';
  for (; next_ < scores_.tokens().size(); ++next_) {
    if (next_ > 0 && json.size() >= enough_bytes) return false;
    if (next_ > 0) json += ',';
    WriteToken(next_, json);
  }
  json += ']';
  return true;
}

void PromptScoresWriter::WriteToken(size_t i, std::string& json) const {
  if (!scores_.has(i)) {
    json += "null";
    return;
  }
  const PromptScores::Token& own = scores_.tokens()[i];
  json += '{';
  WriteEntry({own.token, own.logprob}, own.rank, json);
  int64_t rank = 0;
  for (const TokenLogprob& top : scores_.TopOf(i, num_top_)) {
    ++rank;
    if (top.token == own.token) continue;
    json += ',';
    WriteEntry(top, rank, json);
  }
  json += '}';
}

void PromptScoresWriter::WriteEntry(const TokenLogprob& token, int64_t rank,
                                    std::string& json) const {
  std::string bytes = tokenizer_.TokenBytes(token.token);
  std::string text;
  TakeAllUtf8(bytes, text);
  json += '"' + std::to_string(token.token) + "\":{\"logprob\":" + JsonLogprob(token.logprob) +
          ",\"rank\":" + std::to_string(rank) + ",\"decoded_token\":" + JsonString(text) + '}';
}

}  // namespace lamina
