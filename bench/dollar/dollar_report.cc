#include "bench/dollar/dollar_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/dollar/dollar_verdict.h"
#include "bench/report.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

ordered_json OptionalNumber(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

const char* KindName(ShapeKind kind) {
  switch (kind) {
    case ShapeKind::kOneProcess: return "one process";
    case ShapeKind::kCluster: return "cluster";
    case ShapeKind::kEndpoint: return "endpoint";
  }
  return "";
}

ordered_json ShapeJson(const SweepShape& shape) {
  ordered_json nodes = ordered_json::array();
  for (const NodeConfig& node : shape.config.nodes) {
    nodes.push_back({{"name", node.name},
                     {"role", node.role == NodeRole::kCompute ? "compute" : "memory"},
                     {"device", node.device},
                     {"threads", node.threads},
                     {"memory_bytes", node.memory_bytes}});
  }
  ordered_json prices = ordered_json::array();
  if (shape.prices) {
    for (const NodePrice& node : shape.prices->nodes)
      prices.push_back({{"device", node.device},
                        {"count", node.count},
                        {"price_per_hour", node.price_per_hour}});
  }
  ordered_json json = {{"name", shape.name},
                       {"kind", KindName(shape.kind)},
                       {"model", WithoutFolders(shape.config.model_path)},
                       {"label", shape.label},
                       {"nodes", nodes},
                       {"price_per_hour", shape.prices ? ordered_json(shape.prices->per_hour())
                                                       : ordered_json(nullptr)},
                       {"prices", prices}};
  if (!shape.prices) json["no_price"] = shape.no_price;
  if (shape.kind == ShapeKind::kEndpoint) json["url"] = shape.url;
  return json;
}

ordered_json BreakdownJson(const std::optional<StepBreakdown>& breakdown) {
  if (!breakdown) return nullptr;
  return {
      {"step_ms", breakdown->step},           {"slices_ms", breakdown->slices},
      {"messages_ms", breakdown->messages},   {"sampling_ms", breakdown->sampling},
      {"attention_ms", breakdown->attention}, {"network_ms", breakdown->network},
      {"waiting_ms", breakdown->waiting},     {"manager_ms", OptionalNumber(breakdown->manager)}};
}

// Milliseconds, rounded to microseconds.
double Rounded(double seconds) { return std::round(seconds * 1e6) / 1e3; }

ordered_json RunJson(const PointRun& run) {
  ordered_json requests = ordered_json::array();
  for (const RequestRecord& request : run.requests) {
    requests.push_back({{"sent_ms", Rounded(request.sent)},
                        {"ttft_ms", Rounded(request.ttft)},
                        {"e2el_ms", Rounded(request.e2el)},
                        {"input_tokens", request.input_tokens},
                        {"output_tokens", request.output_tokens}});
  }
  const ServeFigures& figures = run.figures;
  return {{"tokens_per_s", run.tokens_per_s},
          {"duration_s", figures.duration},
          {"completed", figures.completed},
          {"input_tokens", figures.total_input_tokens},
          {"output_tokens", figures.total_output_tokens},
          {"median_ttft_ms", figures.ttft.median},
          {"median_tpot_ms", figures.tpot.median},
          {"p99_itl_ms", figures.itl.percentiles.contains(99) ? figures.itl.percentiles.at(99) : 0},
          {"cached_share", OptionalNumber(run.cached_share)},
          {"breakdown", BreakdownJson(run.breakdown)},
          {"requests", requests}};
}

ordered_json PointJson(const DollarReport& report, const PointResult& point) {
  const SweepShape& shape = report.sweep.shapes[point.point.shape];
  ordered_json json = {
      {"shape", shape.name},
      {"series", SeriesName(report.sweep, point.point)},
      {"pipeline", point.point.pipeline ? PipelineModeName(*point.point.pipeline) : ""},
      {"model", point.model},
      {"context", point.point.context},
      {"batch", point.point.batch},
      {"error", point.ok() ? ordered_json(nullptr) : ordered_json(WithoutFolders(point.error))}};
  if (point.ok()) {
    const ordered_json run = RunJson(point.median());
    json["tokens_per_s"] = point.median().tokens_per_s;
    json["lowest_tokens_per_s"] = point.lowest();
    json["highest_tokens_per_s"] = point.highest();
    for (const char* key : {"median_ttft_ms", "median_tpot_ms", "p99_itl_ms", "breakdown"})
      json[key] = run[key];
    json["price_per_hour"] =
        shape.prices ? ordered_json(shape.prices->per_hour()) : ordered_json(nullptr);
    json["tokens_per_dollar"] = OptionalNumber(TokensPerDollar(report, point));
  }
  json["data_path"] = point.data_path;
  json["seconds"] = point.seconds;
  json["commands"] = ordered_json::array();
  for (const std::string& command : point.commands)
    json["commands"].push_back(WithoutFolders(command));
  json["runs"] = ordered_json::array();
  for (const PointRun& run : point.runs) json["runs"].push_back(RunJson(run));
  return json;
}

// By series, the largest share of any run. Shares that are too small to matter are left out.
std::map<std::string, double> CachedShares(const DollarReport& report) {
  constexpr double kLittle = 0.01;  // the token that begins every prompt is always found
  std::map<std::string, double> shares;
  for (const PointResult& point : report.points) {
    for (const PointRun& run : point.runs) {
      if (!run.cached_share || *run.cached_share < kLittle) continue;
      double& share = shares[SeriesName(report.sweep, point.point)];
      share = std::max(share, *run.cached_share);
    }
  }
  return shares;
}

}  // namespace

