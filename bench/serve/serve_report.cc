#include "bench/serve/serve_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "bench/commit.h"  // generated
#include "plan/chart/svg_chart.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

struct NamedTime {
  const char* name;   // in JSON
  const char* title;  // for people
  const TimeFigures ServeFigures::*figures;
};

constexpr NamedTime kNamedTimes[] = {
    {"ttft", "time to first token (TTFT)", &ServeFigures::ttft},
    {"tpot", "time per output token after the first (TPOT)", &ServeFigures::tpot},
    {"itl", "between tokens (ITL)", &ServeFigures::itl},
    {"e2el", "end to end (E2EL)", &ServeFigures::e2el}};

// 99 -> "p99", 99.9 -> "p99.9".
std::string PercentileName(double percent) { return fmt::format("p{:g}", percent); }

// A number if the text is one: "inf" and "trace" stay texts.
ordered_json NumberOrText(const std::string& text) {
  const ordered_json number = ordered_json::parse(text, nullptr, false);
  return number.is_number() ? number : ordered_json(text);
}

ordered_json OrNull(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json CostJson(const ServeReport& report) {
  if (!report.prices) return nullptr;
  const Purchase purchase = PerDollar(report.figures, *report.prices);
  ordered_json nodes = ordered_json::array();
  for (const NodePrice& node : report.prices->nodes)
    nodes.push_back(
        {{"device", node.device}, {"count", node.count}, {"price_per_hour", node.price_per_hour}});
  return {{"price_per_hour", report.prices->per_hour()},
          {"nodes", nodes},
          {"price_table", report.prices->table},
          {"tokens_per_dollar", purchase.tokens_per_dollar},
          {"total_tokens_per_dollar", purchase.total_tokens_per_dollar},
          {"requests_per_dollar", purchase.requests_per_dollar},
          {"goodput_per_dollar", OrNull(purchase.goodput_per_dollar)}};
}

ordered_json WorkloadJson(const ServeReport& report) {
  const WorkloadOptions& workload = report.workload;
  ordered_json json = {{"source", report.source},
                       {"counted_by", report.counted_by},
                       {"left_out", report.num_left_out},
                       {"seed", workload.seed},
                       {"rate_scale", workload.rate_scale},
                       {"ramp_up_strategy", workload.ramp},
                       {"ramp_up_start_rps", workload.ramp_start},
                       {"ramp_up_end_rps", workload.ramp_end}};
  return json;
}

ordered_json GeneratorJson(const LoadResult& load) {
  return {{"cpu_share", load.cpu_share},
          {"p99_lateness_ms", 1e3 * load.p99_lateness_seconds},
          {"max_lateness_ms", 1e3 * load.worst_lateness_seconds},
          {"connections", load.num_connections}};
}

std::string TableRow(const std::string& name, const std::string& value) {
  return fmt::format("{:<52}{:>14}\n", name, value);
}

std::string TableRow(const std::string& name, double value) {
  return TableRow(name, fmt::format("{:.2f}", value));
}

std::string TableRule(const std::string& title) {
  return fmt::format("{:-^66}\n", title.empty() ? "" : " " + title + " ");
}

std::string CostText(const ServeReport& report) {
  if (!report.prices) return "";
  const Purchase purchase = PerDollar(report.figures, *report.prices);
  std::string out = TableRule("cost, " + report.prices->table);
  for (const NodePrice& node : report.prices->nodes) {
    if (!node.device.empty())
      out += TableRow(fmt::format("{} x {} (USD/h each)", node.count, node.device),
                      node.price_per_hour);
  }
  out += TableRow("price (USD/h)", report.prices->per_hour());
  out += TableRow("output tokens per dollar", purchase.tokens_per_dollar);
  out += TableRow("requests per dollar", purchase.requests_per_dollar);
  if (purchase.goodput_per_dollar)
    out += TableRow("requests within the service level per dollar", *purchase.goodput_per_dollar);
  return out;
}

std::string NotesText(const ServeReport& report) {
  const ServeFigures& figures = report.figures;
  std::string out;
  if (report.load.ended_early) {
    out += fmt::format(
        "interrupted: {} requests were still under way and {} not sent; they are in no figure\n",
        figures.interrupted, report.load.num_unsent);
  }
  for (const auto& [kind, error] : figures.errors)
    out += fmt::format("{} x {}: {}\n", error.count, kind, error.example);
  if (report.num_left_out > 0)
    out += fmt::format("{} requests of the dataset were left out\n", report.num_left_out);
  if (figures.counted_by_events > 0)
    out += fmt::format(
        "{} answers have no usage: events with text are taken for their output tokens, and may "
        "bring several each\n",
        figures.counted_by_events);
  if (figures.shorter_than_wanted > 0)
    out += fmt::format(
        "{} answers were shorter than the workload's; --ignore-eos makes servers that know it go "
        "on\n",
        figures.shorter_than_wanted);
  if (report.load.p99_lateness_seconds > 0.01)
    out += fmt::format(
        "requests were sent late, 1 % by more than {:.1f} ms: this machine is too busy to offer "
        "the rate exactly\n",
        1e3 * report.load.p99_lateness_seconds);
  return out;
}

// Every n-th point, about `most` of them, and the last one, so that a picture stays small.
template <typename Point>
std::vector<Point> Thinned(const std::vector<Point>& points, size_t most) {
  const size_t stride = points.size() / most + 1;
  std::vector<Point> out;
  for (size_t i = 0; i < points.size(); i += stride) out.push_back(points[i]);
  if (!points.empty() && (points.size() - 1) % stride != 0) out.push_back(points.back());
  return out;
}

using TimePoints = std::vector<std::pair<double, double>>;

Chart OverTime(const char* title, TimePoints points, const std::optional<double>& limit_ms) {
  Chart chart = {std::string(title) + " over time",
                 "seconds since the start, when sent",
                 "ms",
                 {{"", Thinned(points, 4000), true}},
                 {}};
  if (limit_ms) chart.marks.push_back({*limit_ms, false, fmt::format("limit {:g} ms", *limit_ms)});
  return chart;
}

// The share of requests that took no longer, over milliseconds.
Chart Distribution(const char* title, const TimePoints& points, const TimeFigures& figures,
                   const std::optional<double>& limit_ms) {
  std::vector<double> values;
  for (const auto& point : points) values.push_back(point.second);
  std::sort(values.begin(), values.end());
  TimePoints steps;
  for (size_t i = 0; i < values.size(); ++i)
    steps.emplace_back(values[i],
                       100 * static_cast<double>(i + 1) / static_cast<double>(values.size()));
  Chart chart = {std::string(title) + ", share of requests",
                 "ms",
                 "% that took no longer",
                 {{"", Thinned(steps, 1000), false}},
                 {}};
  chart.marks.push_back({figures.median, true, fmt::format("median {:.4g}", figures.median)});
  for (const auto& [percent, value] : figures.percentiles) {
    if (percent > 50)
      chart.marks.push_back(
          {value, true, fmt::format("{} {:.4g}", PercentileName(percent), value)});
  }
  if (limit_ms) chart.marks.push_back({*limit_ms, true, fmt::format("limit {:g}", *limit_ms)});
  return chart;
}

}  // namespace

