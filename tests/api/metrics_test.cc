#include "api/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace lamina {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kLabels = "{engine=\"0\",model_name=\"tiny\"}";

TEST(Metrics, EveryNameIsThereFromTheBeginning) {
  Metrics metrics("tiny");
  const std::string text = metrics.Serialize({});
  for (const char* name : {"vllm:num_requests_running",
                           "vllm:num_requests_waiting",
                           "lamina:num_requests_parked",
                           "lamina:num_requests_rebuilding",
                           "vllm:kv_cache_usage_perc",
                           "vllm:num_preemptions_total",
                           "vllm:prompt_tokens_total",
                           "vllm:generation_tokens_total",
                           "vllm:prefix_cache_queries_total",
                           "vllm:prefix_cache_hits_total",
                           "vllm:time_to_first_token_seconds_count",
                           "vllm:inter_token_latency_seconds_count",
                           "vllm:e2e_request_latency_seconds_count",
                           "vllm:request_queue_time_seconds_count",
                           "vllm:request_prefill_time_seconds_count",
                           "vllm:request_decode_time_seconds_count",
                           "vllm:request_prompt_tokens_count",
                           "vllm:request_generation_tokens_count",
                           "vllm:iteration_tokens_total_count",
                           "lamina:step_seconds_count",
                           "lamina:attention_wait_seconds_count",
                           "lamina:bytes_to_memory_nodes_total",
                           "lamina:bytes_from_memory_nodes_total"}) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(name) + kLabels + " 0\n")) << name;
  }
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    EXPECT_THAT(text, HasSubstr("vllm:request_success_total{engine=\"0\",finished_reason=\"" +
                                std::string(reason) + "\",model_name=\"tiny\"} 0\n"));
  }
}

TEST(Metrics, BucketsAreThoseOfVllm) {
  Metrics metrics("tiny");
  metrics.OnFirstToken(0.03);
  metrics.OnNextToken(0.03);
  const std::string text = metrics.Serialize({});
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name="
                              "\"tiny\",le=\"0.02\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name="
                              "\"tiny\",le=\"0.04\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name="
                              "\"tiny\",le=\"2560\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("vllm:inter_token_latency_seconds_bucket{engine=\"0\",model_name="
                              "\"tiny\",le=\"0.025\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("vllm:inter_token_latency_seconds_bucket{engine=\"0\",model_name="
                              "\"tiny\",le=\"0.05\"} 1\n"));
}

TEST(Metrics, EventsAreCounted) {
  Metrics metrics("tiny");
  metrics.OnFirstToken(0.1);
  metrics.OnNextToken(0.1);
  metrics.OnNextToken(0.1);
  metrics.OnFinished({FinishReason::kLength, 10, 3, 0.1, 0.2, 0.3, 0.6});
  metrics.OnStep({4, 60, 0.02, 0.01, 1000, 500});
  metrics.OnStep({4, 0, 0.02, 0.01, 1000, 500});
  const std::string text = metrics.Serialize({});
  const auto expect = [&](const std::string& name, const std::string& value) {
    EXPECT_THAT(text, HasSubstr("\n" + name + kLabels + " " + value + "\n"));
  };
  expect("vllm:generation_tokens_total", "3");
  expect("vllm:prompt_tokens_total", "60");
  expect("vllm:request_prompt_tokens_sum", "10");
  expect("vllm:request_generation_tokens_sum", "3");
  expect("vllm:iteration_tokens_total_sum", "68");
  expect("lamina:step_seconds_count", "2");
  expect("lamina:bytes_to_memory_nodes_total", "2000");
  expect("lamina:bytes_from_memory_nodes_total", "1000");
  EXPECT_THAT(text, HasSubstr("finished_reason=\"length\",model_name=\"tiny\"} 1\n"));
}

TEST(Metrics, AnswersAreCountedByTheirObjectives) {
  Metrics metrics("tiny");
  EngineObserver::Finished finished{FinishReason::kStop, 10, 3, 0.1, 0.2, 0.3, 0.6};
  metrics.OnFinished(finished);
  for (const SloOutcome outcome : {SloOutcome::kMet, SloOutcome::kMissedTtft, SloOutcome::kMet,
                                   SloOutcome::kMissedTpot, SloOutcome::kMissedBoth}) {
    finished.slo = outcome;
    metrics.OnFinished(finished);
  }
  const std::string text = metrics.Serialize({});
  EXPECT_THAT(text, HasSubstr("\nlamina:slo_met_total" + std::string(kLabels) + " 2\n"));
  for (const auto& [missed, count] : {std::pair("ttft", 1), std::pair("tpot", 1),
                                      std::pair("both", 1), std::pair("dropped", 0)}) {
    EXPECT_THAT(text,
                HasSubstr("\nlamina:slo_missed_total{engine=\"0\",missed=\"" + std::string(missed) +
                          "\",model_name=\"tiny\"} " + std::to_string(count) + "\n"));
  }
}

