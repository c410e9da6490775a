// The simulator against times worked out by hand, against an event loop of its own in this file,
// and against what must hold in every run.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "plan/simulate/simulation.h"
#include "plan/simulate/virtual_nic.h"
#include "plan/workload/random_stream.h"
#include "tests/plan/simulate_fixture.h"
#include "transport/modelled/modelled_fabric.h"

namespace lamina::testing {
namespace {

TEST_F(SimulateTest, OneRequestOnOneNodeTakesTheSumOfItsParts) {
  const SimulationResult result = Run(Cluster(1, 1, "40GB"), Alike(1, 100, 3));
  const RequestTimes& request = result.requests.front();
  double prefill = kLayers * PromptAttentionTime(100);
  for (int k = 0; k <= kLayers; ++k) prefill += SliceTime(k, 100, 1);
  EXPECT_NEAR(request.ttft_s(), prefill, kNanosecondsOfASlice);
  const double second = StepTime(1, AttentionTime(1, 101)),
               third = StepTime(1, AttentionTime(1, 102));
  EXPECT_NEAR(request.e2e_s(), prefill + second + third, 3 * kNanosecondsOfASlice);
  EXPECT_EQ(request.output_tokens, 3);
  EXPECT_EQ(result.num_steps, 3);
}

TEST_F(SimulateTest, WithoutMemoryNodesTheComputeNodeAttends) {
  WriteFile(folder_ / "local.yaml",
            "version: 1\ncluster: {device_catalog: devices.yaml}\n"
            "nodes:\n- {name: c0, role: compute, port: 7000, device: \"modelled:Flops\", "
            "memory: 40GB}\nmodel: {path: " +
                SourcePath("/configs/models/llama-13b") + "}\n");
  Result<ClusterModel> cluster = ClusterModel::Load(folder_ / "local.yaml", {});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const int64_t token_bytes = int64_t{2} * 2 * 40 * 5120;
  ASSERT_EQ(cluster->kv_nodes.size(), 1u);
  EXPECT_EQ(cluster->kv_nodes[0].capacity_tokens, 40'000'000'000 / token_bytes);
  const SimulationResult result = Run(*cluster, Alike(1, 100, 3));
  double prefill = kLayers * PromptAttentionTime(100), decode = 0;
  for (int k = 0; k <= kLayers; ++k) {
    prefill += SliceTime(k, 100, 1);
    decode += SliceTime(k, 1, 1);
  }
  const auto attention = [](double tokens) { return kLayers * 4 * kHidden * tokens / kFlops; };
  EXPECT_NEAR(result.requests[0].ttft_s(), prefill, kNanosecondsOfASlice);
  EXPECT_NEAR(result.requests[0].e2e_s(), prefill + 2 * decode + attention(101) + attention(102),
              3 * kNanosecondsOfASlice);
  EXPECT_EQ(result.used_tokens_at_end, 0);
  EXPECT_TRUE(result.memory_busy.empty());
  EXPECT_NE(ToText(*cluster, result).find("1 compute and 0 memory nodes"), std::string::npos);
  EXPECT_EQ(ToJson(*cluster, result).at("timeline").at("memory_busy")[0], 0);
  EXPECT_NE(ToSvg(*cluster, result).find("<polyline"), std::string::npos);

  SimulationOptions appear;
  appear.prompts_appear = true;
  EXPECT_NEAR(Run(*cluster, Alike(1, 100, 2), appear).requests[0].e2e_s(), decode + attention(101),
              kNanosecondsOfASlice);
  SimulationOptions lost;
  lost.changes = {*NodeChange::ParseFail("c0@1ms")};
  EXPECT_NE(Run(*cluster, Alike(1, 100, 3), lost).failure, "");
  ClusterChanges more_memory, more_compute;
  more_memory.num_memory_nodes = more_compute.num_compute_nodes = 2;
  const auto error_of = [&](const ClusterChanges& changes) {
    return ClusterModel::Load(folder_ / "local.yaml", changes).status().message();
  };
  EXPECT_NE(error_of(more_memory).find("none that could be repeated"), std::string::npos);
  EXPECT_NE(error_of(more_compute).find("need memory nodes"), std::string::npos);
}

// One sequence decodes. Slices take their time on the device or on the link, whichever is longer.
TEST_F(SimulateTest, WeightsThatLieOutsideComeOverALink) {
  double plain = 0;
  for (int k = 0; k <= kLayers; ++k) plain += SliceTime(k, 1, 1);
  const double slice = 2 * (kQkvWeights + kRestWeights), first = 2 * kQkvWeights,
               last = 2 * kRestWeights + 2 * kHidden * kVocabulary;  // bytes
  const auto round = [&](int interval, int buffers, double gb_per_s) {
    WriteFile(folder_ / "outside.yaml",
              "version: 1\ncluster: {device_catalog: devices.yaml}\n"
              "nodes:\n- {name: c0, role: compute, port: 7000, device: \"modelled:Flops\", "
              "memory: 40GB, offload: {interval: " +
                  std::to_string(interval) + ", buffers: " + std::to_string(buffers) +
                  ", gb_per_s: " + std::to_string(gb_per_s) +
                  "}}\nmodel: {path: " + SourcePath("/configs/models/llama-13b") + "}\n");
    Result<ClusterModel> cluster = ClusterModel::Load(folder_ / "outside.yaml", {});
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    SimulationOptions options;
    options.prompts_appear = true;
    const SimulationResult result = Run(*cluster, Alike(1, 1, 40), options);
    return result.requests[0].tpot_s();
  };
  const double attention = kLayers * 4 * kHidden * 40 / kFlops;  // at most
  for (const int buffers : {1, 2})
    EXPECT_NEAR(round(4, buffers, 1e6), plain, 0.01 * plain + attention) << "it is hidden";
  // 10 of 41 slices lie outside with an interval of 4, none of them the first or the last.
  const double bytes4 = 10 * slice;
  EXPECT_NEAR(round(4, 2, 1), bytes4 / 1e9, 0.001 * bytes4 / 1e9 + attention);
  const double bytes1 = first + 39 * slice + last;
  EXPECT_NEAR(round(1, 2, 1), bytes1 / 1e9, 0.001 * bytes1 / 1e9 + attention);
  // With one buffer the link rests while the slice runs that it brought.
  EXPECT_NEAR(round(4, 1, 1), bytes4 / 1e9 + 10 * SliceTime(4, 1, 1),
              0.001 * bytes4 / 1e9 + attention);
}

TEST_F(SimulateTest, PromptsThatAppearTakeNoTime) {
  SimulationOptions options;
  options.prompts_appear = true;
  const SimulationResult result = Run(Cluster(1, 1, "40GB"), Alike(4, 200, 2), options);
  for (const RequestTimes& request : result.requests) {
    EXPECT_EQ(request.ttft_s(), 0);
    EXPECT_NEAR(request.e2e_s(), StepTime(4, AttentionTime(4, 4 * 201)), kNanosecondsOfASlice);
  }
}

TEST_F(SimulateTest, TheSlowestMemoryNodeDecidesAndALinkAddsItsTime) {
  // Three sequences on two nodes: two of them on the first one.
  SimulationOptions options;
  options.prompts_appear = true;
  ClusterModel cluster = Cluster(
      1, 2, "40GB",
      "network: {modelled_latency: 50us, modelled_gb_per_s: 10}\npipeline: {overlap: off}\n");
  const SimulationResult result = Run(cluster, Alike(3, 200, 2), options);
  const double row = 2 * kHidden / 10e9, header = 64 / 10e9, times = 40 / 10e9;
  // The compute node's NIC sends two rows of q, k and v to the first node and then one to the
  // second. The first is done last.
  const double there = 50e-6 + header + 2 * 3 * row, back = 50e-6 + header + times + 2 * row;
  double expected = StepTime(3, AttentionTime(2, 402)) + kLayers * (there + back);
  EXPECT_NEAR(result.requests[0].e2e_s(), expected, kNanosecondsOfASlice);
}

TEST_F(SimulateTest, WithOverlapAttentionBeginsBeforeKeysAndValuesAreThere) {
  SimulationOptions options;
  options.prompts_appear = true;
  const ClusterModel cluster = Cluster(1, 1, "40GB", "pipeline: {overlap: on}\n");
  const SimulationResult result = Run(cluster, Alike(4, 200, 2), options);
  // Three of four rows begin when q is there, a third of the projections earlier; then their new
  // tokens, and the fourth row.
  const double behind = LinearTime(2 * kHidden * kHidden, 4);
  const double first = AttentionTime(3, 3 * 200), more = AttentionTime(3, 3),
               rest = AttentionTime(1, 201);
  double expected = 0;
  for (int k = 0; k <= kLayers; ++k) expected += SliceTime(k, 4, 4);
  expected += kLayers * (std::max(first - behind, 0.0) + more + rest);
  EXPECT_NEAR(result.requests[0].e2e_s(), expected, 3 * kNanosecondsOfASlice);
}

TEST_F(SimulateTest, HostCostsComeOnTop) {
  SimulationOptions options;
  options.prompts_appear = true;
  const ClusterModel cluster = Cluster(1, 1, "40GB");
  const double without = Run(cluster, Alike(4, 200, 3), options).requests[0].e2e_s();
  options.host.step_us = 100;
  options.host.row_us = 2;
  options.host.layer_us = 10;
  options.host.layer_row_us = 1;
  options.host.post_us = 6;
  options.host.attend_us = 7;
  options.host.attend_row_us = 0.5;
  options.host.message_us = 5;
  options.host.sample_row_us = 3;
  const RequestTimes request = Run(cluster, Alike(4, 200, 3), options).requests[0];
  // The first step has nothing to compute, and its orders take their time.
  EXPECT_NEAR(request.ttft_s(), 108e-6, 1e-9);
  EXPECT_NEAR(request.e2e_s() - request.ttft_s() - without,
              2 * (108e-6 + kLayers * (14e-6 + 6e-6 + 9e-6 + 2 * 5e-6) + 12e-6), 1e-6);
}

TEST_F(SimulateTest, HostCostsOfPostsGrowWithTheMemoryNodes) {
  SimulationOptions options;
  options.prompts_appear = true;
  const ClusterModel cluster = Cluster(1, 4, "40GB");
  const double without = Run(cluster, Alike(4, 200, 3), options).requests[0].e2e_s();
  options.host.post_us = 6;
  EXPECT_NEAR(Run(cluster, Alike(4, 200, 3), options).requests[0].e2e_s() - without,
              2 * kLayers * 4 * 6e-6, 1e-6);
  options.host = {};
  options.host.attend_us = 7;  // of all nodes at the same time
  options.host.attend_row_us = 0.5;
  EXPECT_NEAR(Run(cluster, Alike(4, 200, 3), options).requests[0].e2e_s() - without,
              2 * kLayers * 7.5e-6, 1e-6);
}

TEST_F(SimulateTest, WithOverlapHostCostsHideBehindTheDeviceAsFarAsItIsBusy) {
  SimulationOptions options;
  options.prompts_appear = true;
  const ClusterModel cluster = Cluster(1, 1, "40GB", "pipeline: {overlap: on}\n");
  const double without = Run(cluster, Alike(4, 200, 2), options).requests[0].e2e_s();
  const double behind = LinearTime(2 * kHidden * kHidden, 4), first = AttentionTime(3, 3 * 200);
  // So q is posted while k and v are still computed: only the second post is seen.
  ASSERT_LT(1e-6, behind);
  options.host.post_us = 1;
  EXPECT_NEAR(Run(cluster, Alike(4, 200, 2), options).requests[0].e2e_s() - without, kLayers * 1e-6,
              1e-6);
  options.host = {};
  options.host.attend_us = 50;  // of three pieces: what is stored, its new tokens, the fourth row
  const double late = std::max(first + 50e-6 - behind, 0.0) - std::max(first - behind, 0.0);
  EXPECT_NEAR(Run(cluster, Alike(4, 200, 2), options).requests[0].e2e_s() - without,
              kLayers * (2 * 50e-6 + late), 1e-6);
}

// Batches of one sequence each that share one compute and one memory node. The compute node takes
// the next batch in turn of those that are ready, the memory node what came first. Returns when
// each batch has its `steps` tokens.
std::vector<double> TwoMachines(int num_batches, int steps, int context) {
  constexpr double kNotHere = 1e9;
  struct Job {
    int step = 0, slice = 0;
    double for_compute = 0, for_memory = kNotHere;  // ready
  };
  std::vector<Job> jobs(static_cast<size_t>(num_batches));
  std::vector<double> ends(static_cast<size_t>(num_batches));
  double compute_free = 0, memory_free = 0;
  for (int last = 0, left = num_batches; left > 0;) {
    const auto first_for_memory = std::ranges::min_element(jobs, {}, &Job::for_memory);
    const double memory_at = std::max(memory_free, first_for_memory->for_memory);
    const double compute_at =
        std::max(compute_free, std::ranges::min_element(jobs, {}, &Job::for_compute)->for_compute);
    if (memory_at <= compute_at) {
      Job& job = *first_for_memory;
      memory_free = job.for_compute = memory_at + AttentionTime(1, context + job.step + 1);
      job.for_memory = kNotHere;
      continue;
    }
    do last = (last + 1) % num_batches;
    while (jobs[static_cast<size_t>(last)].for_compute > compute_at);
    Job& job = jobs[static_cast<size_t>(last)];
    compute_free = compute_at + SliceTime(job.slice, 1, 1);
    job.for_compute = kNotHere;
    if (job.slice++ < kLayers) {
      job.for_memory = compute_free;
      continue;
    }
    job.slice = 0;
    if (++job.step < steps) {
      job.for_compute = compute_free;
    } else {
      ends[static_cast<size_t>(last)] = compute_free;
      --left;
    }
  }
  return ends;
}

TEST_F(SimulateTest, BatchesInFlightShareTheNodesAsInAnEventLoopOfItsOwn) {
  SimulationOptions options;
  options.prompts_appear = true;
  for (const int num_batches : {2, 3, 4}) {
    for (const int context : {50, 1000, 1900}) {
      const ClusterModel cluster =
          Cluster(1, 1, "40GB",
                  "pipeline: {policy: fixed, num_batches: " + std::to_string(num_batches) + "}\n");
      const SimulationResult result = Run(cluster, Alike(num_batches, context, 6), options);
      std::vector<double> ends;
      for (const RequestTimes& request : result.requests) ends.push_back(request.e2e_s());
      std::vector<double> expected = TwoMachines(num_batches, 5, context);
      std::sort(ends.begin(), ends.end());
      std::sort(expected.begin(), expected.end());
      for (size_t i = 0; i < ends.size(); ++i)
        EXPECT_NEAR(ends[i], expected[i], 5 * 3 * kNanosecondsOfASlice)
            << num_batches << " x " << context;
    }
  }
}

struct Shape {
  int num_compute, num_memory;
  std::string memory, more;
};

std::vector<Shape> Shapes() {
  const std::string limits = "limits: {max_num_seqs: 32, max_num_batched_tokens: 256}\n";
  return {
      {1, 1, "1GB", limits},  // room for two of the longest: much is preempted
      {1, 3, "2GB", limits + "network: {modelled_latency: 33us, modelled_gb_per_s: 24}\n"},
      {2, 2, "4GB", limits + "pipeline: {policy: rotational}\n"},
      {2, 3, "4GB",
       limits + "pipeline: {policy: auto, num_batches: 4}\nnetwork: {modelled_latency: 33us, "
                "modelled_gb_per_s: 24}\n"},
      {2, 2, "4GB", limits + "parallel: {pipeline_parallel_size: 2}\n"},
      {2, 2, "4GB",
       limits + "parallel: {tensor_parallel_size: 2}\nnetwork: {modelled_latency: 33us, "
                "modelled_gb_per_s: 24}\n"},
      {1, 3, "600MB", limits + "attention: {spread_tokens: 100}\n"},
      {1, 4, "2GB", limits + "attention: {kv_head_parallel: 2}\n"},
  };
}

// Two compute nodes that are the bottleneck: three batches could keep them busy all the time. At a
// step's ends, where slices are shorter and longer than the others, batches get in each other's
// way; first slices in turn with the others would make it 3 % more.
TEST_F(SimulateTest, RotationComesNearTheIdealSchedule) {
  constexpr int kBatches = 3, kRows = 48, kTokens = 60;
  SimulationOptions options;
  options.prompts_appear = true;
  const std::string yaml =
      "pipeline: {policy: rotational, num_batches: 3}\nlimits: {max_num_seqs: 144, "
      "max_num_batched_tokens: 30000}\n";
  const SimulationResult result =
      Run(Cluster(2, 2, "80GB", yaml), Alike(kBatches * kRows, 200, kTokens), options);
  double round = 0;
  for (int k = 0; k <= kLayers; ++k) round += SliceTime(k, kRows, kRows) * kBatches / 2;
  double longest = 0;
  for (const RequestTimes& request : result.requests)
    longest = std::max(longest, (request.e2e_s() - request.ttft_s()) / (kTokens - 1));
  RecordProperty("of_ideal", std::to_string(longest / round));
  EXPECT_LT(longest, 1.02 * round);
}

TEST_F(SimulateTest, EveryRequestEndsOnceAndTheSameWayInEveryRun) {
  const RequestTrace workload = Mixed(150, 7, 0.02);
  for (const Shape& shape : Shapes()) {
    const ClusterModel cluster =
        Cluster(shape.num_compute, shape.num_memory, shape.memory, shape.more);
    const SimulationResult result = Run(cluster, workload);
    EXPECT_EQ(result.used_tokens_at_end, 0) << shape.more;
    int64_t tokens = 0;
    for (size_t i = 0; i < workload.requests.size(); ++i) {
      const RequestTimes& request = result.requests[i];
      ASSERT_EQ(request.outcome, RequestTimes::Outcome::kDone) << shape.more;
      EXPECT_EQ(request.output_tokens, workload.requests[i].output_tokens);
      EXPECT_GT(request.first_token, request.arrival);
      EXPECT_GE(request.last_token, request.first_token);
      tokens += request.output_tokens;
    }
    EXPECT_EQ(result.token_gaps.count(), tokens - std::ssize(workload.requests));
    double counted = 0;
    for (const UsageTimeline::Piece& piece : result.usage.pieces()) counted += piece.tokens;
    EXPECT_EQ(counted, static_cast<double>(tokens));
    for (const double busy : result.compute_busy) EXPECT_LE(busy, 1);
    for (const double busy : result.memory_busy) EXPECT_LE(busy, 1);
    EXPECT_EQ(Lines(Run(cluster, workload)), Lines(result)) << shape.more;
  }
}

// One sequence runs at a time, and each takes as long as the others.
TEST_F(SimulateTest, ObjectivesDecideWhoIsServedAndAreCounted) {
  const RequestTimes alone = Run(Cluster(1, 1, "40GB"), Alike(1, 100, 3)).requests[0];
  const double each = alone.e2e_s();
  const auto cluster = [&](const std::string& queue, const std::string& on_hopeless) {
    return Cluster(1, 1, "40GB",
                   "limits: {max_num_seqs: 1, max_num_batched_tokens: 512}\nslo: {ttft: " +
                       std::to_string(static_cast<int64_t>(2.5 * each * 1e6)) +
                       "us}\nscheduling: {queue: " + queue + ", on_hopeless: " + on_hopeless +
                       "}\n");
  };
  const auto counts = [&](const std::string& queue, const std::string& on_hopeless) {
    const ClusterModel model = cluster(queue, on_hopeless);
    const SimulationResult result = Run(model, Alike(8, 100, 3, 0.5 * each));
    EXPECT_EQ(result.used_tokens_at_end, 0);
    const auto slo = ToJson(model, result).at("slo");
    EXPECT_NE(ToText(model, result).find("objectives"), std::string::npos);
    int64_t sum = 0;
    for (const char* key : {"met", "missed_ttft", "missed_tpot", "missed_both", "dropped"})
      sum += slo.at(key).get<int64_t>();
    EXPECT_EQ(sum, 8);
    return std::pair(slo.at("met").get<int>(), slo.at("dropped").get<int>());
  };
  // Request i comes after i / 2 of these times, and starts after i of them.
  int in_time = 0;
  for (int i = 0; i < 8; ++i) in_time += 0.5 * i * each + alone.ttft_s() <= 2.5 * each ? 1 : 0;
  EXPECT_GT(in_time, 1);
  EXPECT_EQ(counts("fifo", "serve"), std::pair(in_time, 0));
  EXPECT_EQ(counts("deadline", "drop"), counts("fifo", "drop"));
  EXPECT_GT(counts("fifo", "drop").second, 0);
}

TEST_F(SimulateTest, NoMoreThanMaxConcurrencyAreOpen) {
  SimulationOptions options;
  options.max_concurrency = 3;
  const SimulationResult result = Run(Cluster(1, 2, "4GB"), Mixed(60, 3, 0.001), options);
  std::vector<std::pair<TimePoint, int>> changes;
  for (const RequestTimes& request : result.requests) {
    changes.emplace_back(request.arrival, 1);
    changes.emplace_back(request.last_token, -1);
  }
  std::sort(changes.begin(), changes.end());
  int open = 0;
  for (const auto& [at, change] : changes) EXPECT_LE(open += change, 3);
  EXPECT_EQ(open, 0);
}

TEST_F(SimulateTest, RefusesWhatTheServerWouldRefuse) {
  const ClusterModel cluster =
      Cluster(1, 1, "1GB",
              "limits: {max_num_seqs: 2, max_num_batched_tokens: 64, max_num_queued_reqs: 5}\n");
  const SimulationResult full = Run(cluster, Alike(10, 10, 10));
  EXPECT_EQ(
      std::ranges::count(full.requests, RequestTimes::Outcome::kRefused, &RequestTimes::outcome),
      5);
  // Than the node's 1,220 token slots.
  const SimulationResult longer = Run(cluster, Alike(1, 1500, 100));
  EXPECT_EQ(longer.requests[0].outcome, RequestTimes::Outcome::kRefused);
}

TEST(BurstTimelineTest, BooksAsTheModelledFabricDoes) {
  RandomStream random(5, 0);
  BurstTimeline bursts;
  IngressTimeline pieces;
  int64_t now_us = 0;
  for (int i = 0; i < 20000; ++i) {
    now_us += random.Between(0, 30);
    const TimePoint ready(microseconds(1000000 + now_us + random.Between(-300, 300)));
    const Clock::duration cost = microseconds(random.Between(1, 25));
    ASSERT_EQ(bursts.Book(ready, cost), pieces.Book(ready, cost)) << i;
  }
}

TEST_F(SimulateTest, WhatTakesYearsIsAnErrorAndNoOverflow) {
  ClusterModel cluster = Cluster(1, 1, "40GB");
  cluster.config.modelled_gb_per_s = 1e-300;
  const Status status = Simulate(cluster, Alike(2, 100, 100), {}).status();
  EXPECT_NE(status.message().find("more than ten years"), std::string::npos) << status.message();
}

// 7B's layers were measured; 13B's are predicted from them, as daemons do.
TEST_F(SimulateTest, TakesMeasuredTimesOfAnotherModel) {
  WriteFile(folder_ / "7b.csv",
            "n_head,n_kv_head,n_embd,n_expanded_embd,num_tokens,num_tensor_parallel_workers,input_"
            "layernorm_ms,attn_pre_proj_ms,"
            "attn_rope_ms,attn_post_proj_ms,post_attention_layernorm_ms,mlp_up_proj_ms,mlp_act_ms,"
            "mlp_down_proj_ms,add_ms\n"
            "32,32,4096,11008,1,1,0,0.100663,0,0.033554,0,0.180355,0,0.090178,0\n");
  WriteFile(folder_ / "devices.yaml",
            "version: 1\n"
            "devices:\n"
            "- {name: Flops, bf16_tflops: 100, memory: 80GB, bandwidth_gb_per_s: 1000, mfu: "
            "[{batch: 1, mfu: 1}], source: made up,\n"
            "   profiles: [{file: 7b.csv}]}\n"
            "- {name: Bytes, bf16_tflops: 1000000000, memory: 80GB, bandwidth_gb_per_s: 1000, mfu: "
            "[{batch: 1, mfu: 1}], source: made up}\n");
  SimulationOptions options;
  options.prompts_appear = true;
  const ClusterModel cluster = Cluster(1, 1, "40GB");
  const SimulationResult result = Run(cluster, Alike(1, 100, 2), options);
  // 1 ms in 0.5e9 matrix elements of two bytes at 1000 GB/s, the head by its bytes.
  const double weights = kLayers * (kQkvWeights + kRestWeights) + kHidden * kVocabulary;
  EXPECT_NEAR(result.requests[0].tpot_s() / (2e-12 * weights + kLayers * AttentionTime(1, 102)), 1,
              0.02);
}

}  // namespace
}  // namespace lamina::testing
