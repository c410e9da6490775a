// Exported programs: what is recognised, and what is refused and how. The fixtures' logits are
// compared in tests/compute_node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/exported/exported_program.h"
#include "model/exported/import.h"
#include "model/model_config.h"
#include "tests/support/families.h"

namespace lamina {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json ReadExport(const std::string& family) {
  std::ifstream file(testing::FamilyOf(family).dir + "/lamina_graph.json");
  return json::parse(file);
}

Result<Graph> Import(const json& file) {
  LAMINA_ASSIGN_OR_RETURN(const ExportedProgram program,
                          ExportedProgram::Parse(file.dump(), "m/lamina_graph.json"));
  return ImportProgram(program);
}

json& NodeOf(json& file, const std::string& op, int skip = 0) {
  for (json& node : file["nodes"]) {
    if (node["op"] == op && skip-- == 0) return node;
  }
  throw std::runtime_error("no " + op);
}

std::vector<Op> OpsOf(const Graph& graph, OpKind kind) {
  std::vector<Op> ops;
  for (const Op& op : graph.ops) {
    if (op.kind == kind) ops.push_back(op);
  }
  return ops;
}

// [heads * (q, k, v) * head_dim] outputs of one matrix become three layers, and a quarter of each
// head is turned.
TEST(Export, FusedProjectionsAreReadInPartsByHead) {
  const Result<Graph> graph = Import(ReadExport("gptneox"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::vector<Op> linears = OpsOf(*graph, OpKind::kLinear);
  ASSERT_EQ(linears.size(), 2u * 6 + 1);
  for (int part = 0; part < 3; ++part) {
    const WeightRef& weight = linears[static_cast<size_t>(part)].weights[0];
    EXPECT_EQ(weight.name, "gpt_neox.layers.0.attention.query_key_value.weight");
    EXPECT_THAT(weight.shape, ElementsAre(32, 32));
    EXPECT_THAT(weight.whole, ElementsAre(96, 32));
    EXPECT_THAT(weight.first, ElementsAre(8 * part, 0));
    EXPECT_EQ(weight.blocks.size, 8);
    EXPECT_EQ(weight.blocks.step, 24);
  }
  const std::vector<Op> ropes = OpsOf(*graph, OpKind::kRope);
  ASSERT_EQ(ropes.size(), 4u);
  EXPECT_EQ(ropes[0].head_dim, 8);
  EXPECT_THAT(ropes[0].inverse_frequencies, ElementsAre(1.0f, 0.01f)) << "10000^(-2 j / 4)";
  EXPECT_FALSE(ropes[0].interleaved);
}

TEST(Export, PatternsBecomeOneOperator) {
  const Result<Graph> phi = Import(ReadExport("phi"));
  ASSERT_TRUE(phi.ok()) << phi.status();
  EXPECT_EQ(OpsOf(*phi, OpKind::kGeluTanh).size(), 2u) << "written out in seven operators";
  const Result<Graph> cohere = Import(ReadExport("cohere"));
  ASSERT_TRUE(cohere.ok()) << cohere.status();
  ASSERT_EQ(OpsOf(*cohere, OpKind::kLayerNorm).size(), 3u) << "likewise";
  EXPECT_EQ(OpsOf(*cohere, OpKind::kLayerNorm)[0].weights.size(), 1u) << "without a bias";
  EXPECT_TRUE(OpsOf(*cohere, OpKind::kRope)[0].interleaved);
  EXPECT_EQ(OpsOf(*cohere, OpKind::kSiluMul).size(), 2u);
  const Result<Graph> phi3 = Import(ReadExport("phi3-window"));
  ASSERT_TRUE(phi3.ok()) << phi3.status();
  EXPECT_EQ(OpsOf(*phi3, OpKind::kRmsNorm).size(), 5u);
  EXPECT_EQ(OpsOf(*phi3, OpKind::kAttention)[0].window, AttentionWindow{12});
  const Result<Graph> gpt2 = Import(ReadExport("gpt2"));
  ASSERT_TRUE(gpt2.ok()) << gpt2.status();
  EXPECT_TRUE(OpsOf(*gpt2, OpKind::kLinear)[0].weights[0].transposed);
  EXPECT_EQ(OpsOf(*gpt2, OpKind::kPositionEmbedding).size(), 1u);
}

TEST(Export, MixturesOfExpertsAreOneOperator) {
  const Result<Graph> olmoe = Import(ReadExport("olmoe"));
  ASSERT_TRUE(olmoe.ok()) << olmoe.status();
  const std::vector<Op> experts = OpsOf(*olmoe, OpKind::kExperts);
  ASSERT_EQ(experts.size(), 2u);
  EXPECT_EQ(experts[1].num_experts, 8);
  EXPECT_EQ(experts[1].experts_per_token, 3);
  EXPECT_EQ(experts[1].routing, ExpertRouting::kSoftmaxOverAll);
  ASSERT_EQ(experts[1].weights.size(), 24u);
  EXPECT_EQ(experts[1].weights[3].name, "model.layers.1.mlp.experts.1.gate_proj.weight");
  EXPECT_EQ(experts[1].weights[4].name, "model.layers.1.mlp.experts.1.up_proj.weight");
  EXPECT_EQ(experts[1].weights[5].name, "model.layers.1.mlp.experts.1.down_proj.weight");
  EXPECT_THAT(experts[1].weights[5].shape, ElementsAre(32, 24));
  const Result<Graph> mixtral = Import(ReadExport("mixtral-exported"));
  ASSERT_TRUE(mixtral.ok()) << mixtral.status();
  const Op first = OpsOf(*mixtral, OpKind::kExperts).at(0);
  EXPECT_EQ(first.routing, ExpertRouting::kSoftmax) << "divided by their sum";
  EXPECT_EQ(first.weights[1].name, "model.layers.0.block_sparse_moe.experts.0.w3.weight");
  const Result<Graph> qwen = Import(ReadExport("qwen2-moe-exported"));
  ASSERT_TRUE(qwen.ok()) << qwen.status();
  EXPECT_EQ(OpsOf(*qwen, OpKind::kExperts).size(), 2u) << "one of three layers has none";
  EXPECT_EQ(OpsOf(*qwen, OpKind::kSigmoidGate).size(), 2u);
}

TEST(Export, TheConfigIsReadFromTheGraph) {
  const Result<ModelConfig> config = ModelConfig::Load(testing::FamilyOf("phi").dir);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "PhiForCausalLM");
  EXPECT_EQ(config->vocab_size, 128);
  EXPECT_EQ(config->hidden_size, 32);
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2)
      << "keys and values are copied for the query heads in the export";
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->max_positions, 256);
  EXPECT_NEAR(config->AttentionScale(), 1 / std::sqrt(8.0), 1e-7);
}

