// Measured times of a decoder layer's linear and pointwise operators on one device, by the number
// of rows, and a prediction from them for layers that were not measured.
#pragma once

#include <map>

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// Value type; holds all measurements of its file.
class LayerProfile {
 public:
  // Shape of the model whose layer was measured.
  struct Shape {
    int num_heads = 0;
    int num_kv_heads = 0;
    int hidden_size = 0;
    int intermediate_size = 0;
    bool operator==(const Shape&) const = default;
  };

  // Reads a CSV file with a header and the columns of Vidur's profiles of linear operators
  // (github.com/microsoft/vidur), and uses its rows with `tensor_parallel` workers. Columns:
  // n_head, n_kv_head, n_embd, n_expanded_embd, num_tokens, num_tensor_parallel_workers, and in
  // milliseconds input_layernorm_ms, attn_pre_proj_ms, attn_rope_ms, attn_post_proj_ms,
  // post_attention_layernorm_ms, mlp_up_proj_ms, mlp_act_ms, mlp_down_proj_ms, add_ms. If several
  // rows have the same number of tokens and workers, their mean is used. kNotFound if the file does
  // not exist. kInvalidArgument "FILE:LINE: what is wrong" if a column is missing or a cell
  // malformed, shapes differ, or a shape or count is 0; and if no row has that many workers.
  static Result<LayerProfile> Load(const std::string& path, int tensor_parallel);

  // Predicts the times of a layer that was not measured, split among `workers`, from profiles of
  // other layers on the same kind of device, whose peak FLOP/s and bytes/s are given.
  //
  // At each number of rows a matrix product takes slowness(inputs, outputs) times the sum of two
  // times: that of its operations at the peak, and that of its bytes at that bandwidth. The
  // logarithm of the slowness is a plane over the logarithms of inputs and outputs, fitted by
  // weighted least squares to the matrices of all profiles and numbers of workers; matrices of
  // nearly the wanted size weigh more. Pointwise operators are linear in their width. On A100s and
  // H100s a layer that is predicted from two others is off by 1 to 8 % on average, by 11 % where
  // its matrices are smaller than all measured ones (`lamina bench paper-tables`).
  //
  // kInvalidArgument if no number of rows was measured for at least three matrices.
  static Result<LayerProfile> Predict(std::span<const LayerProfile* const> measured,
                                      const Shape& shape, int workers, double peak_flops_per_s,
                                      double bytes_per_s);

  // The profile of the same file for another number of workers. kInvalidArgument if the file has no
  // row with that number.
  Result<LayerProfile> WithWorkers(int workers) const;

  const Shape& shape() const { return shape_; }
  int workers() const { return workers_; }
  std::vector<double> rows() const;  // the measured numbers of rows, ascending

  // Times of the operators before attention (norm, projections to q, k and v, rotation) and after
  // it (output projection, norm, MLP, both additions). Linear between the measured numbers of rows,
  // constant below the smallest, and proportional to the rows beyond the largest. REQUIRES: rows >
  // 0.
  double BeforeAttentionSeconds(double rows) const;
  double AfterAttentionSeconds(double rows) const;

 private:
  struct Point {
    double rows = 0;
    double before = 0, after = 0;  // seconds
  };
  // Seconds of one worker for each operator of a layer.
  struct Operators {
    // Matrix products; `up` includes the gate, if there is one.
    double qkv = 0, output = 0, up = 0, down = 0;
    // Pointwise operators; `add` is one of the two additions.
    double first_norm = 0, second_norm = 0, rotation = 0, activation = 0, add = 0;
    // Makes this mean of `count` - 1 measurements the mean of these and `other`.
    void AddToMean(const Operators& other, int count);
  };
  static constexpr double Operators::*kAllOperators[] = {
      &Operators::qkv,      &Operators::output,     &Operators::up,
      &Operators::down,     &Operators::first_norm, &Operators::second_norm,
      &Operators::rotation, &Operators::activation, &Operators::add};
  using ByRows = std::map<int, Operators>;

  // The matrix of one operator, of which one worker has inputs x outputs elements.
  struct Matrix {
    double inputs = 0, outputs = 0;
    double Operators::*time = nullptr;
  };
  // A pointwise operator over `width` elements of a row.
  struct Pointwise {
    double width = 0;
    double Operators::*time = nullptr;
  };
  static Point PointOf(int rows, const Operators& times);
  static std::vector<Matrix> MatricesOf(const Shape& shape, int workers);
  static std::vector<Pointwise> PointwiseOf(const Shape& shape, int workers);

  // Makes points_ those of this number of workers. kInvalidArgument if none was measured.
  Status UseWorkers(int workers);
  double Interpolate(double rows, double Point::*part) const;

  Shape shape_;
  std::string path_;
  int workers_ = 1;
  std::vector<Point> points_;         // rows ascending
  std::map<int, ByRows> by_workers_;  // all measurements; empty if the profile is predicted
};

}  // namespace lamina
