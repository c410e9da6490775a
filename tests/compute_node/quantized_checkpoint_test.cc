#include "compute_node/quantized_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/reference/reference.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

struct StoredTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A layer "x" of 16 outputs and 64 inputs in groups of 32, as GPTQ stores it. Code i of each output
// is i % 16, stored zeros are 7, and so 8 is subtracted; scales are 0.5 for the first group and 2.
std::vector<StoredTensor> Gptq() {
  std::vector<int32_t> index(64);
  for (int i = 0; i < 64; ++i) index[static_cast<size_t>(i)] = i / 32;
  std::vector<uint32_t> codes;
  for (int row = 0; row < 8; ++row) {
    for (int o = 0; o < 16; ++o) codes.push_back(row % 2 == 0 ? 0x76543210u : 0xfedcba98u);
  }
  std::vector<uint16_t> scales(32, ToF16(0.5f).bits);
  std::fill(scales.begin() + 16, scales.end(), ToF16(2).bits);
  return {{"x.qweight", "I32", {8, 16}, Bytes(codes)},
          {"x.qzeros", "I32", {2, 2}, Bytes(std::vector<uint32_t>(4, 0x77777777u))},
          {"x.scales", "F16", {2, 16}, Bytes(scales)},
          {"x.g_idx", "I32", {64}, Bytes(index)}};
}

class QuantizedCheckpointTest : public ::testing::Test {
 protected:
  QuantizedCheckpointTest() {
    config_.layout = QuantizationConfig::Layout::kGptq;
    config_.symmetric = false;
    config_.scale_inputs = 32;
    config_.zeros_minus_one = true;
  }

  void Write(const std::vector<StoredTensor>& tensors) {
    nlohmann::json header = nlohmann::json::object();
    std::string data;
    for (const StoredTensor& tensor : tensors) {
      header[tensor.name] = {{"dtype", tensor.dtype},
                             {"shape", tensor.shape},
                             {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
      data += tensor.bytes;
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::ofstream file(folder_.path() + "/model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof(size));
    file << text << data;
    file.close();
    Result<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(folder_.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = std::move(*checkpoint);
  }

  Result<QuantizedMatrix> Read(const WeightRef& weight = {"x.weight", {16, 64}}) {
    LAMINA_ASSIGN_OR_RETURN(const std::optional<QuantizedSource> source,
                            FindQuantized(*checkpoint_, config_, weight));
    EXPECT_TRUE(source.has_value());
    return ReadQuantized(*source);
  }

  void ExpectError(const std::vector<StoredTensor>& tensors, StatusCode code,
                   const std::string& says) {
    Write(tensors);
    const Result<QuantizedMatrix> read = Read();
    EXPECT_EQ(read.status().code(), code) << read.status();
    EXPECT_THAT(read.status().message(), HasSubstr(says));
  }

  TemporaryFolder folder_;
  QuantizationConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

// What Gptq() holds.
float Number(int64_t input) {
  return (input < 32 ? 0.5f : 2.0f) * (static_cast<float>(input % 16) - 8);
}

TEST_F(QuantizedCheckpointTest, ReadsCodesScalesAndZeros) {
  Write(Gptq());
  const Result<QuantizedMatrix> matrix = Read();
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_FALSE(matrix->format.indexed) << "the groups follow each other";
  const std::vector<float> numbers = reference::Dequantize(*matrix);
  ASSERT_EQ(numbers.size(), 16 * 64);
  for (size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(numbers[i], Number(static_cast<int64_t>(i % 64))) << i;
}

// Shares of outputs and of inputs, also those that begin amid a group and at no multiple of 8.
TEST_F(QuantizedCheckpointTest, PartsHaveTheNumbersOfTheWhole) {
  Write(Gptq());
  for (const int64_t first : {0, 8, 20, 32, 48, 60}) {
    const WeightRef part{
        .name = "x.weight", .shape = {4, 4}, .whole = {16, 64}, .first = {9, first}};
    const Result<QuantizedMatrix> matrix = Read(part);
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    const std::vector<float> numbers = reference::Dequantize(*matrix);
    ASSERT_EQ(numbers.size(), 16);
    for (size_t i = 0; i < numbers.size(); ++i)
      EXPECT_EQ(numbers[i], Number(first + static_cast<int64_t>(i % 4))) << first << " " << i;
  }
}

TEST_F(QuantizedCheckpointTest, PlainTensorsAreLeftAlone) {
  Write({{"x.weight", "BF16", {16, 64}, std::string(2048, '\0')}});
  const auto source = FindQuantized(*checkpoint_, config_, {"x.weight", {16, 64}});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_FALSE(source->has_value());
}

TEST_F(QuantizedCheckpointTest, HostileTensorsAreErrors) {
  const std::vector<StoredTensor> good = Gptq();
  for (size_t i = 0; i < 3; ++i) {
    std::vector<StoredTensor> missing = good;
    missing.erase(missing.begin() + static_cast<ptrdiff_t>(i));
    ExpectError(missing, StatusCode::kNotFound, good[i].name);
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<StoredTensor> flat = good;
    flat[i].shape = {1, static_cast<int64_t>(flat[i].bytes.size()) / (i == 2 ? 2 : 4)};
    ExpectError(flat, StatusCode::kInvalidArgument, good[i].name);
    std::vector<StoredTensor> shorter = good;
    shorter[i].shape[0] -= 1;
    shorter[i].bytes.resize(shorter[i].bytes.size() / static_cast<size_t>(good[i].shape[0]) *
                            static_cast<size_t>(good[i].shape[0] - 1));
    ExpectError(shorter, StatusCode::kInvalidArgument, good[i].name);
    std::vector<StoredTensor> other_type = good;
    other_type[i].dtype = i == 2 ? "I16" : "U32";
    ExpectError(other_type, StatusCode::kUnimplemented, good[i].name);
  }
  for (const int32_t group : {-1, 2, 1 << 30}) {
    std::vector<StoredTensor> beyond = good;
    std::memcpy(beyond[3].bytes.data() + 5 * sizeof(group), &group, sizeof(group));
    ExpectError(beyond, StatusCode::kInvalidArgument, "input 5 is in group");
  }
  for (const uint16_t bits : std::initializer_list<uint16_t>{0x7c00, 0xfc00, 0x7e00}) {
    std::vector<StoredTensor> infinite = good;
    std::memcpy(infinite[2].bytes.data() + 3 * sizeof(bits), &bits, sizeof(bits));
    ExpectError(infinite, StatusCode::kInvalidArgument, "the scale of output 3");
  }
}

}  // namespace
}  // namespace lamina
