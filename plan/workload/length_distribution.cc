#include "plan/workload/length_distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

namespace lamina {
namespace {

constexpr double kMaxTokens = 1e9;

std::vector<std::string> SplitAtColons(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ':') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::optional<double> PositiveNumber(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end || !(value > 0) || value > kMaxTokens)
    return std::nullopt;
  return value;
}

std::optional<int64_t> PositiveInteger(const std::string& text) {
  const std::optional<double> value = PositiveNumber(text);
  if (!value || *value != std::floor(*value)) return std::nullopt;
  return static_cast<int64_t>(*value);
}

std::optional<LengthDistribution> ParseParts(const std::vector<std::string>& parts) {
  const size_t count = parts.size();
  if (count == 1 || (count == 2 && parts[0] == "fixed")) {
    const std::optional<int64_t> tokens = PositiveInteger(parts.back());
    if (tokens) return LengthDistribution::Fixed(*tokens);
  } else if (count == 3 && parts[0] == "uniform") {
    const std::optional<int64_t> low = PositiveInteger(parts[1]), high = PositiveInteger(parts[2]);
    if (low && high && *low <= *high) return LengthDistribution::Uniform(*low, *high);
  } else if ((count == 2 || count == 3) && parts[0] == "lognormal") {
    const std::optional<double> mean = PositiveNumber(parts[1]),
                                cv = count == 3 ? PositiveNumber(parts[2]) : 1.0;
    if (mean && cv) return LengthDistribution::LogNormal(*mean, *cv);
  }
  return std::nullopt;
}

}  // namespace

Result<LengthDistribution> LengthDistribution::Parse(const std::string& text) {
  if (const std::optional<LengthDistribution> parsed = ParseParts(SplitAtColons(text)))
    return *parsed;
  return InvalidArgument("a length of '" + text +
                         "' is not understood; expected tokens as 512, uniform:LOW:HIGH or "
                         "lognormal:MEAN:CV, all positive");
}

int64_t LengthDistribution::Draw(RandomStream& random) const {
  switch (kind_) {
    case Kind::kFixed: return static_cast<int64_t>(a_);
    case Kind::kUniform: return random.Between(static_cast<int64_t>(a_), static_cast<int64_t>(b_));
    case Kind::kLogNormal: break;
  }
  // The variance of the logarithm, so that lengths have the wanted mean and CV.
  const double variance = std::log1p(b_ * b_);
  const double tokens = a_ * std::exp(std::sqrt(variance) * random.Normal() - variance / 2);
  return static_cast<int64_t>(std::clamp(std::round(tokens), 1.0, kMaxTokens));
}

double LengthDistribution::mean() const { return kind_ == Kind::kUniform ? (a_ + b_) / 2 : a_; }

std::string LengthDistribution::text() const {
  switch (kind_) {
    case Kind::kFixed: return fmt::format("{:.0f}", a_);
    case Kind::kUniform: return fmt::format("uniform:{:.0f}:{:.0f}", a_, b_);
    case Kind::kLogNormal: break;
  }
  return fmt::format("lognormal:{}:{}", a_, b_);
}

std::span<const PublishedLengths> AllPublishedLengths() {
  using L = LengthDistribution;
  static const std::array<PublishedLengths, 5> all = {{
      {"azure-conv", L::LogNormal(1154.7, 0.960), L::LogNormal(211.1, 0.771),
       "AzureLLMInferenceTrace_conv 2023, 19,366 requests"},
      {"azure-code", L::LogNormal(2047.8, 0.964), L::LogNormal(27.9, 2.147),
       "AzureLLMInferenceTrace_code 2023, 8,819 requests"},
      {"mooncake-conv", L::LogNormal(12035.1, 1.313), L::LogNormal(342.6, 0.729),
       "Mooncake's conversation trace, 12,031 requests"},
      {"sharegpt", L::LogNormal(161.31, 1), L::LogNormal(337.99, 1),
       "means: Kwon et al., PagedAttention, 2023; variation assumed"},
      {"alpaca", L::LogNormal(19.31, 1), L::LogNormal(58.45, 1),
       "means: Kwon et al., PagedAttention, 2023; variation assumed"},
  }};
  return all;
}

Result<PublishedLengths> FindPublishedLengths(const std::string& name) {
  std::string names;
  for (const PublishedLengths& lengths : AllPublishedLengths()) {
    if (lengths.name == name) return lengths;
    names += (names.empty() ? "" : ", ") + lengths.name;
  }
  return NotFound("no lengths are known by the name '" + name + "'; there are " + names);
}

}  // namespace lamina
