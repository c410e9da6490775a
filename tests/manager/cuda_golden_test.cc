// Golden continuations with GPUs in the cluster: as compute node, as memory node, beside CPUs.
// Without a GPU this runs in builds whose kernels are emulated (docs/cuda.md), so only the
// beginnings of a few continuations are compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "kernels/cuda/device.h"
#include "tests/kernels/cuda_cases.h"
#include "tests/support/expect_golden.h"
#include "tests/support/faulty_cluster.h"
#include "tests/support/gguf_models.h"
#include "tests/support/gpu_nic.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"
#include "transport/transport.h"

namespace lamina::testing {
namespace {

constexpr size_t kPrompts = 3, kTokens = 12;
constexpr size_t kLongTokens = 40;  // long enough that a node can die in the middle

// With K and V in bf16, a value on the other side of a rounding than PyTorch's changes it by 2^-8;
// the golden run rounds no query and no output on its way. In 8 bits as LogprobTolerance has it.
double Tolerance(const Deployment& deployment) {
  if (IsForKvOnly(deployment.kv_dtype)) return 2e-2;
  return deployment.wire_dtype == DType::kF16 ? 1e-2
         : deployment.kv_dtype == DType::kF32 ? kLogprobTolerance
                                              : 5e-3;
}

// The shortest first.
std::vector<GoldenPrompt> ShortPrompts(DType kv_dtype) {
  std::vector<GoldenPrompt> golden = GoldenPrompts(kv_dtype);
  std::sort(golden.begin(), golden.end(), [](const GoldenPrompt& a, const GoldenPrompt& b) {
    return a.prompt_ids.size() < b.prompt_ids.size();
  });
  return golden;
}

class CudaGolden : public ::testing::TestWithParam<Deployment> {
 protected:
  void SetUp() override {
    if (const Result<int> count = cuda::DeviceCount(); !count.ok()) GTEST_SKIP() << count.status();
    if (GetParam().transport == TransportKind::kVerbs) {  // a NIC, or scripts/softroce.sh
      if (const Status status = OpenFabric("verbs").status(); !status.ok()) GTEST_SKIP() << status;
    }
    // Emulated GPUs of the daemons then go on by themselves, and can wait for each other.
    setenv("LAMINA_EMULATED_STREAMS", GetParam().polling == PollingMode::kDevice ? "threads" : "",
           /*overwrite=*/1);
  }
  void TearDown() override { unsetenv("LAMINA_EMULATED_STREAMS"); }
};

TEST_P(CudaGolden, TokensAndLogprobsAreThoseOfPyTorch) {
  const std::vector<GoldenPrompt> golden = ShortPrompts(GetParam().kv_dtype);
  Result<std::unique_ptr<Serving>> serving = Serving::Create(GetParam());
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  std::vector<Collector> collectors(2 * kPrompts);
  for (size_t i = 0; i < collectors.size(); ++i) {
    GenerateRequest request = GreedyRequest(golden[i / 2].prompt_ids, kTokens);
    if (i % 2 == 1) request.sampling.num_logprobs = -1;  // then the GPU chooses
    ASSERT_TRUE(engine.Submit(request, collectors[i].sink()).ok());
  }
  for (size_t i = 0; i < collectors.size(); ++i) {
    SCOPED_TRACE("prompt: " + golden[i / 2].prompt);
    ASSERT_TRUE(collectors[i].Wait(Deadline::After(std::chrono::seconds(120))));
    const Generated got = collectors[i].results()[0];
    ASSERT_TRUE(got.error.ok()) << got.error;
    const std::vector<TokenId>& expected = golden[i / 2].continuation_ids;
    const size_t num_tokens = std::min(kTokens, expected.size());
    EXPECT_EQ(got.tokens,
              std::vector<TokenId>(expected.begin(),
                                   expected.begin() + static_cast<int64_t>(num_tokens)));
    if (i % 2 == 1) continue;
    ASSERT_EQ(got.logprobs.size(), num_tokens);
    for (size_t j = 0; j < num_tokens; ++j)
      EXPECT_NEAR(got.logprobs[j], golden[i / 2].logprobs[j], Tolerance(GetParam()))
          << "token " << j;
  }
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(std::chrono::seconds(10))), "");
  if (GetParam().polling != PollingMode::kDevice) return;
  size_t memory_node = 0;
  for (const NodeStatus& node : engine.status().nodes) {
    if (node.role != NodeRole::kMemory) continue;
    ASSERT_EQ(node.paths.size(), 1u);
    const bool on_gpu = GetParam().memory_devices[memory_node++] != "cpu",
               by_nics = GetParam().transport == TransportKind::kVerbs;
    EXPECT_EQ(node.paths[0].through,
              !on_gpu   ? "hosts poll: the memory node's device cannot be reached by this one"
              : by_nics ? "devices poll, hosts post"
                        : "devices poll");
  }
  EXPECT_EQ(memory_node, GetParam().memory_devices.size());
}

