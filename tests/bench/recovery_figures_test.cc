// Figures of runs that are made up, so that they are known.
#include "bench/recovery/recovery_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/device_timeline.h"
#include "bench/recovery/recovery_chart.h"
#include "bench/recovery/recovery_report.h"

namespace lamina::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr NodeId kM0{2}, kM1{3};
constexpr size_t kBefore = 0, kDuring = 1, kAfter = 2;
constexpr double kExact = 1e-6;

TimePoint At(double seconds) { return TimePoint(FromSeconds(1000 + seconds)); }

// Tokens from `from` on, `count` of them with `gap` seconds between two.
void AddTokens(StreamRequest& request, double from, int count, double gap) {
  for (int i = 0; i < count; ++i) {
    request.times.push_back(At(from + gap * i));
    request.tokens.push_back(static_cast<TokenId>(request.tokens.size()));
  }
}

SequenceStart StartOf(size_t stream, double at, NodeId node, bool again = false,
                      int64_t num_tokens = 10) {
  SequenceStart start;
  start.stream = stream;
  start.at = At(at);
  start.again = again;
  start.num_tokens = num_tokens;
  start.places = {{node, At(at)}};
  return start;
}

FaultRecord FaultAt(FaultKind kind, double at, NodeId node, std::optional<double> known) {
  FaultRecord record;
  record.fault = {kind, node == kM0 ? "m0" : "m1",
                  std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(at))};
  record.at = At(at);
  record.kv_node = node;
  if (known) record.known = At(*known);
  return record;
}

// Ten seconds of two streams with prompts of 10 tokens that were computed in a second. Stream 0 has
// its KV on m0, stream 1 on m1. Each gets a token every 0.1 s from 1.0 on, the last of these at
// 5.0.
RecoveryTimeline UntilFive() {
  RecoveryTimeline run;
  run.start = At(0);
  run.end = At(10);
  run.input_tokens = 10;
  for (const size_t stream : {0, 1}) {
    StreamRequest& request = run.streams.emplace_back().requests.emplace_back();
    request.submitted = At(0);
    AddTokens(request, 1.0, 41, 0.1);
    run.starts.push_back(StartOf(stream, 0, stream == 0 ? kM0 : kM1));
  }
  return run;
}

StreamRequest& Request(RecoveryTimeline& run, size_t stream) {
  return run.streams[stream].requests.back();
}

// m0 is killed at 5.05. Stream 0 starts again with its 10 + 41 tokens and goes on at 7.05; stream 1
// waits once for 0.5 s. From then on both get a token every 0.2 s.
RecoveryTimeline KilledAtFive() {
  RecoveryTimeline run = UntilFive();
  run.faults = {FaultAt(FaultKind::kKill, 5.05, kM0, 5.06)};
  run.faults[0].prefill_alone_s = 1.6;
  run.starts.push_back(StartOf(0, 5.1, kM1, /*again=*/true, 51));
  AddTokens(Request(run, 0), 7.05, 15, 0.2);
  AddTokens(Request(run, 1), 5.5, 23, 0.2);
  return run;
}

TEST(RecoveryFigures, TellWhatAKillCost) {
  const RecoveryFigures figures = EvaluateRecovery(KilledAtFive(), nullptr);
  ASSERT_EQ(figures.faults.size(), 1u);
  const FaultFigures& fault = figures.faults[0];
  EXPECT_NEAR(fault.known_s.value(), 0.01, kExact);
  ASSERT_EQ(fault.interruptions.size(), 1u);
  EXPECT_EQ(fault.interruptions[0].stream, 0u);
  EXPECT_EQ(fault.num_resumed, 1u);
  EXPECT_NEAR(fault.first_resumed_s.value(), 2.0, kExact);
  EXPECT_NEAR(fault.last_resumed_s.value(), 2.0, kExact);
  EXPECT_EQ(fault.tokens_again, 51);
  EXPECT_NEAR(figures.prefill_tokens_per_s.value(), 20, kExact) << "2 prompts of 10 in a second";
  EXPECT_NEAR(fault.over_prefill.value(), 2.0 / 1.6, kExact);
  EXPECT_THAT(figures.interrupted, ElementsAre(0u));
  EXPECT_EQ(figures.num_errors, 0);
  EXPECT_FALSE(figures.check.has_value());
}

