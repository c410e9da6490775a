// `lamina serve` from outside, over HTTP: load, disconnects, dying nodes, real clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <random>
#include <thread>

#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace serve_test {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

const std::string kModel = SourcePath("/models/tiny-stories");

struct Streamed {
  std::string text;
  std::string finish_reason;
  std::string error;
  int num_events = 0;
  bool done = false;  // [DONE] came
  Status transport;   // how the HTTP call ended
};

// Streams one completion; hangs up after `hang_up_after` events (0: never).
Streamed Stream(const HttpClient& client, const json& body, int hang_up_after = 0) {
  Streamed out;
  const Result<HttpResponse> response =
      client.PostForEvents("/v1/completions", body.dump(), [&](std::string_view data) {
        if (data == "[DONE]") {
          out.done = true;
          return true;
        }
        ++out.num_events;
        const json event = json::parse(data, nullptr, false);
        if (event.contains("error")) out.error = event["error"].value("message", "?");
        if (event.contains("choices") && !event["choices"].empty()) {
          const json& choice = event["choices"][0];
          out.text += choice.value("text", "");
          if (choice.contains("finish_reason") && choice["finish_reason"].is_string())
            out.finish_reason = choice["finish_reason"];
        }
        return out.num_events != hang_up_after;
      });
  if (!response.ok()) out.transport = response.status();
  if (response.ok() && !response->ok()) out.error = response->body;
  return out;
}

json StreamBody(const std::string& prompt, int max_tokens, double temperature, int seed) {
  return {{"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", temperature},
          {"seed", seed},     {"stream", true},           {"ignore_eos", true}};
}

// 64 streams at a time for a minute, lengths mixed, a third of them cut off by the client at a
// random moment.
TEST(Serve, AMinuteOf64StreamsWithRandomDisconnects) {
  // Less KV than 64 long streams want, so that waiting and preemption take part.
  Result<std::unique_ptr<ServerProcess>> started = ServerProcess::Start(
      {kModel, "--memory-nodes", "2", "--memory", "4MiB", "--max-num-seqs", "48"});
  ASSERT_TRUE(started.ok()) << started.status();
  ServerProcess& server = **started;

  std::vector<json> requests;
  std::vector<std::string> alone;
  for (int i = 0; i < 24; ++i) {
    const std::vector<std::string> prompts = {"Once upon a time", "The end.",
                                              "One rainy day, Mira found a silver key.",
                                              "Rain fell softly on the leaves."};
    requests.push_back(StreamBody(prompts[static_cast<size_t>(i) % prompts.size()],
                                  5 + 17 * i % 300, i % 3 == 0 ? 0.0 : 0.8, i));
    const Streamed answer = Stream(server.client(), requests.back());
    ASSERT_TRUE(answer.done) << answer.error << answer.transport;
    alone.push_back(answer.text);
  }
  ASSERT_EQ(server.AwaitIdle(Deadline::After(seconds(10))), "");
  const size_t files_before = server.NumOpenFiles();

  const Deadline end = Deadline::After(seconds(60));
  std::atomic<int> completed{0}, cut{0}, wrong{0}, broken{0};
  std::mutex mutex;
  std::string first_problem;
  const auto client = [&](int which) {
    std::mt19937 random(static_cast<unsigned>(which));
    while (!end.Passed()) {
      const size_t i = random() % requests.size();
      const int hang_up_after = random() % 3 == 0 ? 1 + static_cast<int>(random() % 40) : 0;
      const Streamed answer = Stream(server.client(), requests[i], hang_up_after);
      if (hang_up_after != 0 && !answer.done) {
        ++cut;
        continue;
      }
      const bool whole = answer.done && answer.error.empty();
      const bool right = answer.text == alone[i];
      ++(!whole ? broken : right ? completed : wrong);
      if (whole && right) continue;
      std::lock_guard lock(mutex);
      if (first_problem.empty())
        first_problem = "request " + std::to_string(i) + ": " + answer.error +
                        answer.transport.ToString() + "\n" + answer.text + "\nalone:\n" + alone[i];
    }
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < 64; ++i) clients.emplace_back(client, i);
  for (std::thread& thread : clients) thread.join();

  EXPECT_EQ(wrong, 0) << first_problem;
  EXPECT_EQ(broken, 0) << first_problem;
  EXPECT_GT(completed, 64);
  EXPECT_GT(cut, 64);
  RecordProperty("completed", completed.load());
  RecordProperty("cut", cut.load());
  EXPECT_EQ(server.AwaitIdle(Deadline::After(seconds(20))), "") << "token slots leak";
  EXPECT_EQ(server.Daemons().size(), 3u);
  EXPECT_TRUE(AwaitTrue([&] { return server.NumOpenFiles() <= files_before; },
                        Deadline::After(seconds(20))))
      << server.NumOpenFiles() << " open files, " << files_before << " before";
}