// A path begins where a word does, or behind = and punctuation. What has one name only, such as
// /metrics, is none, nor is what stands in a URL.
std::string WithoutFolders(const std::string& text) {
  constexpr std::string_view kBefore = " \t\n=:,;('\"[", kBehind = " \t\n=:,;)'\"]<>&";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool begins = text[at] == '/' &&
                        (at == 0 || kBefore.find(text[at - 1]) != std::string_view::npos) &&
                        !text.substr(at).starts_with("//");
    const size_t end = begins ? std::min(text.find_first_of(kBehind, at), text.size()) : at + 1;
    const std::string word = text.substr(at, end - at);
    // The last character of a folder's path may be a slash.
    const size_t last = word.find_last_of('/', word.size() > 1 ? word.size() - 2 : 0);
    out += begins && last > 0 ? word.substr(last + 1) : word;
    at = end;
  }
  return out;
}

std::optional<double> TokensPerDollar(const DollarReport& report, const PointResult& point) {
  const SweepShape& shape = report.sweep.shapes[point.point.shape];
  if (!shape.prices || shape.prices->per_hour() <= 0) return std::nullopt;
  return point.median().tokens_per_s * 3600 / shape.prices->per_hour();
}

bool ReportGroup::has_prices(const DollarReport& report) const {
  return std::any_of(series.begin(), series.end(), [&](const Series& one) {
    return TokensPerDollar(report, report.points[one.points[0]]);
  });
}

std::vector<ReportGroup> GroupsOf(const DollarReport& report) {
  std::vector<ReportGroup> groups;
  for (size_t i = 0; i < report.points.size(); ++i) {
    const PointResult& point = report.points[i];
    if (!point.ok()) continue;
    const std::string& label = report.sweep.shapes[point.point.shape].label;
    const std::string title =
        fmt::format("{}, context {}", label.empty() ? point.model : label, point.point.context);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const ReportGroup& one) { return one.title == title; });
    if (group == groups.end()) group = groups.insert(groups.end(), ReportGroup{title, {}});
    const std::string name = SeriesName(report.sweep, point.point);
    auto series = std::find_if(group->series.begin(), group->series.end(),
                               [&](const auto& one) { return one.name == name; });
    if (series == group->series.end())
      series = group->series.insert(group->series.end(), ReportGroup::Series{name, {}});
    series->points.push_back(i);
  }
  return groups;
}

size_t BestOf(const DollarReport& report, const ReportGroup::Series& series) {
  // All points of a series cost the same, so the fastest is the cheapest too.
  return *std::max_element(series.points.begin(), series.points.end(), [&](size_t a, size_t b) {
    return report.points[a].median().tokens_per_s < report.points[b].median().tokens_per_s;
  });
}