std::vector<Deployment> WithGpus() {
  Deployment one_process;
  one_process.kind = "in-process";
  one_process.compute_device = "cuda:0";
  one_process.kv_dtype = DType::kF32;
  Deployment two_gpus;
  two_gpus.compute_device = "cuda:0";
  two_gpus.num_memory_nodes = 1;
  two_gpus.memory_devices = {"cuda:0"};
  Deployment cpu_keeps = two_gpus;
  cpu_keeps.memory_devices = {"cpu"};
  cpu_keeps.wire_dtype = DType::kF16;
  Deployment cpu_computes = two_gpus;
  cpu_computes.compute_device = "cpu";
  Deployment both_keep = two_gpus;
  both_keep.num_memory_nodes = 2;
  both_keep.memory_devices = {"cpu", "cuda:0"};
  Deployment spread = both_keep;  // a sequence's tokens are on both, and their parts are merged
  spread.spread_tokens = 4;
  Deployment heads = both_keep;  // each has half of the heads
  heads.kv_head_parallel = 2;
  heads.overlap = Switch::kOn;
  Deployment eight_bits = both_keep;
  eight_bits.kv_dtype = DType::kF8;
  std::vector<Deployment> all = {one_process, two_gpus, cpu_keeps, cpu_computes,
                                 both_keep,   spread,   heads,     eight_bits};
  for (const DType kv_dtype : {DType::kI8Scaled, DType::kF8Scaled}) {
    // Rows with scales are made on GPUs and CPUs, and read on both.
    for (Deployment scaled : {one_process, two_gpus, cpu_keeps, cpu_computes, heads}) {
      scaled.kv_dtype = kv_dtype;
      all.push_back(scaled);
    }
    Deployment polled = two_gpus;
    polled.kv_dtype = kv_dtype;
    polled.polling = PollingMode::kDevice;
    all.push_back(polled);
  }
  Deployment outside = two_gpus;  // weights, and layers of the cache
  outside.offload = {.interval = 2, .buffers = 1, .poison = true};
  outside.memory_offload = {.interval = 1, .buffers = 2, .poison = true};
  outside.num_batches = 1;
  Deployment own_layers = one_process;
  own_layers.kind = "daemons";
  own_layers.num_memory_nodes = 0;
  own_layers.kv_offload = {.expansion = 2, .poison = true};
  Deployment weights_ahead = outside;  // the host launches a whole step
  weights_ahead.memory_offload = {};
  weights_ahead.polling = PollingMode::kDevice;
  all.insert(all.end(), {outside, own_layers, weights_ahead});
  two_gpus.num_memory_nodes = 2;
  two_gpus.memory_devices = {"cuda:0", "cuda:0"};
  two_gpus.num_batches = 2;
  two_gpus.pipeline = PipelineMode::kFixed;
  Deployment by_nics = two_gpus;
  by_nics.transport = TransportKind::kVerbs;
  for (Deployment polled : {two_gpus, both_keep, spread, heads, by_nics}) {
    polled.polling = PollingMode::kDevice;
    all.push_back(polled);
  }
  return all;
}

#if LAMINA_HAS_CUDA

// Device windows that are posted to, as through NICs: all nodes are in this process, and so is the
// NIC. Faults in milliseconds.
class CudaByPosts : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const Result<int> count = cuda::DeviceCount(); !count.ok()) GTEST_SKIP() << count.status();
    options_.device = CudaGpu{0};
    options_.polling = PollingMode::kDevice;
    options_.num_batches = GetParam();
    options_.open_fabric = OpenGpuNicFabric;
    options_.peer_timeout = std::chrono::seconds(20);
    options_.step_timeout = std::chrono::seconds(60);  // an emulated GPU may have little of a core
  }

  // The golden continuations' first tokens, some of which may be missing after an error.
  static void CheckTokens(const Generated& got, const GoldenPrompt& golden, size_t num_tokens) {
    const std::vector<TokenId>& expected = golden.continuation_ids;
    ASSERT_LE(got.tokens.size(), std::min(num_tokens, expected.size()));
    EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), expected.begin()))
        << golden.prompt;
    for (size_t j = 0; j < got.logprobs.size(); ++j)
      EXPECT_NEAR(got.logprobs[j], golden.logprobs[j], kLogprobTolerance) << "token " << j;
  }

  const cuda::RunningStreams running_;
  FaultyClusterOptions options_;
  const std::vector<GoldenPrompt> golden_ = ShortPrompts(DType::kF32);
};

