#include "cost/device_catalog.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/yaml.h"

namespace lamina {
namespace {

constexpr int kMaxBatch = 1 << 20;
// Longest chain of catalogs that extend each other; a longer one is taken for a circle.
constexpr int kMaxDepth = 8;

// The key must be there unless an extended catalog has given the value already.
void ReadPositive(YamlMap& map, const std::string& key, double* value) {
  if (*value == 0) map.Require(key);
  map.ReadDouble(key, value);
  if (*value <= 0) map.Fail(key, "'" + key + "' must be more than 0");
}

void ReadShare(YamlMap& map, const std::string& key, double* value) {
  map.ReadDouble(key, value);
  if (*value <= 0 || *value > 1) map.Fail(key, "'" + key + "' must be more than 0 and at most 1");
}

// Leaves the points as they are if the key is absent or its list is empty.
void ReadPoints(YamlMap& device, const std::string& key, std::vector<MfuPoint>* points_of_key) {
  std::vector<MfuPoint> points;
  for (YamlMap& point : device.Items(key)) {
    MfuPoint read;
    point.Require("batch");
    point.ReadInt("batch", &read.batch, 1, kMaxBatch);
    point.Require("mfu");
    ReadShare(point, "mfu", &read.mfu);
    point.Close();
    if (!points.empty() && read.batch <= points.back().batch)
      point.Fail("batch", "the batches of '" + key + "' must ascend");
    points.push_back(read);
  }
  if (!points.empty()) *points_of_key = std::move(points);
}

void ReadMfu(YamlMap& device, DeviceSpec* spec) {
  if (spec->mfu.empty())
    device.Require("mfu", "a list such as [{batch: 128, mfu: 0.25}, {batch: 512, mfu: 0.46}]");
  ReadPoints(device, "mfu", &spec->mfu);
  ReadPoints(device, "attention_mfu", &spec->attention_mfu);
  if (spec->mfu.empty())
    device.Fail("mfu", device.section() + " needs at least one point of 'mfu'");
}

void ReadProfiles(YamlMap& device, const std::filesystem::path& folder, DeviceSpec* spec) {
  // One file under `profile`, or several under `profiles`.
  std::vector<std::string> files(1);
  device.ReadString("profile", &files.front());
  for (YamlMap& item : device.Items("profiles")) {
    files.emplace_back();
    item.Require("file");
    item.ReadString("file", &files.back());
    item.Close();
  }
  std::erase(files, "");
  for (std::string& file : files) file = folder / file;
  if (!files.empty()) spec->profile_paths = std::move(files);
  device.ReadInt("tensor_parallel", &spec->tensor_parallel, 1, 1024);
}

void ReadPrices(YamlMap& device, DeviceSpec* spec) {
  device.ReadDouble("price_usd", &spec->price_usd);
  device.ReadDouble("price_per_hour", &spec->price_per_hour);
  device.ReadString("price_source", &spec->price_source);
}

// Returns the entry's name; "", with a mistake in the map's errors, if it has none.
std::string ReadName(YamlMap& map) {
  std::string name;
  map.Require("name");
  map.ReadString("name", &name);
  if (name.empty()) {
    map.Fail("name", "'name' is empty");
  } else {
    map.Rename("device '" + name + "'");
  }
  return name;
}

// Sets in `spec` the figures that the entry gives. Figures that `spec` still lacks must be there.
// Relative paths start at `folder`.
void ReadDevice(YamlMap& map, const std::filesystem::path& folder, DeviceSpec* spec) {
  ReadPositive(map, "bf16_tflops", &spec->bf16_tflops);
  map.ReadDouble("fp32_tflops", &spec->fp32_tflops);
  map.ReadDouble("fp8_tflops", &spec->fp8_tflops);
  if (spec->memory_bytes == 0) map.Require("memory", "for example 80GB");
  map.ReadSize("memory", &spec->memory_bytes, 1);
  ReadPositive(map, "bandwidth_gb_per_s", &spec->bandwidth_gb_per_s);
  ReadShare(map, "bandwidth_efficiency", &spec->bandwidth_efficiency);
  map.ReadDouble("network_gb_per_s", &spec->network_gb_per_s);
  map.ReadDouble("interconnect_gb_per_s", &spec->interconnect_gb_per_s);
  map.ReadDouble("host_link_gb_per_s", &spec->host_link_gb_per_s);
  map.ReadDouble("host_link_back_gb_per_s", &spec->host_link_back_gb_per_s);
  map.ReadSize("host_link_95_percent", &spec->host_link_95_percent_bytes, 0);
  map.ReadDouble("load_gb_per_s", &spec->load_gb_per_s);
  ReadPrices(map, spec);
  ReadMfu(map, spec);
  ReadProfiles(map, folder, spec);
  if (spec->source.empty()) map.Require("source", "where its figures come from");
  map.ReadString("source", &spec->source);
  map.Close();
}

double Interpolate(const std::vector<MfuPoint>& points, double batch) {
  if (batch <= points.front().batch) return points.front().mfu;
  for (size_t i = 1; i < points.size(); ++i) {
    const MfuPoint &low = points[i - 1], &high = points[i];
    if (batch > high.batch) continue;
    const double share =
        std::log(batch / low.batch) / std::log(static_cast<double>(high.batch) / low.batch);
    return low.mfu + share * (high.mfu - low.mfu);
  }
  return points.back().mfu;
}

}  // namespace

double DeviceSpec::Mfu(double batch) const { return Interpolate(mfu, batch); }

double DeviceSpec::AttentionMfu(double rows_per_token) const {
  return Interpolate(attention_mfu.empty() ? mfu : attention_mfu, rows_per_token);
}

Result<double> DeviceSpec::HostLinkBytesPerS(double told_gb_per_s) const {
  const double gb_per_s = told_gb_per_s > 0 ? told_gb_per_s : host_link_gb_per_s;
  if (gb_per_s > 0) return 1e9 * gb_per_s;
  return InvalidArgument("the catalog says no host_link_gb_per_s of device " + name +
                         ", over which weights would come that lie outside: give gb_per_s");
}

Result<DeviceCatalog> DeviceCatalog::Load(const std::string& path) { return LoadNested(path, 0); }

Result<DeviceCatalog> DeviceCatalog::Parse(const std::string& yaml, const std::string& path) {
  return ParseNested(yaml, path, 0);
}

Result<DeviceCatalog> DeviceCatalog::LoadNested(const std::string& path, int depth) {
  std::error_code ignored;  // a path that cannot be examined counts as absent
  if (!std::filesystem::is_regular_file(path, ignored))
    return NotFound("device catalog " + path + ": no such file");
  std::ifstream in(path);
  std::stringstream text;
  if (!(text << in.rdbuf()))
    return InvalidArgument("device catalog " + path + ": cannot be read, or is empty");
  return ParseNested(text.str(), path, depth);
}

Result<DeviceCatalog> DeviceCatalog::ParseNested(const std::string& yaml, const std::string& path,
                                                 int depth) {
  LAMINA_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(yaml, path));
  YamlErrors errors(path);
  YamlMap map(root, "the top level", errors);
  int version = 1;
  map.Require("version", "1");
  map.ReadInt("version", &version, 1, 1);
  std::string base;
  map.ReadString("extends", &base);
  map.Require("devices");
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  DeviceCatalog catalog;
  if (!base.empty()) {
    // Reported at once, since the devices below may rely on the extended catalog.
    const std::string where = path + ":" + std::to_string(map.LineOf("extends"));
    if (depth == kMaxDepth)
      return InvalidArgument(where + ": catalogs extend each other in a circle");
    Result<DeviceCatalog> loaded = LoadNested(folder / base, depth + 1);
    if (!loaded.ok()) return loaded.status().WithContext(where);
    catalog = std::move(*loaded);
  }
  catalog.path_ = path;
  // A name may stand in the extended catalog too, but only once in this one.
  std::set<std::string> names;
  for (YamlMap& device : map.Items("devices")) {
    const std::string name = ReadName(device);
    if (!names.insert(name).second)
      device.Fail("name", "there are two devices with the name '" + name + "'");
    auto spec = std::find_if(catalog.devices_.begin(), catalog.devices_.end(),
                             [&](const DeviceSpec& known) { return known.name == name; });
    if (spec == catalog.devices_.end()) {
      spec = catalog.devices_.emplace(spec);
      spec->name = name;
    }
    ReadDevice(device, folder, &*spec);
  }
  map.Close();
  LAMINA_RETURN_IF_ERROR(errors.status());
  return catalog;
}

Result<DeviceSpec> DeviceCatalog::Find(std::string_view name) const {
  std::string known;
  for (DeviceSpec device : devices_) {
    if (device.name == name) {
      for (const std::string& path : device.profile_paths) {
        LAMINA_ASSIGN_OR_RETURN(LayerProfile profile,
                                LayerProfile::Load(path, device.tensor_parallel));
        if (!device.profile) {
          device.profile = std::move(profile);
        } else {
          device.other_profiles.push_back(std::move(profile));
        }
      }
      return device;
    }
    known += (known.empty() ? "" : ", ") + device.name;
  }
  return NotFound("device catalog " + path_ + " has no '" + std::string(name) +
                  "'; it has: " + (known.empty() ? "nothing" : known));
}

}  // namespace lamina
