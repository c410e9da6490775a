#include "gguf/gguf_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "base/printable.h"

namespace lamina {
namespace {

constexpr size_t kMaxShownName = 100;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMaxAlignment = 1 << 20;

// 0 for strings, arrays and numbers that are no type.
size_t BytesOf(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool: return 1;
    case GgufType::kUint16:
    case GgufType::kInt16: return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32: return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64: return 8;
    case GgufType::kString:
    case GgufType::kArray: break;
  }
  return 0;
}

// A little-endian number at `at`.
template <typename T>
T Load(const std::byte* at) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Walks over the header. Each Take* fails at the end of the file; `what` is what was wanted.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file) : file_(file) {}

  size_t offset() const { return offset_; }
  size_t left() const { return file_.size() - offset_; }

  Result<std::span<const std::byte>> TakeBytes(uint64_t count, std::string_view what) {
    if (count > left()) {
      return Corrupt(fmt::format("cut short at byte {}: {} needs {} bytes, but {} are left",
                                 offset_, what, count, left()));
    }
    const auto taken = file_.subspan(offset_, static_cast<size_t>(count));
    offset_ += static_cast<size_t>(count);
    return taken;
  }
  template <typename T>
  Result<T> Take(std::string_view what) {
    LAMINA_ASSIGN_OR_RETURN(const auto bytes, TakeBytes(sizeof(T), what));
    return Load<T>(bytes.data());
  }
  Result<std::string_view> TakeString(std::string_view what) {
    LAMINA_ASSIGN_OR_RETURN(const uint64_t length, Take<uint64_t>(what));
    LAMINA_ASSIGN_OR_RETURN(const auto bytes, TakeBytes(length, what));
    return AsText(bytes);
  }

  std::span<const std::byte> Since(size_t begin) const {
    return file_.subspan(begin, offset_ - begin);
  }
  void AlignTo(uint64_t alignment) {
    const uint64_t aligned = (offset_ + alignment - 1) / alignment * alignment;
    offset_ = static_cast<size_t>(std::min<uint64_t>(aligned, file_.size()));
  }

 private:
  std::span<const std::byte> file_;
  size_t offset_ = 0;
};

Status SkipElements(Cursor& cursor, GgufType type, uint64_t count) {
  if (type != GgufType::kString) {
    const uint64_t size = BytesOf(type);
    if (count > cursor.left() / size) {
      return Corrupt(fmt::format("cut short at byte {}: {} elements of {} bytes, but {} are left",
                                 cursor.offset(), count, size, cursor.left()));
    }
    return cursor.TakeBytes(count * size, "an array").status();
  }
  // Each string fails by itself if the file ends before it, so a huge count ends with the file.
  for (uint64_t i = 0; i < count; ++i)
    LAMINA_RETURN_IF_ERROR(cursor.TakeString("a string").status());
  return OkStatus();
}

Result<GgufType> TakeType(Cursor& cursor) {
  const size_t at = cursor.offset();
  LAMINA_ASSIGN_OR_RETURN(const uint32_t number, cursor.Take<uint32_t>("a type"));
  if (number > static_cast<uint32_t>(GgufType::kFloat64))
    return Unimplemented(fmt::format("type {} at byte {} is none that is known", number, at));
  return static_cast<GgufType>(number);
}

Result<GgufValue> TakeValue(Cursor& cursor) {
  GgufValue value;
  LAMINA_ASSIGN_OR_RETURN(value.type, TakeType(cursor));
  if (value.type == GgufType::kArray) {
    value.is_array = true;
    LAMINA_ASSIGN_OR_RETURN(value.type, TakeType(cursor));
    if (value.type == GgufType::kArray)
      return Unimplemented(fmt::format("an array of arrays at byte {}", cursor.offset()));
    LAMINA_ASSIGN_OR_RETURN(value.count, cursor.Take<uint64_t>("the length of an array"));
  }
  const size_t begin = cursor.offset();
  LAMINA_RETURN_IF_ERROR(SkipElements(cursor, value.type, value.count));
  value.bytes = cursor.Since(begin);
  return value;
}