TEST(Serve, NoStreamEndsWhenNodesDieAndHealthAndClusterStatusTellTheTruth) {
  Result<std::unique_ptr<ServerProcess>> started =
      ServerProcess::Start({kModel, "--memory-nodes", "2"});
  ASSERT_TRUE(started.ok()) << started.status();
  ServerProcess& server = **started;
  const json body = StreamBody("Once upon a time", 900, 0, 0);
  const Streamed undisturbed = Stream(server.client(), body);
  ASSERT_TRUE(undisturbed.done) << undisturbed.error << undisturbed.transport;
  std::vector<Streamed> answers(6);
  std::vector<std::thread> clients;
  for (Streamed& answer : answers)
    clients.emplace_back([&] { answer = Stream(server.client(), body); });
  const auto count = [&](const char* of) { return server.Status()["scheduler"][of].get<int>(); };
  ASSERT_TRUE(AwaitTrue([&] { return count("num_running") == 6; }, Deadline::After(seconds(20))));
  const auto m0 = [&] { return server.Status()["nodes"][1]; };
  EXPECT_GT(m0()["num_sequences"].get<int>(), 0);
  ASSERT_EQ(kill(*server.DaemonOf("m0"), SIGKILL), 0);
  EXPECT_TRUE(AwaitTrue([&] { return m0()["state"] == "lost"; }, Deadline::After(seconds(10))));
  EXPECT_EQ(server.Health(), 200) << "one memory node is left";
  for (std::thread& thread : clients) thread.join();
  for (const Streamed& answer : answers) {
    EXPECT_TRUE(answer.done) << "a stream that was not ended: " << answer.transport;
    EXPECT_EQ(answer.error, "");
    EXPECT_EQ(answer.text, undisturbed.text);
  }
  EXPECT_TRUE(AwaitTrue([&] { return m0()["state"] == "ready"; }, Deadline::After(seconds(30))))
      << "it is started again";
  EXPECT_EQ(server.Health(), 200);
  EXPECT_EQ(server.Status()["state"], "serving");

  const pid_t compute_node = *server.DaemonOf("c0");
  ASSERT_EQ(kill(compute_node, SIGSTOP), 0);
  EXPECT_TRUE(AwaitTrue([&] { return server.Status()["state"] == "outage"; },
                        Deadline::After(seconds(40))));
  EXPECT_EQ(server.Health(), 503);
  const json status = server.Status();
  EXPECT_EQ(status["serving"], false);
  EXPECT_THAT(status["detail"].get<std::string>(), HasSubstr("c0"));
  Streamed waits;
  std::thread client([&] { waits = Stream(server.client(), body); });
  EXPECT_TRUE(AwaitTrue([&] { return count("num_waiting") == 1; }, Deadline::After(seconds(10))));
  ASSERT_EQ(kill(compute_node, SIGCONT), 0);
  EXPECT_TRUE(AwaitTrue([&] { return server.Health() == 200; }, Deadline::After(seconds(30))));
  client.join();
  EXPECT_TRUE(waits.done) << waits.transport;
  EXPECT_EQ(waits.error, "");
  EXPECT_EQ(waits.text, undisturbed.text);
  EXPECT_EQ(server.AwaitIdle(Deadline::After(seconds(20))), "");
}

// Of the four answers that `n` gives with the same seed.
TEST(Serve, BestOfReturnsTheAnswersWithTheHighestLogprobPerToken) {
  Result<std::unique_ptr<ServerProcess>> started =
      ServerProcess::Start({kModel, "--memory-nodes", "2"});
  ASSERT_TRUE(started.ok()) << started.status();
  const auto choices_of = [&](json body) {
    body.update({{"prompt", "Once upon a time"},
                 {"max_tokens", 24},
                 {"temperature", 1},
                 {"seed", 11},
                 {"logprobs", 0}});
    const Result<HttpResponse> response =
        (*started)->client().PostJson("/v1/completions", body.dump());
    EXPECT_TRUE(response.ok()) << response.status();
    return json::parse(response.ok() ? response->body : "{}").value("choices", std::vector<json>());
  };
  std::vector<json> all = choices_of({{"n", 4}});
  const std::vector<json> best = choices_of({{"n", 2}, {"best_of", 4}});
  ASSERT_EQ(all.size(), 4u);
  ASSERT_EQ(best.size(), 2u);
  const auto per_token = [](const json& choice) {
    double sum = 0;
    for (const json& logprob : choice["logprobs"]["token_logprobs"]) sum += logprob.get<double>();
    return sum / static_cast<double>(choice["logprobs"]["token_logprobs"].size());
  };
  std::sort(all.begin(), all.end(),
            [&](const json& a, const json& b) { return per_token(a) > per_token(b); });
  EXPECT_GT(per_token(all[0]), per_token(all[3]) + 1e-3) << "they differ";
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(best[i]["text"], all[i]["text"]);
}

