// The oracle: a whole LLaMA transformer as simple loops in one file. It shares no code with the
// product (its own reading of config.json and safetensors, its own float conversions), so that an
// error in the one is not also in the other. For tests; speed is not its aim.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lamina {

// Thread: any number may call const members at the same time.
class OracleModel {
 public:
  // DIR/config.json and DIR/model.safetensors (one file). Throws what nlohmann-json and
  // std::vector::at throw if something is wrong with them.
  static OracleModel Load(const std::string& dir);

  // Logits for the token after `ids`. bf16_kv: keys (after the rotation) and values are rounded to
  // bfloat16 before attention reads them. REQUIRES: ids not empty, each within the vocabulary.
  std::vector<float> NextLogits(const std::vector<int>& ids, bool bf16_kv) const;

  // Always the likeliest token, `max_tokens` times or until one of stop_tokens() was chosen (it is
  // the last then).
  struct Step {
    int token = 0;
    double logprob = 0;  // natural log
    // By how much the second-best token was less likely: a small one may turn with rounding.
    double margin = 0;
  };
  std::vector<Step> Greedy(const std::vector<int>& ids, int max_tokens, bool bf16_kv) const;

  // For each token of `continuation`, the natural log-probabilities of all tokens that could stand
  // in its place. REQUIRES: as NextLogits, of both.
  std::vector<std::vector<double>> LogprobsAlong(const std::vector<int>& ids,
                                                 const std::vector<int>& continuation,
                                                 bool bf16_kv) const;

  // Natural log-probabilities.
  static std::vector<double> LogSoftmax(const std::vector<float>& logits);

  // eos_token_id of config.json.
  const std::vector<int>& stop_tokens() const { return stop_tokens_; }
  int vocab_size() const { return vocab_size_; }

 private:
  // Keys and values of the tokens so far: [layer][token][kv_heads * head_dim].
  struct Cache {
    std::vector<std::vector<std::vector<float>>> keys, values;
    bool bf16 = false;
  };

  void ReadConfig(const std::string& path);
  void ReadWeights(const std::string& path);
  Cache MakeCache(bool bf16_kv) const;
  const std::vector<float>& Weight(const std::string& name) const { return weights_.at(name); }

  // Runs one token and returns its final hidden state, before the output norm.
  std::vector<float> Forward(int token, Cache& cache) const;
  std::vector<float> Logits(const std::vector<float>& hidden) const;
  std::vector<float> SelfAttention(int layer, const std::vector<float>& x, Cache& cache) const;
  std::vector<float> Mlp(int layer, const std::vector<float>& x) const;
  std::vector<float> Linear(const std::string& module, const std::vector<float>& x) const;
  std::vector<float> RmsNorm(const std::string& module, const std::vector<float>& x) const;
  void Rotate(std::vector<float>& heads, size_t position) const;

  int vocab_size_ = 0, hidden_size_ = 0, num_layers_ = 0, num_heads_ = 0, num_kv_heads_ = 0,
      head_dim_ = 0;
  double norm_eps_ = 0;
  bool tied_ = false;
  std::vector<double> frequencies_;  // [head_dim / 2]
  std::vector<int> stop_tokens_;
  std::map<std::string, std::vector<float>> weights_;
};

}  // namespace lamina
