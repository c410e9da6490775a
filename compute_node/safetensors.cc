#include "compute_node/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_keys.h"
#include "base/text_file.h"

namespace lamina {
namespace {

// Maps the whole of a regular file, which stays open as `fd` if that is wanted.
Result<std::span<const std::byte>> MapFile(const std::string& path, bool keep_open, int& fd) {
  LAMINA_ASSIGN_OR_RETURN(const OpenedFile file, OpenRegularFile(path));
  if (file.num_bytes == 0) {
    ::close(file.fd);
    return Corrupt(path + " is empty");
  }
  void* data = ::mmap(nullptr, file.num_bytes, PROT_READ, MAP_PRIVATE, file.fd, 0);
  const int error = errno;
  if (keep_open && data != MAP_FAILED)
    fd = file.fd;
  else
    ::close(file.fd);
  if (data == MAP_FAILED) return OutOfSpace("cannot map " + path + ": " + std::strerror(error));
  return std::span(static_cast<const std::byte*>(data), file.num_bytes);
}

std::optional<DType> ParseDType(std::string_view name) {
  if (name == "BF16") return DType::kBF16;
  if (name == "F16") return DType::kF16;
  if (name == "F32") return DType::kF32;
  return std::nullopt;
}

// Whether a shard's path stays within the model's directory: it is relative and has no "..". The
// index is a file from elsewhere and must not make this process read other files.
bool IsInside(const std::string& file) {
  const std::filesystem::path path(file);
  if (file.empty() || file.find('\0') != std::string::npos || path.is_absolute()) return false;
  return std::find(path.begin(), path.end(), "..") == path.end();
}

bool Exists(const std::string& path) {
  std::error_code ignored;  // a file that cannot be looked at is as good as absent
  return std::filesystem::exists(path, ignored);
}

Status NoCheckpoint(const std::string& dir) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!Exists(dir + "/" + name)) continue;
    return Unimplemented(
        dir +
        " holds its weights only as pytorch_model.bin, a Python pickle, but lamina reads "
        "safetensors. Convert it with Python: " +
        "transformers.AutoModelForCausalLM.from_pretrained(\"" + dir +
        "\", torch_dtype=\"auto\").save_pretrained(OUT_DIR, safe_serialization=True)");
  }
  return NotFound("no weights in " + dir +
                  ": expected model.safetensors or model.safetensors.index.json");
}

// Names all shards that are missing at once, as after a download that broke off.
Status CheckShardsExist(const std::string& dir, const std::string& index_path,
                        const std::vector<std::string>& shards) {
  constexpr int kMaxNamed = 8;
  std::string missing;
  int num_missing = 0;
  for (const std::string& shard : shards) {
    if (Exists(dir + "/" + shard)) continue;
    if (++num_missing <= kMaxNamed) missing += (missing.empty() ? "" : ", ") + shard;
  }
  if (num_missing == 0) return OkStatus();
  if (num_missing > kMaxNamed)
    missing += " and " + std::to_string(num_missing - kMaxNamed) + " more";
  return NotFound(index_path + " names " + std::to_string(shards.size()) + " files, of which " +
                  std::to_string(num_missing) + " are not there: " + missing +
                  ". Download them into the same folder");
}

}  // namespace

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path,
                                                               bool keep_open) {
  int fd = -1;
  LAMINA_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, MapFile(path, keep_open, fd));
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(path, bytes, fd));
  Result<std::vector<SafetensorsEntry>> entries = ParseSafetensorsHeader(bytes);
  if (!entries.ok()) return entries.status().WithContext(path);
  file->entries_ = std::move(entries).value();
  for (const SafetensorsEntry& entry : file->entries_) file->by_name_.emplace(entry.name, &entry);
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (fd_ >= 0) ::close(fd_);
}

Result<TensorView> SafetensorsFile::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    return NotFound("tensor " + std::string(name) + " is not in " + path_);
  const SafetensorsEntry& entry = *found->second;
  const std::optional<DType> dtype = ParseDType(entry.dtype);
  if (!dtype) {
    return Unimplemented("tensor " + entry.name + " in " + path_ + " has dtype " + entry.dtype +
                         ", expected BF16, F16 or F32");
  }
  return TensorView{*dtype, entry.shape, bytes_.subspan(entry.offset, entry.size_bytes)};
}

