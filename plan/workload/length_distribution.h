// Made-up lengths of prompts and answers.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "plan/workload/random_stream.h"

namespace lamina {

// "512" or "fixed:512" | "uniform:LOW:HIGH", both included | "lognormal:MEAN:CV", CV (standard
// deviation over mean) 1 if left out. Value type.
class LengthDistribution {
 public:
  static LengthDistribution Fixed(int64_t tokens) {
    return LengthDistribution(Kind::kFixed, static_cast<double>(tokens), 0);
  }
  static LengthDistribution Uniform(int64_t low, int64_t high) {
    return LengthDistribution(Kind::kUniform, static_cast<double>(low), static_cast<double>(high));
  }
  static LengthDistribution LogNormal(double mean, double cv) {
    return LengthDistribution(Kind::kLogNormal, mean, cv);
  }

  // kInvalidArgument says what was read and what is expected.
  static Result<LengthDistribution> Parse(const std::string& text);

  int64_t Draw(RandomStream& random) const;  // >= 1
  double mean() const;                       // before rounding to whole tokens
  std::string text() const;                  // what Parse reads back

 private:
  enum class Kind { kFixed, kUniform, kLogNormal };
  LengthDistribution(Kind kind, double a, double b) : kind_(kind), a_(a), b_(b) {}

  Kind kind_;
  double a_, b_;  // tokens | low, high | mean, cv
};

// Lengths of a published trace or dataset: log-normal with its mean and its coefficient of
// variation.
struct PublishedLengths {
  std::string name;
  LengthDistribution input, output;
  std::string source;
};

// "azure-conv", "azure-code", "mooncake-conv", "sharegpt", "alpaca".
std::span<const PublishedLengths> AllPublishedLengths();

// kNotFound lists the names.
Result<PublishedLengths> FindPublishedLengths(const std::string& name);

}  // namespace lamina
