// `lamina quantize`, `lamina perplexity` and `lamina pack`.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

void RegisterQuantize(CLI::App& app);
void RegisterPerplexity(CLI::App& app);
void RegisterPack(CLI::App& app);

}  // namespace lamina
