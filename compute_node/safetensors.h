// A model's checkpoint on disk: safetensors files, which are mapped into memory and not copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "compute_node/safetensors_header.h"

namespace lamina {

// Borrowed from the checkpoint that it comes from.
struct TensorView {
  DType dtype = DType::kBF16;
  std::span<const int64_t> shape;
  std::span<const std::byte> data;  // row-major, little-endian; need not be aligned
};

// A tensor of any element type, borrowed as above.
struct RawTensor {
  std::string_view name;
  std::string_view dtype;  // as in the file: "I32"
  std::span<const int64_t> shape;
  std::span<const std::byte> data;
  std::string_view path;  // of its file
};

// One file. Immutable. Thread: any. REQUIRES: the file keeps its length while it is open.
class SafetensorsFile {
 public:
  // Maps the file read-only and checks its header. kNotFound if it cannot be read, kCorrupt if it
  // violates the format; both name the file. With `keep_open` the file stays open as fd().
  static Result<std::unique_ptr<SafetensorsFile>> Open(const std::string& path,
                                                       bool keep_open = false);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }  // the whole file
  int fd() const { return fd_; }
  // In the order of their data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }

  // kNotFound if there is no tensor with that name, kUnimplemented if its dtype is not BF16, F16 or
  // F32.
  Result<TensorView> Find(std::string_view name) const;
  // Nothing if there is no tensor with that name.
  std::optional<RawTensor> FindRaw(std::string_view name) const;

 private:
  SafetensorsFile(std::string path, std::span<const std::byte> bytes, int fd)
      : path_(std::move(path)), bytes_(bytes), fd_(fd) {}

  std::string path_;
  std::span<const std::byte> bytes_;  // the mapping
  int fd_ = -1;
  std::vector<SafetensorsEntry> entries_;
  std::unordered_map<std::string_view, const SafetensorsEntry*> by_name_;
};

// All files of a model. Immutable. Thread: any.
class Checkpoint {
 public:
  // Opens DIR/model.safetensors or, if there is no such file, the shards that
  // DIR/model.safetensors.index.json names, which must be within DIR. kNotFound if there is
  // neither, kUnimplemented if there is only pytorch_model.bin, kCorrupt if a file or the index is
  // broken.
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& dir);

  // kNotFound if there is no such tensor, kInvalidArgument if it has another shape; both name the
  // tensor, the file and the shapes. kUnimplemented if its dtype is not BF16, F16 or F32.
  Result<TensorView> Find(const std::string& name, std::span<const int64_t> expected_shape) const;

  // A tensor whatever its type and shape. Nothing if there is none with that name.
  std::optional<RawTensor> FindRaw(const std::string& name) const;
  // The names of all tensors, in alphabetical order.
  std::vector<std::string> names() const;
  // The file or index that lists the tensors.
  const std::string& where() const { return where_; }

  // Of all files.
  std::vector<std::string> paths() const;
  // Bytes of all tensors of all files.
  int64_t size_bytes() const { return size_bytes_; }

 private:
  Checkpoint() = default;
  Status OpenShards(const std::string& dir, const std::string& index_path);
  Result<const SafetensorsFile*> AddFile(const std::string& path);
  std::unordered_map<std::string, const SafetensorsFile*>::const_iterator Locate(
      const std::string& name) const;

  std::string where_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unordered_map<std::string, const SafetensorsFile*> file_of_;  // by tensor
  int64_t size_bytes_ = 0;
};

}  // namespace lamina
