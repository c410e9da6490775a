#include "compute_node/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace lamina {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

// 0 for a type that the format does not have.
uint64_t TypeBytes(std::string_view dtype) {
  struct Type {
    std::string_view name;
    uint64_t bytes;
  };
  constexpr Type kTypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
                             {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
                             {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  for (const Type& type : kTypes) {
    if (type.name == dtype) return type.bytes;
  }
  return 0;
}

// A name from the file, escaped and cut short, for error messages.
std::string Quoted(const std::string& name) {
  constexpr size_t kMaxShown = 200;
  return json(name.substr(0, kMaxShown)).dump(-1, ' ', true, json::error_handler_t::replace);
}

// Builds the entries while the JSON is read, so that duplicate keys are seen. Offsets are still
// relative to the data: `offset` and `size_bytes` hold begin and end until Place() below.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  std::vector<SafetensorsEntry> entries;
  std::string error;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(int64_t) override { return Unexpected("a negative number"); }
  bool number_float(double, const std::string&) override {
    return Unexpected("a number that is no 64-bit integer");
  }
  bool binary(json::binary_t&) override { return Unexpected("binary data"); }
  bool number_unsigned(uint64_t value) override;
  bool string(std::string& value) override;
  bool start_object(size_t) override;
  bool key(std::string& name) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string&, const json::exception& exception) override {
    return Fail(fmt::format("syntax error at byte {}: {}", position, exception.what()));
  }

 private:
  enum class Place { kStart, kTensors, kTensor, kShape, kOffsets, kMetadata, kEnd };
  enum Field : unsigned {
    kNone = 0,
    kDtypeField = 1,
    kShapeField = 2,
    kOffsetsField = 4,
    kAllFields = 7
  };

  bool Fail(std::string message) {
    if (error.empty()) error = std::move(message);
    return false;
  }
  bool Unexpected(const char* what) {
    return Fail(fmt::format("{} where none may stand{}", what, Where()));
  }
  std::string Where() const { return name_.empty() ? "" : ", at " + Quoted(name_); }
  bool TensorKey(const std::string& name);

  Place place_ = Place::kStart;
  bool metadata_next_ = false;
  Field field_ = kNone;       // the one whose value comes next
  unsigned fields_seen_ = 0;  // of the current tensor
  std::vector<uint64_t> offsets_;
  std::string name_;  // the current key of the outermost object
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> metadata_keys_;
};

bool HeaderReader::start_object(size_t) {
  if (place_ == Place::kStart) {
    place_ = Place::kTensors;
    return true;
  }
  if (place_ != Place::kTensors) return Unexpected("an object");
  place_ = metadata_next_ ? Place::kMetadata : Place::kTensor;
  if (place_ == Place::kTensor) entries.push_back({.name = name_, .dtype = {}, .shape = {}});
  return true;
}

bool HeaderReader::key(std::string& name) {
  if (place_ == Place::kTensor) return TensorKey(name);
  if (place_ == Place::kMetadata)
    return metadata_keys_.insert(name).second ||
           Fail("duplicate key " + Quoted(name) + " in __metadata__");
  name_ = name;
  metadata_next_ = name == "__metadata__";
  fields_seen_ = 0;
  offsets_.clear();
  return names_.insert(name).second || Fail("duplicate key " + Quoted(name));
}

bool HeaderReader::TensorKey(const std::string& name) {
  field_ = name == "dtype"          ? kDtypeField
           : name == "shape"        ? kShapeField
           : name == "data_offsets" ? kOffsetsField
                                    : kNone;
  if (field_ == kNone) return Fail("unknown key " + Quoted(name) + Where());
  if ((fields_seen_ & field_) != 0) return Fail("duplicate key " + Quoted(name) + Where());
  fields_seen_ |= field_;
  return true;
}

bool HeaderReader::end_object() {
  if (place_ == Place::kTensor && fields_seen_ != kAllFields)
    return Fail("dtype, shape or data_offsets is missing" + Where());
  place_ = place_ == Place::kTensors ? Place::kEnd : Place::kTensors;
  return true;
}

bool HeaderReader::start_array(size_t) {
  if (place_ != Place::kTensor || field_ == kDtypeField) return Unexpected("an array");
  place_ = field_ == kShapeField ? Place::kShape : Place::kOffsets;
  return true;
}