TEST_P(CudaByPosts, TokensAndLogprobsAreThoseOfPyTorchHoweverLatePostsAre) {
  options_.of_compute.delay = options_.of_memory.delay = 0.3;
  Result<std::unique_ptr<FaultyCluster>> cluster = FaultyCluster::Create(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  Engine& engine = (*cluster)->engine();
  for (const NodeStatus& node : engine.status().nodes) {
    if (node.role != NodeRole::kMemory) continue;
    EXPECT_EQ(node.paths.at(0).through, "devices poll, hosts post");
  }
  // The last prompt, a longer one, comes while the others decode, and takes larger buffers than
  // there are.
  std::vector<GoldenPrompt> golden(golden_.begin(), golden_.begin() + kPrompts);
  golden.push_back(golden_[golden_.size() / 2]);
  std::vector<Collector> collectors(golden.size());
  for (size_t i = 0; i < golden.size(); ++i) {
    if (i == kPrompts) {
      ASSERT_TRUE(collectors[0].WaitForTokens(2, Deadline::After(std::chrono::seconds(60))));
    }
    ASSERT_TRUE(
        engine.Submit(GreedyRequest(golden[i].prompt_ids, kTokens), collectors[i].sink()).ok());
  }
  for (size_t i = 0; i < golden.size(); ++i) {
    ASSERT_TRUE(collectors[i].Wait(Deadline::After(std::chrono::seconds(120))));
    const Generated got = collectors[i].results()[0];
    ASSERT_TRUE(got.error.ok()) << got.error;
    EXPECT_EQ(got.tokens.size(), std::min(kTokens, golden[i].continuation_ids.size()));
    CheckTokens(got, golden[i], kTokens);
  }
  EXPECT_GT((*cluster)->Stop(), 0u) << "nothing was late";
}

// Its posts arrive no more, and nobody is told.
TEST_P(CudaByPosts, AMemoryNodeWhosePostsGetLostIsGivenUpInTime) {
  options_.of_memory.mute_after_posts = 30;
  options_.num_memory_nodes = 1;
  options_.peer_timeout = std::chrono::seconds(1);
  Result<std::unique_ptr<FaultyCluster>> cluster = FaultyCluster::Create(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  Collector collector;
  ASSERT_TRUE((*cluster)
                  ->engine()
                  .Submit(GreedyRequest(golden_[1].prompt_ids, kLongTokens), collector.sink())
                  .ok());
  ASSERT_TRUE(collector.Wait(Deadline::After(std::chrono::seconds(60)))) << "it hangs";
  const Generated got = collector.results()[0];
  EXPECT_EQ(got.reason, FinishReason::kError);
  EXPECT_THAT(got.error.message(), ::testing::HasSubstr("m0"));
  CheckTokens(got, golden_[1], kLongTokens);
}

INSTANTIATE_TEST_SUITE_P(Batches, CudaByPosts, ::testing::Values(1, 2));

#endif

// However slow emulated GPUs are on a busy machine.
bool EndsOrGoesOn(const Collector& collector) {
  size_t before = 0;
  while (!collector.Wait(Deadline::After(std::chrono::seconds(60)))) {
    const size_t now = collector.results()[0].tokens.size();
    if (now == before) return false;
    before = now;
  }
  return true;
}

// A node that dies while a kernel of the compute node waits for it, or only stops answering.
class CudaLoss : public ::testing::TestWithParam<int> {};

TEST_P(CudaLoss, OfAMemoryNodeEndsNoRequestAndTheGpuGoesOn) {
  if (const Result<int> count = cuda::DeviceCount(); !count.ok()) GTEST_SKIP() << count.status();
  setenv("LAMINA_EMULATED_STREAMS", "threads", /*overwrite=*/1);
  Deployment deployment;
  deployment.compute_device = "cuda:0";
  deployment.memory_devices = {"cuda:0", "cuda:0"};
  deployment.polling = PollingMode::kDevice;
  deployment.peer_timeout = std::chrono::seconds(4);
  Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
  unsetenv("LAMINA_EMULATED_STREAMS");
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  const std::vector<GoldenPrompt> golden = ShortPrompts(DType::kBF16);
  const auto check = [&](const Generated& got, size_t i, size_t num_tokens) {
    std::vector<TokenId> expected = golden[i].continuation_ids;
    expected.resize(std::min(num_tokens, expected.size()));
    EXPECT_TRUE(got.error.ok()) << got.error;
    EXPECT_EQ(got.tokens, expected) << golden[i].prompt;
  };
  std::vector<Collector> collectors(4);
  for (size_t i = 0; i < collectors.size(); ++i)
    ASSERT_TRUE(
        engine.Submit(GreedyRequest(golden[i].prompt_ids, kLongTokens), collectors[i].sink()).ok());
  for (const Collector& collector : collectors)
    ASSERT_TRUE(collector.WaitForTokens(2, Deadline::After(std::chrono::seconds(60))));
  for (const NodeUse& node : engine.status().scheduler.nodes)
    EXPECT_GE(node.num_sequences, 1) << "node " << node.id.value << " has none";
  ASSERT_TRUE((*serving)->cluster->Kill("m0", GetParam()).ok());
  for (size_t i = 0; i < collectors.size(); ++i) {
    ASSERT_TRUE(EndsOrGoesOn(collectors[i])) << "request " << i << " hangs";
    check(collectors[i].results()[0], i, kLongTokens);
  }
  Collector again;
  ASSERT_TRUE(engine.Submit(GreedyRequest(golden[0].prompt_ids, kTokens), again.sink()).ok());
  ASSERT_TRUE(again.Wait(Deadline::After(std::chrono::seconds(60))));
  check(again.results()[0], 0, kTokens);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(std::chrono::seconds(10))), "");
}

