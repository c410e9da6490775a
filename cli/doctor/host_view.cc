#include "cli/doctor/host_view.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace lamina {
namespace {

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// What stands behind ": " in "4: ACTIVE".
std::string AfterColon(const std::string& text) {
  const size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

}  // namespace

std::optional<std::string> HostView::Line(const std::string& path) const {
  std::ifstream file(sysroot_ + path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return Trimmed(line);
}

std::optional<int64_t> HostView::Number(const std::string& path) const {
  const std::optional<std::string> line = Line(path);
  int64_t number = 0;
  if (!line || std::from_chars(line->data(), line->data() + line->size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

std::vector<std::string> HostView::Lines(const std::string& path) const {
  std::ifstream file(sysroot_ + path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> HostView::Names(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(sysroot_ + path, error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

bool HostView::Exists(const std::string& path) const {
  std::error_code error;
  return std::filesystem::exists(sysroot_ + path, error);
}

std::optional<std::string> HostView::Target(const std::string& path) const {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(sysroot_ + path, error);
  if (error) return std::nullopt;
  return target.string();
}

std::vector<RdmaPort> RdmaPorts(const HostView& host) {
  std::vector<RdmaPort> ports;
  const std::string root = "/sys/class/infiniband";
  for (const std::string& device : host.Names(root)) {
    for (const std::string& number : host.Names(root + "/" + device + "/ports")) {
      const std::string folder = root + "/" + device + "/ports/" + number;
      RdmaPort port;
      port.device = device;
      port.number = std::atoi(number.c_str());
      port.state = AfterColon(host.Line(folder + "/state").value_or("unknown"));
      port.link_layer = host.Line(folder + "/link_layer").value_or("unknown");
      port.rate = host.Line(folder + "/rate").value_or("");
      for (const std::string& index : host.Names(folder + "/gids")) {
        const std::string gid = host.Line(folder + "/gids/" + index).value_or("");
        if (gid.find_first_not_of("0:") == std::string::npos) continue;
        port.gids.push_back({std::atoi(index.c_str()), gid,
                             host.Line(folder + "/gid_attrs/types/" + index).value_or(""),
                             host.Line(folder + "/gid_attrs/ndevs/" + index).value_or("")});
      }
      ports.push_back(std::move(port));
    }
  }
  return ports;
}

std::string GidOf(const std::string& ip_address) {
  std::array<uint8_t, 16> bytes{};
  if (inet_pton(AF_INET, ip_address.c_str(), bytes.data() + 12) == 1) {
    bytes[10] = bytes[11] = 0xff;
  } else if (inet_pton(AF_INET6, ip_address.c_str(), bytes.data()) != 1) {
    return "";
  }
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 2)
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
  return text;
}

std::vector<PciDevice> PciDevices(const HostView& host) {
  std::vector<PciDevice> devices;
  const std::string root = "/sys/bus/pci/devices/";
  for (const std::string& address : host.Names(root)) {
    const std::string folder = root + address;
    const std::string type = host.Line(folder + "/class").value_or("");
    PciDevice device;
    device.address = address;
    device.is_gpu = host.Line(folder + "/vendor") == "0x10de" &&
                    (type.starts_with("0x0300") || type.starts_with("0x0302"));
    device.is_nic = type.starts_with("0x0200") || type.starts_with("0x0207");
    if (!device.is_gpu && !device.is_nic) continue;
    device.numa_node = static_cast<int>(host.Number(folder + "/numa_node").value_or(-1));
    device.link_width = static_cast<int>(host.Number(folder + "/current_link_width").value_or(0));
    device.max_link_width = static_cast<int>(host.Number(folder + "/max_link_width").value_or(0));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace lamina