std::string RefusalOf(const json& file) {
  const Result<Graph> graph = Import(file);
  return graph.ok() ? "taken" : graph.status().message();
}

TEST(Export, WhatCannotBeMappedIsNamedWithItsLine) {
  json unknown = ReadExport("phi");
  NodeOf(unknown, "aten.tanh.default")["op"] = "aten.erfinv.default";
  NodeOf(unknown, "aten.erfinv.default")["source"] = "modeling_phi.py:10: x = erfinv(x)";
  EXPECT_THAT(RefusalOf(unknown), AllOf(HasSubstr("m/lamina_graph.json: aten.erfinv.default (node "
                                                  "tanh) cannot be mapped: lamina has nothing"),
                                        HasSubstr("; modeling_phi.py:10: x = erfinv(x)")));

  json half = ReadExport("phi");  // of a GELU: the tanh is left over
  NodeOf(half, "aten.pow.Tensor_Scalar")["args"]["exponent"] = 4.0;
  EXPECT_THAT(RefusalOf(half),
              AllOf(HasSubstr("cannot be mapped: "), HasSubstr("; activations.py")));

  json later = ReadExport("phi");
  for (auto& [name, constant] : later["constants"].items()) {
    if (constant.contains("sees")) constant["sees"][3] = {0, 9};
  }
  EXPECT_THAT(RefusalOf(later), HasSubstr("a mask that is not causal"));

  json holes = ReadExport("phi");
  for (auto& [name, constant] : holes["constants"].items()) {
    if (constant.contains("sees")) constant["sees"][7] = {5, 8};
  }
  EXPECT_THAT(RefusalOf(holes), HasSubstr("no window"));

  json all = ReadExport("phi");
  NodeOf(all, "aten.scaled_dot_product_attention.default")["args"]["attn_mask"] = nullptr;
  EXPECT_THAT(RefusalOf(all), HasSubstr("attention to later tokens"));

  json dropout = ReadExport("phi");
  NodeOf(dropout, "aten.scaled_dot_product_attention.default")["args"]["dropout_p"] = 0.1;
  EXPECT_THAT(RefusalOf(dropout), HasSubstr("dropout"));

  json sign = ReadExport("phi");  // the rotation's other direction
  json& neg = NodeOf(sign, "aten.neg.default");
  neg["op"] = "aten.silu.default";
  EXPECT_THAT(RefusalOf(sign), HasSubstr("not the two halves"));

  json angles = ReadExport("phi");
  NodeOf(angles, "aten.sin.default")["op"] = "aten.cos.default";
  EXPECT_THAT(RefusalOf(angles), HasSubstr("no part of a rotation"));
}

