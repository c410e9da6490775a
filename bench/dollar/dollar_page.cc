// The page of a report.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "bench/dollar/dollar_charts.h"
#include "bench/dollar/dollar_report.h"
#include "bench/dollar/dollar_verdict.h"
#include "bench/dollar/expected_time.h"
#include "plan/chart/svg_chart.h"

namespace lamina {
namespace {

constexpr char kStyle[] = R"(
:root{--paper:#fff;--page:#f5f6f8;--ink:#1d2430;--soft:#5b6575;--line:#dfe3e9;--head:#eef1f5;--grid:#e4e4e4;--axis:#555;--bad:#a4262c}
@media (prefers-color-scheme:dark){:root{--paper:#1a2029;--page:#11151b;--ink:#e4e8ee;--soft:#9aa5b5;--line:#303947;--head:#232b36;--grid:#303947;--axis:#8b97a8;--bad:#ff8f8f}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 24px 60px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:34px 0 10px}h3{font-size:15px;margin:20px 0 8px}
p{margin:6px 0}.soft{color:var(--soft)}
.card{background:var(--paper);border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:12px 0;overflow-x:auto}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:12px}.charts .card{margin:0}
table{border-collapse:collapse;width:100%;font-size:14px}
th{background:var(--head);font-weight:600;text-align:right;padding:6px 9px;white-space:nowrap;vertical-align:bottom}
th small{display:block;font-weight:400;color:var(--soft)}
td{padding:5px 9px;border-top:1px solid var(--line);text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
th.text,td.text{text-align:left}td.text{max-width:340px;overflow:hidden;text-overflow:ellipsis}td.error{text-align:left;color:var(--bad);white-space:normal}
tr.best td{background:var(--head)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:0}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font-size:12.5px}
svg{max-width:100%;height:auto;display:block}
svg text{fill:var(--ink)}svg .paper{fill:var(--paper)}svg .grid{stroke:var(--grid)}svg .axis{stroke:var(--axis)}
svg line.note{stroke:var(--soft)}svg polyline{stroke-linejoin:round}
ul{margin:6px 0;padding-left:20px}button{font:inherit;color:inherit;background:var(--head);border:1px solid var(--line);border-radius:6px;padding:4px 12px;cursor:pointer}
)";

// Counts what the raw data contain, and offers them as a file.
constexpr char kScript[] = R"(
const text=document.getElementById('raw').textContent, raw=JSON.parse(text);
const runs=raw.points.reduce((n,p)=>n+p.runs.length,0), requests=raw.points.reduce((n,p)=>n+p.runs.reduce((m,r)=>m+r.requests.length,0),0);
document.getElementById('counts').textContent=`${raw.points.length} points, ${runs} runs, ${requests} requests`;
document.getElementById('save').onclick=()=>{const a=document.createElement('a');
a.href=URL.createObjectURL(new Blob([text],{type:'application/json'}));a.download='dollar.json';a.click();};
)";

// A column of a table of points: where its number stands in a point's JSON, and how it is shown.
struct PageColumn {
  const char* title;
  const char* unit;  // below the title
  const char* key;   // in the point's JSON; "breakdown/slices_ms" is nested
  double scale = 1;  // that the number is shown with
};

const std::vector<PageColumn> kResultColumns = {
    {"context", "tokens", "context"},
    {"batch", "requests", "batch"},
    {"throughput", "tokens/s", "tokens_per_s"},
    {"lowest", "tokens/s", "lowest_tokens_per_s"},
    {"highest", "tokens/s", "highest_tokens_per_s"},
    {"TTFT", "ms, median", "median_ttft_ms"},
    {"TPOT", "ms, median", "median_tpot_ms"},
    {"ITL", "ms, p99", "p99_itl_ms"},
    {"price", "USD/h", "price_per_hour"},
    {"tokens per dollar", "million", "tokens_per_dollar", 1e-6}};

const std::vector<PageColumn> kBreakdownColumns = {{"context", "tokens", "context"},
                                                   {"batch", "requests", "batch"},
                                                   {"slices", "ms", "breakdown/slices_ms"},
                                                   {"messages", "ms", "breakdown/messages_ms"},
                                                   {"sampling", "ms", "breakdown/sampling_ms"},
                                                   {"attention", "ms", "breakdown/attention_ms"},
                                                   {"network", "ms", "breakdown/network_ms"},
                                                   {"waiting", "ms", "breakdown/waiting_ms"},
                                                   {"manager", "ms", "breakdown/manager_ms"}};

using nlohmann::ordered_json;

// The value at the key; null if there is none.
ordered_json NumberAt(const ordered_json& point, const std::string& key) {
  const std::string pointer = "/" + key;
  const ordered_json::json_pointer at(pointer);
  return point.contains(at) ? point.at(at) : ordered_json();
}

// As many decimals as give all numbers of a column three significant digits, but four at most.
int DecimalsOf(const ordered_json& points, const PageColumn& column) {
  double least = 1e300;
  bool whole = true;
  for (const ordered_json& point : points) {
    const ordered_json value = NumberAt(point, column.key);
    if (!value.is_number()) continue;
    whole = whole && value.is_number_integer() && column.scale == 1;
    const double number = std::abs(value.get<double>() * column.scale);
    if (number > 0) least = std::min(least, number);
  }
  return whole ? 0 : least >= 100 ? 0 : least >= 10 ? 1 : least >= 1 ? 2 : least >= 0.1 ? 3 : 4;
}

std::string TableHead(const std::vector<PageColumn>& columns) {
  std::string html = "<thead><tr><th class=\"text\">shape</th>";
  for (const PageColumn& column : columns)
    html += fmt::format("<th>{}<small>{}</small></th>", column.title, column.unit);
  return html + "</tr></thead>\n";
}

std::string PointsTable(const ordered_json& points, const std::vector<PageColumn>& columns,
                        const char* id, const std::function<bool(const ordered_json&)>& shown) {
  std::vector<int> decimals;
  for (const PageColumn& column : columns) decimals.push_back(DecimalsOf(points, column));
  std::string html =
      fmt::format("<div class=\"card\"><table id=\"{}\">{}<tbody>\n", id, TableHead(columns));
  for (size_t i = 0; i < points.size(); ++i) {
    const ordered_json& point = points[i];
    if (!shown(point)) continue;
    html += fmt::format("<tr><td class=\"text\">{}</td>",
                        EscapeXml(point["series"].get<std::string>()));
    size_t column = 0;
    for (; column < columns.size(); ++column) {
      if (column == 2 && !point["error"].is_null()) break;
      const ordered_json value = NumberAt(point, columns[column].key);
      const std::string text =
          value.is_number() ? fmt::format("{:.{}f}", value.get<double>() * columns[column].scale,
                                          decimals[column])
                            : "&ndash;";
      html += fmt::format("<td data-point=\"{}\" data-key=\"{}\" data-scale=\"{:g}\">{}</td>", i,
                          columns[column].key, columns[column].scale, text);
    }
    if (column < columns.size())
      html += fmt::format("<td class=\"error\" colspan=\"{}\">not measured: {}</td>",
                          columns.size() - column, EscapeXml(point["error"].get<std::string>()));
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string Terms(const std::vector<std::pair<std::string, std::string>>& terms) {
  std::string html = "<dl>";
  for (const auto& [name, value] : terms)
    html += fmt::format("<dt>{}</dt><dd>{}</dd>", EscapeXml(name), EscapeXml(value));
  return html + "</dl>";
}

// "1 x modelled:H100 at 2.69, 2 x H20 at 1.13 USD/h"
std::string PriceText(const SweepShape& shape) {
  if (!shape.prices) return shape.no_price;
  std::string text;
  for (const NodePrice& node : shape.prices->nodes)
    text += fmt::format("{}{} x {} at {:g}", text.empty() ? "" : ", ", node.count,
                        node.device.empty() ? "node" : node.device, node.price_per_hour);
  return fmt::format("{} USD/h; together {:g}", text, shape.prices->per_hour());
}

std::string RatioText(const Spread& a, const Spread& b) {
  return Differ(a, b) ? fmt::format("{:.2f}", a.median / b.median) : "no difference";
}

// The best point of each series, compared with that of the first series.
std::string BestTable(const DollarReport& report, const ReportGroup& group) {
  std::string html =
      "<div class=\"card\"><table><thead><tr><th class=\"text\">shape</th><th>at "
      "batch</th><th>tokens/s</th><th>lowest to "
      "highest</th><th>of the first</th>"
      "<th>USD/h</th><th>million tokens/USD</th><th>of the first</th></tr></thead><tbody>\n";
  const PointResult& first = report.points[BestOf(report, group.series.front())];
  const std::optional<Spread> first_per_dollar = DollarSpread(report, first);
  for (const ReportGroup::Series& series : group.series) {
    const PointResult& best = report.points[BestOf(report, series)];
    const std::optional<Spread> per_dollar = DollarSpread(report, best);
    const std::optional<Prices>& prices = report.sweep.shapes[best.point.shape].prices;
    html += fmt::format(
        "<tr><td class=\"text\">{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f} to "
        "{:.1f}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        EscapeXml(series.name), best.point.batch, best.median().tokens_per_s, best.lowest(),
        best.highest(), &best == &first ? "1" : RatioText(RateSpread(best), RateSpread(first)),
        prices ? fmt::format("{:.3f}", prices->per_hour()) : "&ndash;",
        per_dollar ? fmt::format("{:.3f}", per_dollar->median * 1e-6) : "&ndash;",
        !per_dollar || !first_per_dollar ? "&ndash;"
        : &best == &first                ? "1"
                                         : RatioText(*per_dollar, *first_per_dollar));
  }
  return html + "</tbody></table></div>\n";
}

std::string GroupSection(const DollarReport& report, const ReportGroup& group) {
  std::string html = fmt::format("<section class=\"group\"><h2>{}</h2>\n", EscapeXml(group.title)) +
                     BestTable(report, group);
  html += "<div class=\"charts\">\n";
  for (const std::string& svg : LineChartsOf(report, group))
    html += "<div class=\"card lines\">" + svg + "</div>\n";
  html += "</div>\n";
  if (const std::string bars = DollarBarsOf(report, group); !bars.empty())
    html += "<div class=\"card bars\">" + bars + "</div>\n";
  if (const std::string bars = BreakdownBarsOf(report, group); !bars.empty())
    html += "<div class=\"card steps\">" + bars + "</div>\n";
  return html + "</section>\n";
}

std::string CommandsSection(const DollarReport& report) {
  std::string html = "<h2>Commands</h2><div class=\"card\"><h3>This report</h3><pre>" +
                     EscapeXml(WithoutFolders(report.command)) + "</pre>\n";
  std::vector<std::string> shown;
  for (const PointResult& point : report.points) {
    const std::string series = SeriesName(report.sweep, point.point);
    if (point.commands.empty() || std::find(shown.begin(), shown.end(), series) != shown.end())
      continue;
    shown.push_back(series);
    html += fmt::format("<h3>{}, batch {}</h3><pre>", EscapeXml(series), point.point.batch);
    for (const std::string& command : point.commands)
      html += EscapeXml(WithoutFolders(command)) + "\n";
    html += "</pre>\n";
  }
  return html +
         "<p class=\"soft\">Daemons are started anew for each point. The manager, its HTTP server, "
         "the load generator and a model in one process are in `lamina bench dollar` "
         "itself.</p></div>\n";
}

std::string VerdictSection(const DollarReport& report) {
  std::string html;
  for (const ReportGroup& group : GroupsOf(report))
    html += "<p class=\"verdict\">" + EscapeXml(VerdictOf(report, group)) + "</p>\n";
  return html.empty() ? "" : "<h2>Verdict</h2><div class=\"card\">\n" + html + "</div>\n";
}

// Nothing in the text can end the script element that it stands in: <, > and & occur only within
// strings of the JSON, where they may be escaped.
std::string JsonInScript(const ordered_json& json) {
  std::string out;
  for (const char c : json.dump(-1, ' ', true, ordered_json::error_handler_t::replace)) {
    switch (c) {
      case '<': out += "\\u003c"; break;
      case '>': out += "\\u003e"; break;
      case '&': out += "\\u0026"; break;
      default: out += c;
    }
  }
  return out;
}

std::string Header(const DollarReport& report) {
  const Sweep& sweep = report.sweep;
  std::string html = fmt::format(
      "<h1>{}</h1>\n<p class=\"soft\">Throughput, latency and tokens per dollar, by <code>lamina "
      "bench dollar</code></p>\n",
      EscapeXml(sweep.title));
  html += "<div class=\"card\">" +
          Terms({{"measured", report.date + ", in " + DurationText(report.seconds)},
                 {"machine", report.machine},
                 {"lamina", report.version + ", commit " + report.commit},
                 {"sweep", WithoutFolders(sweep.path)},
                 {"answers", fmt::format("{} tokens each", sweep.load.output_tokens)},
                 {"runs", fmt::format("{} of each point; the one with the median rate is shown",
                                      sweep.repeats)}}) +
          "</div>\n<h2>What is compared</h2><div class=\"card\">";
  std::vector<std::pair<std::string, std::string>> shapes;
  for (const SweepShape& shape : sweep.shapes) shapes.emplace_back(shape.name, PriceText(shape));
  html += Terms(shapes) + "<ul>";
  for (const std::string& note : NotesOf(report)) html += "<li>" + EscapeXml(note) + "</li>";
  return html + "</ul></div>\n";
}

}  // namespace

std::string ToHtml(const DollarReport& report) {
  const ordered_json json = ToJson(report);
  const ordered_json& points = json["points"];
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\">"
      "<meta name=\"color-scheme\" content=\"light "
      "dark\"><title>{}</title>\n<style>{}</style></head>\n<body><main>\n",
      EscapeXml(report.sweep.title), kStyle);
  html += Header(report);
  for (const ReportGroup& group : GroupsOf(report)) html += GroupSection(report, group);
  html += "<h2>All points</h2>\n" +
          PointsTable(points, kResultColumns, "results", [](const ordered_json&) { return true; });
  const auto has_breakdown = [](const ordered_json& point) {
    return point.contains("breakdown") && !point["breakdown"].is_null();
  };
  if (std::any_of(points.begin(), points.end(), has_breakdown)) {
    html += "<h2>Where the time of a step goes</h2>\n" +
            PointsTable(points, kBreakdownColumns, "steps", has_breakdown);
    html +=
        "<p class=\"soft\">Of the mean step, from /metrics. slices: linear layers on the compute "
        "node. messages: gathering and posting q, "
        "k and v, "
        "copying outputs, and attention of prompts. attention: of the slowest memory node, or in "
        "one process. network: on the way and not "
        "hidden "
        "by anything; with several batches in flight also outputs that wait for the compute node. "
        "waiting: queues, and batches that share "
        "the nodes. manager: between two steps, HTTP included.</p>\n";
  }
  html += CommandsSection(report);
  html +=
      "<h2>Raw data</h2><div class=\"card\"><p><span id=\"counts\">JSON</span> <button "
      "id=\"save\">Save as "
      "JSON</button></p></div>\n";
  html += VerdictSection(report) + "</main>\n";
  html += "<script type=\"application/json\" id=\"raw\">" + JsonInScript(json) +
          "</script>\n<script>" + kScript + "</script>\n</body></html>\n";
  return html;
}

}  // namespace lamina