std::optional<RawTensor> SafetensorsFile::FindRaw(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  const SafetensorsEntry& entry = *found->second;
  return RawTensor{entry.name, entry.dtype, entry.shape,
                   bytes_.subspan(entry.offset, entry.size_bytes), path_};
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& dir) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  const std::string single_path = dir + "/model.safetensors";
  const std::string index_path = dir + "/model.safetensors.index.json";
  if (Exists(single_path)) {
    checkpoint->where_ = single_path;
    LAMINA_ASSIGN_OR_RETURN(const SafetensorsFile* file, checkpoint->AddFile(single_path));
    for (const SafetensorsEntry& entry : file->entries())
      checkpoint->file_of_.emplace(entry.name, file);
    return checkpoint;
  }
  if (!Exists(index_path)) return NoCheckpoint(dir);
  checkpoint->where_ = index_path;
  LAMINA_RETURN_IF_ERROR(checkpoint->OpenShards(dir, index_path));
  return checkpoint;
}

Status Checkpoint::OpenShards(const std::string& dir, const std::string& index_path) {
  LAMINA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(index_path));
  LAMINA_ASSIGN_OR_RETURN(const nlohmann::json index, ParseJsonObject(text, index_path));
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object()) {
    return Corrupt(index_path + ": expected \"weight_map\", an object from tensor to file");
  }
  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string() || !IsInside(shard.get<std::string>())) {
      return Corrupt(index_path + ": the file of tensor " + tensor +
                     " must be a path within the model's directory, without \"..\"");
    }
    shards[shard.get<std::string>()] = nullptr;
  }
  std::vector<std::string> names;
  for (const auto& [name, file] : shards) names.push_back(name);
  LAMINA_RETURN_IF_ERROR(CheckShardsExist(dir, index_path, names));
  for (const auto& [tensor, shard] : weight_map->items()) {
    const SafetensorsFile*& file = shards[shard.get<std::string>()];
    if (file == nullptr) {
      LAMINA_ASSIGN_OR_RETURN(file, AddFile(dir + "/" + shard.get<std::string>()));
    }
    const Result<TensorView> view = file->Find(tensor);
    if (!view.ok() && view.status().code() == StatusCode::kNotFound)
      return Corrupt(index_path + " is wrong: " + view.status().message());
    file_of_.emplace(tensor, file);
  }
  return OkStatus();
}

Result<const SafetensorsFile*> Checkpoint::AddFile(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  for (const SafetensorsEntry& entry : file->entries())
    size_bytes_ += static_cast<int64_t>(entry.size_bytes);
  files_.push_back(std::move(file));
  return static_cast<const SafetensorsFile*>(files_.back().get());
}

std::vector<std::string> Checkpoint::paths() const {
  std::vector<std::string> paths;
  for (const auto& file : files_) paths.push_back(file->path());
  return paths;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(file_of_.size());
  for (const auto& [name, file] : file_of_) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

std::unordered_map<std::string, const SafetensorsFile*>::const_iterator Checkpoint::Locate(
    const std::string& name) const {
  auto found = file_of_.find(name);
  if (found != file_of_.end()) return found;
  constexpr std::string_view kModel = "model.", kLanguageModel = "language_model.";
  // The language model of a checkpoint that also reads images.
  found = file_of_.find(std::string(kLanguageModel) + name);
  if (found != file_of_.end() || !name.starts_with(kModel)) return found;
  // Files that were saved without the language model's head lack the prefix. Newer ones that read
  // images have the head beside the rest.
  const std::string without = name.substr(kModel.size());
  found = file_of_.find(without);
  if (found != file_of_.end()) return found;
  return file_of_.find(std::string(kModel) + std::string(kLanguageModel) + without);
}

std::optional<RawTensor> Checkpoint::FindRaw(const std::string& name) const {
  const auto found = Locate(name);
  if (found == file_of_.end()) return std::nullopt;
  return found->second->FindRaw(found->first);
}

Result<TensorView> Checkpoint::Find(const std::string& name,
                                    std::span<const int64_t> expected_shape) const {
  const auto found = Locate(name);
  if (found == file_of_.end()) {
    return NotFound("tensor " + name + " is not in " + where_ + ", expected with shape " +
                    ShapeText(expected_shape));
  }
  LAMINA_ASSIGN_OR_RETURN(const TensorView view, found->second->Find(found->first));
  if (!std::equal(view.shape.begin(), view.shape.end(), expected_shape.begin(),
                  expected_shape.end())) {
    return InvalidArgument("tensor " + name + " in " + found->second->path() + " has shape " +
                           ShapeText(view.shape) + ", expected " + ShapeText(expected_shape) +
                           " as config.json says");
  }
  return view;
}

}  // namespace lamina
