#include "base/device_catalog.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/yaml.h"

namespace lamina {
namespace {

constexpr int kMaxBatch = 1 << 20;

void ReadPositive(YamlMap& map, const std::string& key, double* value) {
  map.Require(key);
  map.ReadDouble(key, value);
  if (*value <= 0) map.Fail(key, "'" + key + "' must be more than 0");
}

void ReadShare(YamlMap& map, const std::string& key, double* value) {
  map.ReadDouble(key, value);
  if (*value <= 0 || *value > 1) map.Fail(key, "'" + key + "' must be more than 0 and at most 1");
}

void ReadMfu(YamlMap& device, DeviceSpec* spec) {
  device.Require("mfu", "a list such as [{batch: 128, mfu: 0.25}, {batch: 512, mfu: 0.46}]");
  for (YamlMap& point : device.Items("mfu")) {
    MfuPoint read;
    point.Require("batch");
    point.ReadInt("batch", &read.batch, 1, kMaxBatch);
    point.Require("mfu");
    ReadShare(point, "mfu", &read.mfu);
    point.Close();
    if (!spec->mfu.empty() && read.batch <= spec->mfu.back().batch) point.Fail("batch", "the batches of 'mfu' must ascend");
    spec->mfu.push_back(read);
  }
  if (spec->mfu.empty()) device.Fail("mfu", device.section() + " needs at least one point of 'mfu'");
}

// Relative paths start at `folder`.
DeviceSpec ReadDevice(YamlMap& map, const std::filesystem::path& folder) {
  DeviceSpec spec;
  map.Require("name");
  map.ReadString("name", &spec.name);
  if (spec.name.empty()) {
    map.Fail("name", "'name' is empty");
  } else {
    map.Rename("device '" + spec.name + "'");
  }
  ReadPositive(map, "bf16_tflops", &spec.bf16_tflops);
  map.Require("memory", "for example 80GB");
  map.ReadSize("memory", &spec.memory_bytes, 1);
  ReadPositive(map, "bandwidth_gb_per_s", &spec.bandwidth_gb_per_s);
  ReadShare(map, "bandwidth_efficiency", &spec.bandwidth_efficiency);
  map.ReadDouble("network_gb_per_s", &spec.network_gb_per_s);
  map.ReadDouble("price_usd", &spec.price_usd);
  map.ReadDouble("price_per_hour", &spec.price_per_hour);
  ReadMfu(map, &spec);
  map.ReadString("profile", &spec.profile_path);
  if (!spec.profile_path.empty()) spec.profile_path = folder / spec.profile_path;
  map.ReadInt("tensor_parallel", &spec.tensor_parallel, 1, 1024);
  map.Require("source", "where its figures come from");
  map.ReadString("source", &spec.source);
  map.Close();
  return spec;
}

}  // namespace

double DeviceSpec::Mfu(double batch) const {
  if (batch <= mfu.front().batch) return mfu.front().mfu;
  for (size_t i = 1; i < mfu.size(); ++i) {
    const MfuPoint &low = mfu[i - 1], &high = mfu[i];
    if (batch > high.batch) continue;
    const double share = std::log(batch / low.batch) / std::log(static_cast<double>(high.batch) / low.batch);
    return low.mfu + share * (high.mfu - low.mfu);
  }
  return mfu.back().mfu;
}

Result<DeviceCatalog> DeviceCatalog::Load(const std::string& path) {
  std::error_code ignored;  // cannot be looked at: as good as absent
  if (!std::filesystem::is_regular_file(path, ignored)) return NotFound("device catalog " + path + ": no such file");
  std::ifstream in(path);
  std::stringstream text;
  if (!(text << in.rdbuf())) return InvalidArgument("device catalog " + path + ": cannot be read, or is empty");
  return Parse(text.str(), path);
}

Result<DeviceCatalog> DeviceCatalog::Parse(const std::string& yaml, const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(yaml, path));
  DeviceCatalog catalog;
  catalog.path_ = path;
  YamlErrors errors(path);
  YamlMap map(root, "the top level", errors);
  int version = 1;
  map.Require("version", "1");
  map.ReadInt("version", &version, 1, 1);
  map.Require("devices");
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::set<std::string> names;
  for (YamlMap& device : map.Items("devices")) {
    catalog.devices_.push_back(ReadDevice(device, folder));
    const std::string& name = catalog.devices_.back().name;
    if (!names.insert(name).second) device.Fail("name", "there are two devices with the name '" + name + "'");
  }
  map.Close();
  LAMINA_RETURN_IF_ERROR(errors.status());
  return catalog;
}

Result<DeviceSpec> DeviceCatalog::Find(std::string_view name) const {
  std::string known;
  for (DeviceSpec device : devices_) {
    if (device.name == name) {
      if (device.profile_path.empty()) return device;
      LAMINA_ASSIGN_OR_RETURN(device.profile, LayerProfile::Load(device.profile_path, device.tensor_parallel));
      return device;
    }
    known += (known.empty() ? "" : ", ") + device.name;
  }
  return NotFound("device catalog " + path_ + " has no '" + std::string(name) + "'; it has: " + (known.empty() ? "nothing" : known));
}

Result<std::optional<DeviceSpec>> FindModelledDevice(const std::string& device, const std::string& catalog_path) {
  if (device == "cpu") return std::optional<DeviceSpec>();
  if (!device.starts_with(kModelledPrefix) || device.size() == kModelledPrefix.size()) {
    return InvalidArgument("device '" + device + "': expected cpu, or modelled:NAME with a NAME of the device catalog");
  }
  if (catalog_path.empty()) return InvalidArgument("device '" + device + "' needs a device catalog");
  LAMINA_ASSIGN_OR_RETURN(const DeviceCatalog catalog, DeviceCatalog::Load(catalog_path));
  LAMINA_ASSIGN_OR_RETURN(DeviceSpec spec, catalog.Find(device.substr(kModelledPrefix.size())));
  return std::optional<DeviceSpec>(std::move(spec));
}

}  // namespace lamina
