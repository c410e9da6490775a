#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

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

const AddedToken* AddedTokenFinder::Match(std::string_view text, size_t* length,
                                          size_t* looked) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    *looked = i + 1;
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

Status AddedTokenFinder::Divide(std::string_view text, const TimeBudget& budget,
                                const Visit& visit) const {
  TimeWatch watch(budget);
  size_t done = 0;
  for (size_t at = text.find_first_of(first_bytes_); at != std::string_view::npos;
       at = text.find_first_of(first_bytes_, at)) {
    size_t length = 0, looked = 0;
    const AddedToken* token = Match(text.substr(at), &length, &looked);
    LAMINA_RETURN_IF_ERROR(watch.Did(looked));
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    if (token->single_word &&
        (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end))))
      continue;
    if (token->lstrip && done < begin) begin -= TrailingSpaceBytes(text.substr(done, begin - done));
    if (token->rstrip) end += LeadingSpaceBytes(text.substr(end));
    LAMINA_RETURN_IF_ERROR(watch.Did(end - begin));
    if (done < begin) LAMINA_RETURN_IF_ERROR(visit(text.substr(done, begin - done), std::nullopt));
    LAMINA_RETURN_IF_ERROR(
        visit(text.substr(std::min(begin, end), end - std::min(begin, end)), token->id));
    done = end;
  }
  return done < text.size() ? visit(text.substr(done), std::nullopt) : OkStatus();
}

}  // namespace lamina
