#include "tests/support/oracle_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace lamina {
namespace {

using nlohmann::json;

float FromBits(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t Bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// To the nearest of the two neighbouring bfloat16 values; to the one with an even last bit if both
// are as near.
float RoundToBfloat16(float x) {
  const float below = FromBits(Bits(x) & 0xffff0000u);
  const float above = FromBits((Bits(x) & 0xffff0000u) + 0x10000u);
  const double to_below = std::fabs(double{x} - double{below});
  const double to_above = std::fabs(double{above} - double{x});
  if (to_below != to_above) return to_below < to_above ? below : above;
  return (Bits(below) & 0x10000u) == 0 ? below : above;
}

float DecodeHalf(uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10) & 31u);
  const int fraction = static_cast<int>(bits & 1023u);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>((bits >> 15) != 0 ? -magnitude : magnitude);
}

// Little-endian element `i` of a tensor.
float Decode(const std::string& dtype, const std::string& bytes, size_t start, size_t i) {
  const size_t size = dtype == "F32" ? 4 : 2;
  uint32_t bits = 0;
  for (size_t b = 0; b < size; ++b)
    bits |= uint32_t{static_cast<unsigned char>(bytes.at(start + i * size + b))} << (8 * b);
  if (dtype == "F32") return FromBits(bits);
  return dtype == "F16" ? DecodeHalf(bits) : FromBits(bits << 16);
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Eight partial sums, so that the adds do not wait for each other.
float Dot(const float* a, const float* b, size_t n) {
  float sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) sums[i % 8] += a[i] * b[i];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

void AddTo(std::vector<float>& sum, const std::vector<float>& term) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
}

// Rotary frequencies with the scaling of "rope_scaling" or "rope_parameters".
std::vector<double> RotaryFrequencies(const json& config, int head_dim) {
  json rope = json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (config.contains(key) && config[key].is_object()) rope = config[key];
  }
  const double theta = rope.contains("rope_theta") ? rope["rope_theta"].get<double>()
                                                   : config.value("rope_theta", 10000.0);
  const std::string type = rope.contains("rope_type") ? rope["rope_type"].get<std::string>()
                                                      : rope.value("type", "default");
  std::vector<double> frequencies;
  for (int j = 0; j < head_dim / 2; ++j) {
    double f = std::pow(theta, -2.0 * j / head_dim);
    if (type == "linear") f /= rope["factor"].get<double>();
    if (type == "llama3") {
      // Over the original context.
      const double turns =
          rope["original_max_position_embeddings"].get<double>() * f / (2 * std::acos(-1.0));
      const double low = rope["low_freq_factor"].get<double>();
      const double high = rope["high_freq_factor"].get<double>();
      const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      f *= kept + (1 - kept) / rope["factor"].get<double>();
    }
    frequencies.push_back(f);
  }
  return frequencies;
}

}  // namespace

OracleModel OracleModel::Load(const std::string& dir) {
  OracleModel model;
  model.ReadConfig(dir + "/config.json");
  model.ReadWeights(dir + "/model.safetensors");
  return model;
}

void OracleModel::ReadConfig(const std::string& path) {
  const json config = json::parse(ReadAll(path));
  vocab_size_ = config.at("vocab_size").get<int>();
  hidden_size_ = config.at("hidden_size").get<int>();
  num_layers_ = config.at("num_hidden_layers").get<int>();
  num_heads_ = config.at("num_attention_heads").get<int>();
  num_kv_heads_ = config.value("num_key_value_heads", num_heads_);
  head_dim_ = config.contains("head_dim") && !config["head_dim"].is_null()
                  ? config["head_dim"].get<int>()
                  : hidden_size_ / num_heads_;
  norm_eps_ = config.at("rms_norm_eps").get<double>();
  tied_ = config.value("tie_word_embeddings", false);
  frequencies_ = RotaryFrequencies(config, head_dim_);
  if (config.contains("eos_token_id") && config["eos_token_id"].is_number())
    stop_tokens_ = {config["eos_token_id"].get<int>()};
  if (config.contains("eos_token_id") && config["eos_token_id"].is_array())
    stop_tokens_ = config["eos_token_id"].get<std::vector<int>>();
}