// The manager is killed at 5.05 with both streams under way, each with a prompt of 10 and 41
// tokens, and the next one finds K and V of one and a half of them. A third stream had no token
// yet.
TEST(RecoveryFigures, TellWhatTheManagersLossCost) {
  RecoveryTimeline run = UntilFive();
  run.starts.clear();  // they are in another process
  run.faults = {FaultAt(FaultKind::kKill, 5.05, kM0, 5.06),
                FaultAt(FaultKind::kRestart, 5.2, kM0, 5.3)};
  for (FaultRecord& fault : run.faults) fault.fault.node = "manager";
  run.faults[0].left_tokens = 75;
  AddTokens(Request(run, 0), 5.5, 15, 0.1);
  AddTokens(Request(run, 1), 5.7, 15, 0.1);
  run.streams.emplace_back().requests.emplace_back().submitted = At(5.01);
  AddTokens(Request(run, 2), 6.1, 15, 0.1);
  const RecoveryFigures figures = EvaluateRecovery(run, nullptr);
  ASSERT_EQ(figures.faults.size(), 2u);
  const FaultFigures& kill = figures.faults[0];
  EXPECT_EQ(kill.interruptions.size(), 3u);
  EXPECT_EQ(kill.num_resumed, 3u);
  EXPECT_NEAR(kill.first_resumed_s.value(), 0.45, kExact);
  EXPECT_NEAR(kill.last_resumed_s.value(), 1.05, kExact);
  EXPECT_EQ(kill.tokens_again, 2 * 50 + 10 - 75);
  EXPECT_NEAR(kill.kept.value(), 0.75, kExact) << "a prompt without an answer is not counted";
  EXPECT_TRUE(figures.faults[1].interruptions.empty());
  EXPECT_FALSE(figures.faults[1].kept.has_value());
}

TEST(RecoveryFigures, TellGapsOfInterruptedStreamsAndOfOthers) {
  const RecoveryFigures figures = EvaluateRecovery(KilledAtFive(), nullptr);
  EXPECT_NEAR(figures.pause_ms, 300, 1e-3) << "three times what is usual";
  EXPECT_EQ(figures.gaps_of_interrupted[kBefore].count, 40);
  EXPECT_NEAR(figures.gaps_of_interrupted[kBefore].largest_ms, 100, 1e-3);
  EXPECT_EQ(figures.gaps_of_interrupted[kDuring].count, 1);
  EXPECT_NEAR(figures.gaps_of_interrupted[kDuring].largest_ms, 2050, 1e-3) << "5.0 to 7.05";
  EXPECT_NEAR(figures.gaps_of_interrupted[kAfter].p99_ms, 200, 1e-3);
  EXPECT_NEAR(figures.gaps_of_others[kBefore].p99_ms, 100, 1e-3);
  EXPECT_NEAR(figures.gaps_of_others[kDuring].largest_ms, 500, 1e-3) << "5.0 to 5.5";
  EXPECT_NEAR(figures.gaps_of_others[kDuring].median_ms, 200, 1e-3);
  EXPECT_NEAR(figures.gaps_of_others[kAfter].largest_ms, 200, 1e-3);
}

