// JSON's numbers between bounds.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "grammar/grammar_builder.h"
#include "grammar/schema_terms.h"

namespace lamina {

// The decimal numerals of the integers in [min, max], without leading zeros; nullopt: no bound.
Fragment AddIntegers(std::optional<int64_t> min, std::optional<int64_t> max,
                     GrammarBuilder& builder);

// The numerals without an exponent of the numbers between the bounds. kInvalidArgument: a bound has
// more than 9 digits behind the point or is not below 10^15, or it is exclusive and not below 10^6.
Result<Fragment> AddDecimals(const std::optional<Bound>& min, const std::optional<Bound>& max,
                             GrammarBuilder& builder);

}  // namespace lamina