void OracleModel::ReadWeights(const std::string& path) {
  const std::string bytes = ReadAll(path);
  size_t header_size = 0;
  for (size_t i = 0; i < 8; ++i)
    header_size |= size_t{static_cast<unsigned char>(bytes.at(i))} << (8 * i);
  const json header = json::parse(bytes.substr(8, header_size));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::string dtype = entry.at("dtype").get<std::string>();
    size_t count = 1;
    for (const json& dimension : entry.at("shape")) count *= dimension.get<size_t>();
    const size_t start = 8 + header_size + entry.at("data_offsets").at(0).get<size_t>();
    std::vector<float>& weight = weights_[name];
    weight.reserve(count);
    for (size_t i = 0; i < count; ++i) weight.push_back(Decode(dtype, bytes, start, i));
  }
}

OracleModel::Cache OracleModel::MakeCache(bool bf16_kv) const {
  Cache cache;
  cache.keys.resize(static_cast<size_t>(num_layers_));
  cache.values.resize(static_cast<size_t>(num_layers_));
  cache.bf16 = bf16_kv;
  return cache;
}

std::vector<float> OracleModel::Linear(const std::string& module,
                                       const std::vector<float>& x) const {
  const std::vector<float>& w = Weight(module + ".weight");
  std::vector<float> y(w.size() / x.size());
  for (size_t o = 0; o < y.size(); ++o) y[o] = Dot(w.data() + o * x.size(), x.data(), x.size());
  const auto bias = weights_.find(module + ".bias");
  if (bias != weights_.end()) AddTo(y, bias->second);
  return y;
}

std::vector<float> OracleModel::RmsNorm(const std::string& module,
                                        const std::vector<float>& x) const {
  double squares = 0;
  for (const float e : x) squares += double{e} * double{e};
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + norm_eps_);
  std::vector<float> y = Weight(module + ".weight");
  for (size_t i = 0; i < x.size(); ++i) y[i] *= static_cast<float>(x[i] * scale);
  return y;
}

void OracleModel::Rotate(std::vector<float>& heads, size_t position) const {
  const size_t half = frequencies_.size();
  for (size_t head = 0; head < heads.size(); head += 2 * half) {
    for (size_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(position) * frequencies_[j];
      const double a = heads[head + j];
      const double b = heads[head + half + j];
      heads[head + j] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
      heads[head + half + j] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
    }
  }
}

std::vector<float> OracleModel::SelfAttention(int layer, const std::vector<float>& x,
                                              Cache& cache) const {
  const std::string at = "model.layers." + std::to_string(layer) + ".self_attn.";
  auto& keys = cache.keys[static_cast<size_t>(layer)];
  auto& values = cache.values[static_cast<size_t>(layer)];
  std::vector<float> q = Linear(at + "q_proj", x);
  std::vector<float> k = Linear(at + "k_proj", x);
  std::vector<float> v = Linear(at + "v_proj", x);
  Rotate(q, keys.size());
  Rotate(k, keys.size());
  if (cache.bf16) {
    std::transform(k.begin(), k.end(), k.begin(), RoundToBfloat16);
    std::transform(v.begin(), v.end(), v.begin(), RoundToBfloat16);
  }
  keys.push_back(std::move(k));
  values.push_back(std::move(v));

  const auto dim = static_cast<size_t>(head_dim_);
  std::vector<float> out(q.size());
  for (size_t head = 0; head < static_cast<size_t>(num_heads_); ++head) {
    const size_t kv_offset = head / static_cast<size_t>(num_heads_ / num_kv_heads_) * dim;
    std::vector<double> weights;
    for (const auto& key : keys)
      weights.push_back(Dot(&q[head * dim], &key[kv_offset], dim) /
                        std::sqrt(static_cast<double>(head_dim_)));
    const double largest = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - largest);
    for (size_t j = 0; j < dim; ++j) {
      double sum = 0;
      for (size_t t = 0; t < values.size(); ++t)
        sum += weights[t] * double{values[t][kv_offset + j]};
      out[head * dim + j] = static_cast<float>(sum / total);
    }
  }
  return Linear(at + "o_proj", out);
}

