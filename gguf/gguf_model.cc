#include "gguf/gguf_model.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/printable.h"
#include "base/text_file.h"

namespace lamina {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr size_t kShardDigits = 5;
constexpr int kMaxShards = 1000;

// "NAME-00002-of-00003" -> {"NAME", 2, 3}
struct ShardName {
  std::string_view model;
  int number = 0;
  int count = 0;
};

std::optional<int> ShardNumber(std::string_view digits) {
  int number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [read, error] = std::from_chars(digits.data(), end, number);
  return error == std::errc() && read == end && number >= 1 ? std::optional(number) : std::nullopt;
}

std::optional<ShardName> ParseShardName(std::string_view stem) {
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kLength = 1 + kShardDigits + kOf.size() + kShardDigits;
  if (stem.size() <= kLength) return std::nullopt;
  const std::string_view tail = stem.substr(stem.size() - kLength);
  const std::optional<int> number = ShardNumber(tail.substr(1, kShardDigits)),
                           count = ShardNumber(tail.substr(kLength - kShardDigits));
  if (tail.front() != '-' || tail.substr(1 + kShardDigits, kOf.size()) != kOf || !number ||
      !count || *number > *count || *count > kMaxShards)
    return std::nullopt;
  return ShardName{stem.substr(0, stem.size() - kLength), *number, *count};
}

std::string_view WithoutSuffix(std::string_view path) {
  return path.substr(0, path.size() - kSuffix.size());
}

}  // namespace

bool IsGgufPath(std::string_view path) {
  return path.size() > kSuffix.size() && path.ends_with(kSuffix);
}

std::string GgufModelName(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  if (IsGgufPath(path)) path = WithoutSuffix(path);
  const std::optional<ShardName> shard = ParseShardName(path);
  return std::string(shard ? shard->model : path);
}

std::vector<std::string> GgufShardPaths(const std::string& path) {
  const std::optional<ShardName> shard =
      IsGgufPath(path) ? ParseShardName(WithoutSuffix(path)) : std::nullopt;
  if (!shard) return {path};
  std::vector<std::string> paths;
  for (int i = 1; i <= shard->count; ++i)
    paths.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", shard->model, i, shard->count));
  return paths;
}

GgufModel::File::~File() { ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size()); }

GgufModel::~GgufModel() = default;

Result<std::unique_ptr<GgufModel::File>> GgufModel::OpenFile(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const OpenedFile opened, OpenRegularFile(path));
  void* data = MAP_FAILED;
  if (opened.num_bytes > 0)
    data = ::mmap(nullptr, opened.num_bytes, PROT_READ, MAP_PRIVATE, opened.fd, 0);
  const int error = errno;
  ::close(opened.fd);
  if (opened.num_bytes == 0) return Corrupt(path + " is empty");
  if (data == MAP_FAILED) return OutOfSpace("cannot map " + path + ": " + std::strerror(error));
  auto file = std::make_unique<File>();
  file->bytes = {static_cast<const std::byte*>(data), opened.num_bytes};
  Result<GgufHeader> header = ParseGgufHeader(file->bytes);
  if (!header.ok()) return header.status().WithContext(path);
  file->header = *std::move(header);
  return file;
}

Result<std::unique_ptr<GgufModel>> GgufModel::Open(const std::string& path) {
  std::unique_ptr<GgufModel> model(new GgufModel(path));
  const std::vector<std::string> paths = GgufShardPaths(path);
  for (const std::string& shard : paths) {
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<File> file, OpenFile(shard));
    model->files_.push_back(std::move(file));
    for (const GgufTensor& tensor : model->files_.back()->header.tensors) {
      if (!model->tensors_.emplace(tensor.name, &tensor).second)
        return Corrupt(shard + ": tensor " + Briefly(tensor.name, 100) +
                       " is in another shard already");
    }
  }
  LAMINA_RETURN_IF_ERROR(model->CheckShards(paths));
  return model;
}

// A shard says how many there are, which one it is, counted from 0, and how many tensors there are
// in all.
Status GgufModel::CheckShards(const std::vector<std::string>& paths) const {
  const auto expect = [&](size_t file, const char* key, size_t expected) -> Status {
    const auto& values = files_[file]->header.values;
    const auto found = values.find(key);
    if (found == values.end()) {
      return files_.size() == 1
                 ? OkStatus()
                 : Corrupt(paths[file] + ": a shard by its name, but it has no " + key);
    }
    const GgufValue& value = found->second;
    if (!value.is_array && value.is_integer() && value.Integer() == static_cast<int64_t>(expected))
      return OkStatus();
    return Corrupt(fmt::format(
        "{}: {} is {}, expected {}; name the first of the files NAME-00001-of-0000N.gguf, and have "
        "all of them in one folder",
        paths[file], key,
        !value.is_array && value.is_integer() ? std::to_string(value.Integer()) : "no number",
        expected));
  };
  for (size_t i = 0; i < files_.size(); ++i) {
    LAMINA_RETURN_IF_ERROR(expect(i, "split.count", files_.size()));
    LAMINA_RETURN_IF_ERROR(expect(i, "split.no", i));
  }
  for (size_t i = 0; i < files_.size(); ++i)
    LAMINA_RETURN_IF_ERROR(expect(i, "split.tensors.count", tensors_.size()));
  return OkStatus();
}

const GgufValue* GgufModel::Value(std::string_view key) const {
  const auto found = header().values.find(key);
  return found == header().values.end() ? nullptr : &found->second;
}

const GgufTensor* GgufModel::Tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

}  // namespace lamina
