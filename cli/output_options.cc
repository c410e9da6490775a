#include "cli/output_options.h"

#include "cli/commands.h"

namespace lamina {

void OutputFiles::AddTo(CLI::App& command, const std::string& picture) {
  command.add_option("--json-out,--result-filename", json, "Write the figures there as JSON")
      ->envname(EnvironmentName("--json-out"));
  command
      .add_option("--requests-out,--requests-filename", requests,
                  "Write a JSON line for each request there")
      ->envname(EnvironmentName("--requests-out"));
  command.add_option("--svg,--svg-filename", svg, "Draw there " + picture)
      ->envname(EnvironmentName("--svg"));
}

}  // namespace lamina
