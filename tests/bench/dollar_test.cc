#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "bench/dollar/dollar_charts.h"
#include "bench/dollar/dollar_report.h"
#include "bench/dollar/dollar_verdict.h"
#include "bench/dollar/point_run.h"
#include "bench/dollar/step_breakdown.h"
#include "bench/dollar/sweep.h"
#include "tests/support/paths.h"

namespace lamina {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kSweepModel = SourcePath("/models/tiny-stories");
const std::string kPriceTable = SourcePath("/configs/devices-2026.yaml");

// Line 3 begins with `rest`.
Result<Sweep> ParseSweep(const std::string& rest) {
  return Sweep::Parse(std::string("version: 1\nmodel: {path: ") + kSweepModel + "}\n" + rest,
                      "/nowhere/s.yaml");
}

std::string SweepError(const std::string& rest) { return ParseSweep(rest).status().message(); }

TEST(Sweep, PointsAreEveryCombination) {
  const Result<Sweep> sweep = ParseSweep(
      "load: {batch: [1, 4], context: [16, 32], output_tokens: 8}\n"
      "pipeline: none\n"
      "shapes:\n"
      "- {name: whole, one_process: {price_per_hour: 0.5}}\n"
      "- {name: split, pipeline: [none, fixed], nodes: [{role: compute, price_per_hour: 1}, {role: "
      "memory, count: 2, memory: 1MiB, "
      "price_per_hour: 0.25}]}\n");
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  const std::vector<SweepPoint> points = PointsOf(*sweep);
  ASSERT_EQ(points.size(), (1 + 2) * 2 * 2u);
  EXPECT_EQ(SeriesName(*sweep, points.front()), "whole");
  EXPECT_EQ(SeriesName(*sweep, points.back()), "split, fixed");
  EXPECT_EQ(points.back().context, 32);
  EXPECT_EQ(points.back().batch, 4);
  EXPECT_EQ(sweep->shapes[1].config.nodes.size(), 3u);
  EXPECT_DOUBLE_EQ(sweep->shapes[1].prices->per_hour(), 1.5);
  EXPECT_EQ(sweep->title, "s");
}

TEST(Sweep, PricesComeFromTheCatalogWhereTheYamlHasNone) {
  const Result<Sweep> sweep = ParseSweep(
      std::string("price_table: ") + kPriceTable +
      "\nshapes:\n"
      "- {name: a, nodes: [{role: compute, device: 'modelled:H100'}, {role: memory, device: "
      "'modelled:H20', memory: 1GB, price_per_hour: 0.5}]}\n"
      "- {name: b, one_process: {priced_as: RTX3090}}\n"
      "- {name: c, one_process: {}}\n");
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  EXPECT_NEAR(sweep->shapes[0].prices->per_hour(), 2.69 + 0.5, 1e-9);
  EXPECT_NEAR(sweep->shapes[1].prices->per_hour(), 0.22, 1e-9);
  EXPECT_FALSE(sweep->shapes[2].prices);
  EXPECT_THAT(sweep->shapes[2].no_price, HasSubstr("no price_per_hour"));
}

TEST(Sweep, FilesBesideAUrlAreRelativeToTheSweep) {
  const Result<Sweep> sweep = Sweep::Parse(
      "version: 1\nshapes:\n"
      "- {name: a, url: 'https://h', ca: tls/ca.pem, tokenizer: /models/m}\n"
      "- {name: b, url: 'https://h'}\n",
      "/nowhere/s.yaml");
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  EXPECT_EQ(sweep->shapes[0].ca_file, "/nowhere/tls/ca.pem");
  EXPECT_EQ(sweep->shapes[0].tokenizer, "/models/m");
  EXPECT_EQ(sweep->shapes[1].ca_file, "");
  EXPECT_THAT(SweepError("shapes:\n- {name: a, one_process: {}, ca: ca.pem}\n"),
              HasSubstr("unknown key 'ca'"));
}

TEST(Sweep, ErrorsNameFileLineAndKey) {
  const std::string shapes = "shapes: [{name: a, one_process: {}}]\n";
  EXPECT_THAT(SweepError(shapes + "lod: {}\n"), HasSubstr("/nowhere/s.yaml:4: unknown key 'lod'"));
  EXPECT_THAT(SweepError("load:\n  batch: [1, 0]\n" + shapes),
              HasSubstr("s.yaml:4: 'batch' has '0'"));
  EXPECT_THAT(SweepError("load:\n  prefill: some\n" + shapes),
              HasSubstr("s.yaml:4: 'prefill' is 'some'"));
  EXPECT_THAT(SweepError("load: {prefill: left-out, waves: 2}\n" + shapes),
              HasSubstr("s.yaml:3: 'waves' is for loads"));
  EXPECT_THAT(SweepError("shapes:\n- {name: a}\n"),
              HasSubstr("s.yaml:4: shape 'a' needs one of one_process, nodes, cluster and url"));
  EXPECT_THAT(SweepError("shapes:\n- {name: a, one_process: {}, url: 'http://h'}\n"),
              HasSubstr("has several"));
  EXPECT_THAT(SweepError("shapes:\n- {name: a, one_process: {}}\n- {name: a, one_process: {}}\n"),
              HasSubstr("s.yaml:5: there are two"));
  EXPECT_THAT(SweepError("shapes:\n- name: a\n  nodes:\n  - {role: memory, memory: 1MiB}\n"),
              HasSubstr("s.yaml:5: no node has the role"));
  EXPECT_THAT(SweepError("shapes:\n- name: a\n  nodes:\n  - {role: compute}\n"),
              HasSubstr("needs 'memory' for the KV cache"));
  EXPECT_THAT(SweepError("shapes:\n- name: a\n  cluster: none.yaml\n"),
              HasSubstr("s.yaml:5: 'cluster': /nowhere/none.yaml: no such file"));
  EXPECT_THAT(SweepError("shapes:\n- {name: a, url: 'ftp://h'}\n"), HasSubstr("s.yaml:4: 'url': "));
  EXPECT_THAT(SweepError(std::string("price_table: ") + kPriceTable +
                         "\nshapes:\n- {name: a, one_process: {priced_as: H1000}}\n"),
              HasSubstr("s.yaml:5: 'priced_as': "));
  EXPECT_THAT(Sweep::Parse("version: 1\nmodel:\n  path: gone\nshapes: []\n", "/nowhere/s.yaml")
                  .status()
                  .message(),
              HasSubstr("s.yaml:3: 'path': "));
  EXPECT_EQ(Sweep::Load("/nowhere/s.yaml").status().code(), StatusCode::kNotFound);
}

// Ten steps of 4 ms: 1 ms of slices, 0.5 of messages, 0.1 of sampling, 1.2 of attention on the
// slower node, 0.8 on its way.
TEST(StepBreakdown, IsTheDifferenceOfTwoScrapes) {
  const std::string before =
      "# HELP lamina:step_seconds x\nlamina:step_seconds_count{engine=\"0\"} "
      "5\nlamina:step_seconds_sum{engine=\"0\"} 1\n"
      "lamina:slice_seconds_total{node=\"c0\",role=\"compute\"} 2\n";
  const std::string after =
      "lamina:step_seconds_count{engine=\"0\"} 15\nlamina:step_seconds_sum{engine=\"0\"} 1.04\n"
      "lamina:slice_seconds_total{node=\"c0\",role=\"compute\"} "
      "2.01\nlamina:post_seconds_total{node=\"c0\",role=\"compute\"} 0.003\n"
      "lamina:take_seconds_total{node=\"c0\",role=\"compute\"} "
      "0.002\nlamina:sample_seconds_total{node=\"c0\",role=\"compute\"} 1e-03\n"
      "lamina:attention_seconds_total{node=\"m0\",role=\"memory\"} "
      "0.003\nlamina:attention_seconds_total{node=\"m1\",role=\"memory\"} "
      "0.012\n"
      "lamina:q_wire_seconds_total{node=\"m0\",role=\"memory\"} "
      "9\nlamina:q_wire_seconds_total{node=\"m1\",role=\"memory\"} 0.005\n"
      "lamina:output_wire_seconds_total{node=\"m1\",role=\"memory\"} 0.003\n";
  const std::optional<StepBreakdown> b = BreakdownBetween(before, after, {0.05, 1, 1});
  ASSERT_TRUE(b);
  EXPECT_NEAR(b->step, 4, 1e-9);
  EXPECT_NEAR(b->slices, 1, 1e-9);
  EXPECT_NEAR(b->messages, 0.5, 1e-9);
  EXPECT_NEAR(b->sampling, 0.1, 1e-9);
  EXPECT_NEAR(b->attention, 1.2, 1e-9);
  EXPECT_NEAR(b->network, 0.8, 1e-9);
  EXPECT_NEAR(b->waiting, 0.4, 1e-9);
  EXPECT_NEAR(*b->manager, 1, 1e-9) << "5 ms from one step to the next";
  EXPECT_FALSE(BreakdownBetween(before, after, {0.05, 0, 1})->manager);
  EXPECT_FALSE(BreakdownBetween(before, before, {0.05, 1, 1}));
  EXPECT_FALSE(BreakdownBetween("", "vllm:num_requests_running 1\n", {0.05, 1, 1}));
}

TEST(StepBreakdown, OneProcessAttendsInItsMessages) {
  const std::string after =
      "lamina:step_seconds_count 1\nlamina:step_seconds_sum "
      "0.004\nlamina:slice_seconds_total{node=\"local\"} 0.001\n"
      "lamina:post_seconds_total{node=\"local\"} 0.002\n";
  const std::optional<StepBreakdown> b = BreakdownBetween("", after, {0.004, 1, 1});
  ASSERT_TRUE(b);
  EXPECT_NEAR(b->attention, 2, 1e-9);
  EXPECT_EQ(b->messages, 0);
  EXPECT_EQ(b->network, 0);
}

TEST(CachedShare, IsOfThePromptsBetweenTwoScrapes) {
  const std::string before =
      "vllm:prefix_cache_queries_total{engine=\"0\"} "
      "100\nvllm:prefix_cache_hits_total{engine=\"0\"} 90\n";
  const std::string after =
      "# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_queries_total{engine=\"0\"} "
      "200\n"
      "vllm:prefix_cache_queries_total{engine=\"1\"} "
      "300.0\nvllm:prefix_cache_hits_total{engine=\"0\"} 100\n"
      "vllm:prefix_cache_hits_total{engine=\"1\"} 1.5e+02\n";
  EXPECT_NEAR(*CachedShareBetween(before, after), (10 + 150) / 400.0, 1e-12)
      << "both engines count";
  EXPECT_FALSE(CachedShareBetween(after, after)) << "no prompt";
  EXPECT_FALSE(CachedShareBetween("", "other 1\n"));
}

// A server that runs already keeps what it was asked: equal prompts would be answered from its
// prefix cache.
TEST(PromptSeed, NoTwoPointsAskARunningServerAlike) {
  const Result<Sweep> sweep = ParseSweep(
      "load: {batch: [8, 16], context: [16, 32]}\nshapes:\n"
      "- {name: there, url: 'http://h:1'}\n- {name: again, url: 'http://h:1'}\n- {name: own, "
      "one_process: {}}\n");
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  std::set<uint64_t> elsewhere, own;
  for (const SweepPoint& point : PointsOf(*sweep)) {
    for (const uint64_t started_us : {1'000'000u, 1'000'001u}) {
      std::set<uint64_t>& seeds =
          sweep->shapes[point.shape].kind == ShapeKind::kEndpoint ? elsewhere : own;
      const uint64_t seed = PromptSeed(*sweep, point, started_us);
      for (uint64_t run = 0; run < 4; ++run) seeds.insert(seed + run);
    }
  }
  EXPECT_EQ(elsewhere.size(), 2 * 4 * 2 * 4u)
      << "shapes, loads, starts, and a warm-up with three runs";
  EXPECT_EQ(own.size(), 4u) << "the same prompts each time";
}

RequestRecord Answered(double ttft, std::vector<double> itl) {
  RequestRecord record;
  record.ttft = record.e2el = ttft;
  for (const double gap : itl) record.e2el += gap;
  record.output_tokens = static_cast<int64_t>(itl.size()) + 1;
  record.itl = std::move(itl);
  return record;
}

TEST(DecodeTokensPerSecond, CountsFromTheLastFirstToken) {
  // First tokens at 1 and 2; behind 2 come those at 3 and 4 of one, and at 3, 5 and 6 of the other,
  // which ends it all.
  EXPECT_NEAR(DecodeTokensPerSecond({Answered(1, {0.5, 1.5, 1}), Answered(2, {1, 2, 1})}), 5 / 4.0,
              1e-9);
  EXPECT_EQ(DecodeTokensPerSecond({}), 0);
}

PointResult Measured(size_t shape, int batch, std::vector<double> rates) {
  PointResult point;
  point.point = {shape, PipelineMode::kNone, 128, batch};
  point.model = "<model> & \"more\"";
  for (const double rate : rates) {
    PointRun run;
    run.tokens_per_s = rate;
    run.figures.tpot.median = 1000.0 * batch / rate;
    run.breakdown = StepBreakdown{4, 1, 0.5, 0.1, 1.2, 0.8, 0.4, 1.0};
    run.requests.push_back(Answered(0.5, {0.1}));
    point.runs.push_back(run);
  }
  return point;
}

constexpr char kHostile[] = "</script><script>alert('x')</script><!-- \"&";

DollarReport HandMade() {
  DollarReport report;
  report.sweep.title = kHostile;
  report.sweep.repeats = 3;
  SweepShape one;
  one.name = kHostile;
  one.pipelines = {PipelineMode::kNone};
  one.prices = Prices{{{"cpu", 1, 3.6}}, "t"};
  SweepShape two = one;
  two.name = "two";
  two.prices.reset();
  two.no_price = "no price_per_hour is known of m0";
  report.sweep.shapes = {one, two};
  report.points = {Measured(0, 1, {30, 10, 20}), Measured(0, 4, {50, 60, 40}),
                   Measured(1, 1, {5, 6, 7})};
  report.points.push_back(Measured(1, 4, {}));
  report.points.back().error = std::string("broke: ") + kHostile;
  report.command = kHostile;
  report.machine = kHostile;
  return report;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(DollarReport, TheMedianRunCounts) {
  const DollarReport report = HandMade();
  const json j = json::parse(ToJson(report).dump());
  EXPECT_EQ(j["points"][0]["tokens_per_s"], 20);
  EXPECT_EQ(j["points"][0]["lowest_tokens_per_s"], 10);
  EXPECT_EQ(j["points"][0]["highest_tokens_per_s"], 30);
  EXPECT_EQ(j["points"][0]["tokens_per_dollar"], 20 * 1000.0)
      << "3.6 dollars an hour are a thousandth of one per second";
  EXPECT_EQ(j["points"][0]["runs"].size(), 3u);
  EXPECT_TRUE(j["points"][2]["tokens_per_dollar"].is_null());
  EXPECT_EQ(j["points"][3]["error"], std::string("broke: ") + kHostile);
  EXPECT_FALSE(j["points"][3].contains("tokens_per_s"));
  EXPECT_THAT(j["notes"].dump(), HasSubstr("Prefill is in all rates"));
  EXPECT_THAT(j["notes"].dump(), HasSubstr("two: no tokens per dollar"));
}

TEST(DollarReport, SaysWhatAPrefixCacheSpared) {
  DollarReport report = HandMade();
  report.points[0].runs[1].cached_share = 0.37;
  report.points[2].runs[0].cached_share = 0.002;
  const json j = json::parse(ToJson(report).dump());
  EXPECT_EQ(j["points"][0]["runs"][1]["cached_share"], 0.37);
  EXPECT_TRUE(j["points"][0]["runs"][0]["cached_share"].is_null());
  EXPECT_THAT(NotesOf(report),
              Contains(AllOf(HasSubstr(kHostile),
                             HasSubstr("prefix cache held 37 % of the prompts' tokens"))));
  EXPECT_THAT(NotesOf(report), Not(Contains(AllOf(HasSubstr("two"), HasSubstr("prefix cache")))))
      << "a token that all prompts begin with";
}

TEST(DollarReport, HostileNamesStayText) {
  const std::string html = ToHtml(HandMade());
  EXPECT_EQ(Count(html, "<script"), 2u) << "the raw data and the page's own";
  EXPECT_EQ(Count(html, "</script>"), 2u);
  EXPECT_EQ(Count(html, "<!--"), 0u);
  EXPECT_THAT(html, HasSubstr("&lt;/script&gt;&lt;script&gt;"));
  const std::string open = "<script type=\"application/json\" id=\"raw\">";
  const size_t begin = html.find(open) + open.size();
  const json raw = json::parse(html.substr(begin, html.find("</script>", begin) - begin));
  EXPECT_EQ(raw["title"], kHostile);
  EXPECT_EQ(raw, json::parse(ToJson(HandMade()).dump()));
}

TEST(DollarReport, EveryMeasuredPointHasItsMarks) {
  const DollarReport report = HandMade();
  const std::vector<ReportGroup> groups = GroupsOf(report);
  ASSERT_EQ(groups.size(), 1u);
  const std::vector<std::string> charts = LineChartsOf(report, groups[0]);
  ASSERT_EQ(charts.size(), 4u);
  EXPECT_EQ(Count(charts[0], "class=\"mark\""), 3u);
  EXPECT_EQ(Count(charts[1], "class=\"mark\""), 2u) << "one shape has no price";
  EXPECT_EQ(Count(DollarBarsOf(report, groups[0]), "class=\"bar\""), 1u);
  EXPECT_EQ(Count(BreakdownBarsOf(report, groups[0]), "class=\"part\""), 3 * 7u);
}

// Three runs of one point that spread over more than a factor of two say nothing about another
// at 2.5 times less.
TEST(DollarReport, ADifferenceWithinTheSpreadIsNone) {
  DollarReport report = HandMade();
  report.sweep.shapes[0].name = "one";
  report.sweep.shapes[1].prices = Prices{{{"cpu", 1, 1.8}}, "t"};
  report.points = {Measured(0, 16, {4600, 4500, 2064}), Measured(1, 16, {2300, 1800, 1700})};
  const ReportGroup group = GroupsOf(report).front();
  EXPECT_EQ(Count(ToHtml(report), "no difference</td>"), 2u) << "per second and per dollar";
  EXPECT_THAT(
      VerdictOf(report, group),
      AllOf(
          HasSubstr(
              "no difference can be told between one (4.5 at batch 16, in runs of 2.06 to 4.6)"),
          HasSubstr(" and two (3.6 at batch 16, in runs of 3.4 to 4.6), as their runs overlap.")));
  report.points[1] = Measured(1, 16, {800, 900, 850});
  EXPECT_EQ(Count(ToHtml(report), "no difference</td>"), 0u);
  EXPECT_THAT(VerdictOf(report, group), HasSubstr("one (4.5 at batch 16, in runs of 2.06 to 4.6) "
                                                  "gives the most, 2.65 times the next, two ("));
  report.points[1] = Measured(1, 16, {850});
  EXPECT_THAT(VerdictOf(report, group), HasSubstr("two (1.7 at batch 16, one run)"));
  report.points.pop_back();
  EXPECT_THAT(VerdictOf(report, GroupsOf(report).front()), HasSubstr("stands alone"));
}

TEST(DollarReport, EndsWithItsVerdict) {
  const DollarReport report = HandMade();
  const std::string html = ToHtml(report);
  EXPECT_EQ(Count(html, "class=\"verdict\""), 1u);
  EXPECT_GT(html.find("class=\"verdict\""), html.rfind("<h2>Raw data"));
  const json j = json::parse(ToJson(report).dump());
  ASSERT_EQ(j["verdicts"].size(), 1u);
  EXPECT_THAT(ToText(report), HasSubstr(j["verdicts"][0].get<std::string>() + "\n"));
}

TEST(DollarReport, RatesHaveErrorBars) {
  const DollarReport report = HandMade();
  const ReportGroup group = GroupsOf(report).front();
  const std::vector<std::string> charts = LineChartsOf(report, group);
  EXPECT_EQ(Count(charts[0], "class=\"spread\""), 3u);
  EXPECT_EQ(Count(charts[1], "class=\"spread\""), 2u);
  EXPECT_EQ(Count(DollarBarsOf(report, group), "class=\"spread axis\""), 1u);
}

TEST(DollarReport, NamesNoFolderOfTheMachine) {
  EXPECT_EQ(WithoutFolders(
                "/opt/my lamina --model=/srv/models/m/ 'a b' relative/x http://h:1/v1/y /metrics"),
            "my lamina --model=m/ 'a b' relative/x http://h:1/v1/y /metrics");
  EXPECT_EQ(WithoutFolders("/a/b.yaml:3: no such file: /c/d"), "b.yaml:3: no such file: d");
  EXPECT_EQ(WithoutFolders("/"), "/");
  DollarReport report = HandMade();
  report.command = "/srv/secret/lamina bench dollar /srv/secret/s.yaml";
  report.sweep.path = "/srv/secret/s.yaml";
  report.sweep.price_table = "/srv/secret/prices.yaml";
  report.sweep.shapes[0].config.model_path = "/srv/secret/model";
  report.points[0].commands = {"/srv/secret/lamina-memory-node --log /srv/secret/log"};
  report.points[3].error = "m0: /srv/secret/log: broke";
  EXPECT_THAT(ToHtml(report), Not(HasSubstr("/srv")));
  EXPECT_THAT(ToHtml(report), HasSubstr("lamina-memory-node --log log"));
}

// Two servers of one model that call it differently are held against each other.
TEST(DollarReport, ShapesOfOneLabelShareASection) {
  DollarReport report = HandMade();
  report.points[2].model = "org/the-model";
  EXPECT_EQ(GroupsOf(report).size(), 2u) << "nothing says that it is the same";
  report.sweep.shapes[0].label = report.sweep.shapes[1].label = "the-model";
  const std::vector<ReportGroup> groups = GroupsOf(report);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].title, "the-model, context 128");
  EXPECT_EQ(groups[0].series.size(), 2u);
  EXPECT_THAT(
      NotesOf(report),
      Contains(HasSubstr(
          "two: the server calls its model 'org/the-model', which is taken for the-model.")));
}

