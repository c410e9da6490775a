#include "compute_node/gguf_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "compute_node/compute_device.h"
#include "compute_node/safetensors.h"
#include "compute_node/weight_reader.h"
#include "gguf/dequantize.h"
#include "kernels/elementwise.h"
#include "kernels/reference/reference.h"
#include "tests/support/gguf_models.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::AllOf;
using testing::GgufWriter;
using ::testing::HasSubstr;

class GgufCheckpointTest : public ::testing::Test {
 protected:
  void Open(const std::string& format) {
    testing::WriteTinyStories(format, path_);
    config_ = *ModelConfig::Load(path_);
    checkpoint_ = *GgufCheckpoint::Open(path_, config_);
  }
  static std::vector<std::byte> Read(const GgufWeight& weight, int64_t first, int64_t count) {
    std::vector<std::byte> out(static_cast<size_t>(count) * ElementSize(weight.dtype));
    ReadElements(weight, first, count, out.data());
    return out;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "m.gguf";
  ModelConfig config_;
  std::unique_ptr<GgufCheckpoint> checkpoint_;
};

// The halves of heads stand again one behind the other, as in the original.
TEST_F(GgufCheckpointTest, WeightsStandInTheOrderOfTheOriginal) {
  Open("f16");
  const auto original = *SafetensorsFile::Open(testing::TinyStoriesDir() + "/model.safetensors");
  for (const SafetensorsEntry& entry : original->entries()) {
    const Result<GgufWeight> weight = checkpoint_->Find(WeightRef{entry.name, entry.shape});
    ASSERT_TRUE(weight.ok()) << weight.status();
    const auto count = weight->rows * weight->width;
    const std::vector<std::byte> bytes = Read(*weight, 0, count);
    EXPECT_EQ(weight->dtype, entry.shape.size() == 1 ? DType::kF32 : DType::kF16);
    const TensorView view = *original->Find(entry.name);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      BF16 before;
      std::memcpy(&before, view.data.data() + i * sizeof(before), sizeof(before));
      float after = 0;
      if (weight->dtype == DType::kF32) {
        std::memcpy(&after, bytes.data() + i * sizeof(after), sizeof(after));
        ASSERT_EQ(after, ToFloat(before)) << entry.name << " " << i;
      } else {
        F16 half;
        std::memcpy(&half, bytes.data() + i * sizeof(half), sizeof(half));
        ASSERT_EQ(half.bits, ToF16(ToFloat(before)).bits) << entry.name << " " << i;
      }
    }
  }
}

TEST_F(GgufCheckpointTest, PartsAreThoseOfTheWhole) {
  Open("q4_k_m");
  for (const auto& [name, shape] : {std::pair<std::string, std::vector<int64_t>>(
                                        "model.layers.0.self_attn.q_proj.weight", {256, 256}),
                                    {"model.layers.3.self_attn.o_proj.weight", {256, 256}},
                                    {"model.layers.1.mlp.down_proj.weight", {256, 640}}}) {
    const GgufWeight weight = *checkpoint_->Find(WeightRef{name, shape});
    EXPECT_EQ(weight.dtype, DType::kF16);
    const int64_t count = shape[0] * shape[1];
    const std::vector<std::byte> whole = Read(weight, 0, count);
    for (const auto& [first, n] : {std::pair<int64_t, int64_t>(0, 1),
                                   {31, 2},
                                   {128, 128},
                                   {255, 258},
                                   {100, 9000},
                                   {shape[1] * 17 + 5, shape[1] * 40},
                                   {count - 1, 1}}) {
      const std::vector<std::byte> part = Read(weight, first, n);
      EXPECT_EQ(std::memcmp(part.data(), whole.data() + first * 2, part.size()), 0)
          << name << " " << first << " " << n;
    }
  }
}

TEST_F(GgufCheckpointTest, RowsInTheirOwnBlocks) {
  Open("q8_0");
  const std::vector<int64_t> shape = {256, 256};
  const GgufWeight q =
      *checkpoint_->Find(WeightRef{"model.layers.0.self_attn.q_proj.weight", shape});
  EXPECT_EQ(q.type(), GgmlType::kQ8_0);
  EXPECT_EQ(q.interleaved, 32);
  // Rows 0 and 1 of the file are the first ones of the two halves of the first head.
  EXPECT_EQ(q.RowBlocks(0).data(), q.tensor->data.data());
  EXPECT_EQ(q.RowBlocks(16).data(), q.tensor->data.data() + 8 * 34);
  EXPECT_EQ(q.RowBlocks(1).data(), q.tensor->data.data() + 2 * 8 * 34);
  EXPECT_EQ(q.TensorRow(32 + 17), 32 + 3);
  EXPECT_EQ(q.RowBlocks(255).size(), 8u * 34);
  EXPECT_EQ(checkpoint_->Find(WeightRef{"model.layers.0.self_attn.v_proj.weight", {128, 256}})
                ->interleaved,
            0);
}

