// Where the tests find the repository's files and the programs of this build.
//
// These are functions and no macros so that only one file is compiled with an absolute path in it:
// the compiler cache then serves every checkout.
#pragma once

#include <string>

namespace lamina {

// `below` begins with a slash: "/models/tiny-stories".
std::string SourcePath(const std::string& below = "");
std::string BinPath(const std::string& below = "");  // "/lamina"

}  // namespace lamina