std::vector<std::string> NotesOf(const DollarReport& report) {
  const SweepLoad& load = report.sweep.load;
  std::vector<std::string> notes;
  if (report.num_not_measured > 0) {
    notes.push_back(
        fmt::format("This page has {} of the sweep's {} points: it was written before the others "
                    "were measured.",
                    report.points.size(), report.points.size() + report.num_not_measured));
  }
  notes.push_back(
      load.prefill_left_out
          ? "Prefill is left out: prompts appear with made-up K and V, and rates are those of "
            "decoding, from when all requests of "
            "the batch have their first token. A service has to compute its prompts too."
          : fmt::format("Prefill is in all rates: {} output tokens for prompts of the length that "
                        "the table names, output tokens "
                        "over the whole run. Shares of a step are means over all steps, those that "
                        "computed prompts included.",
                        load.output_tokens));
  notes.push_back(
      "The load is a closed loop of requests of one length: batch is how many are in flight. No "
      "service level is asked for.");
  std::set<std::string> said;
  for (const SweepShape& shape : report.sweep.shapes) {
    if (!shape.prices)
      notes.push_back(shape.name + ": no tokens per dollar, as " + shape.no_price + ".");
    if (shape.config.has_modelled())
      notes.push_back(shape.name +
                      ": modelled devices take their time and compute nothing; processes and "
                      "transports are this machine's.");
  }
  for (const PointResult& point : report.points) {
    const std::string series = SeriesName(report.sweep, point.point);
    if (!point.ok() || !said.insert(series).second) continue;
    const std::string& label = report.sweep.shapes[point.point.shape].label;
    if (!label.empty() && point.model != label)
      notes.push_back(fmt::format("{}: the server calls its model '{}', which is taken for {}.",
                                  series, point.model, label));
    if (point.median().figures.counted_by_events > 0)
      notes.push_back(series +
                      ": the server does not count tokens; events of its streams are taken for "
                      "them, and may bring several each.");
    if (!point.median().breakdown) {
      notes.push_back(series +
                      ": where the time of a step goes cannot be had from this endpoint, as its "
                      "/metrics have none of lamina's.");
    } else if (!point.median().breakdown->manager) {
      notes.push_back(series +
                      ": the manager's part of a step cannot be had, as it is not known how many "
                      "steps overlap.");
    }
  }
  for (const auto& [series, share] : CachedShares(report)) {
    notes.push_back(
        fmt::format("{}: its prefix cache held {:.0f} % of the prompts' tokens in one run or more, "
                    "so rates and first tokens are better than those of "
                    "prompts that are computed. Switch the cache off to compare.",
                    series, 100 * share));
  }
  notes.push_back("Prices have in them what their source says: see " +
                  WithoutFolders(report.sweep.price_table) +
                  " for those that are not the YAML's own.");
  return notes;
}

ordered_json ToJson(const DollarReport& report) {
  const Sweep& sweep = report.sweep;
  ordered_json json = {{"format", 1},
                       {"title", sweep.title},
                       {"date", report.date},
                       {"commit", report.commit},
                       {"version", report.version},
                       {"machine", report.machine},
                       {"command", WithoutFolders(report.command)},
                       {"sweep_file", WithoutFolders(sweep.path)},
                       {"seconds", report.seconds},
                       {"price_table", WithoutFolders(sweep.price_table)},
                       {"repeats", sweep.repeats},
                       {"points_not_measured", report.num_not_measured},
                       {"load",
                        {{"batch", sweep.load.batches},
                         {"context", sweep.load.contexts},
                         {"output_tokens", sweep.load.output_tokens},
                         {"prefill", sweep.load.prefill_left_out ? "left-out" : "computed"},
                         {"waves", sweep.load.waves},
                         {"seed", sweep.load.seed}}},
                       {"notes", NotesOf(report)},
                       {"shapes", ordered_json::array()},
                       {"points", ordered_json::array()},
                       {"verdicts", ordered_json::array()}};
  for (const SweepShape& shape : sweep.shapes) json["shapes"].push_back(ShapeJson(shape));
  for (const PointResult& point : report.points) json["points"].push_back(PointJson(report, point));
  for (const ReportGroup& group : GroupsOf(report))
    json["verdicts"].push_back(VerdictOf(report, group));
  return json;
}

std::string ToText(const DollarReport& report) {
  size_t width = 5;
  for (const PointResult& point : report.points)
    width = std::max(width, SeriesName(report.sweep, point.point).size());
  std::string out = fmt::format("{:{}} {:>8} {:>6} {:>12} {:>22} {:>10} {:>10} {:>8} {:>14}\n",
                                "shape", width, "context", "batch", "tokens/s", "lowest to highest",
                                "TTFT, ms", "TPOT, ms", "USD/h", "tokens/USD");
  for (const PointResult& point : report.points) {
    out += fmt::format("{:{}} {:>8} {:>6}", SeriesName(report.sweep, point.point), width,
                       point.point.context, point.point.batch);
    if (!point.ok()) {
      out += "  not measured: " + point.error + "\n";
      continue;
    }
    const SweepShape& shape = report.sweep.shapes[point.point.shape];
    const std::optional<double> per_dollar = TokensPerDollar(report, point);
    out += fmt::format(" {:>12.1f} {:>22} {:>10.1f} {:>10.2f} {:>8} {:>14}\n",
                       point.median().tokens_per_s,
                       fmt::format("{:.1f} to {:.1f}", point.lowest(), point.highest()),
                       point.median().figures.ttft.median, point.median().figures.tpot.median,
                       shape.prices ? fmt::format("{:.2f}", shape.prices->per_hour()) : "-",
                       per_dollar ? fmt::format("{:.0f}", *per_dollar) : "-");
  }
  for (const ReportGroup& group : GroupsOf(report)) out += VerdictOf(report, group) + '\n';
  return out;
}

}  // namespace lamina