TEST(RecoveryFigures, TellTheRatesOfThePhases) {
  const RecoveryFigures figures = EvaluateRecovery(KilledAtFive(), nullptr);
  // 82 tokens from 1.0 to 5.05; of stream 1 those from 5.5 to 6.9; 15 + 15 tokens from 7.05 to 10.
  EXPECT_NEAR(figures.tokens_per_s[kBefore].value(), 82 / 4.05, kExact);
  EXPECT_NEAR(figures.tokens_per_s[kDuring].value(), 8 / 2.0, kExact);
  EXPECT_NEAR(figures.tokens_per_s[kAfter].value(), 30 / 2.95, kExact);
}

// The engine tells clients of a step's tokens when the next step is on its way already.
TEST(RecoveryFigures, ATokenOfBeforeThatIsToldLateIsNoResumption) {
  RecoveryTimeline run = KilledAtFive();
  StreamRequest& request = Request(run, 0);
  request.times[40] = At(5.101);  // behind the start at 5.1, which counts it
  EXPECT_NEAR(EvaluateRecovery(run, nullptr).faults[0].first_resumed_s.value(), 2.0, kExact);
}

TEST(RecoveryFigures, ARequestThatFailsDoesNotResume) {
  RecoveryTimeline run = UntilFive();
  run.faults = {FaultAt(FaultKind::kKill, 4.95, kM0, 4.96)};
  Request(run, 0).error = "peer lost: m0";
  Request(run, 0).ended = At(5.2);
  AddTokens(Request(run, 1), 5.1, 50, 0.1);
  const RecoveryFigures figures = EvaluateRecovery(run, nullptr);
  EXPECT_EQ(figures.num_errors, 1);
  EXPECT_EQ(figures.first_error, "peer lost: m0");
  EXPECT_EQ(figures.faults[0].interruptions.size(), 1u);
  EXPECT_EQ(figures.faults[0].num_resumed, 0u) << "a token on its way came after the fault";
  EXPECT_FALSE(figures.faults[0].last_resumed_s.has_value());
  EXPECT_FALSE(figures.faults[0].over_prefill.has_value());
}

TEST(RecoveryFigures, ARequestThatHasNotComeBackByTheEndDoesNotResume) {
  RecoveryTimeline run = UntilFive();
  run.faults = {FaultAt(FaultKind::kKill, 5.05, kM0, 5.06)};
  run.starts.push_back(StartOf(0, 9.9, kM1, /*again=*/true, 51));
  EXPECT_EQ(EvaluateRecovery(run, nullptr).faults[0].num_resumed, 0u);
}

TEST(RecoveryFigures, ANodeThatHangsForAMomentMakesItsStreamsPause) {
  RecoveryTimeline run = UntilFive();
  run.faults = {FaultAt(FaultKind::kStop, 4.97, kM0, std::nullopt),
                FaultAt(FaultKind::kContinue, 7.9, kM0, std::nullopt)};
  AddTokens(Request(run, 0), 8.0, 20, 0.1);
  AddTokens(Request(run, 1), 5.1, 49, 0.1);
  const RecoveryFigures figures = EvaluateRecovery(run, nullptr);
  ASSERT_EQ(figures.faults.size(), 1u) << "going on belongs to the stop";
  EXPECT_FALSE(figures.faults[0].known_s.has_value());
  ASSERT_EQ(figures.faults[0].interruptions.size(), 1u);
  EXPECT_NEAR(figures.faults[0].last_resumed_s.value(), 8.0 - 4.97, kExact)
      << "the token at 5.0 was on its way";
  EXPECT_EQ(figures.faults[0].tokens_again, 0);
  EXPECT_NEAR(figures.gaps_of_others[kDuring].largest_ms, 100, 1e-3);
  EXPECT_NEAR(figures.gaps_of_interrupted[kDuring].largest_ms, 3000, 1e-3);
}