TEST(Serve, StopsCleanlyOnSigterm) {
  Result<std::unique_ptr<ServerProcess>> started =
      ServerProcess::Start({kModel, "--memory-nodes", "1"});
  ASSERT_TRUE(started.ok()) << started.status();
  ServerProcess& server = **started;
  const std::vector<pid_t> daemons = server.Daemons();
  ASSERT_EQ(daemons.size(), 2u);
  server.process().Kill(SIGTERM);
  ASSERT_TRUE(server.process().Wait(Deadline::After(seconds(20))));
  EXPECT_THAT(server.process().exit_description(), HasSubstr("status 0"));
  for (const pid_t daemon : daemons)
    EXPECT_FALSE(Runs(daemon)) << "daemon " << daemon << " stays behind";
}

TEST(Serve, DaemonsDoNotOutliveAManagerThatIsKilled) {
  Result<std::unique_ptr<ServerProcess>> started =
      ServerProcess::Start({kModel, "--memory-nodes", "1"});
  ASSERT_TRUE(started.ok()) << started.status();
  ServerProcess& server = **started;
  const std::vector<pid_t> daemons = server.Daemons();
  server.process().Kill(SIGKILL);
  EXPECT_TRUE(AwaitTrue([&] { return std::none_of(daemons.begin(), daemons.end(), Runs); },
                        Deadline::After(seconds(10))));
}

TEST(Serve, OnceAnswersAndEnds) {
  const CommandOutput output =
      RunLamina({"serve", kModel, "--port", std::to_string(FreePort()), "--prompt",
                 "Once upon a time", "--max-tokens", "40", "--once"});
  EXPECT_EQ(output.exit_status, 0) << output.err;
  EXPECT_THAT(output.out,
              HasSubstr("Once upon a time, in a garden, there lived a shy rabbit called Rosa."));
  EXPECT_THAT(output.out, HasSubstr("on memory node m0"));
  EXPECT_THAT(output.out, HasSubstr("tokens/s"));
}

// curl is a client that this project did not write.
TEST(Serve, CurlChatsAndStreams) {
  Result<std::unique_ptr<ServerProcess>> started =
      ServerProcess::Start({kModel, "--memory-nodes", "2"});
  ASSERT_TRUE(started.ok()) << started.status();
  const std::string url = (*started)->url();
  const auto curl = [&](const std::string& path, const json& body) {
    const Result<CommandOutput> output =
        RunCommand({"curl", "--silent", "--show-error", "--no-buffer", "--header",
                    "Content-Type: application/json", "--data", body.dump(), url + path},
                   Deadline::After(seconds(30)));
    return output.ok() ? output->out : output.status().ToString();
  };
  const json chat = {{"model", "tiny-stories"},
                     {"temperature", 0},
                     {"max_tokens", 24},
                     {"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}}};
  const json whole = json::parse(curl("/v1/chat/completions", chat), nullptr, false);
  ASSERT_TRUE(whole.is_object());
  const std::string expected = whole["choices"][0]["message"]["content"];
  EXPECT_THAT(expected, HasSubstr("in a garden"));
  EXPECT_EQ(whole["usage"]["completion_tokens"], 24);

  json streaming = chat;
  streaming["stream"] = true;
  std::istringstream lines(curl("/v1/chat/completions", streaming));
  std::string text, last;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("data: ", 0) != 0) continue;
    last = line.substr(6);
    while (!last.empty() && last.back() == '\r') last.pop_back();
    const json event = json::parse(last, nullptr, false);
    if (event.is_object() && !event["choices"].empty())
      text += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(last, "[DONE]");
  EXPECT_EQ(text, expected);
}

}  // namespace serve_test
}  // namespace lamina::testing
