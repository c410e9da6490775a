#include "model/families/registry.h"

#include <utility>

#include "model/families/gemma.h"
#include "model/families/glm4.h"
#include "model/families/gpt_oss.h"
#include "model/families/granite.h"
#include "model/families/llama.h"
#include "model/families/llama4.h"
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

// What transformers takes for the keys that a text_config lacks, where families have no such
// default by themselves.
constexpr std::string_view kGemma3Text = R"({
  "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256,
  "sliding_window": 4096, "rope_theta": 1e6, "rope_local_base_freq": 1e4})";
constexpr std::string_view kLlama4Text = R"({
  "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "num_hidden_layers": 48,
  "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
  "num_local_experts": 16, "num_experts_per_tok": 1})";
constexpr std::string_view kMistralText = R"({
  "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
  "rms_norm_eps": 1e-6, "rope_theta": 1e4})";

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
    {"Llama4ForCausalLM", ReadLlama4, Llama4Forward},        //
    {"SmolLM3ForCausalLM", ReadSmolLm3, LlamaForward},       //
    {"SeedOssForCausalLM", ReadSeedOss, LlamaForward},       //
    {"Olmo3ForCausalLM", ReadOlmo3, Olmo2Forward},           //
    {"Gemma3ForConditionalGeneration", ReadGemma3, GemmaForward, kGemma3Text},
    {"Llama4ForConditionalGeneration", ReadLlama4, Llama4Forward, kLlama4Text},
    {"Mistral3ForConditionalGeneration", ReadMistral, LlamaForward, kMistralText},
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
      {"DeepseekV2ForCausalLM", "its attention is over latent vectors"},
      {"DeepseekV3ForCausalLM", "its attention is over latent vectors"},
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
