#include "compute_node/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "compute_node/safetensors.h"
#include "compute_node/weight_reader.h"
#include "kernels/elementwise.h"
#include "splitter/slices.h"
#include "splitter/tensor_parallel.h"
#include "tests/support/families.h"
#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace {

// The whole tensor.
WeightRef Named(const std::string& name) { return {.name = name, .shape = {}}; }

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Not;

Result<std::unique_ptr<Weights>> LoadFrom(const std::string& dir) {
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(dir));
  LAMINA_ASSIGN_OR_RETURN(const Graph graph, TraceModel(config));
  WorkerTeam team(1);
  WeightOptions options;
  options.model_dir = dir;
  return Weights::Load(graph, config, options, team);
}

// Changes a JSON file on disk.
void Edit(const std::string& path, const std::function<void(nlohmann::json&)>& change) {
  std::ifstream in(path);
  nlohmann::json json = nlohmann::json::parse(in);
  change(json);
  std::ofstream(path) << json;
}

TEST(WeightsTest, MissingTensorsAreNamedWithFileShapeAndArchitecture) {
  const TinyCheckpoint checkpoint({.num_shards = 2});
  const std::string index = checkpoint.dir() + "/model.safetensors.index.json";
  Edit(index,
       [](nlohmann::json& json) { json["weight_map"].erase("model.layers.1.mlp.up_proj.weight"); });
  const Status status = LoadFrom(checkpoint.dir()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(
      status.message(),
      AllOf(HasSubstr("model.layers.1.mlp.up_proj.weight"), HasSubstr(index), HasSubstr("[48, 32]"),
            HasSubstr("LlamaForCausalLM"), Not(HasSubstr("tie_word_embeddings"))));
}

TEST(WeightsTest, AHeadThatIsNotThereMayBeTied) {
  const TinyCheckpoint checkpoint({.tied_head = true});
  EXPECT_TRUE(LoadFrom(checkpoint.dir()).ok()) << LoadFrom(checkpoint.dir()).status();
  Edit(checkpoint.dir() + "/config.json",
       [](nlohmann::json& json) { json["tie_word_embeddings"] = false; });
  const Status status = LoadFrom(checkpoint.dir()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("\"tie_word_embeddings\": true")));
}

// A vector that lies in several tensors, whole and as the share of one rank.
TEST(WeightsTest, VectorsInPiecesAreJoined) {
  const std::string dir = testing::FamilyOf("stablelm-12b").dir;
  const ModelConfig config = *ModelConfig::Load(dir);
  const Graph whole = *TraceModel(config);
  WorkerTeam team(1);
  WeightOptions options;
  options.model_dir = dir;
  const auto load = [&](const Graph& graph) {
    Result<std::unique_ptr<Weights>> weights = Weights::Load(graph, config, options, team);
    EXPECT_TRUE(weights.ok()) << weights.status();
    return (*weights)->Vector(Named("model.layers.1.self_attn.q_layernorm.norms.weight"));
  };
  const std::vector<float> all = load(whole);
  const Result<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const std::vector<int64_t> shape = {config.head_dim};
  std::vector<float> expected;
  for (int head = 0; head < config.num_heads; ++head) {
    const std::string name =
        "model.layers.1.self_attn.q_layernorm.norms." + std::to_string(head) + ".weight";
    const Result<TensorView> piece = (*checkpoint)->Find(name, shape);
    ASSERT_TRUE(piece.ok()) << piece.status();
    std::vector<float> values(static_cast<size_t>(config.head_dim));
    ConvertToFloat(piece->data.data(), piece->dtype, config.head_dim, values.data());
    expected.insert(expected.end(), values.begin(), values.end());
  }
  EXPECT_EQ(all, expected);
  const std::vector<float> second = load(*GraphOfRank(whole, 2, 1));
  EXPECT_EQ(second,
            std::vector<float>(expected.begin() + std::ssize(expected) / 2, expected.end()));
}

TEST(WeightsTest, AMissingPieceIsNamed) {
  const std::string dir = testing::FamilyOf("stablelm-12b").dir;
  ModelConfig config = *ModelConfig::Load(dir);
  Graph graph = *TraceModel(config);
  for (Op& op : graph.ops) {
    if (op.kind == OpKind::kHeadLayerNorm) op.weights[0].pieces[1] = "norms.9.weight";
  }
  WorkerTeam team(1);
  WeightOptions options;
  options.model_dir = dir;
  const Status status = Weights::Load(graph, config, options, team).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("norms.9.weight"));
}