// Also in parts that begin amid a block, or so that groups are too small for the kernels.
TEST_F(GgufCheckpointTest, CodesAreTheDequantizedElements) {
  struct Part {
    int64_t first_row, rows, first_input, inputs;
    bool indexed;
  };
  std::set<GgmlType> types;
  WorkerTeam team(3);
  QuantizedMatrix used_again;  // for one matrix after the other, of all sizes and types
  for (const testing::GgufGolden& golden : testing::GgufGoldens()) {
    Open(golden.format);
    for (const auto& [name, shape] : std::map<std::string, std::vector<int64_t>>{
             {"model.layers.0.self_attn.q_proj.weight", {256, 256}},
             {"model.layers.1.self_attn.v_proj.weight", {128, 256}},
             {"model.layers.3.self_attn.o_proj.weight", {256, 256}},
             {"model.layers.2.mlp.up_proj.weight", {640, 256}},
             {"model.layers.2.mlp.down_proj.weight", {256, 640}}}) {
      GgufWeight weight = *checkpoint_->Find(WeightRef{name, shape});
      if (!CodeFormat(weight, {name, shape})) {
        EXPECT_EQ(CodesOf(weight.type()), nullptr);
        continue;
      }
      types.insert(weight.type());
      weight.dtype = DType::kF32;
      std::vector<float> whole(static_cast<size_t>(shape[0] * shape[1]));
      ReadElements(weight, 0, shape[0] * shape[1], reinterpret_cast<std::byte*>(whole.data()));
      for (const Part& part : {Part{0, shape[0], 0, shape[1], false},
                               {32, 64, shape[1] / 2, shape[1] / 2, false},
                               {1, 5, 40, 50, false},
                               {7, 1, 84, 171, true}}) {
        const WeightRef ref{.name = name,
                            .shape = {part.rows, part.inputs},
                            .whole = shape,
                            .first = {part.first_row, part.first_input}};
        QuantizedMatrix matrix;
        ASSERT_TRUE(ReadCodes(weight, ref, /*team=*/nullptr, matrix).ok());
        ASSERT_TRUE(ReadCodes(weight, ref, &team, used_again).ok());
        EXPECT_EQ(used_again.codes, matrix.codes);
        EXPECT_EQ(used_again.scales, matrix.scales);
        EXPECT_EQ(used_again.minima, matrix.minima);
        EXPECT_EQ(used_again.group_of, matrix.group_of);
        EXPECT_EQ(matrix.format, *CodeFormat(weight, ref));
        EXPECT_EQ(matrix.format.indexed, part.indexed);
        const std::vector<float> weights = reference::Dequantize(matrix);
        ASSERT_EQ(std::ssize(weights), part.rows * part.inputs);
        for (size_t i = 0; i < weights.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          const int64_t row = part.first_row + at / part.inputs,
                        input = part.first_input + at % part.inputs;
          ASSERT_EQ(weights[i], whole[static_cast<size_t>(row * shape[1] + input)])
              << weight.tensor->info().name << " " << name << " " << row << " " << input;
        }
      }
    }
  }
  EXPECT_EQ(types.size(), 8u) << "all quantized types";
}

TEST_F(GgufCheckpointTest, MatricesStayQuantizedInMemory) {
  const auto loaded_bytes = [&](const std::string& format) {
    testing::WriteTinyStories(format, path_);
    WorkerTeam team(1);
    WeightOptions options;
    options.model_dir = path_;
    return static_cast<double>((*LoadedModel::Load(options, team))->weight_bytes);
  };
  // The table of 2048 rows is in 16 bits; it is a sixth of the weights.
  const double in_16_bits = loaded_bytes("f16");
  EXPECT_LT(loaded_bytes("q8_0"), in_16_bits * 0.62);
  EXPECT_LT(loaded_bytes("q4_0"), in_16_bits * 0.42);
}

