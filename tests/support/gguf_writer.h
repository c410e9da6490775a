// Writes GGUF files for tests, right ones and wrong ones. Shares no code with gguf/.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lamina::testing {

class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  // Keys of one value, and of lists.
  void AddUint32(const std::string& key, uint32_t value) { AddNumber(key, 4, value); }
  void AddInt32(const std::string& key, int32_t value) { AddNumber(key, 5, value); }
  void AddUint64(const std::string& key, uint64_t value) { AddNumber(key, 10, value); }
  void AddFloat(const std::string& key, float value) { AddNumber(key, 6, value); }
  void AddBool(const std::string& key, bool value) {
    AddNumber(key, 7, static_cast<uint8_t>(value));
  }
  void AddString(const std::string& key, const std::string& value);
  void AddStrings(const std::string& key, const std::vector<std::string>& values);
  void AddFloats(const std::string& key, const std::vector<float>& values);
  void AddInts(const std::string& key, const std::vector<int32_t>& values);  // int32
  // A key of any type with any bytes.
  void AddRaw(const std::string& key, uint32_t type, const std::string& bytes);

  // `shape` as in safetensors files, the fastest dimension last. The data begins at the next
  // multiple of the alignment.
  void AddTensor(const std::string& name, std::vector<int64_t> shape, uint32_t type,
                 std::string data);

  void set_alignment(uint64_t alignment) { alignment_ = alignment; }
  std::string File() const;

  template <typename T>
  static std::string Bytes(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof(T)};
  }
  static std::string Text(const std::string& text) { return Bytes(uint64_t{text.size()}) + text; }

 private:
  template <typename T>
  void AddNumber(const std::string& key, uint32_t type, T value) {
    AddRaw(key, type, Bytes(value));
  }

  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    uint32_t type;
    std::string data;
  };
  uint32_t version_;
  uint64_t alignment_ = 32;
  std::vector<std::string> keys_;
  std::vector<Tensor> tensors_;
};

}  // namespace lamina::testing
