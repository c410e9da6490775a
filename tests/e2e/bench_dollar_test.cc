// `lamina bench dollar`: small sweeps, and its page as a browser sees it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kDollarModel = SourcePath("/models/tiny-stories");
const std::string kDollarConfigs = SourcePath("/configs");

class BenchDollar : public ::testing::Test {
 protected:
  CommandOutput Run(const std::string& yaml, std::vector<std::string> more) {
    std::ofstream(folder_ / "s.yaml") << yaml;
    std::vector<std::string> arguments = {"bench", "dollar", folder_ / "s.yaml", "--html",
                                          folder_ / "r.html"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunLamina(arguments, std::chrono::seconds(200));
  }

  const TemporaryFolder folder_;
};

std::string TwoShapes() {
  return std::string("version: 1\ntitle: a small sweep\nmodel: {path: ") + kDollarModel +
         "}\nload: {batch: [1, 3], context: [20], output_tokens: 6}\nrepeats: 2\nshapes:\n"
         "- {name: one process, one_process: {threads: 1, price_per_hour: 0.36}}\n"
         "- {name: split, nodes: [{role: compute, threads: 1, price_per_hour: 0.3}, {role: memory, "
         "memory: 8MiB, threads: 1}]}\n";
}

// The page after its script ran; "" with a reason in `skip` if there is no browser.
std::string RenderedBy(const std::string& page, std::string* skip) {
  for (const char* browser : {"chromium-headless-shell", "chromium"}) {
    std::vector<std::string> command = {browser,         "--headless",
                                        "--disable-gpu", "--virtual-time-budget=5000",
                                        "--dump-dom",    "file://" + page};
    // Which root cannot have.
    if (geteuid() == 0) command.insert(command.begin() + 1, "--no-sandbox");
    const Result<CommandOutput> out =
        RunCommand(command, Deadline::After(std::chrono::seconds(60)));
    if (out.status().code() == StatusCode::kNotFound) continue;
    EXPECT_TRUE(out.ok()) << out.status();
    return out.ok() ? out->out : "";
  }
  *skip = "no browser: install chromium-headless-shell";
  return "";
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(BenchDollar, ABrowserShowsChartsAndTheNumbersOfTheJson) {
  const CommandOutput out = Run(TwoShapes(), {"--json"});
  ASSERT_EQ(out.exit_status, 0) << out.err;
  const json said = json::parse(out.out);
  ASSERT_EQ(said["points"].size(), 4u);
  for (const json& point : said["points"]) {
    EXPECT_TRUE(point["error"].is_null()) << point["error"];
    EXPECT_EQ(point["runs"].size(), 2u);
    for (const json& run : point["runs"]) {
      EXPECT_EQ(run["output_tokens"], 6 * point["batch"].get<int>());
      EXPECT_EQ(run["input_tokens"], 20 * point["batch"].get<int>());
    }
    EXPECT_GT(point["breakdown"]["slices_ms"].get<double>(), 0);
    EXPECT_GT(point["breakdown"]["attention_ms"].get<double>(), 0);
  }
  EXPECT_NEAR(said["points"][0]["tokens_per_dollar"].get<double>(),
              said["points"][0]["tokens_per_s"].get<double>() * 10000, 1e-3);
  EXPECT_TRUE(said["points"][2]["tokens_per_dollar"].is_null()) << "a node has no price";

  std::string skip;
  const std::string dom = RenderedBy(folder_ / "r.html", &skip);
  if (!skip.empty()) GTEST_SKIP() << skip;
  EXPECT_THAT(dom, HasSubstr("4 points, 8 runs, 16 requests"))
      << "the page's script has read the JSON";
  EXPECT_EQ(CountOf(dom, "<svg"), 4 + 1 + 1u);
  EXPECT_EQ(CountOf(dom, "class=\"mark\""), 4 + 2 + 4 + 4u)
      << "throughput, tokens per dollar, latency, first token";
  EXPECT_EQ(CountOf(dom, "class=\"bar\""), 1u);
  EXPECT_GE(CountOf(dom, "class=\"part\""), 4 * 3u);

  const std::string open = "<script type=\"application/json\" id=\"raw\">";
  const size_t begin = dom.find(open) + open.size();
  const json raw = json::parse(dom.substr(begin, dom.find("</script>", begin) - begin));
  EXPECT_EQ(raw, said);
  const std::regex cell(
      "data-point=\"(\\d+)\" data-key=\"([^\"]+)\" "
      "data-scale=\"([^\"]+)\">(-?\\d+)(\\.?)(\\d*)</td>");
  size_t num_cells = 0;
  for (std::sregex_iterator at(dom.begin(), dom.end(), cell), end; at != end; ++at, ++num_cells) {
    const std::smatch& m = *at;
    const json::json_pointer key("/" + m[2].str());
    const double value = raw["points"][std::stoul(m[1])].at(key).get<double>() * std::stod(m[3]);
    const double shown = std::stod(m[4].str() + m[5].str() + m[6].str());
    EXPECT_NEAR(shown, value, 0.5000001 * std::pow(10, -static_cast<double>(m[6].length())))
        << m[0];
  }
  EXPECT_EQ(num_cells, 4 * 10 - 2 * 2 + 4 * 9u)
      << "two points have no price and no tokens per dollar";
}

TEST_F(BenchDollar, APointThatFailsIsARowOfItsOwn) {
  const std::string modelled =
      std::string("version: 1\nmodel: {path: ") + kDollarConfigs +
      "/models/llama-13b}\nprice_table: " + kDollarConfigs +
      "/devices-2026.yaml\nload: {batch: [2], context: [64, 5000], output_tokens: 4, prefill: "
      "left-out}\nrepeats: 1\nshapes:\n"
      "- {name: modelled, nodes: [{role: compute, device: 'modelled:H100'}, {role: memory, device: "
      "'modelled:H20', memory: 90GB}]}\n"
      "- {name: nobody, url: 'http://127.0.0.1:9'}\n";
  EXPECT_THAT(
      Run(modelled, {}).err,
      HasSubstr("'prefill' is left-out, and a server at a url always computes its prompts"));
  const CommandOutput out = Run(modelled.substr(0, modelled.rfind("- {name: nobody")), {"--json"});
  ASSERT_EQ(out.exit_status, 0) << out.err;
  const json said = json::parse(out.out);
  ASSERT_EQ(said["points"].size(), 2u);
  const json& point = said["points"][0];
  EXPECT_TRUE(point["error"].is_null()) << point["error"];
  EXPECT_LT(point["tokens_per_s"].get<double>(), 2 / (25.7e-3 / 3.35 / 0.86))
      << "no step is shorter than reading the weights on an H100";
  EXPECT_NEAR(point["price_per_hour"].get<double>(), 2.69 + 1.13, 1e-9);
  EXPECT_THAT(said["points"][1]["error"].get<std::string>(),
              HasSubstr("5000 tokens of prompt and 4 of answer are more than the model's"));
}

TEST_F(BenchDollar, ServersElsewhereAreMeasuredAndSayWhatTheyCan) {
  Result<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start({kDollarModel, "--memory-nodes", "1"});
  ASSERT_TRUE(server.ok()) << server.status();
  const CommandOutput out = Run(
      "version: 1\nload: {batch: [2], context: [16], output_tokens: 4}\nrepeats: 1\nshapes:\n- "
      "{name: there, url: '" +
          (*server)->url() + "', price_per_hour: 1}\n- {name: nobody, url: 'http://127.0.0.1:9'}\n",
      {"--json"});
  ASSERT_EQ(out.exit_status, 0) << out.err;
  const json said = json::parse(out.out);
  EXPECT_GT(said["points"][0]["tokens_per_dollar"].get<double>(), 0);
  EXPECT_EQ(said["points"][0]["runs"][0]["output_tokens"], 8);
  EXPECT_GT(said["points"][0]["breakdown"]["attention_ms"].get<double>(), 0)
      << "it is lamina, whose /metrics tell";
  EXPECT_TRUE(said["points"][0]["breakdown"]["manager_ms"].is_null());
  EXPECT_THAT(said["points"][1]["error"].get<std::string>(), HasSubstr("127.0.0.1:9"));
}

// Prompts of the second point and of the second sweep are new to the server, though it keeps those
// of before.
TEST_F(BenchDollar, APrefixCacheElsewhereFindsNothing) {
  Result<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start({kDollarModel, "--memory-nodes", "1"});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string sweep =
      "version: 1\nload: {batch: [4, 8], context: [200], output_tokens: 2}\nrepeats: 2\nshapes:\n- "
      "{name: there, url: '" +
      (*server)->url() + "'}\n";
  for (int i = 0; i < 2; ++i) {
    const CommandOutput out = Run(sweep, {"--json"});
    ASSERT_EQ(out.exit_status, 0) << out.err;
    const json said = json::parse(out.out);
    for (const json& point : said["points"]) {
      for (const json& run : point["runs"])
        EXPECT_LT(run["cached_share"].get<double>(), 0.02)
            << "sweep " << i << ", batch " << point["batch"];
    }
    EXPECT_THAT(said["notes"].dump(), ::testing::Not(HasSubstr("prefix cache")));
  }
}

TEST_F(BenchDollar, ADryRunMeasuresNothing) {
  const CommandOutput out = Run(TwoShapes(), {"--dry-run"});
  ASSERT_EQ(out.exit_status, 0) << out.err;
  EXPECT_THAT(out.out, HasSubstr("split, context 20, batch 3"));
  EXPECT_THAT(out.out, HasSubstr("4 points, 2 runs each: about "));
  EXPECT_FALSE(std::ifstream(folder_ / "r.html").good());
}

}  // namespace
}  // namespace lamina::testing
