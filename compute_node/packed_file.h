// The matrices of a model as the CPU's kernels read them (PackedWeights), kept in a file beside the
// model by `lamina pack`. A node that reads it need not pack them anew, and starts sooner.
//
// A safetensors file (safetensors_header.h) of U8 tensors: one for each matrix, named by
// PackedName, that holds its panels, with zeros behind them up to a multiple of kPackedAlignment;
// and, last, one called kPackedSource that says what the file was made of. The data begin at such a
// multiple too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute_node/safetensors.h"
#include "kernels/weight_format.h"
#include "model/graph.h"

namespace lamina {

inline constexpr int64_t kPackedAlignment = 4096;
inline constexpr const char* kPackedSource = "source";

// "MODEL/weights.packed" of a folder, "MODEL.packed" of a GGUF file.
std::string PackedPath(const std::string& model);

// Of a matrix, or the part of one that a node has, in this format. No two have the same.
std::string PackedName(const WeightRef& weight, const WeightFormat& format);

// Whether such matrices are kept: not those whose inputs name their groups, because kernels believe
// these names and a file may say anything.
inline bool IsPackable(const WeightFormat& format) { return !format.indexed; }

// What a packed file says that was made of these files: the layout of panels, and the name, size
// and time of each file. Another text: it is of no use.
std::string PackedSourceOf(const std::vector<std::string>& paths);

// Immutable. Thread: any. REQUIRES: as SafetensorsFile.
class PackedFile {
 public:
  // The model's; null if there is none. kCorrupt if it is no such file; kInvalidArgument if it is
  // no regular file or was made of another source; kOutOfSpace if it cannot be mapped. All name the
  // file, and the model can be read without it.
  static Result<std::unique_ptr<PackedFile>> Open(const std::string& model,
                                                  const std::string& source);

  // The panels of the matrix with this PackedName, and zeros behind them up to a multiple of
  // kPackedAlignment. Empty if the file does not have it.
  std::span<const std::byte> Find(const std::string& name, const WeightFormat& format,
                                  std::span<const int64_t> shape) const;

  // Where its panels begin in the file, if it has them.
  std::optional<int64_t> Locate(const std::string& name, const WeightFormat& format,
                                std::span<const int64_t> shape) const {
    const std::span<const std::byte> panels = Find(name, format, shape);
    if (panels.empty()) return std::nullopt;
    return panels.data() - file_->bytes().data();
  }
  const std::string& path() const { return file_->path(); }
  // A name for this very file, whatever has taken its place since; valid as long as it is open.
  std::string own_path() const { return "/proc/self/fd/" + std::to_string(file_->fd()); }

 private:
  explicit PackedFile(std::unique_ptr<SafetensorsFile> file) : file_(std::move(file)) {}

  std::unique_ptr<SafetensorsFile> file_;
};

// Copies bytes [begin, end) of panels that Find gave. Thread: any.
void ReadPanels(std::span<const std::byte> panels, int64_t begin, int64_t end, std::byte* to);

}  // namespace lamina
