// Made-up lengths of prompts and answers, in tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "plan/workload/random_stream.h"

namespace lamina {

// A fixed length, one of a range, or a log-normal one. Value type.
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

  // Reads "512" or "fixed:512", "uniform:LOW:HIGH" (both included), or "lognormal:MEAN:CV", where
  // CV is the standard deviation over the mean, 1 if it is left out. kInvalidArgument says what was
  // read and what is expected.
  static Result<LengthDistribution> Parse(const std::string& text);

  // A length; at least 1.
  int64_t Draw(RandomStream& random) const;
  // The mean before lengths are rounded to whole tokens.
  double mean() const;
  // The form that Parse reads.
  std::string text() const;

 private:
  enum class Kind { kFixed, kUniform, kLogNormal };
  LengthDistribution(Kind kind, double a, double b) : kind_(kind), a_(a), b_(b) {}

  Kind kind_;
  // kFixed: tokens, unused; kUniform: low, high; kLogNormal: mean, CV.
  double a_, b_;
};

// Lengths of a published trace or dataset: log-normal distributions with its means and coefficients
// of variation.
struct PublishedLengths {
  std::string name;
  LengthDistribution input, output;
  // What was measured, and by whom.
  std::string source;
};

// "azure-conv", "azure-code", "mooncake-conv", "sharegpt" and "alpaca".
std::span<const PublishedLengths> AllPublishedLengths();

// kNotFound lists the names that there are.
Result<PublishedLengths> FindPublishedLengths(const std::string& name);

}  // namespace lamina
