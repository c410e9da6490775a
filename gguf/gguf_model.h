// A model in GGUF files: one file, or the shards "NAME-00001-of-0000N.gguf" of one model. Files are
// mapped into memory and not copied.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "gguf/gguf_header.h"

namespace lamina {

// Whether a model's path names a GGUF file rather than a folder: it ends with ".gguf".
bool IsGgufPath(std::string_view path);

// The model's name: that of the file, without ".gguf" and without the number of a shard.
std::string GgufModelName(std::string_view path);

// The paths of all shards, if `path` is one of several by its name; else `path` alone. Looks at no
// file.
std::vector<std::string> GgufShardPaths(const std::string& path);

// Immutable. Thread: any. REQUIRES: the files keep their lengths while they are open.
class GgufModel {
 public:
  // Maps the file, or all shards if it is one of them. kNotFound if one does not exist; kCorrupt or
  // kUnimplemented as ParseGgufHeader, and kCorrupt if shards do not belong together. Messages name
  // the file.
  static Result<std::unique_ptr<GgufModel>> Open(const std::string& path);
  ~GgufModel();
  GgufModel(const GgufModel&) = delete;
  GgufModel& operator=(const GgufModel&) = delete;

  // As it was given to Open; the first shard's header describes the model.
  const std::string& path() const { return path_; }
  const GgufHeader& header() const { return files_.front()->header; }

  // Null if there is none.
  const GgufValue* Value(std::string_view key) const;
  const GgufTensor* Tensor(std::string_view name) const;
  // Of all files, by their names.
  const std::unordered_map<std::string_view, const GgufTensor*>& tensors() const {
    return tensors_;
  }

 private:
  struct File {
    std::span<const std::byte> bytes;  // the mapping
    GgufHeader header;
    ~File();
  };

  explicit GgufModel(std::string path) : path_(std::move(path)) {}
  static Result<std::unique_ptr<File>> OpenFile(const std::string& path);
  Status CheckShards(const std::vector<std::string>& paths) const;

  std::string path_;
  std::vector<std::unique_ptr<File>> files_;
  std::unordered_map<std::string_view, const GgufTensor*> tensors_;
};

}  // namespace lamina
