// Measured times of a decoder layer's linear and pointwise operators on one device, over the number of rows.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

class LayerProfile {
 public:
  // The model whose layer was measured.
  struct Shape {
    int num_heads = 0;
    int num_kv_heads = 0;
    int hidden_size = 0;
    int intermediate_size = 0;
    bool operator==(const Shape&) const = default;
  };

  // A CSV file with a header and the columns of Vidur's profiles of linear operators (github.com/microsoft/vidur), of which it takes the
  // rows with `tensor_parallel` workers: n_head, n_kv_head, n_embd, n_expanded_embd, num_tokens, num_tensor_parallel_workers, and in
  // milliseconds input_layernorm_ms, attn_pre_proj_ms, attn_rope_ms, attn_post_proj_ms, post_attention_layernorm_ms, mlp_up_proj_ms,
  // mlp_act_ms, mlp_down_proj_ms, add_ms. Of several rows with as many tokens the mean counts. kNotFound: no such file.
  // kInvalidArgument: "FILE:LINE: what is wrong", also if rows differ in their shape or none has that many workers.
  static Result<LayerProfile> Load(const std::string& path, int tensor_parallel);

  const Shape& shape() const { return shape_; }

  // Linear between the points; the first one's below them, in proportion beyond them. REQUIRES: rows > 0.
  double BeforeAttentionSeconds(double rows) const;  // norm, projections to q, k and v, rotation
  double AfterAttentionSeconds(double rows) const;   // output projection, norm, MLP, both additions

 private:
  struct Point {
    double rows = 0;
    double before = 0, after = 0;  // seconds
  };
  double Interpolate(double rows, double Point::*part) const;

  Shape shape_;
  std::vector<Point> points_;  // rows ascending
};

}  // namespace lamina
