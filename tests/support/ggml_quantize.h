// Quantizes weights for GGUF files of tests, as tests/fixtures/gguf/make_gguf.py does, bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lamina::testing {

// The blocks of F32, F16, Q8_0, Q4_0, Q5_0, Q4_K, Q5_K or Q6_K, by its name. REQUIRES: whole
// blocks.
std::string QuantizeGgml(const std::string& type, std::span<const float> values);

// The number of the type in files.
uint32_t GgmlNumber(const std::string& type);

}  // namespace lamina::testing