TEST(RecoveryFigures, ATokenThatWasOnItsWayForLongIsNotTheEndOfThePause) {
  RecoveryTimeline run = UntilFive();
  run.faults = {FaultAt(FaultKind::kStop, 4.97, kM0, std::nullopt)};
  StreamRequest& request = Request(run, 0);
  request.times.erase(request.times.end() - 5, request.times.end() - 1);  // 4.6 to 4.9
  request.tokens.resize(request.times.size());
  AddTokens(request, 8.0, 20, 0.1);
  const RecoveryFigures figures = EvaluateRecovery(run, nullptr);
  ASSERT_EQ(figures.faults.size(), 1u);
  EXPECT_NEAR(figures.faults[0].last_resumed_s.value(), 8.0 - 4.97, kExact);
}

TEST(RecoveryFigures, ANodeThatComesBackInterruptsWhatStartsAgain) {
  RecoveryTimeline run = KilledAtFive();
  run.faults.push_back(FaultAt(FaultKind::kRestart, 8.0, kM0, 8.4));
  run.starts.push_back(StartOf(1, 8.5, kM0, /*again=*/true, 67));
  const RecoveryFigures figures = EvaluateRecovery(run, nullptr);
  ASSERT_EQ(figures.faults.size(), 2u);
  EXPECT_EQ(figures.faults[0].interruptions.size(), 1u) << "those of the kill alone";
  EXPECT_EQ(figures.faults[0].tokens_again, 51);
  ASSERT_EQ(figures.faults[1].interruptions.size(), 1u);
  EXPECT_EQ(figures.faults[1].interruptions[0].stream, 1u);
  EXPECT_EQ(figures.faults[1].tokens_again, 67);
  EXPECT_THAT(LengthsAgain(run, 0), ElementsAre(51));
  EXPECT_THAT(LengthsAgain(run, 1), ElementsAre(67));
  EXPECT_NEAR(figures.faults[1].known_s.value(), 0.4, kExact);
  // It had 57 tokens: the 41 first ones and 16 from 5.5 on.
  EXPECT_NEAR(figures.faults[1].last_resumed_s.value(), 5.5 + 16 * 0.2 - 8.0, kExact);
  EXPECT_THAT(figures.interrupted, ElementsAre(0u, 1u));
}

TEST(RecoveryFigures, KvCountsFromWhenANodeGotIt) {
  RecoveryTimeline run = UntilFive();
  AddTokens(Request(run, 0), 5.1, 49, 0.1);
  AddTokens(Request(run, 1), 5.1, 49, 0.1);
  run.starts[1].places.push_back({kM0, At(6)});  // it grew onto that node
  run.faults = {FaultAt(FaultKind::kKill, 5.55, kM0, 5.56)};
  EXPECT_THAT(EvaluateRecovery(run, nullptr).interrupted, ElementsAre(0u));
  run.faults = {FaultAt(FaultKind::kKill, 6.55, kM0, 6.56)};
  EXPECT_THAT(EvaluateRecovery(run, nullptr).interrupted, ElementsAre(0u, 1u));
}

TEST(RecoveryFigures, ARequestThatWasOverIsNotInterrupted) {
  RecoveryTimeline run = UntilFive();
  Request(run, 0).ended = At(5.0);
  StreamRequest& next = run.streams[0].requests.emplace_back();
  next.submitted = At(5.0);
  AddTokens(next, 8.0, 10, 0.1);
  SequenceStart start = StartOf(0, 5.02, kM1);
  start.request = 1;
  run.starts.push_back(start);
  run.faults = {FaultAt(FaultKind::kKill, 5.05, kM0, 5.06)};
  const RecoveryFigures figures = EvaluateRecovery(run, nullptr);
  EXPECT_TRUE(figures.faults[0].interruptions.empty()) << "its next request is on another node";
  EXPECT_EQ(figures.gaps_of_others[kAfter].count, 9) << "there is no gap between two requests";
}