// What a person who waits reads: bytes as they are loaded, of a number that is known before.
TEST(WeightsTest, ProgressCountsBytesAsTheyAreStored) {
  std::vector<testing::Family> families = testing::QuantizedFamilies();
  std::ranges::copy(testing::Families(), std::back_inserter(families));
  for (const testing::Family& family : families) {
    if (family.exported) continue;
    SCOPED_TRACE(family.name);
    const ModelConfig config = *ModelConfig::Load(family.dir);
    WeightOptions options;
    options.model_dir = family.dir;
    Result<WeightReader> reader = WeightReader::Open(*TraceModel(config), config, options);
    ASSERT_TRUE(reader.ok()) << reader.status();
    const WeightsProgress before = reader->progress();
    EXPECT_EQ(before.loaded_bytes, 0);
    while (*reader->ReadNext([](const FoundWeight&) { return OkStatus(); })) {
      EXPECT_LT(reader->progress().loaded_bytes, before.total_bytes);
    }
    EXPECT_EQ(reader->progress().loaded_bytes, before.total_bytes);
    EXPECT_EQ(reader->size_bytes(), before.total_bytes);
  }
}

// Nodes that share a model may be built by different compilers.
TEST(WeightsTest, DummyWeightsAreTheSameEverywhere) {
  const TinyCheckpoint checkpoint({.dtype = "F32"});
  const ModelConfig config = *ModelConfig::Load(checkpoint.dir());
  WeightOptions options;
  options.load_format = LoadFormat::kDummy;
  options.dummy_seed = 7;
  WorkerTeam team(1);
  const auto weights = Weights::Load(*TraceModel(config), config, options, team);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const Weights::Table& table = (*weights)->Rows(Named("model.embed_tokens.weight"));
  ASSERT_EQ(table.dtype, DType::kF32);
  EXPECT_THAT(std::span(static_cast<const float*>(table.data), 3),
              ElementsAre(FloatEq(0.0035340996f), FloatEq(-0.22883715f), FloatEq(-0.2268135f)));
}

// As in the transformers library: what config.json says decides, even if the file has a head of its
// own.
TEST(WeightsTest, ATiedHeadIgnoresTheHeadInTheFile) {
  const TinyCheckpoint checkpoint({});
  const auto untied = LoadFrom(checkpoint.dir());
  ASSERT_TRUE(untied.ok()) << untied.status();
  Edit(checkpoint.dir() + "/config.json",
       [](nlohmann::json& json) { json["tie_word_embeddings"] = true; });
  const auto tied = LoadFrom(checkpoint.dir());
  ASSERT_TRUE(tied.ok()) << tied.status();
  EXPECT_EQ((*tied)->Matrix(Named("model.embed_tokens.weight")).out_features(), 96);
  EXPECT_EQ((*untied)->Matrix(Named("lm_head.weight")).out_features(), 96);
}

TEST(WeightsTest, EveryDtypeHoldsTheSameModel) {
  const TinyCheckpoint exact({.dtype = "F32"});
  const auto expected = LoadFrom(exact.dir());
  ASSERT_TRUE(expected.ok()) << expected.status();
  const std::vector<float>& norm =
      (*expected)->Vector(Named("model.layers.0.input_layernorm.weight"));
  // The checkpoint writes the nearest lower magnitude: less than one unit of the last place is
  // lost.
  for (const auto& [dtype, error] : {std::pair("F16", 0x1p-10f), std::pair("BF16", 0x1p-7f)}) {
    const TinyCheckpoint rounded({.dtype = dtype});
    const auto weights = LoadFrom(rounded.dir());
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ((*weights)->size_bytes() * 2, (*expected)->size_bytes());
    const std::vector<float>& values =
        (*weights)->Vector(Named("model.layers.0.input_layernorm.weight"));
    ASSERT_EQ(values.size(), norm.size());
    for (size_t i = 0; i < norm.size(); ++i)
      EXPECT_NEAR(values[i], norm[i], error * norm[i]) << dtype;
  }
}

}  // namespace
}  // namespace lamina
