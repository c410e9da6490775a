// Against the gguf package of llama.cpp's authors: tests/fixtures/gguf/dequantize.json, made by
// make_gguf.py there.
#include "gguf/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/dtype.h"
#include "tests/support/gguf_models.h"

namespace lamina {
namespace {

std::vector<std::byte> FromHex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(DequantizeTest, EveryTypeGivesTheBitsOfTheGgufPackage) {
  std::ifstream file(testing::GgufFixture("dequantize.json"));
  const auto golden = nlohmann::json::parse(file);
  size_t num_read = 0;
  for (uint32_t number = 0; number < 64; ++number)
    num_read += FindGgmlType(number) != nullptr && FindGgmlType(number)->is_read;
  EXPECT_EQ(golden.size(), num_read);
  for (const auto& [name, entry] : golden.items()) {
    uint32_t number = 0;
    while (FindGgmlType(number) == nullptr || FindGgmlType(number)->name != name) ++number;
    const GgmlTypeInfo& info = *FindGgmlType(number);
    // Blocks need not be aligned.
    std::vector<std::byte> blocks = FromHex(entry["blocks"]);
    blocks.insert(blocks.begin(), std::byte{0xff});
    const std::vector<std::byte> expected = FromHex(entry["values"]);
    const size_t count = (blocks.size() - 1) / info.block_bytes;
    std::vector<float> values(count * info.block_elements);
    ASSERT_EQ(values.size() * sizeof(float), expected.size()) << name;
    Dequantize(static_cast<GgmlType>(number), blocks.data() + 1, static_cast<int64_t>(count),
               values.data());
    EXPECT_EQ(std::memcmp(values.data(), expected.data(), expected.size()), 0) << name;

    const auto type = static_cast<GgmlType>(number);
    const GgmlCodes* const codes = CodesOf(type);
    EXPECT_EQ(codes != nullptr, info.block_elements > 1) << name;
    if (codes == nullptr) continue;
    std::vector<int8_t> integers(values.size());
    std::vector<float> scales(values.size() / static_cast<size_t>(codes->group)), minima(scales);
    Unpack(type, blocks.data() + 1, static_cast<int64_t>(count), integers.data(), scales.data(),
           codes->has_minima ? minima.data() : nullptr);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t group = i / static_cast<size_t>(codes->group);
      ASSERT_EQ(std::fma(static_cast<float>(integers[i]), scales[group], minima[group]), values[i])
          << name << " " << i;
      ASSERT_GE(integers[i], codes->lowest);
      ASSERT_LT(integers[i], codes->lowest + (1 << codes->bits));
      if (codes->fp16) {
        ASSERT_EQ(ToFloat(ToF16(scales[group])), scales[group]) << name;
        ASSERT_EQ(ToFloat(ToF16(minima[group])), minima[group]) << name;
      }
    }
  }
}

}  // namespace
}  // namespace lamina