TEST_F(GgufCheckpointTest, CodesStandForTheNumbersThatElementsAreReadAs) {
  Open("q4_k_m");
  WorkerTeam team(1);
  WeightOptions options;
  options.model_dir = path_;
  const auto model = *LoadedModel::Load(options, team);
  const auto file = *GgufCheckpoint::Open(path_, config_);
  WeightReader reader = *WeightReader::Open(model->part(), config_, options);
  int num_matrices = 0;
  const auto take = [&](const FoundWeight& found) {
    if (found.role != WeightRole::kMatrix) return OkStatus();
    ++num_matrices;
    EXPECT_NE(found.quantized, nullptr) << found.id;
    std::vector<float> numbers = reference::Dequantize(*found.quantized);
    for (float& number : numbers) number = ToFloat(ToF16(number));
    std::vector<std::byte> elements(numbers.size() * sizeof(F16));
    ReadElements(*file->Find(found.weight), 0, std::ssize(numbers), elements.data());
    std::vector<float> expected(numbers.size());
    ConvertToFloat(elements.data(), DType::kF16, std::ssize(numbers), expected.data());
    EXPECT_EQ(numbers, expected) << found.id;
    return OkStatus();
  };
  while (*reader.ReadNext(take)) {
  }
  EXPECT_EQ(num_matrices, 4 * 7 + 1);
}

// A rank that has half of the heads has half of the bytes of what is shared.
TEST_F(GgufCheckpointTest, RanksReadTheirShare) {
  Open("q4_k_m");
  WorkerTeam team(1);
  WeightOptions options;
  options.model_dir = path_;
  const int64_t whole = (*LoadedModel::Load(options, team))->weight_bytes;
  options.share = {1, 0, 2, 1};
  const int64_t rank = (*LoadedModel::Load(options, team))->weight_bytes;
  EXPECT_LT(rank, whole * 6 / 10);
  options.share = {4, 1, 1, 0};
  const int64_t stage = (*LoadedModel::Load(options, team))->weight_bytes;
  EXPECT_LT(stage, whole * 3 / 10);
}

Status LoadStatus(const std::string& path) {
  WorkerTeam team(1);
  WeightOptions options;
  options.model_dir = path;
  return LoadedModel::Load(options, team).status();
}

TEST_F(GgufCheckpointTest, MissingTensorsAreNamedAsInTheFileAndInTheModel) {
  GgufWriter writer = testing::TinyStoriesKeys();
  testing::AddTinyStoriesTensors(
      "q8_0", writer, [](const std::string& name) { return name != "blk.2.ffn_up.weight"; });
  WriteFile(path_, writer.File());
  const Status status = LoadStatus(path_);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("blk.2.ffn_up.weight (model.layers.2.mlp.up_proj.weight)"),
                    HasSubstr(path_), HasSubstr("[640, 256]"), HasSubstr("LlamaForCausalLM")));
}

TEST_F(GgufCheckpointTest, TensorsOfATypeOrShapeThatIsNotReadAreNamed) {
  const auto with = [&](std::vector<int64_t> shape, uint32_t type, size_t num_bytes) {
    GgufWriter writer = testing::TinyStoriesKeys();
    testing::AddTinyStoriesTensors(
        "q8_0", writer, [](const std::string& name) { return name != "blk.2.attn_v.weight"; });
    writer.AddTensor("blk.2.attn_v.weight", std::move(shape), type, std::string(num_bytes, '\0'));
    WriteFile(path_, writer.File());
    return LoadStatus(path_);
  };
  constexpr uint32_t kQ2K = 10;
  const Status type = with({128, 256}, kQ2K, 128 * 84);
  EXPECT_EQ(type.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(type.message(), AllOf(HasSubstr("blk.2.attn_v.weight"), HasSubstr(path_),
                                    HasSubstr("has type Q2_K; lamina reads F32, F16, Q4_0")));
  const Status shape = with({256, 128}, 1, 256 * 128 * 2);
  EXPECT_EQ(shape.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(shape.message(), AllOf(HasSubstr("blk.2.attn_v.weight"), HasSubstr(path_),
                                     HasSubstr("[256, 128]"), HasSubstr("[128, 256]")));
}

TEST_F(GgufCheckpointTest, ScalesThatAreNotFiniteAreRefused) {
  GgufWriter writer = testing::TinyStoriesKeys();
  testing::AddTinyStoriesTensors(
      "q8_0", writer, [](const std::string& name) { return name != "blk.2.attn_v.weight"; });
  std::string blocks(128 * 8 * 34, '\0');
  blocks.replace(5 * 8 * 34, 2, "\xff\x7f");
  writer.AddTensor("blk.2.attn_v.weight", {128, 256}, 8, blocks);
  WriteFile(path_, writer.File());
  const Status status = LoadStatus(path_);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(path_), HasSubstr("blk.2.attn_v.weight"),
                                      HasSubstr("a scale in row 5 that is not a finite number")));
}

}  // namespace
}  // namespace lamina
