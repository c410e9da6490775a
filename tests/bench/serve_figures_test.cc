#include "bench/serve/serve_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/serve/serve_report.h"
#include "bench/serve/serving_cost.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

RequestRecord Answered(double sent, double ttft, double e2el, int64_t tokens) {
  RequestRecord record;
  record.sent = sent;
  record.ttft = ttft;
  record.e2el = e2el;
  record.input_tokens = 100;
  record.output_tokens = record.wanted_tokens = tokens;
  record.itl = {0.01, 0.03};
  return record;
}

// Three answers and a failure in 4 seconds: TPOT 0.1, 0.2 and none.
LoadResult SomeLoad() {
  LoadResult load;
  load.duration_seconds = 4;
  load.records = {Answered(0, 0.5, 1.5, 11), Answered(1, 0.1, 2.1, 11), Answered(2, 0.3, 0.3, 1),
                  RequestRecord()};
  load.records[1].wanted_tokens = 12;
  load.records[3].error_kind = "HTTP 503";
  load.records[3].error = "queue is full";
  return load;
}

// By hand, with numpy's rules: a percentile lies between the ranks around it, the deviation is the
// population's.
TEST(TimeFigures, AreNumpys) {
  const TimeFigures figures = FiguresOf({0.5, 0.1, 0.9, 0.3, 0.7, 0.2}, {0, 50, 90, 99, 100});
  EXPECT_NEAR(figures.mean, 450, 1e-9);
  EXPECT_NEAR(figures.median, 400, 1e-9);
  EXPECT_NEAR(figures.std, 281.365, 1e-3);
  EXPECT_NEAR(figures.percentiles.at(0), 100, 1e-9);
  EXPECT_NEAR(figures.percentiles.at(90), 800, 1e-9);
  EXPECT_NEAR(figures.percentiles.at(99), 890, 1e-9);
  EXPECT_NEAR(figures.percentiles.at(100), 900, 1e-9);
  EXPECT_EQ(FiguresOf({}, {99}).percentiles.at(99), 0);
  EXPECT_NEAR(FiguresOf({0.25}, {99}).percentiles.at(99), 250, 1e-9);
}

TEST(ServeFigures, CountWhatWasAnswered) {
  const ServeFigures figures = Evaluate(SomeLoad(), {}, {99});
  EXPECT_EQ(figures.completed, 3);
  EXPECT_EQ(figures.failed, 1);
  EXPECT_EQ(figures.shorter_than_wanted, 1);
  EXPECT_EQ(figures.total_input_tokens, 300);
  EXPECT_EQ(figures.total_output_tokens, 23);
  EXPECT_DOUBLE_EQ(figures.request_throughput, 0.75);
  EXPECT_DOUBLE_EQ(figures.output_throughput, 5.75);
  EXPECT_DOUBLE_EQ(figures.total_token_throughput, 80.75);
  EXPECT_NEAR(figures.ttft.mean, 300, 1e-9);
  // (1.5 - 0.5) / 10 and (2.1 - 0.1) / 10; one token has none.
  EXPECT_NEAR(figures.tpot.mean, 150, 1e-9);
  EXPECT_NEAR(figures.itl.median, 20, 1e-9);
  EXPECT_NEAR(figures.e2el.median, 1500, 1e-9);
  EXPECT_FALSE(figures.request_goodput.has_value());
  ASSERT_EQ(figures.errors.size(), 1u);
  EXPECT_EQ(figures.errors.at("HTTP 503").count, 1);
  EXPECT_EQ(figures.errors.at("HTTP 503").example, "queue is full");
}

