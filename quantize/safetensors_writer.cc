#include "quantize/safetensors_writer.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace lamina {
namespace {

constexpr size_t kLengthBytes = 8;  // of the number in front of the header

Status CannotWrite(const std::string& path) {
  return InvalidArgument(path + " cannot be written: " + std::strerror(errno));
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                    const std::vector<Tensor>& tensors,
                                                    size_t alignment) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.size_bytes}}};
    offset += tensor.size_bytes;
  }
  std::string text = header.dump();
  text.append((alignment - (kLengthBytes + text.size()) % alignment) % alignment, ' ');
  SafetensorsWriter writer;
  writer.path_ = path;
  writer.left_ = offset;
  writer.begin_ = kLengthBytes + text.size();
  writer.file_.open(path, std::ios::binary | std::ios::trunc);
  std::array<char, kLengthBytes> size{};
  for (size_t i = 0; i < size.size(); ++i) size[i] = static_cast<char>(text.size() >> (8 * i));
  writer.file_.write(size.data(), std::ssize(size));
  writer.file_.write(text.data(), std::ssize(text));
  if (!writer.file_) return CannotWrite(path);
  return writer;
}

Status SafetensorsWriter::Write(std::span<const std::byte> bytes) {
  if (bytes.size() > left_) return InternalError(path_ + ": more bytes than its tensors have");
  left_ -= bytes.size();
  file_.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  return file_ ? OkStatus() : CannotWrite(path_);
}

Status SafetensorsWriter::Seek(uint64_t offset) {
  file_.seekp(static_cast<std::streamoff>(begin_ + offset));
  return file_ ? OkStatus() : CannotWrite(path_);
}

Status SafetensorsWriter::Close() {
  if (left_ > 0) return InternalError(path_ + ": fewer bytes than its tensors have");
  file_.close();
  return file_ ? OkStatus() : CannotWrite(path_);
}

}  // namespace lamina
