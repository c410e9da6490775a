#include "tests/support/ggml_quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <stdexcept>

#include "base/dtype.h"

namespace lamina::testing {
namespace {

using Values = std::span<const float>;

float Rounded(float x, float low, float high) {
  return std::clamp(std::floor(x + 0.5f), low, high);
}

float Over(float a, float b) { return b == 0 ? 0 : a / b; }

void AddByte(std::string& out, int byte) { out.push_back(static_cast<char>(byte)); }

// Appends it and returns what it is in float.
float AddHalf(std::string& out, float x) {
  const F16 half = ToF16(x);
  AddByte(out, half.bits & 0xff);
  AddByte(out, half.bits >> 8);
  return ToFloat(half);
}

float LargestMagnitude(Values x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

std::string F16Of(Values x) {
  std::string out;
  AddHalf(out, x[0]);
  return out;
}

std::string BF16Of(Values x) {
  const BF16 number = ToBF16(x[0]);
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}

std::string Q8_0(Values x) {
  std::string out;
  const float d = LargestMagnitude(x) / 127, inverse = Over(1, d);
  AddHalf(out, d);
  for (const float value : x) AddByte(out, static_cast<int>(std::round(value * inverse)));
  return out;
}

// Element i beside element i + 16; their fifth bits, if there are any, before all of them.
void AddPairs(std::string& out, const std::array<int, 32>& q, int bits) {
  uint32_t high = 0;
  for (size_t i = 0; i < 32; ++i) high |= static_cast<uint32_t>(q[i] >> 4) << i;
  for (int byte = 0; bits == 5 && byte < 4; ++byte)
    AddByte(out, static_cast<int>(high >> (8 * byte) & 0xff));
  for (size_t i = 0; i < 16; ++i) AddByte(out, (q[i] & 15) | (q[i + 16] & 15) << 4);
}

// Q4_0 and Q5_0: the value of the largest magnitude becomes the lowest integer.
std::string Symmetric(Values x, int bits) {
  std::string out;
  const int half = 1 << (bits - 1);
  float largest = 0;
  for (const float value : x) largest = std::abs(value) > std::abs(largest) ? value : largest;
  const float d = largest / static_cast<float>(-half), inverse = Over(1, d);
  AddHalf(out, d);
  std::array<int, 32> q{};
  for (size_t i = 0; i < 32; ++i) {
    q[i] =
        static_cast<int>(std::clamp(std::trunc(x[i] * inverse + (static_cast<float>(half) + 0.5f)),
                                    0.0f, static_cast<float>(2 * half - 1)));
  }
  AddPairs(out, q, bits);
  return out;
}

// Q4_1 and Q5_1.
std::string FromMinimum(Values x, int bits) {
  std::string out;
  const float low = *std::ranges::min_element(x), most = static_cast<float>((1 << bits) - 1);
  const float d = (*std::ranges::max_element(x) - low) / most, inverse = Over(1, d);
  AddHalf(out, d);
  AddHalf(out, low);
  std::array<int, 32> q{};
  for (size_t i = 0; i < 32; ++i)
    q[i] = static_cast<int>(std::min(std::trunc((x[i] - low) * inverse + 0.5f), most));
  AddPairs(out, q, bits);
  return out;
}

// Q4_K and Q5_K.
std::string Groups(Values x, int bits) {
  const auto largest_q = static_cast<float>((1 << bits) - 1);
  std::array<float, 8> scale{}, minimum{};
  for (size_t g = 0; g < 8; ++g) {
    const Values group = x.subspan(g * 32, 32);
    const float low = std::min(*std::ranges::min_element(group), 0.0f);
    scale[g] = (*std::ranges::max_element(group) - low) / largest_q;
    minimum[g] = -low;
  }
  std::string out;
  const float d = AddHalf(out, *std::ranges::max_element(scale) / 63),
              dmin = AddHalf(out, *std::ranges::max_element(minimum) / 63);
  std::array<int, 8> s{}, m{};
  std::array<int, 256> q{};
  for (size_t g = 0; g < 8; ++g) {
    s[g] = static_cast<int>(Rounded(Over(scale[g], d), 0, 63));
    m[g] = static_cast<int>(Rounded(Over(minimum[g], dmin), 0, 63));
    const float step = d * static_cast<float>(s[g]), offset = dmin * static_cast<float>(m[g]);
    for (size_t i = g * 32; i < g * 32 + 32; ++i)
      q[i] = static_cast<int>(Rounded(Over(x[i] + offset, step), 0, largest_q));
  }
  for (size_t g = 0; g < 4; ++g) AddByte(out, s[g] | (s[g + 4] >> 4) << 6);
  for (size_t g = 0; g < 4; ++g) AddByte(out, m[g] | (m[g + 4] >> 4) << 6);
  for (size_t g = 4; g < 8; ++g) AddByte(out, (s[g] & 15) | (m[g] & 15) << 4);
  for (size_t i = 0; bits == 5 && i < 32; ++i) {
    int high = 0;
    for (size_t g = 0; g < 8; ++g) high |= (q[g * 32 + i] >> 4) << g;
    AddByte(out, high);
  }
  for (size_t g = 0; g < 8; g += 2) {
    for (size_t i = 0; i < 32; ++i)
      AddByte(out, (q[g * 32 + i] & 15) | (q[g * 32 + 32 + i] & 15) << 4);
  }
  return out;
}

std::string Q6_K(Values x) {
  std::array<float, 16> scale{};
  for (size_t g = 0; g < 16; ++g) scale[g] = LargestMagnitude(x.subspan(g * 16, 16)) / 31;
  std::string tail;
  const float d = AddHalf(tail, *std::ranges::max_element(scale) / 127);
  std::array<int, 16> s{};
  std::array<int, 256> q{};
  for (size_t g = 0; g < 16; ++g) {
    s[g] = static_cast<int>(Rounded(Over(scale[g], d), 0, 127));
    for (size_t i = g * 16; i < g * 16 + 16; ++i)
      q[i] = static_cast<int>(Rounded(Over(x[i], d * static_cast<float>(s[g])), -32, 31)) + 32;
  }
  std::string out;
  for (size_t half = 0; half < 256; half += 128) {
    for (size_t i = half; i < half + 64; ++i) AddByte(out, (q[i] & 15) | (q[i + 64] & 15) << 4);
  }
  for (size_t half = 0; half < 256; half += 128) {
    for (size_t i = half; i < half + 32; ++i)
      AddByte(out, q[i] >> 4 | q[i + 32] >> 4 << 2 | q[i + 64] >> 4 << 4 | q[i + 96] >> 4 << 6);
  }
  for (const int of_group : s) AddByte(out, of_group);
  return out + tail;
}

struct Quantizer {
  uint32_t number;
  size_t block;
  std::string (*quantize)(Values);
};

const Quantizer& Find(const std::string& type) {
  static const std::map<std::string, Quantizer> all = {
      {"F32",
       {0, 1, [](Values x) { return std::string(reinterpret_cast<const char*>(x.data()), 4); }}},
      {"F16", {1, 1, F16Of}},
      {"Q4_0", {2, 32, [](Values x) { return Symmetric(x, 4); }}},
      {"Q4_1", {3, 32, [](Values x) { return FromMinimum(x, 4); }}},
      {"Q5_1", {7, 32, [](Values x) { return FromMinimum(x, 5); }}},
      {"BF16", {30, 1, BF16Of}},
      {"Q5_0", {6, 32, [](Values x) { return Symmetric(x, 5); }}},
      {"Q8_0", {8, 32, Q8_0}},
      {"Q4_K", {12, 256, [](Values x) { return Groups(x, 4); }}},
      {"Q5_K", {13, 256, [](Values x) { return Groups(x, 5); }}},
      {"Q6_K", {14, 256, Q6_K}},
  };
  return all.at(type);
}

}  // namespace

std::string QuantizeGgml(const std::string& type, Values values) {
  const Quantizer& found = Find(type);
  if (values.size() % found.block != 0) throw std::invalid_argument("no whole blocks of " + type);
  std::string out;
  for (size_t i = 0; i < values.size(); i += found.block)
    out += found.quantize(values.subspan(i, found.block));
  return out;
}

uint32_t GgmlNumber(const std::string& type) { return Find(type).number; }

}  // namespace lamina::testing
