// Options of the HTTP API that `lamina serve` and `lamina front` share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "api/request_reader.h"

namespace lamina {

struct ApiOptions {
  // How the model writes calls of tools, and whether it reasons before it answers: "auto": as its
  // chat template shows; "none"; else one of the words that --help names.
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";

  // Adds --tool-call-parser and --reasoning-parser.
  void AddTo(CLI::App& command);

  // REQUIRES: the model's chat template is set, if it has one.
  void ApplyTo(ServedModel& model) const;
};

}  // namespace lamina
