#include "bench/recovery/recovery_report.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>

namespace lamina {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::array<const char*, kNumRunPhases> kPhaseNames = {"before", "during", "after"};

double Ms(const std::optional<double>& seconds) { return seconds ? 1e3 * *seconds : kUnknown; }

std::string FaultName(const RecoveryReport& report, const FaultFigures& fault) {
  return report.run.faults[fault.fault].fault.Name();
}

std::string FaultNames(const RecoveryTimeline& run) {
  std::string names;
  for (const FaultRecord& fault : run.faults)
    names += (names.empty() ? "" : ", ") + fault.fault.Name();
  return names;
}

Measurement FigureLine(const RecoveryReport& report, const char* figure, double value,
                       const char* unit) {
  Measurement m;
  m.name = "recovery";
  m.sizes = {{"figure", figure},
             {"cluster", report.cluster},
             {"faults", FaultNames(report.run)},
             {"streams", report.load.num_streams},
             {"input_len", report.load.input_tokens},
             {"output_len", report.load.output_tokens}};
  m.value = value;
  m.unit = unit;
  return m;
}

void AddFaultFigures(const RecoveryReport& report, const FaultFigures& fault,
                     std::vector<Measurement>& out) {
  const size_t first = out.size();
  out.push_back(FigureLine(report, "detection", Ms(fault.known_s), "ms"));
  if (!fault.known_s) out.back().note = "the manager's status never told of it";
  out.push_back(FigureLine(report, "interrupted", static_cast<double>(fault.interruptions.size()),
                           "requests"));
  out.back().details = {{"resumed", fault.num_resumed}};
  out.push_back(FigureLine(report, "first_resumed", Ms(fault.first_resumed_s), "ms"));
  out.push_back(FigureLine(report, "last_resumed", Ms(fault.last_resumed_s), "ms"));
  Measurement& last = out.back();
  if (!fault.last_resumed_s) last.note = "no interrupted request resumed";
  if (fault.over_prefill) {
    last.reference = "prefill_alone: prompts of the same lengths, when nothing else ran";
    last.reference_value = last.value / *fault.over_prefill;
    last.ratio = 1 / *fault.over_prefill;
  }
  out.push_back(
      FigureLine(report, "tokens_again", static_cast<double>(fault.tokens_again), "tokens"));
  if (fault.kept) out.push_back(FigureLine(report, "kv_kept", *fault.kept, "ratio"));
  const std::optional<double> alone_s = report.run.faults[fault.fault].prefill_alone_s;
  out.push_back(FigureLine(report, "prefill_alone", Ms(alone_s), "ms"));
  if (!alone_s) out.back().note = "nothing was computed again, or it was not measured";
  out.push_back(FigureLine(report, "last_resumed_over_prefill",
                           fault.over_prefill.value_or(kUnknown), "ratio"));
  for (size_t i = first; i < out.size(); ++i) out[i].sizes["fault"] = FaultName(report, fault);
}

void AddGapFigures(const RecoveryReport& report, const char* streams,
                   const std::array<GapFigures, kNumRunPhases>& gaps,
                   std::vector<Measurement>& out) {
  for (size_t phase = 0; phase < kNumRunPhases; ++phase) {
    const GapFigures& of_phase = gaps[phase];
    if (of_phase.count == 0) continue;
    const size_t first = out.size();
    out.push_back(FigureLine(report, "tpot", of_phase.median_ms, "ms"));
    out.back().p99 = of_phase.p99_ms;
    out.back().p99_of = "ms between two tokens of a request";
    out.push_back(FigureLine(report, "largest_gap", of_phase.largest_ms, "ms"));
    for (size_t i = first; i < out.size(); ++i) {
      out[i].sizes["phase"] = kPhaseNames[phase];
      out[i].sizes["of"] = streams;
    }
  }
}

void AddRateFigures(const RecoveryReport& report, std::vector<Measurement>& out) {
  const std::optional<double> before =
      report.figures.tokens_per_s[static_cast<size_t>(RunPhase::kBefore)];
  for (size_t phase = 0; phase < kNumRunPhases; ++phase) {
    const std::optional<double> rate = report.figures.tokens_per_s[phase];
    if (!rate) continue;
    Measurement& m = out.emplace_back(FigureLine(report, "output_rate", *rate, "output tokens/s"));
    m.sizes["phase"] = kPhaseNames[phase];
    if (phase == static_cast<size_t>(RunPhase::kBefore) || !before) continue;
    m.reference = "before the first fault";
    m.reference_value = *before;
    m.ratio = *rate / *before;
  }
}

std::string ValueText(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, std::abs(value) < 10 ? 2 : 1);
}

std::string FigureRow(const std::string& name, const std::string& value) {
  return fmt::format("{:<50}{:>12}\n", name, value);
}