TEST(Export, RoutersAndExpertsThatAreOthersAreRefused) {
  const auto refusal = [](const std::string& family, const auto& change) {
    json file = ReadExport(family);
    change(file);
    return RefusalOf(file);
  };
  const std::string kExperts = "lamina.experts.default";
  EXPECT_THAT(
      refusal("olmoe", [](json& f) { NodeOf(f, "aten.topk.default")["args"]["largest"] = false; }),
      HasSubstr("it takes the smallest elements"));
  for (const int64_t k : {int64_t{0}, int64_t{-1}, int64_t{9}, int64_t{1} << 40}) {
    EXPECT_THAT(refusal("olmoe", [&](json& f) { NodeOf(f, "aten.topk.default")["args"]["k"] = k; }),
                HasSubstr("more than there are"));
  }
  EXPECT_THAT(refusal("olmoe", [](json& f) { NodeOf(f, "aten.softmax.int")["args"]["dim"] = 0; }),
              HasSubstr("the whole row of a token"));
  // What is chosen and what it counts have to be of the same router.
  EXPECT_THAT(refusal("olmoe",
                      [&](json& f) {
                        json& args = NodeOf(f, kExperts, 1)["args"];
                        args["index"] = NodeOf(f, kExperts)["args"]["index"];
                      }),
              HasSubstr("its router is none"));
  EXPECT_THAT(refusal("olmoe",
                      [](json& f) {
                        json& softmax = NodeOf(f, "aten.softmax.int");
                        softmax["op"] = "aten.sigmoid.default";
                      }),
              HasSubstr("its router is none"));
  EXPECT_THAT(refusal("mixtral-exported",
                      [](json& f) { NodeOf(f, "aten.div.Tensor")["args"]["other"] = 2.0; }),
              HasSubstr("its router is none"));
  EXPECT_THAT(refusal("mixtral-exported",
                      [](json& f) {
                        json& args = NodeOf(f, "aten.div.Tensor")["args"];
                        args["other"] = args["self"];
                      }),
              HasSubstr("the sum of what a router chose"));
  EXPECT_THAT(refusal("olmoe", [&](json& f) { NodeOf(f, kExperts)["args"]["up"].erase(3); }),
              HasSubstr("one matrix for each logit"));
  EXPECT_THAT(refusal("olmoe", [&](json& f) { NodeOf(f, kExperts)["args"]["up"] = json::array(); }),
              HasSubstr("one matrix for each logit"));
  EXPECT_THAT(refusal("olmoe",
                      [&](json& f) {
                        json& args = NodeOf(f, kExperts)["args"];
                        std::swap(args["gate"][2], args["down"][2]);
                      }),
              HasSubstr("do not fit each other"));
  EXPECT_THAT(refusal("olmoe",
                      [&](json& f) {
                        json& args = NodeOf(f, kExperts)["args"];
                        args["gate"][2] = args["self"];
                      }),
              HasSubstr("no weights as they stand"));
  EXPECT_THAT(refusal("olmoe", [&](json& f) { NodeOf(f, kExperts)["args"].erase("scores"); }),
              HasSubstr("\"scores\""));
  // A router whose experts are left out.
  EXPECT_THAT(refusal("olmoe",
                      [&](json& f) {
                        json& experts = NodeOf(f, kExperts);
                        experts["op"] = "aten.softmax.int";
                        experts["args"] = {{"self", experts["args"]["self"]}, {"dim", -1}};
                      }),
              HasSubstr("a part of a router without its experts"));
}

