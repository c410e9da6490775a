// The device catalog of commands that have to do with prices.
#pragma once

namespace lamina {

inline constexpr char kDefaultCatalog[] = "configs/devices-2026.yaml";  // devices.yaml lacks most prices

}  // namespace lamina
