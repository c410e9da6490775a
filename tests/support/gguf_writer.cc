#include "tests/support/gguf_writer.h"

#include <algorithm>

namespace lamina::testing {
namespace {

constexpr uint32_t kFloat32 = 6, kInt32 = 5, kString = 8, kArray = 9;

}  // namespace

void GgufWriter::AddRaw(const std::string& key, uint32_t type, const std::string& bytes) {
  keys_.push_back(Text(key) + Bytes(type) + bytes);
}

void GgufWriter::AddString(const std::string& key, const std::string& value) {
  AddRaw(key, kString, Text(value));
}

void GgufWriter::AddStrings(const std::string& key, const std::vector<std::string>& values) {
  std::string bytes = Bytes(kString) + Bytes(uint64_t{values.size()});
  for (const std::string& value : values) bytes += Text(value);
  AddRaw(key, kArray, bytes);
}

void GgufWriter::AddFloats(const std::string& key, const std::vector<float>& values) {
  std::string bytes = Bytes(kFloat32) + Bytes(uint64_t{values.size()});
  for (const float value : values) bytes += Bytes(value);
  AddRaw(key, kArray, bytes);
}

void GgufWriter::AddInts(const std::string& key, const std::vector<int32_t>& values) {
  std::string bytes = Bytes(kInt32) + Bytes(uint64_t{values.size()});
  for (const int32_t value : values) bytes += Bytes(value);
  AddRaw(key, kArray, bytes);
}

void GgufWriter::AddTensor(const std::string& name, std::vector<int64_t> shape, uint32_t type,
                           std::string data) {
  tensors_.push_back({name, std::move(shape), type, std::move(data)});
}

std::string GgufWriter::File() const {
  std::string file =
      "GGUF" + Bytes(version_) + Bytes(uint64_t{tensors_.size()}) + Bytes(uint64_t{keys_.size()});
  for (const std::string& key : keys_) file += key;
  uint64_t offset = 0;
  const auto aligned = [this](uint64_t size) {
    return (size + alignment_ - 1) / alignment_ * alignment_;
  };
  for (const Tensor& tensor : tensors_) {
    file += Text(tensor.name) + Bytes(static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      file += Bytes(static_cast<uint64_t>(*size));
    file += Bytes(tensor.type) + Bytes(offset);
    offset += aligned(tensor.data.size());
  }
  for (const Tensor& tensor : tensors_) {
    file.resize(aligned(file.size()));
    file += tensor.data;
  }
  file.resize(aligned(file.size()));
  return file;
}

}  // namespace lamina::testing