ordered_json ToJson(const ServeReport& report) {
  const ServeFigures& figures = report.figures;
  ordered_json json = {
      {"date", report.date},
      {"backend", report.backend},
      {"base_url", report.url},
      {"model_id", report.model},
      {"tokenizer_id",
       report.tokenizer.empty() ? ordered_json(nullptr) : ordered_json(report.tokenizer)},
      {"num_prompts", report.load.records.size() + report.load.num_unsent},
      {"request_rate", NumberOrText(report.workload.request_rate)},
      {"burstiness", std::isinf(report.workload.burstiness)
                         ? ordered_json("inf")
                         : ordered_json(report.workload.burstiness)},
      {"max_concurrency",
       report.max_concurrency > 0 ? ordered_json(report.max_concurrency) : ordered_json(nullptr)},
      {"duration", figures.duration},
      {"completed", figures.completed},
      {"failed", figures.failed},
      {"total_input_tokens", figures.total_input_tokens},
      {"total_output_tokens", figures.total_output_tokens},
      {"request_throughput", figures.request_throughput},
      {"request_goodput", OrNull(figures.request_goodput)},
      {"output_throughput", figures.output_throughput},
      {"total_token_throughput", figures.total_token_throughput}};
  for (const NamedTime& time : kNamedTimes) {
    const TimeFigures& values = figures.*time.figures;
    const std::string suffix = std::string("_") + time.name + "_ms";
    json["mean" + suffix] = values.mean;
    json["median" + suffix] = values.median;
    json["std" + suffix] = values.std;
    for (const auto& [percent, value] : values.percentiles)
      json[PercentileName(percent) + suffix] = value;
  }
  json["goodput"] = {{"ttft_ms", OrNull(report.level.ttft_ms)},
                     {"tpot_ms", OrNull(report.level.tpot_ms)},
                     {"e2el_ms", OrNull(report.level.e2el_ms)}};
  json["cost"] = CostJson(report);
  json["workload"] = WorkloadJson(report);
  json["interrupted"] = report.load.ended_early ? ordered_json{{"in_flight", figures.interrupted},
                                                               {"not_sent", report.load.num_unsent}}
                                                : ordered_json(nullptr);
  json["counted_by_events"] = figures.counted_by_events;
  json["shorter_than_wanted"] = figures.shorter_than_wanted;
  json["errors"] = ordered_json::object();
  for (const auto& [kind, error] : figures.errors)
    json["errors"][kind] = {{"count", error.count}, {"example", error.example}};
  json["generator"] = GeneratorJson(report.load);
  json["command"] = report.command;
  json["commit"] = kCommit;
  return json;
}

