#include "frontend/text/added_tokens.h"

#include <algorithm>

#include "frontend/text/unicode.h"

namespace lamina {

void AddedTokenFinder::Add(const AddedToken& token, std::string_view text) {
  if (text.empty()) return;
  if (first_bytes_.find(text.front()) == std::string::npos) first_bytes_ += text.front();
  uint32_t node = 0;
  for (const char c : text) {
    const auto [edge, added] = edges_.try_emplace(Edge(node, c), num_nodes_);
    if (added) ++num_nodes_;
    node = edge->second;
  }
  if (token_at_.try_emplace(node, tokens_.size()).second) tokens_.push_back(token);
}

const AddedToken* AddedTokenFinder::Match(std::string_view text, size_t* length) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto edge = edges_.find(Edge(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (const auto found = token_at_.find(node); found != token_at_.end()) {
      longest = &tokens_[found->second];
      *length = i + 1;
    }
  }
  return longest;
}

void AddedTokenFinder::Divide(std::string_view text, const Visit& visit) const {
  size_t done = 0;
  for (size_t at = text.find_first_of(first_bytes_); at != std::string_view::npos; at = text.find_first_of(first_bytes_, at)) {
    size_t length = 0;
    const AddedToken* token = Match(text.substr(at), &length);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    if (token->single_word && (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) continue;
    if (token->lstrip && done < begin) begin -= TrailingSpaceBytes(text.substr(done, begin - done));
    if (token->rstrip) end += LeadingSpaceBytes(text.substr(end));
    if (done < begin) visit(text.substr(done, begin - done), std::nullopt);
    visit(text.substr(std::min(begin, end), end - std::min(begin, end)), token->id);
    done = end;
  }
  if (done < text.size()) visit(text.substr(done), std::nullopt);
}

}  // namespace lamina