TEST(RecoveryFigures, BeforeTheFirstTokensTheRateOfPrefillIsThatOfTheRunWithoutFaults) {
  RecoveryTimeline run = KilledAtFive();
  run.faults[0].at = At(0.5);
  EXPECT_FALSE(EvaluateRecovery(run, nullptr).prefill_tokens_per_s.has_value());
  const RecoveryTimeline undisturbed = UntilFive();
  const RecoveryFigures figures = EvaluateRecovery(run, &undisturbed);
  EXPECT_NEAR(figures.prefill_tokens_per_s.value(), 20, kExact);
  EXPECT_NEAR(figures.pause_ms, 300, 1e-3);
  EXPECT_FALSE(figures.tokens_per_s[kBefore].has_value());
}

TEST(RecoveryFigures, RatesEndWhenAStreamIsDone) {
  RecoveryTimeline run = KilledAtFive();
  run.streams[1].done = At(9);
  // Tokens from 7.05 to 9 of a part that ends there: 10 each.
  EXPECT_NEAR(EvaluateRecovery(run, nullptr).tokens_per_s[kAfter].value(), 20 / 1.95, kExact);
}

TEST(RecoveryFigures, TokensAreHeldAgainstTheRunWithoutFaults) {
  const RecoveryTimeline undisturbed = UntilFive();
  RecoveryTimeline run = KilledAtFive();
  TokenCheck check = EvaluateRecovery(run, &undisturbed).check.value();
  EXPECT_EQ(check.num_compared, 2 * 41) << "what both have";
  EXPECT_EQ(check.num_different, 0);
  run.streams[0].requests[0].tokens[7] = 999;
  run.streams[1].requests[0].tokens[40] = 999;
  run.streams[1].requests[0].tokens[41] = 999;  // nothing to hold it against
  check = EvaluateRecovery(run, &undisturbed).check.value();
  EXPECT_EQ(check.num_different, 2);
}

RecoveryReport ReportOf(const RecoveryTimeline& run, const RecoveryTimeline* undisturbed) {
  RecoveryReport report;
  report.cluster = "local";
  report.load.num_streams = 2;
  report.load.input_tokens = 10;
  report.load.output_tokens = 99;
  report.run = run;
  report.figures = EvaluateRecovery(run, undisturbed);
  return report;
}

// Of a figure, or of one of its phases or groups: the lines that have these words for them.
std::vector<Measurement> Lines(const RecoveryReport& report, const std::string& figure,
                               const std::string& phase = "") {
  std::vector<Measurement> lines;
  for (const Measurement& m : MeasurementsOf(report)) {
    if (m.sizes.at("figure") == figure && m.sizes.value("phase", "") == phase) lines.push_back(m);
  }
  return lines;
}

TEST(RecoveryReport, HasALineForEachFigure) {
  const RecoveryTimeline undisturbed = UntilFive();
  const RecoveryReport report = ReportOf(KilledAtFive(), &undisturbed);
  const std::vector<Measurement> last = Lines(report, "last_resumed");
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].name, "recovery");
  EXPECT_EQ(last[0].sizes.at("fault"), "kill m0@5.1s");
  EXPECT_EQ(last[0].sizes.at("streams"), 2);
  EXPECT_NEAR(last[0].value, 2000, 1e-3);
  EXPECT_NEAR(last[0].reference_value, 1600, 1e-3);
  EXPECT_NEAR(last[0].ratio, 1.6 / 2.0, kExact) << "more is better";
  EXPECT_NEAR(Lines(report, "prefill_alone").at(0).value, 1600, 1e-3);
  EXPECT_NEAR(Lines(report, "last_resumed_over_prefill").at(0).value, 2.0 / 1.6, kExact);
  EXPECT_NEAR(Lines(report, "detection").at(0).value, 10, 1e-3);
  EXPECT_EQ(Lines(report, "tokens_again").at(0).value, 51);
  EXPECT_EQ(Lines(report, "tpot", "during").size(), 2u) << "of interrupted streams and of others";
  EXPECT_NEAR(Lines(report, "output_rate", "after").at(0).ratio, 30 / 2.95 / (82 / 4.05), kExact);
  EXPECT_EQ(Lines(report, "errors").at(0).value, 0);
  EXPECT_EQ(Lines(report, "different_tokens").at(0).details.at("compared"), 82);
  EXPECT_EQ(Lines(report, "slots_at_end").at(0).value, 0);
}