std::string RequestLines(const LoadResult& load) {
  std::string out;
  for (size_t i = 0; i < load.records.size(); ++i) {
    const RequestRecord& record = load.records[i];
    ordered_json line = {{"request", i},
                         {"due_ms", 1e3 * record.arrival},
                         {"sent_ms", 1e3 * record.sent},
                         {"input_tokens", record.input_tokens}};
    if (record.ok()) {
      line["output_tokens"] = record.output_tokens;
      line["counted_by"] = record.counted_by_server ? "server" : "events";
      line["ttft_ms"] = 1e3 * record.ttft;
      line["tpot_ms"] = 1e3 * record.tpot();
      line["e2el_ms"] = 1e3 * record.e2el;
      line["itl_ms"] = ordered_json::array();
      for (const double itl : record.itl) line["itl_ms"].push_back(1e3 * itl);
    } else {
      line["error_kind"] = record.error_kind;
      line["error"] = record.error;
    }
    out += JsonText(line) + "\n";
  }
  return out;
}

std::string ToText(const ServeReport& report) {
  const ServeFigures& figures = report.figures;
  std::string out = TableRule("lamina bench serve");
  out += TableRow("completed requests", std::to_string(figures.completed));
  out += TableRow("failed requests", std::to_string(figures.failed));
  out += TableRow("duration (s)", figures.duration);
  out += TableRow("input tokens", std::to_string(figures.total_input_tokens));
  out += TableRow("output tokens", std::to_string(figures.total_output_tokens));
  out += TableRow("requests/s", figures.request_throughput);
  if (figures.request_goodput)
    out += TableRow("requests/s within the service level (goodput)", *figures.request_goodput);
  out += TableRow("output tokens/s", figures.output_throughput);
  out += TableRow("input and output tokens/s", figures.total_token_throughput);
  for (const NamedTime& time : kNamedTimes) {
    const TimeFigures& values = figures.*time.figures;
    out += TableRule(time.title);
    out += TableRow("mean (ms)", values.mean) + TableRow("median (ms)", values.median);
    for (const auto& [percent, value] : values.percentiles)
      out += TableRow(PercentileName(percent) + " (ms)", value);
  }
  return out + CostText(report) + TableRule("") + NotesText(report);
}

std::string DrawServe(const ServeReport& report) {
  TimePoints ttft, tpot;
  for (const RequestRecord& record : report.load.records) {
    if (!record.ok()) continue;
    ttft.emplace_back(record.sent, 1e3 * record.ttft);
    if (record.output_tokens > 1) tpot.emplace_back(record.sent, 1e3 * record.tpot());
  }
  const std::string heading =
      fmt::format("{}: {} requests, {:.2f} requests/s, {:.1f} output tokens/s", report.model,
                  report.figures.completed, report.figures.request_throughput,
                  report.figures.output_throughput);
  return DrawCharts(
      heading,
      {OverTime("TTFT", ttft, report.level.ttft_ms), OverTime("TPOT", tpot, report.level.tpot_ms),
       Distribution("TTFT", ttft, report.figures.ttft, report.level.ttft_ms),
       Distribution("TPOT", tpot, report.figures.tpot, report.level.tpot_ms)},
      2);
}

}  // namespace lamina
