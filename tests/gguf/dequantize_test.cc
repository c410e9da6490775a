// Against the gguf package of llama.cpp's authors: tests/fixtures/gguf/dequantize.json, made by
// make_gguf.py there.
#include "gguf/dequantize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

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
  }
}

}  // namespace
}  // namespace lamina