json OperatorNode(const std::string& name, const std::string& op, json args,
                  const std::vector<int64_t>& shape) {
  return {{"name", name}, {"op", op}, {"args", std::move(args)}, {"shape", shape}};
}

json Named(const std::string& name) { return {{"node", name}}; }

// Puts `node` in front of the first node of `op`, which then reads it as `argument`.
void ReadInstead(json& file, const std::string& op, const std::string& argument, const json& node) {
  NodeOf(file, op)["args"][argument] = Named(node["name"]);
  json& nodes = file["nodes"];
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i]["op"] != op) continue;
    nodes.insert(nodes.begin() + static_cast<json::difference_type>(i), node);
    return;
  }
}

// A weight is read as it stands in the checkpoint, or not at all.
TEST(Export, ViewsOfWeightsAreRefused) {
  const auto slice = [](const std::string& of, int64_t first, int64_t end,
                        const std::vector<int64_t>& shape) {
    return OperatorNode(
        "part", "aten.slice.Tensor",
        {{"self", Named(of)}, {"dim", 0}, {"start", first}, {"end", end}, {"step", 1}}, shape);
  };
  json bias = ReadExport("phi");
  ReadInstead(bias, "aten.linear.default", "bias",
              slice("p_model_model_layers_0_mlp_fc1_bias", 0, 32, {32}));
  EXPECT_THAT(RefusalOf(bias), HasSubstr("its bias is no weight as it stands"));

  json short_bias = ReadExport("phi");
  NodeOf(short_bias, "aten.linear.default")["args"]["bias"] =
      Named("p_model_model_layers_0_self_attn_k_proj_bias");
  EXPECT_THAT(RefusalOf(short_bias), HasSubstr("its bias has not one element for each output"));

  json table = ReadExport("gpt2");
  ReadInstead(table, "aten.embedding.default", "weight",
              slice("p_model_lm_head_weight", 1, 128, {127, 32}));
  EXPECT_THAT(RefusalOf(table), HasSubstr("its table is no weight as it stands"));

  json norm = ReadExport("phi");
  ReadInstead(norm, "aten.layer_norm.default", "weight",
              slice("p_model_model_layers_0_mlp_fc1_bias", 32, 64, {32}));
  EXPECT_THAT(RefusalOf(norm), HasSubstr("its weight or bias is no weight as it stands"));
}

// As many tokens as a row has elements: the shapes fit, the meaning does not.
TEST(Export, MixingTokensIsRefused) {
  const auto turned = [](const std::string& of) {
    return OperatorNode("turned", "aten.transpose.int",
                        {{"self", Named(of)}, {"dim0", 1}, {"dim1", 2}}, {1, 32, 32});
  };
  json linear = ReadExport("phi");
  ReadInstead(linear, "aten.linear.default", "input", turned("layer_norm"));
  EXPECT_THAT(RefusalOf(linear), HasSubstr("not a row per token of 32 elements"));
  json norm = ReadExport("phi");
  ReadInstead(norm, "aten.layer_norm.default", "input", turned("embedding"));
  EXPECT_THAT(RefusalOf(norm), HasSubstr("something else than a row or its heads"));
}

