#include "tests/support/gguf_models.h"

#include <boost/crc.hpp>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/dtype.h"
#include "base/text_file.h"
#include "compute_node/safetensors.h"
#include "tests/support/ggml_quantize.h"
#include "tests/support/temporary_folder.h"
#include "text/sentencepiece_model.h"

namespace lamina::testing {
namespace {

constexpr int kHeads = 8, kKvHeads = 4;

const nlohmann::json& GoldenFile() {
  static const nlohmann::json file = [] {
    std::ifstream in(GgufFixture("tiny_stories.json"));
    return nlohmann::json::parse(in);
  }();
  return file;
}

std::string NameInGguf(const std::string& name) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  static const std::map<std::string, std::string> modules = {
      {"input_layernorm", "attn_norm"}, {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},   {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},   {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},    {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  const std::string in_layers =
      name.substr(std::strlen("model.layers."));  // "0.mlp.up_proj.weight"
  const size_t behind = in_layers.find('.') + 1, kind = in_layers.rfind('.');
  return "blk." + in_layers.substr(0, behind) +
         modules.at(in_layers.substr(behind, kind - behind)) + in_layers.substr(kind);
}

// As converters do with q and k of a llama: row i of a head's second half goes behind row i of its
// first.
std::vector<float> Interleave(const std::vector<float>& rows, size_t width, int heads) {
  const size_t head_dim = rows.size() / width / static_cast<size_t>(heads);
  std::vector<float> out;
  for (size_t head = 0; head < static_cast<size_t>(heads); ++head) {
    for (size_t i = 0; i < head_dim / 2; ++i) {
      for (const size_t row : {head * head_dim + i, head * head_dim + head_dim / 2 + i}) {
        const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row * width);
        out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
      }
    }
  }
  return out;
}

std::vector<float> Floats(const TensorView& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(BF16));
  for (size_t i = 0; i < values.size(); ++i) {
    BF16 value;
    std::memcpy(&value, tensor.data.data() + i * sizeof(value), sizeof(value));
    values[i] = ToFloat(value);
  }
  return values;
}

uint32_t Crc32(const std::string& bytes) {
  boost::crc_32_type crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

}  // namespace

std::string GgufFixture(const std::string& name) {
  return SourcePath("/tests/fixtures/gguf/") + name;
}

std::vector<Family> GgufFamilies() {
  std::vector<Family> families;
  for (const char* name :
       {"llama31", "mixtral", "qwen2", "qwen3", "qwen2-moe", "qwen3-moe", "gemma2", "gemma3",
        "phi3", "olmo2", "granite", "smollm3", "gpt-oss", "mxfp4"}) {
    families.push_back(FamilyOf(name));
    families.back().dir = GgufFixture(name) + ".gguf";
  }
  return families;
}

const std::vector<GgufGolden>& GgufGoldens() {
  static const std::vector<GgufGolden> all = [] {
    std::vector<GgufGolden> goldens;
    for (const auto& [format, golden] : GoldenFile().items()) {
      GgufGolden read{format, {}, golden["first_logits"].get<std::vector<float>>()};
      for (const auto& prompt : golden["prompts"]) {
        const auto tokens = prompt["continuation_ids"].get<std::vector<TokenId>>();
        read.prompts.push_back({"", prompt["prompt_ids"], tokens, prompt["logprobs"], "",
                                tokens.back() == 2 ? "stop" : "length"});
      }
      goldens.push_back(std::move(read));
    }
    return goldens;
  }();
  return all;
}

GgufWriter TinyStoriesKeys() {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddString("general.name", "tiny-stories");
  for (const auto& [key, value] : std::map<std::string, uint32_t>{{"context_length", 1024},
                                                                  {"embedding_length", 256},
                                                                  {"block_count", 4},
                                                                  {"feed_forward_length", 640},
                                                                  {"rope.dimension_count", 32},
                                                                  {"attention.head_count", 8},
                                                                  {"attention.head_count_kv", 4}})
    writer.AddUint32("llama." + key, value);
  writer.AddFloat("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddFloat("llama.rope.freq_base", 10000);
  const SentencePieceModel model =
      *SentencePieceModel::Parse(*ReadTextFile(TinyStoriesDir() + "/tokenizer.model"));
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    tokens.push_back(piece.text);
    scores.push_back(piece.score);
    types.push_back(static_cast<int32_t>(piece.type));
  }
  writer.AddString("tokenizer.ggml.model", "llama");
  writer.AddStrings("tokenizer.ggml.tokens", tokens);
  writer.AddFloats("tokenizer.ggml.scores", scores);
  writer.AddInts("tokenizer.ggml.token_type", types);
  writer.AddUint32("tokenizer.ggml.bos_token_id", 1);
  writer.AddUint32("tokenizer.ggml.eos_token_id", 2);
  writer.AddUint32("tokenizer.ggml.unknown_token_id", 0);
  writer.AddBool("tokenizer.ggml.add_bos_token", true);
  writer.AddString("tokenizer.chat_template",
                   "{% for message in messages %}{{ message['content'] }}{% endfor %}");
  return writer;
}

void AddTinyStoriesTensors(const std::string& format, GgufWriter& writer,
                           const std::function<bool(const std::string& name)>& wanted) {
  const auto file = SafetensorsFile::Open(TinyStoriesDir() + "/model.safetensors").value();
  const nlohmann::json& golden = GoldenFile().at(format);
  for (const SafetensorsEntry& entry : file->entries()) {
    const std::string name = NameInGguf(entry.name);
    if (!wanted(name)) continue;
    std::vector<float> values = Floats(*file->Find(entry.name));
    const auto width = static_cast<size_t>(entry.shape.back());
    if (name.find("attn_q.") != std::string::npos) values = Interleave(values, width, kHeads);
    if (name.find("attn_k.") != std::string::npos) values = Interleave(values, width, kKvHeads);
    const auto type = golden["types"][name].get<std::string>();
    std::string data = QuantizeGgml(type, values);
    if (Crc32(data) != golden["crc32"][name].get<uint32_t>())
      throw std::runtime_error(name + " as " + type + " has other bytes than in make_gguf.py");
    writer.AddTensor(name, entry.shape, GgmlNumber(type), std::move(data));
  }
}

void WriteTinyStories(const std::string& format, const std::string& path) {
  GgufWriter writer = TinyStoriesKeys();
  AddTinyStoriesTensors(format, writer);
  WriteFile(path, writer.File());
}

}  // namespace lamina::testing
