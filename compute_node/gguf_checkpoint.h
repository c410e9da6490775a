// The weights of a model in a GGUF file, under the names that the graph has for them, which are
// those of Hugging Face checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "gguf/gguf_model.h"
#include "kernels/weight_format.h"
#include "model/graph.h"
#include "model/model_config.h"

namespace lamina {

// One weight, and how its rows lie in a tensor of the file. A vector has rows of one element.
struct GgufWeight {
  const GgufTensor* tensor = nullptr;
  int64_t rows = 0;       // of the weight
  int64_t width = 0;      // of each
  int64_t first_row = 0;  // of the tensor: the tensors of experts are one behind the other
  // 0, or the rows of a head of q or k. Converters put the two halves of each head of a llama,
  // which are rotated together, row by row beside each other: row 2 i + h is row i of half h.
  int64_t interleaved = 0;
  // What ReadElements writes. Tensors of F32, F16 and BF16 keep their type.
  DType dtype = DType::kF32;

  GgmlType type() const { return static_cast<GgmlType>(tensor->type); }
  // The row of the tensor that is row `row` of the weight. REQUIRES: 0 <= row < rows.
  int64_t TensorRow(int64_t row) const;
  // Row `row` in the tensor's own blocks. REQUIRES: a matrix.
  std::span<const std::byte> RowBlocks(int64_t row) const {
    return tensor->Rows(TensorRow(row), 1);
  }
};

// A weight as converters have written it: norms with what is added to them, no matrix transposed,
// and what takes turns in a tensor of all experts in tensors of its own.
WeightRef AsInGguf(WeightRef weight);

// Immutable. Thread: any.
class GgufCheckpoint {
 public:
  // Borrows config. Quantized weights will be read as `config.dtype`. Errors of GgufModel::Open.
  static Result<std::unique_ptr<GgufCheckpoint>> Open(const std::string& path,
                                                      const ModelConfig& config);

  // Finds the whole tensor of a weight that AsInGguf gave. kNotFound if the file has no such
  // tensor, kInvalidArgument if it has another shape, kUnimplemented if its type is not read; all
  // name the tensor, the file and what was found.
  Result<GgufWeight> Find(const WeightRef& weight) const;

 private:
  GgufCheckpoint(std::unique_ptr<GgufModel> file, const ModelConfig& config)
      : file_(std::move(file)), config_(config) {}

  std::unique_ptr<GgufModel> file_;
  const ModelConfig& config_;
};

// Elements [first, first + count) of the weight, counted over all its rows, where the file has them
// one behind the other as weight.dtype; else nothing. Valid as long as the checkpoint.
std::span<const std::byte> StoredElements(const GgufWeight& weight, int64_t first, int64_t count);

// Writes elements [first, first + count) of the weight, counted over all its rows, to `out` as
// weight.dtype. Reads, and dequantizes, only the blocks that they are in.
void ReadElements(const GgufWeight& weight, int64_t first, int64_t count, std::byte* out);

// How the kernels take the part `part` of a quantized matrix without dequantizing it. Nothing if
// the tensor is not quantized, or no matrix.
std::optional<WeightFormat> CodeFormat(const GgufWeight& weight, const WeightRef& part);

// Reads that part into `to`, whose memory is used again; its weights are those that ReadElements
// gives in fp32. `team`: who unpacks; null: the calling thread. kInvalidArgument, with the tensor
// and its row, if a scale or a minimum is not finite. REQUIRES: CodeFormat gives one.
Status ReadCodes(const GgufWeight& weight, const WeightRef& part, WorkerTeam* team,
                 QuantizedMatrix& to);

}  // namespace lamina