TEST(Metrics, GaugesFollowTheStatus) {
  Metrics metrics("tiny");
  EngineStatus status;
  status.scheduler.num_running = 5;
  status.scheduler.num_waiting = 2;
  status.scheduler.num_parked = 3;
  status.num_rebuilding = 4;
  status.scheduler.num_preemptions = 7;
  status.scheduler.nodes = {{NodeId{1}, 100, 50, 1}, {NodeId{2}, 300, 50, 1}};
  NodeStatus compute;
  compute.name = "c0";
  compute.role = NodeRole::kCompute;
  compute.state = NodeState::kReady;
  NodeStatus memory;
  memory.name = "m0";
  memory.role = NodeRole::kMemory;
  memory.state = NodeState::kReady;
  memory.capacity_tokens = 100;
  memory.used_tokens = 50;
  memory.stale_messages = 6;
  memory.paths = {{"c0", "shm", "", ""}, {"c1", "tcp", "", "verbs: no device"}};
  status.nodes = {compute, memory};
  std::string text = metrics.Serialize(status);
  EXPECT_THAT(text, HasSubstr(std::string("vllm:num_requests_running") + kLabels + " 5\n"));
  EXPECT_THAT(text, HasSubstr(std::string("vllm:num_requests_waiting") + kLabels + " 2\n"));
  EXPECT_THAT(text, HasSubstr(std::string("lamina:num_requests_parked") + kLabels + " 3\n"));
  EXPECT_THAT(text, HasSubstr(std::string("lamina:num_requests_rebuilding") + kLabels + " 4\n"));
  EXPECT_THAT(text, HasSubstr(std::string("vllm:num_preemptions_total") + kLabels + " 7\n"));
  EXPECT_THAT(text, HasSubstr(std::string("vllm:kv_cache_usage_perc") + kLabels + " 0.25\n"));
  EXPECT_THAT(text, HasSubstr("lamina:kv_slots_used{node=\"m0\",role=\"memory\"} 50\n"));
  EXPECT_THAT(text, HasSubstr("lamina:kv_slots_capacity{node=\"m0\",role=\"memory\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("lamina:node_up{node=\"c0\",role=\"compute\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("lamina:stale_messages{node=\"m0\",role=\"memory\"} 6\n"));
  EXPECT_THAT(
      text,
      HasSubstr("lamina:data_path{fabric=\"shm\",from=\"c0\",node=\"m0\",role=\"memory\"} 1\n"));
  EXPECT_THAT(
      text,
      HasSubstr("lamina:data_path{fabric=\"tcp\",from=\"c1\",node=\"m0\",role=\"memory\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("lamina:kv_slots_used{node=\"c0\"")));
  status.nodes = {memory};
  status.nodes[0].state = NodeState::kLost;
  text = metrics.Serialize(status);
  EXPECT_THAT(text, HasSubstr("lamina:node_up{node=\"m0\",role=\"memory\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("node=\"c0\"")));
  // Counters never fall.
  EXPECT_THAT(text, HasSubstr(std::string("vllm:num_preemptions_total") + kLabels + " 7\n"));
}

TEST(Metrics, TimesOfNodesAreCountersByKind) {
  Metrics metrics("tiny");
  EngineStatus status;
  NodeStatus compute;
  compute.name = "c0";
  compute.role = NodeRole::kCompute;
  compute.times.Add(StepWork::kSlice, 1'500'000'000);
  compute.times.Add(StepWork::kBubble, 250'000'000);
  NodeStatus memory;
  memory.name = "m0";
  memory.role = NodeRole::kMemory;
  memory.times.Add(StepWork::kQWire, 500'000'000);
  memory.times.Add(StepWork::kAttention, 2'000'000'000);
  status.nodes = {compute, memory};
  metrics.Serialize(status);
  status.nodes[0].times.Add(StepWork::kSlice, 500'000'000);
  const std::string text = metrics.Serialize(status);
  EXPECT_THAT(text, HasSubstr("# TYPE lamina:slice_seconds_total counter\n"));
  EXPECT_THAT(text, HasSubstr("lamina:slice_seconds_total{node=\"c0\",role=\"compute\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("lamina:bubble_seconds_total{node=\"c0\",role=\"compute\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("lamina:bubble_seconds_total{node=\"m0\",role=\"memory\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("lamina:q_wire_seconds_total{node=\"m0\",role=\"memory\"} 0.5\n"));
  EXPECT_THAT(text,
              HasSubstr("lamina:attention_queue_seconds_total{node=\"m0\",role=\"memory\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("lamina:attention_seconds_total{node=\"m0\",role=\"memory\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("lamina:output_wire_seconds_total{node=\"m0\",role=\"memory\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("lamina:attention_seconds_total{node=\"c0\"")));
}

TEST(Metrics, EventsAndScrapesMayCoincide) {
  Metrics metrics("tiny");
  std::thread engine([&] {
    for (int i = 0; i < 2000; ++i) metrics.OnNextToken(0.01);
  });
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(metrics.Serialize({}).empty());
  engine.join();
  EXPECT_THAT(metrics.Serialize({}),
              HasSubstr(std::string("vllm:generation_tokens_total") + kLabels + " 2000\n"));
}

}  // namespace
}  // namespace lamina
