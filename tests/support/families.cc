#include "tests/support/families.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"

namespace lamina::testing {
namespace {

constexpr const char* kNames[] = {"llama2",
                                  "llama31",
                                  "qwen2",
                                  "qwen2-window",
                                  "mistral",
                                  "qwen3",
                                  "opt",
                                  "opt-350m",
                                  "gemma2",
                                  "mixtral",
                                  "gptneox",
                                  "phi",
                                  "gpt2",
                                  "cohere",
                                  "phi3-window",
                                  "llama-yarn",
                                  "qwen2-moe",
                                  "qwen3-moe",
                                  "gemma3",
                                  "phi3",
                                  "olmo2",
                                  "granite",
                                  "glm",
                                  "glm4",
                                  "nemotron",
                                  "stablelm",
                                  "stablelm-12b",
                                  "gpt-oss",
                                  "llama4",
                                  "smollm3",
                                  "seed-oss",
                                  "olmo3",
                                  "llama4-images",
                                  "gemma3-images",
                                  "mistral3-images",
                                  "olmoe",
                                  "mixtral-exported",
                                  "qwen2-moe-exported"};

constexpr const char* kQuantizedNames[] = {"ct-w4g32", "ct-w4g32-zero", "ct-w4g32-order", "ct-w8",
                                           "ct-int8",  "ct-fp8",        "fp8-blocks",     "awq",
                                           "gptq",     "gptq-w8",       "mxfp4"};

Family FamilyIn(const std::string& folder, const std::string& name) {
  Family family;
  family.name = name;
  family.dir = SourcePath("/tests/fixtures/") + folder + "/" + name;
  family.exported = std::filesystem::exists(family.dir + "/lamina_graph.json");
  family.golden_file = family.dir + "/golden.json";
  return family;
}

}  // namespace

FamilyGolden Family::Golden() const {
  std::ifstream file(golden_file);
  const auto golden = nlohmann::json::parse(file);
  return {golden["prompt"].get<std::vector<TokenId>>(),
          golden["tokens"].get<std::vector<TokenId>>(),
          golden["logits"].get<std::vector<std::vector<float>>>()};
}

const std::vector<Family>& Families() {
  static const std::vector<Family> families = [] {
    std::vector<Family> all;
    for (const char* name : kNames) all.push_back(FamilyIn("families", name));
    return all;
  }();
  return families;
}

const std::vector<Family>& QuantizedFamilies() {
  static const std::vector<Family> families = [] {
    std::vector<Family> all;
    for (const char* name : kQuantizedNames) all.push_back(FamilyIn("quantized", name));
    return all;
  }();
  return families;
}

const Family& FamilyOf(const std::string& name) {
  const auto family = std::ranges::find(Families(), name, &Family::name);
  if (family != Families().end()) return *family;
  return *std::ranges::find(QuantizedFamilies(), name, &Family::name);
}

void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

std::string TestName(const Family& family) {
  std::string name = family.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace lamina::testing
