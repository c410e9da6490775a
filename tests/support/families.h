// The model families that lamina runs, each with a small random checkpoint and what Hugging Face
// transformers answers with it: tests/fixtures/families, made by make_families.py there.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/ids.h"

namespace lamina::testing {

struct FamilyGolden {
  std::vector<TokenId> prompt;
  std::vector<TokenId> tokens;             // greedy, behind the prompt
  std::vector<std::vector<float>> logits;  // [tokens][vocab] of the rows that chose them, fp32
};

struct Family {
  std::string name;         // "mistral"
  std::string dir;          // of the checkpoint
  bool exported = false;    // lamina knows it from lamina_graph.json alone
  std::string golden_file;  // as JSON

  // Reads the file, which takes too long for every program that only lists its tests. Throws what
  // nlohmann-json throws if it is not as it should be.
  FamilyGolden Golden() const;
};

const std::vector<Family>& Families();
// A Llama in each format of quantized weights, and its logits in double precision:
// tests/fixtures/quantized, made by make_quantized.py there.
const std::vector<Family>& QuantizedFamilies();
const Family& FamilyOf(const std::string& name);

// For parameterised tests: letters, digits and '_'.
std::string TestName(const Family& family);
void PrintTo(const Family& family, std::ostream* out);

}  // namespace lamina::testing