std::string FaultText(const RecoveryReport& report, const FaultFigures& fault) {
  std::string out = FaultName(report, fault) + "\n";
  out += FigureRow("  the manager knew after (ms)", ValueText(Ms(fault.known_s)));
  out += FigureRow("  requests interrupted", fmt::format("{}", fault.interruptions.size()));
  out += FigureRow("  of these resumed", fmt::format("{}", fault.num_resumed));
  out += FigureRow("  the first resumed after (ms)", ValueText(Ms(fault.first_resumed_s)));
  out += FigureRow("  the last resumed after (ms)", ValueText(Ms(fault.last_resumed_s)));
  out += FigureRow("  tokens computed again", fmt::format("{}", fault.tokens_again));
  if (fault.kept) out += FigureRow("  KV kept (%)", ValueText(100 * *fault.kept));
  out += FigureRow("  as prompts, when nothing else ran, they take (ms)",
                   ValueText(Ms(report.run.faults[fault.fault].prefill_alone_s)));
  out += FigureRow("  last resumed / that", ValueText(fault.over_prefill.value_or(kUnknown)));
  return out;
}

using PhaseValues = std::array<double, kNumRunPhases>;

std::string PhaseRow(const std::string& name, const PhaseValues& values) {
  return fmt::format("{:<38}{:>12}{:>12}{:>12}\n", name, ValueText(values[0]), ValueText(values[1]),
                     ValueText(values[2]));
}

PhaseValues ValuesOf(const std::array<GapFigures, kNumRunPhases>& gaps, double GapFigures::*value) {
  PhaseValues values{};
  for (size_t phase = 0; phase < kNumRunPhases; ++phase)
    values[phase] = gaps[phase].count > 0 ? gaps[phase].*value : kUnknown;
  return values;
}

std::string PhasesText(const RecoveryFigures& figures) {
  PhaseValues rates{};
  for (size_t phase = 0; phase < kNumRunPhases; ++phase)
    rates[phase] = figures.tokens_per_s[phase].value_or(kUnknown);
  std::string out =
      fmt::format("{:<38}{:>12}{:>12}{:>12}\n", "", kPhaseNames[0], kPhaseNames[1], kPhaseNames[2]);
  out += PhaseRow("output tokens/s", rates);
  out += PhaseRow("p99 TPOT (ms), interrupted streams",
                  ValuesOf(figures.gaps_of_interrupted, &GapFigures::p99_ms));
  out += PhaseRow("               other streams",
                  ValuesOf(figures.gaps_of_others, &GapFigures::p99_ms));
  out += PhaseRow("largest gap (ms), interrupted streams",
                  ValuesOf(figures.gaps_of_interrupted, &GapFigures::largest_ms));
  out += PhaseRow("                  other streams",
                  ValuesOf(figures.gaps_of_others, &GapFigures::largest_ms));
  return out;
}

std::string OutcomeText(const RecoveryReport& report) {
  const RecoveryFigures& figures = report.figures;
  std::string out = FigureRow("rate of prefill (tokens/s)",
                              ValueText(figures.prefill_tokens_per_s.value_or(kUnknown)));
  out += FigureRow("requests that failed", fmt::format("{}", figures.num_errors));
  if (figures.check) {
    out += FigureRow("tokens that differ from the run without faults",
                     fmt::format("{}", figures.check->num_different));
    out += FigureRow("  of", fmt::format("{}", figures.check->num_compared));
  }
  out += FigureRow("slots in use at the end", fmt::format("{}", report.run.slots_at_end));
  if (report.run.num_preemptions > 0)
    out += fmt::format(
        "{} sequences were preempted, as the memory nodes were full: they too started again\n",
        report.run.num_preemptions);
  if (figures.num_errors > 0) out += "the first error: " + figures.first_error + "\n";
  return out;
}

}  // namespace

std::string RecoveryReport::Heading() const {
  return fmt::format("{}: {} streams, {} + {} tokens, {:.1f} s", cluster, load.num_streams,
                     load.input_tokens, load.output_tokens, SecondsBetween(run.start, run.end));
}

std::vector<Measurement> MeasurementsOf(const RecoveryReport& report) {
  const RecoveryFigures& figures = report.figures;
  std::vector<Measurement> out;
  for (const FaultFigures& fault : figures.faults) AddFaultFigures(report, fault, out);
  out.push_back(FigureLine(report, "prefill_rate", figures.prefill_tokens_per_s.value_or(kUnknown),
                           "tokens/s"));
  if (!figures.prefill_tokens_per_s)
    out.back().note = "a fault came before all streams had a token";
  AddRateFigures(report, out);
  AddGapFigures(report, "interrupted", figures.gaps_of_interrupted, out);
  AddGapFigures(report, "others", figures.gaps_of_others, out);
  out.push_back(FigureLine(report, "errors", static_cast<double>(figures.num_errors), "requests"));
  out.back().note = figures.first_error;
  if (figures.check) {
    out.push_back(FigureLine(report, "different_tokens",
                             static_cast<double>(figures.check->num_different), "tokens"));
    out.back().details = {{"compared", figures.check->num_compared}};
  }
  out.push_back(
      FigureLine(report, "slots_at_end", static_cast<double>(report.run.slots_at_end), "slots"));
  out.back().details = {{"preemptions", report.run.num_preemptions}};
  return out;
}

std::string ToText(const RecoveryReport& report) {
  std::string out = report.Heading() + "\n\n";
  for (const FaultFigures& fault : report.figures.faults) out += FaultText(report, fault);
  return out + "\n" + PhasesText(report.figures) + "\n" + OutcomeText(report);
}

}  // namespace lamina
