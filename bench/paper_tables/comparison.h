// Figures of a paper beside those that come out of this code, and the report that shows them.
#pragma once

#include <string>
#include <vector>

namespace lamina {

// One figure, or a range if the two ends differ. Above 0; 0 and 0: none yet.
struct Figure {
  double from = 0, to = 0;

  static Figure One(double value) { return {value, value}; }
  bool is_range() const { return from != to; }
  void Include(double value);  // widens the range
};

struct Comparison {
  std::string what;
  Figure paper, ours;
  std::string unit;
};

struct Section {
  std::string title;
  std::string text;  // what is compared, and how ours comes about
  std::vector<Comparison> rows;
  std::string remark;               // where ours differ, why; "" if they do not
  std::string reference = "paper";  // what ours stand beside
};

// "+3.1 %"; of a range both ends: "-24.0 % to +8.2 %".
std::string DifferenceText(const Comparison& row);

std::string ToMarkdown(const std::vector<Section>& sections);
// One file with pictures in it.
std::string ToHtml(const std::vector<Section>& sections);

}  // namespace lamina
