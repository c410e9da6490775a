// `lamina quantize` and `lamina perplexity`.
#pragma once

#include <CLI/CLI.hpp>

namespace lamina {

void RegisterQuantize(CLI::App& app);
void RegisterPerplexity(CLI::App& app);

}  // namespace lamina
