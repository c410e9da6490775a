// What somebody may have meant who wrote a word that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lamina {

// The known word that `word` is likely a misspelling of, or begins like; "" if there is none.
std::string Suggestion(std::string_view word, const std::vector<std::string>& known);

}  // namespace lamina