Status TakeValues(Cursor& cursor, uint64_t count, GgufHeader& header) {
  for (uint64_t i = 0; i < count; ++i) {
    const size_t at = cursor.offset();
    LAMINA_ASSIGN_OR_RETURN(const std::string_view name, cursor.TakeString("a key"));
    const std::string shown = Briefly(name, kMaxShownName);
    const Result<GgufValue> value = TakeValue(cursor);
    if (!value.ok()) return value.status().WithContext("key " + shown);
    if (!header.values.emplace(name, *value).second)
      return Corrupt(fmt::format("key {} is there twice, again at byte {}", shown, at));
  }
  return OkStatus();
}

Status TakeAlignment(GgufHeader& header) {
  const auto found = header.values.find("general.alignment");
  if (found == header.values.end()) return OkStatus();
  const GgufValue& value = found->second;
  const int64_t alignment = !value.is_array && value.is_integer() ? value.Integer() : 0;
  if (alignment < 1 || alignment > static_cast<int64_t>(kMaxAlignment) ||
      !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return Corrupt(fmt::format("general.alignment is {}, expected a power of two up to {}",
                               alignment, kMaxAlignment));
  }
  header.alignment = static_cast<uint64_t>(alignment);
  return OkStatus();
}

// A tensor whose data is still to be found: at `offset`, from the start of the data.
struct PlacedTensor {
  GgufTensor tensor;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

Result<std::vector<int64_t>> TakeShape(Cursor& cursor) {
  const size_t at = cursor.offset();
  LAMINA_ASSIGN_OR_RETURN(const uint32_t count, cursor.Take<uint32_t>("a number of dimensions"));
  if (count < 1 || count > kMaxDimensions)
    return Corrupt(
        fmt::format("{} dimensions at byte {}, expected 1 to {}", count, at, kMaxDimensions));
  std::vector<int64_t> shape;
  uint64_t elements = 1;
  for (uint32_t i = 0; i < count; ++i) {
    LAMINA_ASSIGN_OR_RETURN(const uint64_t size, cursor.Take<uint64_t>("a dimension"));
    if (size < 1 || __builtin_mul_overflow(elements, size, &elements) ||
        elements > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return Corrupt(fmt::format("the shape at byte {} is empty or overflows", at));
    shape.push_back(static_cast<int64_t>(size));
  }
  std::ranges::reverse(shape);
  return shape;
}

Result<PlacedTensor> TakeTensor(Cursor& cursor) {
  PlacedTensor placed;
  GgufTensor& tensor = placed.tensor;
  LAMINA_ASSIGN_OR_RETURN(tensor.shape, TakeShape(cursor));
  const size_t at = cursor.offset();
  LAMINA_ASSIGN_OR_RETURN(tensor.type, cursor.Take<uint32_t>("a tensor's type"));
  const GgmlTypeInfo* const info = FindGgmlType(tensor.type);
  if (info == nullptr)
    return Unimplemented(fmt::format("tensor type {} at byte {} is none that is known; read are {}",
                                     tensor.type, at, ReadGgmlTypes()));
  if (tensor.width() % info->block_elements != 0) {
    return Corrupt(fmt::format("rows of {} elements, but {} has blocks of {}", tensor.width(),
                               info->name, info->block_elements));
  }
  uint64_t row_bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(tensor.width()) / info->block_elements,
                             uint64_t{info->block_bytes}, &row_bytes) ||
      __builtin_mul_overflow(row_bytes, static_cast<uint64_t>(tensor.num_rows()),
                             &placed.size_bytes))
    return Corrupt("its size overflows");
  LAMINA_ASSIGN_OR_RETURN(placed.offset, cursor.Take<uint64_t>("a tensor's offset"));
  return placed;
}

Status TakeTensors(Cursor& cursor, uint64_t count, GgufHeader& header,
                   std::span<const std::byte> file) {
  std::vector<PlacedTensor> all;
  std::unordered_set<std::string_view> names;
  for (uint64_t i = 0; i < count; ++i) {
    LAMINA_ASSIGN_OR_RETURN(const std::string_view name, cursor.TakeString("a tensor's name"));
    const std::string where = "tensor " + Briefly(name, kMaxShownName);
    if (!names.insert(name).second) return Corrupt(where + " is there twice");
    Result<PlacedTensor> placed = TakeTensor(cursor);
    if (!placed.ok()) return placed.status().WithContext(where);
    placed->tensor.name = name;
    all.push_back(std::move(*placed));
  }
  cursor.AlignTo(header.alignment);
  const std::span<const std::byte> data = file.subspan(cursor.offset());
  for (PlacedTensor& placed : all) {
    const std::string where = "tensor " + Briefly(placed.tensor.name, kMaxShownName);
    if (placed.offset % header.alignment != 0) {
      return Corrupt(fmt::format("{} begins at byte {} of the data, which is no multiple of {}",
                                 where, placed.offset, header.alignment));
    }
    if (placed.size_bytes > data.size() || placed.offset > data.size() - placed.size_bytes) {
      return Corrupt(
          fmt::format("cut short: {} needs {} bytes from byte {} of the data, which has {}", where,
                      placed.size_bytes, placed.offset, data.size()));
    }
    placed.tensor.data =
        data.subspan(static_cast<size_t>(placed.offset), static_cast<size_t>(placed.size_bytes));
    header.tensors.push_back(std::move(placed.tensor));
  }
  return OkStatus();
}