TEST(Export, ViewsOfConstantsAreRefused) {
  json mask = ReadExport("gpt2");
  const std::string name =
      NodeOf(mask, "aten.scaled_dot_product_attention.default")["args"]["attn_mask"]["node"];
  ReadInstead(mask, "aten.scaled_dot_product_attention.default", "attn_mask",
              OperatorNode("turned", "aten.transpose.int",
                           {{"self", Named(name)}, {"dim0", 2}, {"dim1", 3}},
                           mask["constants"][name]["shape"].get<std::vector<int64_t>>()));
  EXPECT_THAT(RefusalOf(mask), HasSubstr("a mask that is no constant"));
}

// A matrix that is read both ways, and a norm's weight with and without 1 added, are two weights
// each.
TEST(Export, OneTensorReadInTwoWaysIsTwoWeights) {
  json both = ReadExport("gpt2");
  // The second layer's c_proj, of [32, 32] like the first one's.
  json& second = NodeOf(both, "aten.addmm.default", 5);
  ASSERT_EQ(second["args"]["mat2"], Named("p_model_transformer_h_1_attn_c_proj_weight"));
  second["op"] = "aten.linear.default";
  second["args"] = {{"input", second["args"]["mat1"]},
                    {"weight", Named("p_model_transformer_h_0_attn_c_proj_weight")},
                    {"bias", nullptr}};
  const Result<Graph> graph = Import(both);
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<std::string> ids;
  for (const Op& op : OpsOf(*graph, OpKind::kLinear)) {
    if (op.weights[0].name == "h.0.attn.c_proj.weight") ids.push_back(op.weights[0].id());
  }
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_NE(ids[0], ids[1]);

  json plus = ReadExport("phi3-window");
  const std::string weight = "p_model_model_layers_0_input_layernorm_weight";
  size_t at = 0;
  for (size_t i = 0; i < plus["nodes"].size(); ++i) {
    if (plus["nodes"][i]["args"].value("self", json()) == Named("p_model_model_norm_weight"))
      at = i;
  }
  ASSERT_GT(at, 0u);
  plus["nodes"][at]["args"]["self"] = Named("more");
  plus["nodes"].insert(plus["nodes"].begin() + static_cast<json::difference_type>(at),
                       OperatorNode("more", "aten.add.Tensor",
                                    {{"self", Named(weight)}, {"other", 1.0}, {"alpha", 1}}, {32}));
  const Result<Graph> with_plus = Import(plus);
  ASSERT_TRUE(with_plus.ok()) << with_plus.status();
  const std::vector<Op> norms = OpsOf(*with_plus, OpKind::kRmsNorm);
  ASSERT_EQ(norms.size(), 5u);
  EXPECT_EQ(norms[0].weights[0].name, norms[4].weights[0].name);
  EXPECT_EQ(norms[4].weights[0].plus, 1);
  EXPECT_NE(norms[0].weights[0].id(), norms[4].weights[0].id());
}

