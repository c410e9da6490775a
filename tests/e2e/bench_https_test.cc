// `lamina bench serve` and `lamina bench dollar` against `lamina serve` with a certificate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/certificates.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace bench_https_test {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class BenchHttps : public ::testing::Test {
 protected:
  void SetUp() override {
    const TlsFiles files = ca_.Issue("server");
    auto started =
        ServerProcess::Start({SourcePath("/models/tiny-stories"), "--memory-nodes", "1",
                              "--ssl-certfile", files.certificate, "--ssl-keyfile", files.key});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  static CommandOutput RunBench(const std::string& url, std::vector<std::string> arguments) {
    const std::vector<std::string> common = {"bench",
                                             "serve",
                                             "--base-url",
                                             url,
                                             "--random-input-len",
                                             "20",
                                             "--random-output-len",
                                             "4",
                                             "--ignore-eos",
                                             "--num-prompts",
                                             "12",
                                             "--max-concurrency",
                                             "3",
                                             "--json"};
    arguments.insert(arguments.begin(), common.begin(), common.end());
    return RunLamina(arguments);
  }

  const TemporaryFolder folder_;
  const TestCa ca_{folder_.path()};
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(BenchHttps, AServerWithACertificateIsMeasured) {
  const CommandOutput served = RunBench(server_->url() + "/v1", {"--ca", ca_.path()});
  ASSERT_EQ(served.exit_status, 0) << served.err;
  const json figures = json::parse(served.out, nullptr, false);
  ASSERT_TRUE(figures.is_object()) << served.out;
  EXPECT_EQ(figures["completed"], 12);
  EXPECT_EQ(figures["total_input_tokens"], 12 * 20);
  EXPECT_EQ(figures["total_output_tokens"], 12 * 4);
  EXPECT_EQ(figures["generator"]["connections"], 3) << "they are kept";

  const std::string sweep = folder_ / "sweep.yaml";
  WriteFile(sweep,
            "version: 1\nload: {batch: [2], context: [16], output_tokens: 4}\nrepeats: 1\nshapes:\n"
            "- {name: trusted, url: '" +
                server_->url() + "', ca: ca.pem}\n- {name: stranger, url: '" + server_->url() +
                "'}\n");
  const CommandOutput swept =
      RunLamina({"bench", "dollar", sweep, "--html", folder_ / "page.html", "--json"});
  ASSERT_EQ(swept.exit_status, 0) << swept.err;
  const json points = json::parse(swept.out)["points"];
  EXPECT_TRUE(points[0]["error"].is_null()) << points[0]["error"];
  EXPECT_EQ(points[0]["runs"][0]["output_tokens"], 8);
  EXPECT_GT(points[0]["breakdown"]["attention_ms"].get<double>(), 0) << "/metrics are read too";
  EXPECT_THAT(points[1]["error"].get<std::string>(), HasSubstr("is refused"));
}

TEST_F(BenchHttps, WhatIsWrongIsSaid) {
  const auto error = [](const std::string& url, const std::vector<std::string>& arguments) {
    const CommandOutput out = RunBench(url, arguments);
    EXPECT_EQ(out.exit_status, 1) << out.out;
    return out.err;
  };
  const std::string port = std::to_string(server_->port()), address = "127.0.0.1:" + port;
  EXPECT_THAT(error(server_->url(), {"--ca", TestCa(folder_.path(), "other").path()}),
              AllOf(HasSubstr("the certificate of " + address + " is refused"), HasSubstr("--ca")));
  EXPECT_THAT(error(server_->url(), {}), HasSubstr("--ca"));
  EXPECT_THAT(error(server_->url(), {"--ca", folder_ / "nowhere.pem"}), HasSubstr("nowhere.pem"));
  EXPECT_THAT(error("http://" + address, {}), HasSubstr("https://")) << "plain HTTP to a TLS port";

  const TlsFiles elsewhere = ca_.Issue("elsewhere", {.names = "DNS:elsewhere.test"});
  auto misnamed = ServerProcess::Start({SourcePath("/models/tiny-stories"), "--memory-nodes", "1",
                                        "--ssl-certfile", elsewhere.certificate, "--ssl-keyfile",
                                        elsewhere.key});
  ASSERT_TRUE(misnamed.ok()) << misnamed.status();
  EXPECT_THAT(error((*misnamed)->url(), {"--ca", ca_.path()}), HasSubstr("IP address mismatch"));

  auto plain = ServerProcess::Start({SourcePath("/models/tiny-stories"), "--memory-nodes", "1"});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT(error("https://127.0.0.1:" + std::to_string((*plain)->port()), {"--ca", ca_.path()}),
              AllOf(HasSubstr("does not speak TLS"), HasSubstr("http://")));
}

}  // namespace bench_https_test
}  // namespace lamina::testing
