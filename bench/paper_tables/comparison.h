// Figures of a paper beside those that come out of this code, and the report that shows them.
#pragma once

#include <string>
#include <vector>

namespace lamina {

// One figure, or a range if its two ends differ. Figures are above 0; {0, 0} is none yet.
struct Figure {
  double from = 0, to = 0;

  static Figure One(double value) { return {value, value}; }
  bool is_range() const { return from != to; }
  bool is_none() const { return to == 0; }
  // Widens the range so that it has the value.
  void Include(double value);
};

// One row of a report.
struct Comparison {
  std::string what;
  // Either may be none, where there is none or nothing to compare.
  Figure paper, ours;
  std::string unit;
  // How ours came about, and what to know about the row; "" if the section says it.
  std::string how = {}, remark = {};
  // In place of the figures, where these are several.
  std::string paper_text = {}, ours_text = {};
};

// One table of a report.
struct Section {
  std::string title;
  // What is compared, and how our figures come about.
  std::string text;
  std::vector<Comparison> rows;
  // Where our figures differ, and why; "" if they do not.
  std::string remark;
  // What our figures are compared with.
  std::string reference = "paper";
};

// "+3.1 %"; if either figure is a range, both ends: "-24.0 % to +8.2 %"; "" if either is none.
std::string DifferenceText(const Comparison& row);

// The report as Markdown.
std::string ToMarkdown(const std::vector<Section>& sections);
// The report as one HTML file with pictures in it.
std::string ToHtml(const std::vector<Section>& sections);

}  // namespace lamina
