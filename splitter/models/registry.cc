#include "splitter/models/registry.h"

#include "splitter/models/llama.h"

namespace lamina {
namespace {

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", LlamaForward},
};

}  // namespace

std::span<const Architecture> Architectures() { return kArchitectures; }

const Architecture* FindArchitecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return nullptr;
}

std::string ArchitectureNames() {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += architecture.name;
  }
  return names;
}

}  // namespace lamina