// Weights of 4 and 6 bits on GPUs, and shares of them: the tokens of their dequantized values.
TEST(CudaQuantized, TokensAreThoseOfTheDequantizedWeights) {
  if (const Result<int> count = cuda::DeviceCount(); !count.ok()) GTEST_SKIP() << count.status();
  const TemporaryFolder folder;
  const auto golden = std::ranges::find(GgufGoldens(), "q4_k_m", &GgufGolden::format);
  ASSERT_NE(golden, GgufGoldens().end());
  Deployment whole;
  whole.model = folder / "q4_k_m.gguf";
  WriteTinyStories(golden->format, whole.model);
  whole.compute_device = "cuda:0";
  whole.num_memory_nodes = 1;
  whole.memory_devices = {"cuda:0"};
  whole.kv_dtype = DType::kF32;
  Deployment ranks = whole;
  ranks.tensor_parallel_size = 2;
  ranks.kv_head_parallel = 2;
  ranks.num_memory_nodes = 2;
  ranks.memory_devices = {"cuda:0", "cpu"};
  for (const Deployment& deployment : {whole, ranks}) {
    SCOPED_TRACE(deployment.Name());
    const Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
    ASSERT_TRUE(serving.ok()) << serving.status();
    std::vector<Collector> collectors(kPrompts);
    for (size_t i = 0; i < kPrompts; ++i) {
      ASSERT_TRUE(
          (*serving)
              ->engine
              ->Submit(GreedyRequest(golden->prompts[i].prompt_ids, kTokens), collectors[i].sink())
              .ok());
    }
    for (size_t i = 0; i < kPrompts; ++i) {
      ASSERT_TRUE(collectors[i].Wait(Deadline::After(std::chrono::seconds(120))));
      const Generated got = collectors[i].results()[0];
      ASSERT_TRUE(got.error.ok()) << got.error;
      const std::vector<TokenId>& expected = golden->prompts[i].continuation_ids;
      EXPECT_EQ(got.tokens,
                std::vector<TokenId>(
                    expected.begin(),
                    expected.begin() + std::min<int64_t>(kTokens, std::ssize(expected))));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Signals, CudaLoss, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) {
                           return info.param == SIGKILL ? "Killed" : "Stopped";
                         });

INSTANTIATE_TEST_SUITE_P(Deployments, CudaGolden, ::testing::ValuesIn(WithGpus()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace lamina::testing
