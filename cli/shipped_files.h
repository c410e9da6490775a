// Files of lamina's own folder that commands read unless told otherwise.
#pragma once

#include <string>

namespace lamina {

// `path`, relative to lamina's folder, as it can be opened from here: itself if it is in the
// working folder, else in the nearest folder above the program that has it. Itself if none has it,
// so that whoever opens it says that there is no such file.
std::string ShippedPath(const std::string& path);

// The device catalog of commands that have to do with prices.
std::string DefaultCatalog();

}  // namespace lamina
