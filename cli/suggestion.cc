#include "cli/suggestion.h"

#include <algorithm>
#include <cstddef>

namespace lamina {
namespace {

// Letters to insert, drop, replace or swap with their neighbour (optimal string alignment).
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) distance[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) distance[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

std::string Suggestion(std::string_view word, const std::vector<std::string>& known) {
  constexpr size_t kLongestWord = 64;  // nobody's misspelling is longer
  if (word.empty() || word.size() > kLongestWord) return "";
  std::string nearest;
  size_t nearest_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < nearest_distance) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  if (!nearest.empty()) return nearest;
  // The beginning of one word only.
  const auto begins = [&](const std::string& candidate) { return candidate.starts_with(word); };
  return word.size() >= 3 && std::ranges::count_if(known, begins) == 1
             ? *std::ranges::find_if(known, begins)
             : "";
}

}  // namespace lamina