Status CheckVersion(uint32_t version) {
  if (version == 2 || version == 3) return OkStatus();
  constexpr uint32_t kLargestSwapped = 0x10000000;  // of a version below 16
  if (version >= 0x01000000 && version <= kLargestSwapped && version % 0x01000000 == 0)
    return Unimplemented("a big-endian GGUF file; lamina reads little-endian ones");
  return Unimplemented(fmt::format(
      "GGUF version {}; lamina reads 2 and 3. Convert the model again with a newer llama.cpp",
      version));
}

}  // namespace

bool GgufValue::is_integer() const {
  return type != GgufType::kFloat32 && type != GgufType::kFloat64 && type != GgufType::kString &&
         type != GgufType::kBool;
}

int64_t GgufValue::Integer(uint64_t i) const {
  const std::byte* const at = bytes.data() + i * BytesOf(type);
  switch (type) {
    case GgufType::kUint8: return Load<uint8_t>(at);
    case GgufType::kInt8: return Load<int8_t>(at);
    case GgufType::kUint16: return Load<uint16_t>(at);
    case GgufType::kInt16: return Load<int16_t>(at);
    case GgufType::kUint32: return Load<uint32_t>(at);
    case GgufType::kInt32: return Load<int32_t>(at);
    case GgufType::kInt64: return Load<int64_t>(at);
    case GgufType::kUint64:
      return static_cast<int64_t>(std::min<uint64_t>(
          Load<uint64_t>(at), static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
    default: return 0;
  }
}

double GgufValue::Real(uint64_t i) const {
  const std::byte* const at = bytes.data() + i * BytesOf(type);
  return type == GgufType::kFloat64 ? Load<double>(at) : static_cast<double>(Load<float>(at));
}

std::vector<std::string_view> GgufValue::Strings() const {
  std::vector<std::string_view> strings;
  std::span<const std::byte> rest = bytes;
  while (!rest.empty()) {
    const auto length = static_cast<size_t>(Load<uint64_t>(rest.data()));
    strings.push_back(AsText(rest.subspan(sizeof(uint64_t), length)));
    rest = rest.subspan(sizeof(uint64_t) + length);
  }
  return strings;
}

int64_t GgufTensor::num_rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

size_t GgufTensor::row_bytes() const {
  return static_cast<size_t>(width()) / info().block_elements * info().block_bytes;
}

Result<GgufHeader> ParseGgufHeader(std::span<const std::byte> file) {
  constexpr std::string_view kMagic = "GGUF";
  if (!AsText(file).starts_with(kMagic))
    return Corrupt("not a GGUF file: it does not begin with \"GGUF\"");
  Cursor cursor(file);
  LAMINA_RETURN_IF_ERROR(cursor.TakeBytes(kMagic.size(), "the magic").status());
  GgufHeader header;
  LAMINA_ASSIGN_OR_RETURN(header.version, cursor.Take<uint32_t>("the version"));
  LAMINA_RETURN_IF_ERROR(CheckVersion(header.version));
  LAMINA_ASSIGN_OR_RETURN(const uint64_t num_tensors,
                          cursor.Take<uint64_t>("the number of tensors"));
  LAMINA_ASSIGN_OR_RETURN(const uint64_t num_values, cursor.Take<uint64_t>("the number of keys"));
  LAMINA_RETURN_IF_ERROR(TakeValues(cursor, num_values, header));
  LAMINA_RETURN_IF_ERROR(TakeAlignment(header));
  LAMINA_RETURN_IF_ERROR(TakeTensors(cursor, num_tensors, header, file));
  return header;
}

}  // namespace lamina
