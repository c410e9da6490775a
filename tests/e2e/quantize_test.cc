// What `lamina quantize`, and `lamina pack` after it, make of models/tiny-stories, served over
// memory nodes: the tokens and log-probabilities that PyTorch gives with the numbers that the codes
// stand for.
#include <gtest/gtest.h>

#include <filesystem>

#include "compute_node/packed_file.h"
#include "quantize/pack_model.h"
#include "quantize/quantize_checkpoint.h"
#include "tests/support/expect_golden.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

class QuantizeTest : public ::testing::TestWithParam<std::string> {};

TEST_P(QuantizeTest, TokensAreThoseOfPyTorch) {
  const TemporaryFolder folder;
  QuantizeOptions options;
  options.model_dir = TinyStoriesDir();
  options.out_dir = folder / "model";
  options.scheme = *SchemeNamed(GetParam());
  WorkerTeam team(1);
  const Result<QuantizedCounts> counts = QuantizeCheckpoint(options, team);
  ASSERT_TRUE(counts.ok()) << counts.status();
  const std::vector<GoldenPrompt> golden =
      GoldenPromptsIn(SourcePath("/tests/fixtures/quantized/tiny_stories/") + GetParam() + ".json");
  ASSERT_GE(golden.size(), 8u);
  Deployment whole;
  Deployment ranks;
  ranks.tensor_parallel_size = 2;
  ranks.kv_head_parallel = 2;
  Deployment outside;  // weights on a disk
  outside.offload = {.interval = 1, .folder = "/var/tmp", .buffers = 1, .poison = true};
  outside.num_batches = 1;
  for (Deployment& deployment : std::vector{whole, ranks, outside}) {
    SCOPED_TRACE(deployment.Name());
    deployment.model = options.out_dir;
    for (const bool packed : {false, true}) {
      SCOPED_TRACE(packed ? "packed" : "not packed");
      std::filesystem::remove(PackedPath(options.out_dir));
      if (packed) {
        PackOptions pack;
        pack.model = options.out_dir;
        pack.num_ranks = deployment.tensor_parallel_size;
        const Result<PackedCounts> done = PackModel(pack, team);
        ASSERT_TRUE(done.ok()) << done.status();
      }
      const Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
      ASSERT_TRUE(serving.ok()) << serving.status();
      ExpectGolden(*(*serving)->engine, golden);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, QuantizeTest, ::testing::Values("w4g32", "w4g64z", "w8", "fp8"));

}  // namespace
}  // namespace lamina::testing
