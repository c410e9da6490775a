#include "model/families/registry.h"

#include <utility>

#include "model/families/gemma.h"
#include "model/families/glm4.h"
#include "model/families/gpt_oss.h"
#include "model/families/granite.h"
#include "model/families/llama.h"
#include "model/families/mistral.h"
#include "model/families/nemotron.h"
#include "model/families/olmo2.h"
#include "model/families/opt.h"
#include "model/families/phi3.h"
#include "model/families/qwen.h"
#include "model/families/qwen_moe.h"
#include "model/families/stablelm.h"

namespace lamina {
namespace {

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", ReadLlama, LlamaForward},           //
    {"Qwen2ForCausalLM", ReadQwen2, LlamaForward},           //
    {"MistralForCausalLM", ReadMistral, LlamaForward},       //
    {"Qwen3ForCausalLM", ReadQwen3, LlamaForward},           //
    {"OPTForCausalLM", ReadOpt, OptForward},                 //
    {"Gemma2ForCausalLM", ReadGemma2, GemmaForward},         //
    {"Gemma3ForCausalLM", ReadGemma3, GemmaForward},         //
    {"MixtralForCausalLM", ReadMixtral, MixtralForward},     //
    {"Qwen2MoeForCausalLM", ReadQwen2Moe, QwenMoeForward},   //
    {"Qwen3MoeForCausalLM", ReadQwen3Moe, QwenMoeForward},   //
    {"Phi3ForCausalLM", ReadPhi3, Phi3Forward},              //
    {"Olmo2ForCausalLM", ReadOlmo2, Olmo2Forward},           //
    {"GraniteForCausalLM", ReadGranite, LlamaForward},       //
    {"GlmForCausalLM", ReadGlm, GlmForward},                 //
    {"Glm4ForCausalLM", ReadGlm, Glm4Forward},               //
    {"NemotronForCausalLM", ReadNemotron, NemotronForward},  //
    {"StableLmForCausalLM", ReadStableLm, StableLmForward},  //
    {"GptOssForCausalLM", ReadGptOss, GptOssForward},        //
};

}  // namespace

std::span<const Architecture> Architectures() { return kArchitectures; }

const Architecture* FindArchitecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return nullptr;
}

std::string_view WhyNoForwardCode(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
      {"Llama4ForCausalLM", "its layers attend within chunks"},
      {"Llama4ForConditionalGeneration", "its layers attend within chunks"},
      {"DeepseekV2ForCausalLM", "its attention is over latent vectors"},
      {"DeepseekV3ForCausalLM", "its attention is over latent vectors"},
      {"Gemma3ForConditionalGeneration",
       "it also reads images; its text model can be saved by itself, as Gemma3ForCausalLM"},
  };
  for (const auto& [architecture, reason] : kReasons) {
    if (architecture == name) return reason;
  }
  return "";
}

std::string ArchitectureNames() {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += architecture.name;
  }
  return names;
}

}  // namespace lamina