TEST(Export, BrokenFilesAreNamedInASentence) {
  const json good = ReadExport("gpt2");
  const auto expect = [&](const char* what, auto&& change, const char* says) {
    json file = good;
    change(file);
    const std::string message = RefusalOf(file);
    EXPECT_THAT(message, AllOf(HasSubstr("m/lamina_graph.json"), HasSubstr(says))) << what;
    EXPECT_EQ(message.find('\n'), std::string::npos) << what;
  };
  expect(
      "format", [](json& f) { f["format"] = "onnx"; }, "not a file of format");
  expect(
      "version", [](json& f) { f["version"] = 2; }, "not a file of format");
  expect(
      "rows", [](json& f) { f["rows"] = 0; }, "\"rows\"");
  expect(
      "nodes", [](json& f) { f.erase("nodes"); }, "\"nodes\" must be a list");
  expect(
      "logits", [](json& f) { f["logits"] = "nobody"; }, "\"logits\" must name one of the nodes");
  expect(
      "a cycle",
      [](json& f) {
        f["nodes"][0]["args"]["indices"] = {{"node", f["nodes"][5]["name"]}};
      },
      "does not stand before it");
  expect(
      "itself",
      [](json& f) {
        f["nodes"][3]["args"]["self"] = {{"node", f["nodes"][3]["name"]}};
      },
      "does not stand before it");
  expect(
      "twice", [](json& f) { f["nodes"].push_back(f["nodes"][0]); }, "there are two nodes");
  expect(
      "a shape that overflows",
      [](json& f) {
        f["weights"].front()["shape"] = {int64_t{1} << 40, int64_t{1} << 40};
      },
      "has no \"shape\"");
  expect(
      "a negative size",
      [](json& f) {
        f["nodes"][0]["shape"] = {1, -5, 32};
      },
      "a \"shape\" that cannot be");
  expect(
      "another shape",
      [](json& f) {
        f["nodes"][0]["shape"] = {1, 32, 33};
      },
      "its shape should be");
  expect(
      "no arguments", [](json& f) { NodeOf(f, "aten.addmm.default")["args"] = json::object(); },
      "its argument");
  expect(
      "a wrong type", [](json& f) { NodeOf(f, "aten.split.Tensor")["args"]["dim"] = "two"; },
      "\"dim\" is not an integer");
  expect(
      "nested", [](json& f) { f["nodes"][0]["args"]["x"] = json::parse("[[[[[[[[1]]]]]]]]"); },
      "nested too deep");
  expect(
      "no parts", [](json& f) { NodeOf(f, "aten.split.Tensor")["args"]["split_size"] = 0; },
      "split_size");
  expect(
      "many parts",
      [](json& f) {
        json& split = NodeOf(f, "aten.split.Tensor");
        split["op"] = "aten.split_with_sizes.default";
        split["args"] = {{"self", split["args"]["self"]},
                         {"dim", 2},
                         {"split_sizes", std::vector<int>(20000, 0)}};
      },
      "more than 1024 parts");
  expect(
      "a scale",
      [](json& f) {
        NodeOf(f, "aten.scaled_dot_product_attention.default")["args"]["scale"] = -0.2;
      },
      "a scale of scores");
  expect(
      "an empty mean",
      [](json& f) {
        f["nodes"].push_back(OperatorNode(
            "none", "aten.slice.Tensor",
            {{"self", Named("embedding")}, {"dim", 2}, {"start", 5}, {"end", 5}, {"step", 1}},
            {1, 32, 0}));
        f["nodes"].push_back(
            OperatorNode("mean", "aten.mean.dim",
                         {{"self", Named("none")}, {"dim", {-1}}, {"keepdim", true}}, {1, 32, 1}));
      },
      "a mean over anything but");
  expect(
      "positions", [](json& f) { f["max_positions"] = 1 << 20; }, "no row for each");
}

TEST(Export, DeepNestingIsRefusedBeforeAnythingRecurses) {
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  for (const std::string& text :
       {R"({"rows": )" + deep + "}", R"({"nodes": [{"args": {"x": )" + deep + "}}]}"}) {
    const Result<ExportedProgram> program = ExportedProgram::Parse(text, "m.json");
    ASSERT_FALSE(program.ok());
    EXPECT_THAT(program.status().message(), HasSubstr("m.json is nested more than 100 deep"));
  }
}

// Every node in turn reads every other value that stands before it: something comes out or a
// sentence does.
TEST(Export, MixedUpProgramsNeverCrash) {
  for (const char* family : {"gptneox", "cohere"}) {
    const json good = ReadExport(family);
    int taken = 0, refused = 0;
    for (size_t i = 1; i < good["nodes"].size(); i += 3) {
      for (size_t j = 0; j < i; j += 5) {
        json file = good;
        for (json& argument : file["nodes"][i]["args"]) {
          if (argument.is_object()) argument["node"] = good["nodes"][j]["name"];
        }
        (Import(file).ok() ? taken : refused) += 1;
      }
    }
    EXPECT_GT(refused, taken);
  }
}

}  // namespace
}  // namespace lamina