std::vector<float> OracleModel::Mlp(int layer, const std::vector<float>& x) const {
  const std::string at = "model.layers." + std::to_string(layer) + ".mlp.";
  std::vector<float> h = Linear(at + "gate_proj", x);
  const std::vector<float> up = Linear(at + "up_proj", x);
  for (size_t i = 0; i < h.size(); ++i)
    h[i] = static_cast<float>(h[i] / (1 + std::exp(-double{h[i]}))) * up[i];
  return Linear(at + "down_proj", h);
}

std::vector<float> OracleModel::Forward(int token, Cache& cache) const {
  const std::vector<float>& table = Weight("model.embed_tokens.weight");
  const auto row = table.begin() + std::ptrdiff_t{token} * hidden_size_;
  std::vector<float> x(row, row + hidden_size_);
  for (int layer = 0; layer < num_layers_; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer);
    AddTo(x, SelfAttention(layer, RmsNorm(at + ".input_layernorm", x), cache));
    AddTo(x, Mlp(layer, RmsNorm(at + ".post_attention_layernorm", x)));
  }
  return x;
}

std::vector<float> OracleModel::Logits(const std::vector<float>& hidden) const {
  return Linear(tied_ ? "model.embed_tokens" : "lm_head", RmsNorm("model.norm", hidden));
}

std::vector<float> OracleModel::NextLogits(const std::vector<int>& ids, bool bf16_kv) const {
  Cache cache = MakeCache(bf16_kv);
  std::vector<float> hidden;
  for (const int id : ids) hidden = Forward(id, cache);
  return Logits(hidden);
}

std::vector<OracleModel::Step> OracleModel::Greedy(const std::vector<int>& ids, int max_tokens,
                                                   bool bf16_kv) const {
  Cache cache = MakeCache(bf16_kv);
  std::vector<float> hidden;
  for (const int id : ids) hidden = Forward(id, cache);
  std::vector<Step> steps;
  while (static_cast<int>(steps.size()) < max_tokens) {
    if (!steps.empty()) hidden = Forward(steps.back().token, cache);
    const std::vector<double> logprobs = LogSoftmax(Logits(hidden));
    const auto best = std::max_element(logprobs.begin(), logprobs.end());
    double second = -INFINITY;
    for (auto other = logprobs.begin(); other != logprobs.end(); ++other) {
      if (other != best) second = std::max(second, *other);
    }
    steps.push_back({static_cast<int>(best - logprobs.begin()), *best, *best - second});
    if (std::find(stop_tokens_.begin(), stop_tokens_.end(), steps.back().token) !=
        stop_tokens_.end())
      break;
  }
  return steps;
}

std::vector<std::vector<double>> OracleModel::LogprobsAlong(const std::vector<int>& ids,
                                                            const std::vector<int>& continuation,
                                                            bool bf16_kv) const {
  Cache cache = MakeCache(bf16_kv);
  std::vector<float> hidden;
  for (const int id : ids) hidden = Forward(id, cache);
  std::vector<std::vector<double>> logprobs;
  for (const int token : continuation) {
    logprobs.push_back(LogSoftmax(Logits(hidden)));
    hidden = Forward(token, cache);
  }
  return logprobs;
}

std::vector<double> OracleModel::LogSoftmax(const std::vector<float>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit} - largest);
  std::vector<double> logprobs;
  for (const float logit : logits) logprobs.push_back(double{logit} - largest - std::log(total));
  return logprobs;
}

}  // namespace lamina