TEST(Sweep, AServerIsTakenToServeTheModelOfTheYaml) {
  const std::string shapes =
      "shapes:\n- {name: own, one_process: {}}\n- {name: a, url: 'http://h'}\n- {name: b, url: "
      "'http://h', label: x}\n";
  const Result<Sweep> sweep = ParseSweep(shapes);
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  EXPECT_EQ(sweep->shapes[0].label, "tiny-stories");
  EXPECT_EQ(sweep->shapes[1].label, "tiny-stories");
  EXPECT_EQ(sweep->shapes[2].label, "x");
  EXPECT_EQ(Sweep::Parse("version: 1\nshapes:\n- {name: a, url: 'http://h'}\n", "/nowhere/s.yaml")
                ->shapes[0]
                .label,
            "");
}

TEST(DollarReport, SaysWhereTokensAreEvents) {
  DollarReport report = HandMade();
  EXPECT_THAT(NotesOf(report), Not(Contains(HasSubstr("events"))));
  for (PointRun& run : report.points[2].runs) run.figures.counted_by_events = 1;
  EXPECT_THAT(NotesOf(report), Contains(HasSubstr("two: the server does not count tokens")));
}

TEST(DollarReport, SaysHowManyPointsAreMissing) {
  DollarReport report = HandMade();
  EXPECT_THAT(NotesOf(report), Not(Contains(HasSubstr("points"))));
  report.num_not_measured = 12;
  EXPECT_THAT(ToHtml(report), HasSubstr("This page has 4 of the sweep's 16 points"));
  EXPECT_EQ(json::parse(ToJson(report).dump())["points_not_measured"], 12);
}

TEST(DollarReport, NothingMeasuredIsAPageToo) {
  DollarReport report = HandMade();
  report.points = {report.points.back()};
  EXPECT_THAT(ToHtml(report), HasSubstr("not measured: broke: &lt;/script&gt;"));
  EXPECT_TRUE(GroupsOf(report).empty());
}

}  // namespace
}  // namespace lamina
