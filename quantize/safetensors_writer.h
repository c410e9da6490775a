// Writes a safetensors file, whose format compute_node/safetensors_header.h describes: what its
// tensors are is told first, then come their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// Thread: one owner.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    std::string dtype;  // "BF16"
    std::vector<int64_t> shape;
    uint64_t size_bytes = 0;
  };
  // The tensors in the order in which Write gets their bytes, which begin in the file at a multiple
  // of `alignment`. An error of the file names it.
  static Result<SafetensorsWriter> Create(const std::string& path,
                                          const std::vector<Tensor>& tensors, size_t alignment = 8);

  // The next bytes; a tensor may come in several pieces.
  Status Write(std::span<const std::byte> bytes);
  // Goes on with the tensor whose bytes begin at `offset`, counted from those of the first.
  Status Seek(uint64_t offset);
  // All has been written. kInternal if that is not what was told.
  Status Close();

 private:
  std::string path_;
  std::ofstream file_;
  uint64_t left_ = 0;
  uint64_t begin_ = 0;  // of the first tensor's bytes
};

}  // namespace lamina