TEST(RecoveryReport, WhatIsUnknownIsNullAndADash) {
  RecoveryTimeline run = KilledAtFive();
  run.faults[0].known.reset();
  const RecoveryReport report = ReportOf(run, nullptr);
  const nlohmann::json line = nlohmann::json::parse(ToJsonLine(Lines(report, "detection").at(0)));
  EXPECT_TRUE(line.at("value").is_null());
  EXPECT_EQ(line.at("note"), "the manager's status never told of it");
  EXPECT_TRUE(Lines(report, "different_tokens").empty());
  EXPECT_THAT(ToText(report),
              AllOf(ContainsRegex("the manager knew after \\(ms\\) +-\n"), Not(HasSubstr("nan"))));
}

TEST(RecoveryReport, TheTableHasTheFigures) {
  const RecoveryTimeline undisturbed = UntilFive();
  const std::string text = ToText(ReportOf(KilledAtFive(), &undisturbed));
  EXPECT_THAT(text, HasSubstr("local: 2 streams, 10 + 99 tokens, 10.0 s"));
  EXPECT_THAT(text, HasSubstr("kill m0@5.1s\n"));
  EXPECT_THAT(text, ContainsRegex("the last resumed after \\(ms\\) +2000.0\n"));
  EXPECT_THAT(text, ContainsRegex("tokens computed again +51\n"));
  EXPECT_THAT(text,
              ContainsRegex("largest gap \\(ms\\), interrupted streams +100.0 +2050.0 +200.0\n"));
  EXPECT_THAT(text, ContainsRegex("requests that failed +0\n"));
}

// The plots reach from 70 to 940, which is 0 to 10 s; the rows of two streams are at 158 and 46.
TEST(RecoveryChart, HasPausesInTheRowsOfTheirStreams) {
  const RecoveryTimeline run = KilledAtFive();
  const std::string svg = DrawRecovery("a run", run, EvaluateRecovery(run, nullptr));
  // The interrupted one on top, from 5.0 to 7.05; the other one below, from 5.0 to 5.5.
  EXPECT_THAT(svg, ContainsRegex("d=\"M505.0 46.0L683.[34] 46.0M505.0 158.0L548.5 158.0\""));
  EXPECT_THAT(svg, ContainsRegex("d=\"M157.0 46.0L505.0 46.0M683.[34] 46.0L"));
  EXPECT_THAT(svg, HasSubstr(">kill m0@5.1s<"));
  EXPECT_THAT(svg, HasSubstr(">recovered from kill m0@5.1s<"));
  EXPECT_THAT(svg, HasSubstr(">a run<"));
}

TEST(RecoveryChart, AStreamThatIsLostPausesToTheEnd) {
  RecoveryTimeline run = UntilFive();
  run.faults = {FaultAt(FaultKind::kKill, 5.05, kM0, 5.06)};
  run.starts.push_back(StartOf(0, 5.1, kM1, /*again=*/true, 51));
  AddTokens(Request(run, 1), 5.1, 49, 0.1);
  const std::string svg = DrawRecovery("", run, EvaluateRecovery(run, nullptr));
  EXPECT_THAT(svg, HasSubstr("d=\"M505.0 46.0L940.0 46.0\""));
}

TEST(RecoveryChart, ARunOfNothingIsDrawnToo) {
  const RecoveryTimeline run;
  const std::string svg = DrawRecovery("", run, EvaluateRecovery(run, nullptr));
  EXPECT_THAT(svg, AllOf(HasSubstr("</svg>"), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

}  // namespace
}  // namespace lamina::testing