bool HeaderReader::end_array() {
  if (place_ == Place::kOffsets) {
    if (offsets_.size() != 2) return Fail("data_offsets needs exactly two numbers" + Where());
    entries.back().offset = offsets_[0];
    entries.back().size_bytes = offsets_[1];
  }
  place_ = Place::kTensor;
  return true;
}

bool HeaderReader::number_unsigned(uint64_t value) {
  if (place_ == Place::kOffsets) {
    offsets_.push_back(value);
    return offsets_.size() <= 2 || Fail("data_offsets needs exactly two numbers" + Where());
  }
  if (place_ != Place::kShape) return Unexpected("a number");
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return Fail("a dimension overflows" + Where());
  entries.back().shape.push_back(static_cast<int64_t>(value));
  return true;
}

bool HeaderReader::string(std::string& value) {
  if (place_ == Place::kMetadata) return true;
  if (place_ != Place::kTensor || field_ != kDtypeField) return Unexpected("a string");
  if (TypeBytes(value) == 0) return Fail("unknown dtype " + Quoted(value) + Where());
  entries.back().dtype = value;
  return true;
}

// Turns [begin, end) of the data into offset and size within the file, and checks the size against
// shape and dtype.
Status PlaceInFile(SafetensorsEntry& entry, uint64_t data_start) {
  uint64_t needed = TypeBytes(entry.dtype);
  for (const int64_t dimension : entry.shape) {
    if (__builtin_mul_overflow(needed, static_cast<uint64_t>(dimension), &needed)) {
      return Corrupt("tensor " + Quoted(entry.name) + ": shape " + ShapeText(entry.shape) +
                     " overflows");
    }
  }
  const uint64_t begin = entry.offset;
  const uint64_t end = entry.size_bytes;
  if (begin > end || end - begin != needed) {
    return Corrupt(fmt::format(
        "tensor {}: data_offsets [{}, {}] do not hold shape {} of {}, which needs {} bytes",
        Quoted(entry.name), begin, end, ShapeText(entry.shape), entry.dtype, needed));
  }
  entry.offset = data_start + begin;
  entry.size_bytes = needed;
  return OkStatus();
}

// Checks that the tensors fill the data of the file without holes and overlaps, as the format
// demands. REQUIRES: the entries are sorted by their offsets.
Status CheckTiling(const std::vector<SafetensorsEntry>& entries, uint64_t data_start,
                   uint64_t file_size) {
  uint64_t expected = data_start;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offset != expected) {
      return Corrupt(fmt::format(
          "tensor {} begins at byte {} of the data, {} the one before it, which ends at {}",
          Quoted(entry.name), entry.offset - data_start,
          entry.offset < expected ? "overlapping" : "leaving a hole behind",
          expected - data_start));
    }
    expected += entry.size_bytes;
  }
  if (expected != file_size) {
    return Corrupt(fmt::format("the tensors take {} bytes of data, but the file holds {}",
                               expected - data_start, file_size - data_start));
  }
  return OkStatus();
}

}  // namespace

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t dimension : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
  return text + "]";
}

Result<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes)
    return Corrupt(fmt::format("not a safetensors file: {} bytes are too few", file.size()));
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    header_bytes |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  if (header_bytes > kMaxHeaderBytes)
    return Corrupt(fmt::format("not a safetensors file: a header of {} bytes", header_bytes));
  if (header_bytes > file.size() - kLengthBytes) {
    return Corrupt(
        fmt::format("cut short: the header has {} bytes, the file {}", header_bytes, file.size()));
  }
  const auto* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  if (header_bytes == 0 || *text != '{')
    return Corrupt("not a safetensors file: its header does not begin with '{'");

  HeaderReader reader;
  if (!json::sax_parse(text, text + header_bytes, &reader))
    return Corrupt("header: " + reader.error);

  const uint64_t data_start = kLengthBytes + header_bytes;
  std::vector<SafetensorsEntry> entries = std::move(reader.entries);
  for (SafetensorsEntry& entry : entries) {
    if (entry.size_bytes > file.size() - data_start) {
      return Corrupt(
          fmt::format("cut short: tensor {} ends at byte {} of the data, the file holds {}",
                      Quoted(entry.name), entry.size_bytes, file.size() - data_start));
    }
    LAMINA_RETURN_IF_ERROR(PlaceInFile(entry, data_start));
  }
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::pair(a.offset, a.size_bytes) < std::pair(b.offset, b.size_bytes);
            });
  LAMINA_RETURN_IF_ERROR(CheckTiling(entries, data_start, file.size()));
  return entries;
}

}  // namespace lamina
