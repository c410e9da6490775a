#include "grammar/json_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace lamina {
namespace {

constexpr uint64_t kUnbounded = UINT64_MAX;
constexpr size_t kMaxFraction = 9;  // digits

Fragment Digit(char low, char high, GrammarBuilder& builder) {
  return builder.Bytes(static_cast<uint8_t>(low), static_cast<uint8_t>(high));
}

Fragment AnyDigits(int64_t min, std::optional<int64_t> max, GrammarBuilder& builder) {
  return builder.Repeat(Digit('0', '9', builder), min, max);
}

// Numerals with the values in [low, high], both of the same number of digits.
Fragment DigitsBetween(const std::string& low, const std::string& high, GrammarBuilder& builder) {
  if (low.empty()) return builder.Empty();
  const std::string rest_low = low.substr(1), rest_high = high.substr(1);
  if (low[0] == high[0])
    return builder.Sequence(
        {Digit(low[0], low[0], builder), DigitsBetween(rest_low, rest_high, builder)});
  const std::string zeros(rest_low.size(), '0'), nines(rest_low.size(), '9');
  std::vector<Fragment> parts = {
      builder.Sequence({Digit(low[0], low[0], builder), DigitsBetween(rest_low, nines, builder)}),
      builder.Sequence(
          {Digit(high[0], high[0], builder), DigitsBetween(zeros, rest_high, builder)})};
  if (high[0] - low[0] > 1) {
    const auto any = static_cast<int64_t>(rest_low.size());
    parts.push_back(builder.Sequence(
        {Digit(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1), builder),
         AnyDigits(any, any, builder)}));
  }
  return builder.AnyOf(parts);
}

// In [min, max], or at least min. REQUIRES: min <= max.
Fragment NaturalsBetween(uint64_t min, uint64_t max, GrammarBuilder& builder) {
  std::vector<Fragment> parts;
  std::string low = std::to_string(min);
  const std::string high = std::to_string(max);
  while (max != kUnbounded && low.size() < high.size()) {
    parts.push_back(DigitsBetween(low, std::string(low.size(), '9'), builder));
    low = "1" + std::string(low.size(), '0');
  }
  if (max != kUnbounded) {
    parts.push_back(DigitsBetween(low, high, builder));
    return builder.AnyOf(parts);
  }
  parts.push_back(DigitsBetween(low, std::string(low.size(), '9'), builder));
  const auto more = static_cast<int64_t>(low.size());
  parts.push_back(
      builder.Sequence({Digit('1', '9', builder), AnyDigits(more, std::nullopt, builder)}));
  return builder.AnyOf(parts);
}

uint64_t Magnitude(int64_t number) {
  return number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
}

// A number that is not negative, by its digits: `fraction` has kMaxFraction of them.
struct Decimal {
  uint64_t whole = 0;
  std::string fraction = std::string(kMaxFraction, '0');
  bool exclusive = false;

  friend auto operator<=>(const Decimal& a, const Decimal& b) {
    return std::tie(a.whole, a.fraction) <=> std::tie(b.whole, b.fraction);
  }
};

Result<Decimal> DecimalOf(const Bound& bound) {
  const double magnitude = std::abs(bound.value);
  std::array<char, 64> text{};
  const int size = std::snprintf(text.data(), text.size(), "%.9f", magnitude);
  if (!(magnitude < 1e15) || (bound.exclusive && magnitude >= 1e6) || size <= 0)
    return InvalidArgument("a bound of a number is not below 10^15, or 10^6 if it is exclusive");
  if (std::stod(text.data()) != magnitude)
    return InvalidArgument("a bound of a number has more than 9 digits behind the point");
  const std::string digits(text.data(), static_cast<size_t>(size));
  const size_t point = digits.find('.');
  return Decimal{std::stoull(digits.substr(0, point)), digits.substr(point + 1), bound.exclusive};
}

// The fractions of numbers with one whole part, digit by digit: whether what came so far equals the
// beginning of a bound says what may come.
class Fractions {
 public:
  // `bounded`: at most kMaxFraction digits. A longer fraction may be rounded to an exclusive bound.
  Fractions(const Decimal* low, const Decimal* high, bool bounded, GrammarBuilder& builder)
      : low_(low), high_(high), bounded_(bounded), builder_(builder), all_(builder.Nothing()) {}

  // With the point, or nothing where the whole part alone is between the bounds.
  Fragment Make() {
    if (MayEnd(0, low_ != nullptr, high_ != nullptr)) builder_.AddEmpty(all_.begin, all_.end);
    const int32_t behind_point = builder_.NewState();
    builder_.AddBytes(all_.begin, '.', '.', behind_point);
    AddDigits(0, low_ != nullptr, high_ != nullptr, behind_point, /*first=*/true);
    return all_;
  }

 private:
  // Whether zeros may follow for ever.
  bool MayEnd(size_t place, bool at_low, bool at_high) const {
    const auto rest_is_zero = [&](const Decimal& bound) {
      return bound.fraction.find_first_not_of('0', place) == std::string::npos;
    };
    if (at_low && (!rest_is_zero(*low_) || low_->exclusive)) return false;
    return !at_high || !rest_is_zero(*high_) || !high_->exclusive;
  }

