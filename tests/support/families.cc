#include "tests/support/families.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"

namespace lamina::testing {
namespace {

constexpr const char* kNames[] = {
    "llama2",      "llama31",    "qwen2",     "qwen2-window", "mistral",  "qwen3",       "opt",
    "opt-350m",    "gemma2",     "mixtral",   "gptneox",      "phi",      "gpt2",        "cohere",
    "phi3-window", "llama-yarn", "qwen2-moe", "qwen3-moe",    "gemma3",   "phi3",        "olmo2",
    "granite",     "glm",        "glm4",      "nemotron",     "stablelm", "stablelm-12b"};

constexpr const char* kQuantizedNames[] = {"ct-w4g32", "ct-w4g32-zero", "ct-w4g32-order", "ct-w8",
                                           "ct-int8",  "ct-fp8",        "fp8-blocks",     "awq",
                                           "gptq",     "gptq-w8"};

Family Read(const std::string& folder, const std::string& name) {
  Family family;
  family.name = name;
  family.dir = SourcePath("/tests/fixtures/") + folder + "/" + name;
  family.exported = std::filesystem::exists(family.dir + "/lamina_graph.json");
  std::ifstream file(family.dir + "/golden.json");
  const auto golden = nlohmann::json::parse(file);
  family.prompt = golden["prompt"].get<std::vector<TokenId>>();
  family.tokens = golden["tokens"].get<std::vector<TokenId>>();
  family.logits = golden["logits"].get<std::vector<std::vector<float>>>();
  return family;
}

}  // namespace

const std::vector<Family>& Families() {
  static const std::vector<Family> families = [] {
    std::vector<Family> all;
    for (const char* name : kNames) all.push_back(Read("families", name));
    return all;
  }();
  return families;
}

const std::vector<Family>& QuantizedFamilies() {
  static const std::vector<Family> families = [] {
    std::vector<Family> all;
    for (const char* name : kQuantizedNames) all.push_back(Read("quantized", name));
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
