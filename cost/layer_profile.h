// Measured times of a decoder layer's linear and pointwise operators on one device, over the number
// of rows; and what follows from them for a layer that was not measured.
#pragma once

#include <map>

#include <span>
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

  // A CSV file with a header and the columns of Vidur's profiles of linear operators
  // (github.com/microsoft/vidur), of which it takes the rows with `tensor_parallel` workers:
  // n_head, n_kv_head, n_embd, n_expanded_embd, num_tokens, num_tensor_parallel_workers, and in
  // milliseconds input_layernorm_ms, attn_pre_proj_ms, attn_rope_ms, attn_post_proj_ms,
  // post_attention_layernorm_ms, mlp_up_proj_ms, mlp_act_ms, mlp_down_proj_ms, add_ms. Of several
  // rows with as many tokens the mean counts. kNotFound: no such file. kInvalidArgument:
  // "FILE:LINE: what is wrong", also if rows differ in their shape, it or a count is 0, or none has
  // that many workers.
  static Result<LayerProfile> Load(const std::string& path, int tensor_parallel);

  // The times of a layer that nobody measured, split among `workers`, from profiles of other layers
  // on the same kind of device, whose peak FLOP/s and bytes/s are given. At each number of rows a
  // matrix product takes `slowness(inputs, outputs)` times the sum of its operations at the peak
  // and its bytes at that bandwidth; the logarithm of the slowness is a plane over the logarithms
  // of inputs and outputs, fitted by least squares to all matrices of all profiles and numbers of
  // workers, near ones weighing more. Pointwise operators are linear in their width. On A100s and
  // H100s a layer predicted from two others is off by 1 to 8 % on average, by 11 % where its
  // matrices are smaller than all that were measured (`lamina bench paper-tables`).
  // kInvalidArgument: no number of rows was measured for enough different matrices.
  static Result<LayerProfile> Predict(std::span<const LayerProfile* const> measured,
                                      const Shape& shape, int workers, double peak_flops_per_s,
                                      double bytes_per_s);

  // The same file's times with so many workers. kInvalidArgument: it has none.
  Result<LayerProfile> WithWorkers(int workers) const;

  const Shape& shape() const { return shape_; }
  int workers() const { return workers_; }
  std::vector<double> rows() const;  // that were measured, ascending

  // Linear between the points; the first one's below them, in proportion beyond them. REQUIRES:
  // rows > 0.
  double BeforeAttentionSeconds(double rows) const;  // norm, projections to q, k and v, rotation
  double AfterAttentionSeconds(double rows) const;   // output projection, norm, MLP, both additions

 private:
  struct Point {
    double rows = 0;
    double before = 0, after = 0;  // seconds
  };
  // Of one worker, in seconds.
  struct Operators {
    // Matrix products; up: with the gate, if there is one.
    double qkv = 0, output = 0, up = 0, down = 0;
    // Add: one of the two.
    double first_norm = 0, second_norm = 0, rotation = 0, activation = 0, add = 0;
    // So many with it.
    void AddToMean(const Operators& other, int count);
  };
  static constexpr double Operators::*kAllOperators[] = {
      &Operators::qkv,      &Operators::output,     &Operators::up,
      &Operators::down,     &Operators::first_norm, &Operators::second_norm,
      &Operators::rotation, &Operators::activation, &Operators::add};
  using ByRows = std::map<int, Operators>;

  // A matrix product of one operator: inputs x outputs elements, of one worker.
  struct Matrix {
    double inputs = 0, outputs = 0;
    double Operators::*time = nullptr;
  };
  // A pointwise operator over so many elements of a row.
  struct Pointwise {
    double width = 0;
    double Operators::*time = nullptr;
  };
  static Point PointOf(int rows, const Operators& times);
  static std::vector<Matrix> MatricesOf(const Shape& shape, int workers);
  static std::vector<Pointwise> PointwiseOf(const Shape& shape, int workers);

  Status UseWorkers(int workers);  // makes points_
  double Interpolate(double rows, double Point::*part) const;

  Shape shape_;
  std::string path_;
  int workers_ = 1;
  std::vector<Point> points_;         // rows ascending
  std::map<int, ByRows> by_workers_;  // all that was measured; empty: predicted
};

}  // namespace lamina
