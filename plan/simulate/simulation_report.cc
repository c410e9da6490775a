#include "plan/simulate/simulation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "plan/statistics.h"

namespace lamina {
namespace {

using Json = nlohmann::ordered_json;
using Outcome = RequestTimes::Outcome;

// Share of the time: a resource that is busy for longer makes the cluster faster if there is more
// of it.
constexpr double kSaturated = 0.85;

constexpr std::array kPercents = {50.0, 90.0, 95.0, 99.0};

double MeanOf(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

void AddTimes(const std::string& name, std::vector<double> seconds, Json& json) {
  const TimeFigures figures = FiguresOf(std::move(seconds), {kPercents.begin(), kPercents.end()});
  json["mean_" + name] = figures.mean;
  json["median_" + name] = figures.median;
  json["std_" + name] = figures.std;
  for (const auto& [percent, value] : figures.percentiles)
    json[fmt::format("p{:g}_{}", percent, name)] = value;
}

void AddTimes(const std::string& name, const DurationCounts& counts, Json& json) {
  json["mean_" + name] = 1e3 * counts.mean_s();
  json["median_" + name] = 1e3 * counts.PercentileSeconds(0.5);
  json["std_" + name] = 1e3 * counts.stddev_s();
  for (const double percent : kPercents)
    json[fmt::format("p{:g}_{}", percent, name)] = 1e3 * counts.PercentileSeconds(0.01 * percent);
}

double MostOf(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

Json TimelineJson(const ClusterModel& cluster, const SimulationResult& result) {
  const double seconds = std::chrono::duration<double>(result.usage.piece_length()).count();
  Json timeline = {{"seconds_per_point", seconds}};
  for (const UsageTimeline::Piece& piece : result.usage.pieces()) {
    const double weight = std::max(piece.weight, 1e-12);
    timeline["compute_busy"].push_back(piece.compute_s / seconds /
                                       static_cast<double>(cluster.compute.size()));
    timeline["memory_busy"].push_back(
        piece.memory_s / seconds / static_cast<double>(std::max<size_t>(cluster.memory.size(), 1)));
    timeline["network_busy"].push_back(piece.network_s / seconds /
                                       static_cast<double>(cluster.compute.size()));
    timeline["kv_used"].push_back(piece.used_share / weight);
    timeline["running"].push_back(piece.running / weight);
    timeline["waiting"].push_back(piece.waiting / weight);
    timeline["output_throughput"].push_back(piece.tokens / seconds);
  }
  return timeline;
}

int64_t CountOf(const SimulationResult& result, Outcome outcome) {
  return std::count_if(result.requests.begin(), result.requests.end(),
                       [&](const RequestTimes& r) { return r.outcome == outcome; });
}

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone: return "done";
    case Outcome::kRefused: return "refused";
    case Outcome::kDropped: return "dropped";
    case Outcome::kFailed: return "failed";
    case Outcome::kUnfinished: break;
  }
  return "unfinished";
}

// By outcome, of the requests that have objectives and were not refused.
std::map<SloOutcome, int64_t> CountSlo(const SloRule& rule, const SimulationResult& result) {
  std::map<SloOutcome, int64_t> counts;
  for (const RequestTimes& request : result.requests) {
    const Slo slo = rule.Of(request.input_tokens);
    if (!slo.any()) continue;
    if (request.outcome == Outcome::kDropped) ++counts[SloOutcome::kDropped];
    if (request.outcome != Outcome::kDone) continue;
    ++counts[OutcomeOf(slo, request.first_token - request.arrival,
                       request.last_token - request.first_token, request.output_tokens)];
  }
  return counts;
}

Json SloJson(std::map<SloOutcome, int64_t> counts, double duration) {
  const int64_t met = counts[SloOutcome::kMet];
  return {{"met", met},
          {"missed_ttft", counts[SloOutcome::kMissedTtft]},
          {"missed_tpot", counts[SloOutcome::kMissedTpot]},
          {"missed_both", counts[SloOutcome::kMissedBoth]},
          {"dropped", counts[SloOutcome::kDropped]},
          {"goodput", duration > 0 ? static_cast<double>(met) / duration : 0}};
}

Json LossJson(const NodeLoss& loss) {
  return {{"node", loss.node},
          {"at_s", loss.at_s},
          {"interrupted", loss.num_interrupted},
          {"resumed", loss.num_resumed},
          {"first_resumed_s", loss.first_resumed_s},
          {"last_resumed_s", loss.last_resumed_s},
          {"tokens_again", loss.tokens_again},
          {"largest_gap_ms", 1e3 * loss.largest_gap_s},
          {"largest_gap_others_ms", 1e3 * loss.largest_gap_others_s}};
}

std::string LossText(const NodeLoss& loss) {
  return fmt::format(
      "{:<18} lost at {:.2f} s: {} of {} interrupted requests resumed after {:.2f} to {:.2f} s, {} "
      "tokens again; largest gap {:.0f} ms, of others {:.0f} ms\n",
      loss.node, loss.at_s, loss.num_resumed, loss.num_interrupted, loss.first_resumed_s,
      loss.last_resumed_s, loss.tokens_again, 1e3 * loss.largest_gap_s,
      1e3 * loss.largest_gap_others_s);
}

// "3 refused: longer than max_model_len, 2048 tokens; 2 refused: ..."; "" if there are none.
std::string RefusalsText(const SimulationResult& result) {
  std::string text;
  for (const auto& [why, count] : result.refusals)
    text += fmt::format("{}{} refused: {}", text.empty() ? "" : "; ", count, why);
  return text;
}

}  // namespace

Limit FindLimit(const ClusterModel& cluster, const SimulationResult& result) {
  if (!result.failure.empty()) return {"failure", result.failure};
  if (CountOf(result, Outcome::kDone) == 0 && !result.refusals.empty())
    return {"refusals", RefusalsText(result)};
  const double compute = MeanOf(result.compute_busy), memory = MeanOf(result.memory_busy),
               network = MeanOf(result.network_busy);
  const double most = std::max({compute, memory, network});
  if (most >= kSaturated) {
    const std::string name = most == compute  ? "compute nodes"
                             : most == memory ? "memory nodes"
                                              : "network";
    return {name, fmt::format("they are busy {:.0f} % of the time", 100 * most)};
  }
  // The mean hides a single slow node, which all steps wait for.
  if (MostOf(result.memory_busy) >= kSaturated)
    return {"memory nodes",
            fmt::format("one is busy {:.0f} % of the time, and the others wait for it",
                        100 * MostOf(result.memory_busy))};
  if (result.mean_waiting >= 1 && result.mean_running >= 0.95 * cluster.config.max_num_seqs)
    return {"max_num_seqs",
            fmt::format("{} sequences run at a time and {:.0f} wait; nothing else is full",
                        cluster.config.max_num_seqs, result.mean_waiting)};
  if (result.mean_waiting >= 1 && result.peak_used_share >= 0.9)
    return {
        "KV cache",
        fmt::format("{:.0f} % of the token slots are in use on average while {:.0f} sequences wait",
                    100 * result.mean_used_share, result.mean_waiting)};
  if (!result.refusals.empty() && result.mean_waiting < 1)
    return {"refusals", RefusalsText(result)};
  if (result.mean_waiting < 1 && most < 0.5)
    return {"requests", "hardly any waits: more could be served"};
  return {"latency", fmt::format("no pool is busy all the time, and the busiest one is {:.0f} %: "
                                 "they wait for each other. More batches in "
                                 "flight may help",
                                 100 * most)};
}

Json ToServeJson(const SimulationResult& result) {
  std::vector<double> ttft, tpot, e2e;
  int64_t input = 0, output = 0;
  TimePoint first = TimePoint::max(), last;
  for (const RequestTimes& request : result.requests) {
    if (request.outcome != Outcome::kDone) continue;
    input += request.input_tokens;
    output += request.output_tokens;
    first = std::min(first, request.arrival);
    last = std::max(last, request.last_token);
    ttft.push_back(request.ttft_s());
    e2e.push_back(request.e2e_s());
    if (request.output_tokens > 1) tpot.push_back(request.tpot_s());
  }
  const double duration =
      ttft.empty() ? 0 : std::max(std::chrono::duration<double>(last - first).count(), 1e-12);
  const auto rate = [&](double count) { return duration == 0 ? 0 : count / duration; };
  Json json;
  json["duration"] = duration;
  json["completed"] = ttft.size();
  json["failed"] = std::ssize(result.requests) - std::ssize(ttft);
  json["total_input_tokens"] = input;
  json["total_output_tokens"] = output;
  json["request_throughput"] = rate(static_cast<double>(ttft.size()));
  json["output_throughput"] = rate(static_cast<double>(output));
  json["total_token_throughput"] = rate(static_cast<double>(input + output));
  AddTimes("ttft_ms", std::move(ttft), json);
  AddTimes("tpot_ms", std::move(tpot), json);
  AddTimes("itl_ms", result.token_gaps, json);
  AddTimes("e2el_ms", std::move(e2e), json);
  return json;
}

Json ToJson(const ClusterModel& cluster, const SimulationResult& result) {
  const Limit limit = FindLimit(cluster, result);
  Json json = {{"cluster",
                {{"name", cluster.config.name},
                 {"num_compute_nodes", cluster.compute.size()},
                 {"num_memory_nodes", cluster.memory.size()},
                 {"pipeline", PipelineModeName(cluster.config.pipeline)},
                 {"num_batches", cluster.config.num_batches},
                 {"overlap", SwitchName(cluster.config.overlap)}}}};
  json.update(ToServeJson(result));
  json["num_refused"] = CountOf(result, Outcome::kRefused);
  if (!result.refusals.empty()) json["refusals"] = result.refusals;
  json["num_lost"] = CountOf(result, Outcome::kFailed);
  if (const auto counts = CountSlo(cluster.config.slo, result); !counts.empty())
    json["slo"] = SloJson(counts, json.at("duration").get<double>());
  json["num_left_out"] = result.num_left_out;
  if (!result.failure.empty()) json["failure"] = result.failure;
  for (const NodeLoss& loss : result.losses) json["losses"].push_back(LossJson(loss));
  json["num_steps"] = result.num_steps;
  json["mean_rows_per_step"] = static_cast<double>(result.num_rows) /
                               static_cast<double>(std::max<int64_t>(result.num_steps, 1));
  json["num_preemptions"] = result.num_preemptions;
  json["utilisation"] = {{"compute_nodes", MeanOf(result.compute_busy)},
                         {"memory_nodes", MeanOf(result.memory_busy)},
                         {"busiest_memory_node", MostOf(result.memory_busy)},
                         {"network", MeanOf(result.network_busy)}};
  json["limit"] = {{"resource", limit.resource}, {"why", limit.why}};
  json["kv"] = {{"token_slots", result.num_kv_tokens},
                {"mean_used", result.mean_used_share},
                {"peak_used", result.peak_used_share}};
  json["mean_running"] = result.mean_running;
  json["mean_waiting"] = result.mean_waiting;
  json["timeline"] = TimelineJson(cluster, result);
  return json;
}

std::string ToText(const ClusterModel& cluster, const SimulationResult& result) {
  const Json json = ToJson(cluster, result);
  const auto number = [&](const char* key) { return json.at(key).get<double>(); };
  std::string text =
      fmt::format("{}: {} compute and {} memory nodes, pipeline {}, {} batches in flight\n\n",
                  cluster.config.name, cluster.compute.size(), cluster.memory.size(),
                  PipelineModeName(cluster.config.pipeline), cluster.config.num_batches);
  text +=
      fmt::format("requests           {} done, {} refused, {} failed in {:.2f} s of virtual time\n",
                  json.at("completed").get<int64_t>(), json.at("num_refused").get<int64_t>(),
                  json.at("num_lost").get<int64_t>(), number("duration"));
  if (result.num_left_out > 0)
    text += fmt::format(
        "                   {} more left out: longer than --max-total-len, or without an answer\n",
        result.num_left_out);
  if (!result.refusals.empty()) text += "                   " + RefusalsText(result) + "\n";
  if (!result.failure.empty()) text += "                   " + result.failure + "\n";
  text += fmt::format(
      "throughput         {:.2f} requests/s, {:.0f} output tokens/s, {:.0f} tokens/s\n",
      number("request_throughput"), number("output_throughput"), number("total_token_throughput"));
  text += fmt::format("steps              {}, {:.0f} rows each; {} preemptions\n\n",
                      result.num_steps, number("mean_rows_per_step"), result.num_preemptions);
  text += fmt::format("{:<18} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "ms", "mean", "p50", "p90",
                      "p95", "p99");
  for (const std::string name : {"ttft", "tpot", "itl", "e2el"}) {
    text += fmt::format("{:<18} {:>10.2f}", name, json.at("mean_" + name + "_ms").get<double>());
    for (const int percent : {50, 90, 95, 99})
      text +=
          fmt::format(" {:>10.2f}", json.at(fmt::format("p{}_{}_ms", percent, name)).get<double>());
    text += "\n";
  }
  text += fmt::format(
      "\nbusy               compute nodes {:.0f} %, memory nodes {:.0f} % (busiest {:.0f} %), "
      "network {:.0f} %\n",
      100 * MeanOf(result.compute_busy), 100 * MeanOf(result.memory_busy),
      100 * MostOf(result.memory_busy), 100 * MeanOf(result.network_busy));
  text += fmt::format(
      "KV cache           {:.0f} % of {} token slots on average, {:.0f} % at most; {:.0f} "
      "sequences run, {:.0f} wait\n",
      100 * result.mean_used_share, result.num_kv_tokens, 100 * result.peak_used_share,
      result.mean_running, result.mean_waiting);
  if (json.contains("slo")) {
    const Json& slo = json.at("slo");
    const auto count = [&](const char* key) { return slo.at(key).get<int64_t>(); };
    text += fmt::format(
        "objectives         {} requests met them, {:.2f} a second; {} missed TTFT, {} TPOT, {} "
        "both; {} dropped\n",
        count("met"), slo.at("goodput").get<double>(), count("missed_ttft"), count("missed_tpot"),
        count("missed_both"), count("dropped"));
  }
  for (const NodeLoss& loss : result.losses) text += LossText(loss);
  const Limit limit = FindLimit(cluster, result);
  return text + fmt::format("limited by         {}: {}\n", limit.resource, limit.why);
}

void WriteRequests(const SimulationResult& result, std::ostream& out) {
  for (const RequestTimes& request : result.requests) {
    Json line = {
        {"arrival", std::chrono::duration<double>(request.arrival.time_since_epoch()).count()},
        {"input_tokens", request.input_tokens},
        {"output_tokens", request.output_tokens},
        {"outcome", OutcomeName(request.outcome)}};
    if (request.output_tokens > 0) {
      line["ttft"] = request.ttft_s();
      line["e2e"] = request.e2e_s();
    }
    if (request.output_tokens > 1) line["tpot"] = request.tpot_s();
    out << line.dump() << '\n';
  }
}

}  // namespace lamina