  void AddDigits(size_t place, bool at_low, bool at_high, int32_t from, bool first = false) {
    if (builder_.is_full()) return;
    if (!first && MayEnd(place, at_low, at_high)) builder_.AddEmpty(from, all_.end);
    if (!at_low && !at_high) {
      // Everything is between the bounds.
      std::optional<int64_t> most;
      if (bounded_) most = static_cast<int64_t>(kMaxFraction - place);
      const Fragment rest = AnyDigits(first ? 1 : 0, most, builder_);
      builder_.AddEmpty(from, rest.begin);
      builder_.AddEmpty(rest.end, all_.end);
      return;
    }
    if (place == kMaxFraction) return AddZeros(at_low, at_high, from);
    for (char digit = '0'; digit <= '9'; ++digit) {
      const char least = at_low ? low_->fraction[place] : '0';
      const char most = at_high ? high_->fraction[place] : '9';
      if (digit < least || digit > most) continue;
      const bool still_low = at_low && digit == least, still_high = at_high && digit == most;
      const auto [found, is_new] =
          states_.try_emplace({place + 1, still_low, still_high}, int32_t{0});
      if (is_new) {
        found->second = builder_.NewState();
        AddDigits(place + 1, still_low, still_high, found->second);
      }
      builder_.AddBytes(from, static_cast<uint8_t>(digit), static_cast<uint8_t>(digit),
                        states_.at({place + 1, still_low, still_high}));
    }
  }

  // Behind all digits of a bound that the fraction equals so far.
  void AddZeros(bool at_low, bool at_high, int32_t from) {
    if (at_low && low_->exclusive) return;
    if (at_high && high_->exclusive) return;
    const Fragment zeros = at_high ? builder_.Repeat(Digit('0', '0', builder_), 0, std::nullopt)
                                   : AnyDigits(0, std::nullopt, builder_);
    builder_.AddEmpty(from, zeros.begin);
    builder_.AddEmpty(zeros.end, all_.end);
  }

  const Decimal* const low_;
  const Decimal* const high_;
  const bool bounded_;
  GrammarBuilder& builder_;
  const Fragment all_;
  std::map<std::tuple<size_t, bool, bool>, int32_t> states_;
};

// Numbers that are not negative, in [low, high]; null: no bound.
Fragment DecimalsBetween(const Decimal& low, const Decimal* high, bool bounded,
                         GrammarBuilder& builder) {
  if (high != nullptr && *high < low) return builder.Nothing();
  const auto whole = [&](uint64_t min, uint64_t max) { return NaturalsBetween(min, max, builder); };
  if (high != nullptr && low.whole == high->whole)
    return builder.Sequence(
        {whole(low.whole, low.whole), Fractions(&low, high, bounded, builder).Make()});
  std::vector<Fragment> parts = {builder.Sequence(
      {whole(low.whole, low.whole), Fractions(&low, nullptr, bounded, builder).Make()})};
  if (high != nullptr)
    parts.push_back(builder.Sequence(
        {whole(high->whole, high->whole), Fractions(nullptr, high, bounded, builder).Make()}));
  if (high == nullptr || high->whole - low.whole > 1)
    parts.push_back(
        builder.Sequence({whole(low.whole + 1, high == nullptr ? kUnbounded : high->whole - 1),
                          Fractions(nullptr, nullptr, bounded, builder).Make()}));
  return builder.AnyOf(parts);
}

}  // namespace

Fragment AddIntegers(std::optional<int64_t> min, std::optional<int64_t> max,
                     GrammarBuilder& builder) {
  if (min && max && *min > *max) return builder.Nothing();
  std::vector<Fragment> parts;
  if (!max || *max >= 0) {
    const uint64_t most = max ? Magnitude(*max) : kUnbounded;
    parts.push_back(
        NaturalsBetween(Magnitude(std::max<int64_t>(min.value_or(0), 0)), most, builder));
  }
  if (!min || *min < 0) {
    const uint64_t most = min ? Magnitude(*min) : kUnbounded;
    const uint64_t least = Magnitude(std::min<int64_t>(max.value_or(-1), -1));
    parts.push_back(
        builder.Sequence({builder.Literal("-"), NaturalsBetween(least, most, builder)}));
  }
  return builder.AnyOf(parts);
}

Result<Fragment> AddDecimals(const std::optional<Bound>& min, const std::optional<Bound>& max,
                             GrammarBuilder& builder) {
  std::optional<Decimal> low, high;
  if (min) {
    LAMINA_ASSIGN_OR_RETURN(low, DecimalOf(*min));
  }
  if (max) {
    LAMINA_ASSIGN_OR_RETURN(high, DecimalOf(*max));
  }
  const bool bounded = (min && min->exclusive) || (max && max->exclusive);
  const Decimal zero;
  std::vector<Fragment> parts;
  if (!max || max->value >= 0)
    parts.push_back(DecimalsBetween(min && min->value >= 0 ? *low : zero, max ? &*high : nullptr,
                                    bounded, builder));
  // Below zero the bounds change places, and zero itself is written without a sign.
  if (!min || min->value < 0) {
    const Decimal above{0, std::string(kMaxFraction, '0'), true};
    parts.push_back(builder.Sequence(
        {builder.Literal("-"), DecimalsBetween(max && max->value < 0 ? *high : above,
                                               min ? &*low : nullptr, bounded, builder)}));
  }
  return builder.AnyOf(parts);
}

}  // namespace lamina
