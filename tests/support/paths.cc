#include "tests/support/paths.h"

namespace lamina {

std::string SourcePath(const std::string& below) { return LAMINA_SOURCE_DIR + below; }
std::string BinPath(const std::string& below) { return LAMINA_BIN_DIR + below; }

}  // namespace lamina
