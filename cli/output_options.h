// The files that `lamina bench serve` and `lamina simulate` write, under the same names.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace lamina {

struct OutputFiles {
  std::string json, requests, svg;  // "": none

  // Adds --json-out, --requests-out and --svg; also as --result-filename, as `vllm bench serve` has
  // it, --requests-filename and
  // --svg-filename. Each is an environment variable, such as LAMINA_JSON_OUT. `picture`: what the
  // picture shows.
  void AddTo(CLI::App& command, const std::string& picture);
};

}  // namespace lamina
