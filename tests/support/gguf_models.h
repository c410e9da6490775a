// models/tiny-stories as a GGUF file, and what was computed from its dequantized weights without
// lamina: tests/fixtures/gguf, made by make_gguf.py there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/families.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/golden_prompts.h"

namespace lamina::testing {

std::string GgufFixture(const std::string& name);  // "qwen2.gguf"

// The families that GGUF has an architecture for, with `dir` as the path of a file that is not
// quantized.
std::vector<Family> GgufFamilies();

struct GgufGolden {
  std::string format;  // "q4_k_m"
  std::vector<GoldenPrompt> prompts;
  std::vector<float> first_logits;  // [vocab] behind the first prompt, in double precision
};
const std::vector<GgufGolden>& GgufGoldens();

// The keys and the tokenizer of models/tiny-stories, and its tensors in the format. Throws if a
// tensor's bytes are not those that make_gguf.py made with the gguf package.
GgufWriter TinyStoriesKeys();
void AddTinyStoriesTensors(
    const std::string& format, GgufWriter& writer,
    const std::function<bool(const std::string& name)>& wanted = [](const std::string&) {
      return true;
    });

// Writes the whole file.
void WriteTinyStories(const std::string& format, const std::string& path);

}  // namespace lamina::testing
