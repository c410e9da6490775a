#include "bench/paper_tables/comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/commit.h"  // generated
#include "plan/chart/bar_chart.h"
#include "plan/chart/svg_chart.h"

namespace lamina {
namespace {

constexpr char kIntroduction[] =
    "Figures of the Lamina papers beside those of this code's cost model and planner. Nothing here "
    "was measured on GPUs by this project, "
    "and "
    "nothing is tuned to fit: where a figure differs, the remark says why as far as it is known.";

std::string NumberText(double value) {
  return value >= 1000  ? fmt::format("{:.0f}", value)
         : value >= 100 ? fmt::format("{:.1f}", value)
                        : fmt::format("{:.2f}", value);
}

std::string FigureText(const Figure& figure, const std::string& unit,
                       const std::string& in_place = "") {
  if (!in_place.empty()) return in_place;
  if (figure.is_none()) return "-";
  const std::string number = figure.is_range()
                                 ? NumberText(figure.from) + " to " + NumberText(figure.to)
                                 : NumberText(figure.from);
  return unit.empty() ? number : number + " " + unit;
}

std::string PercentText(double ours, double paper) {
  return fmt::format("{:+.1f} %", 100 * (ours / paper - 1));
}

// What there is room for beside the bars: without what follows a colon, if it is long.
std::string LabelOf(const Comparison& row) {
  constexpr size_t kLongest = 46;
  return row.what.size() <= kLongest ? row.what : row.what.substr(0, row.what.find(": "));
}

bool HasRemarks(const Section& section) {
  return std::ranges::any_of(
      section.rows, [](const Comparison& row) { return !row.how.empty() || !row.remark.empty(); });
}

// Both figures of each row that has them, on a scale that shows ratios of 1 as well as of 60.
std::string PictureOf(const Section& section) {
  BarChart chart{section.title, {}, true};
  for (const Comparison& row : section.rows) {
    if (row.paper.from <= 0 || row.ours.from <= 0) continue;
    chart.bars.push_back({LabelOf(row), row.paper.from, row.paper.to,
                          section.reference + " " + FigureText(row.paper, row.unit), true});
    chart.bars.push_back(
        {"", row.ours.from, row.ours.to, "ours " + FigureText(row.ours, row.unit), false});
  }
  return chart.bars.empty() ? "" : ToSvg(chart);
}

}  // namespace

void Figure::Include(double value) {
  from = from == 0 ? value : std::min(from, value);
  to = std::max(to, value);
}

std::string DifferenceText(const Comparison& row) {
  if (row.paper.is_none() || row.ours.is_none()) return "";
  const std::string low = PercentText(row.ours.from, row.paper.from),
                    high = PercentText(row.ours.to, row.paper.to);
  return row.paper.is_range() || row.ours.is_range() ? low + " to " + high : low;
}

std::string ToMarkdown(const std::vector<Section>& sections) {
  std::string text =
      fmt::format("# The papers' figures and ours\n\n{} Commit {}.\n", kIntroduction, kCommit);
  for (const Section& section : sections) {
    const bool has_remarks = HasRemarks(section);
    text += fmt::format("\n## {}\n\n{}\n\n| | {} | ours | difference |{}\n|---|---|---|---|{}\n",
                        section.title, section.text, section.reference,
                        has_remarks ? " how | remark |" : "", has_remarks ? "---|---|" : "");
    for (const Comparison& row : section.rows) {
      text += fmt::format("| {} | {} | {} | {} |", row.what,
                          FigureText(row.paper, row.unit, row.paper_text),
                          FigureText(row.ours, row.unit, row.ours_text), DifferenceText(row));
      text += has_remarks ? fmt::format(" {} | {} |\n", row.how, row.remark) : "\n";
    }
    if (!section.remark.empty()) text += "\n" + section.remark + "\n";
  }
  return text;
}

std::string ToHtml(const std::vector<Section>& sections) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>The papers' figures "
      "and "
      "ours</title>\n<style>body{{font-family:"
      "sans-serif;max-width:1000px;margin:2em "
      "auto;line-height:1.4}}table{{border-collapse:collapse}}td,th{{border:1px solid #ccc;padding:"
      "3px 10px;text-align:left}}svg{{max-width:100%;height:auto}}</style></head><body>\n<h1>The "
      "papers' figures and ours</h1>\n<p>{} "
      "Commit "
      "{}.</p>\n",
      EscapeXml(kIntroduction), EscapeXml(kCommit));
  for (const Section& section : sections) {
    const bool has_remarks = HasRemarks(section);
    html += fmt::format(
        "<h2>{}</h2>\n<p>{}</p>\n<table><tr><th></th><th>{}</th><th>ours</th><th>difference</"
        "th>{}</"
        "tr>\n",
        EscapeXml(section.title), EscapeXml(section.text), section.reference,
        has_remarks ? "<th>how</th><th>remark</th>" : "");
    for (const Comparison& row : section.rows) {
      html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td>", EscapeXml(row.what),
                          EscapeXml(FigureText(row.paper, row.unit, row.paper_text)),
                          EscapeXml(FigureText(row.ours, row.unit, row.ours_text)),
                          DifferenceText(row));
      html += has_remarks ? fmt::format("<td>{}</td><td>{}</td></tr>\n", EscapeXml(row.how),
                                        EscapeXml(row.remark))
                          : "</tr>\n";
    }
    html += "</table>\n";
    if (!section.remark.empty()) html += fmt::format("<p>{}</p>\n", EscapeXml(section.remark));
    html += PictureOf(section);
  }
  return html + "</body></html>\n";
}

}  // namespace lamina