TEST(ServiceLevelTest, GoodputKeepsEveryLimit) {
  const auto goodput = [](const std::vector<std::string>& terms) {
    return *Evaluate(SomeLoad(), *ServiceLevel::Parse(terms), {}).request_goodput * 4;
  };
  EXPECT_DOUBLE_EQ(goodput({"ttft:400"}), 2);
  EXPECT_DOUBLE_EQ(goodput({"tpot:150"}), 2);  // one token has no time per token to be late with
  EXPECT_DOUBLE_EQ(goodput({"ttft:400", "tpot:150"}), 1);
  EXPECT_DOUBLE_EQ(goodput({"e2el:10000"}), 3);
  for (const char* term : {"ttft", "ttft:", "itl:5", "ttft:-1", "tpot:5ms", ""})
    EXPECT_THAT(ServiceLevel::Parse({term}).status().message(),
                HasSubstr("--goodput '" + std::string(term) + "'"));
}

constexpr char kCatalog[] = R"(version: 1
devices:
- {name: Fast, bf16_tflops: 100, memory: 80GB, bandwidth_gb_per_s: 2000, price_per_hour: 8.5, mfu: [{batch: 1, mfu: 0.5}], source: test}
- {name: Big, bf16_tflops: 10, memory: 90GB, bandwidth_gb_per_s: 3000, price_per_hour: 3.5, mfu: [{batch: 1, mfu: 0.5}], source: test}
- {name: Old, bf16_tflops: 10, memory: 90GB, bandwidth_gb_per_s: 3000, mfu: [{batch: 1, mfu: 0.5}], source: test}
)";

class CostTest : public ::testing::Test {
 protected:
  CostTest() { WriteFile(catalog_, kCatalog); }
  std::string Error(const std::vector<std::string>& devices, double per_hour = 0) {
    return FindPrices(devices, catalog_, per_hour).status().message();
  }

  TemporaryFolder folder_;
  const std::string catalog_ = folder_ / "devices.yaml";
};

TEST_F(CostTest, NodesArePricedByTheCatalog) {
  const Result<std::optional<Prices>> prices = FindPrices({"Fast", "Big=2"}, catalog_, 0);
  ASSERT_TRUE(prices.ok()) << prices.status();
  EXPECT_DOUBLE_EQ((*prices)->per_hour(), 15.5);
  EXPECT_EQ((*prices)->table, catalog_);
  EXPECT_FALSE(FindPrices({}, catalog_, 0)->has_value());
  EXPECT_THAT(FindPrices({"Fast"}, "absent.yaml", 0).status().message(),
              ::testing::StartsWith("--device-catalog: device catalog absent.yaml"));
  EXPECT_THAT(Error({"Old"}), HasSubstr("no price_per_hour for 'Old'"));
  EXPECT_THAT(Error({"New"}), HasSubstr("New"));
  EXPECT_THAT(Error({"Fast=0"}), HasSubstr("--device 'Fast=0'"));
  EXPECT_THAT(Error({"Fast=two"}), HasSubstr("--device 'Fast=two'"));
  EXPECT_THAT(Error({"Fast"}, 3), HasSubstr("give one of them"));
}

// 5.75 output tokens/s for 7.20 USD/h: 2875 for a dollar.
TEST_F(CostTest, ADollarBuysSoMuch) {
  const Prices prices = **FindPrices({}, "", 7.2);
  const Purchase purchase =
      PerDollar(Evaluate(SomeLoad(), *ServiceLevel::Parse({"ttft:400"}), {}), prices);
  EXPECT_NEAR(purchase.tokens_per_dollar, 2875, 1e-9);
  EXPECT_NEAR(purchase.total_tokens_per_dollar, 40375, 1e-9);
  EXPECT_NEAR(purchase.requests_per_dollar, 375, 1e-9);
  EXPECT_NEAR(*purchase.goodput_per_dollar, 250, 1e-9);
  EXPECT_EQ(prices.table, "--price-per-hour");
}

TEST(ServeFigures, SaysWhoCountedTheTokens) {
  LoadResult load = SomeLoad();
  load.records[1].counted_by_server = false;
  load.records[3].counted_by_server = false;
  ServeReport report;
  report.load = load;
  report.figures = Evaluate(load, {}, {99});
  EXPECT_EQ(report.figures.counted_by_events, 1) << "of answers; the last one failed";
  EXPECT_EQ(ToJson(report)["counted_by_events"], 1);
  EXPECT_THAT(ToText(report), HasSubstr("1 answers have no usage"));
  EXPECT_THAT(RequestLines(load), HasSubstr("\"counted_by\":\"events\""));
}

class ServeReportTest : public ::testing::Test {
 protected:
  ServeReportTest() {
    report_.model = "tiny <&>";
    report_.backend = "openai";
    report_.workload.request_rate = "2.5";
    report_.workload.burstiness = std::numeric_limits<double>::infinity();
    report_.level = *ServiceLevel::Parse({"ttft:400"});
    report_.prices = **FindPrices({}, "", 7.2);
    report_.load = SomeLoad();
    report_.figures = Evaluate(report_.load, report_.level, {90, 99, 99.9});
  }
  ServeReport report_;
};

TEST_F(ServeReportTest, JsonHasTheNamesOfVllm) {
  const nlohmann::ordered_json report = ToJson(report_);
  for (const char* name : {"date", "backend", "model_id", "num_prompts", "request_rate",
                           "burstiness", "max_concurrency", "duration", "completed", "failed",
                           "total_input_tokens", "total_output_tokens", "request_throughput",
                           "request_goodput", "output_throughput", "total_token_throughput"})
    EXPECT_TRUE(report.contains(name)) << name;
  for (const char* time : {"ttft", "tpot", "itl", "e2el"}) {
    for (const char* figure : {"mean", "median", "std", "p90", "p99", "p99.9"})
      EXPECT_TRUE(report.contains(std::string(figure) + "_" + time + "_ms")) << figure << time;
  }
  EXPECT_EQ(report["num_prompts"], 4);
  EXPECT_EQ(report["request_rate"], 2.5);
  EXPECT_EQ(report["burstiness"], "inf");
  EXPECT_NEAR(report["cost"]["tokens_per_dollar"].get<double>(), 2875, 1e-9);
  EXPECT_EQ(report["cost"]["price_table"], "--price-per-hour");
  EXPECT_EQ(report["errors"]["HTTP 503"]["count"], 1);
  report_.workload.request_rate = "inf";
  report_.prices.reset();
  EXPECT_EQ(ToJson(report_)["request_rate"], "inf");
  EXPECT_TRUE(ToJson(report_)["cost"].is_null());
}

TEST_F(ServeReportTest, ARequestIsALine) {
  std::istringstream lines(RequestLines(report_.load));
  std::vector<json> requests;
  for (std::string line; std::getline(lines, line);) requests.push_back(json::parse(line));
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_NEAR(requests[0]["ttft_ms"].get<double>(), 500, 1e-9);
  EXPECT_NEAR(requests[0]["tpot_ms"].get<double>(), 100, 1e-9);
  EXPECT_EQ(requests[1]["itl_ms"].size(), 2u);
  EXPECT_EQ(requests[3]["error_kind"], "HTTP 503");
  EXPECT_FALSE(requests[3].contains("ttft_ms"));
}

TEST_F(ServeReportTest, TheTableNamesErrorsAndCost) {
  const std::string text = ToText(report_);
  EXPECT_THAT(text, HasSubstr("1 x HTTP 503: queue is full"));
  EXPECT_THAT(text, HasSubstr("1 answers were shorter"));
  EXPECT_THAT(text, HasSubstr("2875.00"));
  EXPECT_THAT(text, HasSubstr("goodput"));
}

TEST_F(ServeReportTest, ThePictureHasADotForEachAnswer) {
  const std::string svg = DrawServe(report_);
  EXPECT_THAT(svg, HasSubstr("tiny &lt;&amp;&gt;"));
  EXPECT_THAT(svg, HasSubstr("limit 400 ms"));
  size_t dots = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1))
    ++dots;
  EXPECT_EQ(dots, 5u);  // TTFT of three, TPOT of two
  report_.load.records.clear();
  report_.figures = Evaluate(report_.load, report_.level, {99});
  EXPECT_THAT(DrawServe(report_), ::testing::EndsWith("</svg>\n"));  // nothing measured
}

}  // namespace
}  // namespace lamina
