#include "bench/dollar/sweep.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "api/http_client.h"
#include "base/path_beside.h"
#include "base/yaml.h"
#include "cost/device_catalog.h"
#include "cost/node_device.h"
#include "hub/find_model.h"
#include "manager/read_setting.h"
#include "model/model_config.h"
#include "model/model_files.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

// What the YAML says about the price of a node.
struct PriceWords {
  double per_hour = 0;
  std::string priced_as;  // a device of the price table
};

// Reads the parts of the file, and keeps what they share. The price table is read when the first
// price is looked up.
class SweepReader {
 public:
  SweepReader(Sweep& sweep, YamlErrors& errors) : sweep_(sweep), errors_(errors) {}

  void Read(YamlMap& map) {
    map.Require("version", "1");
    int version = 1;
    map.ReadInt("version", &version, 1, 1);
    map.ReadString("title", &sweep_.title);
    map.ReadString("price_table", &sweep_.price_table);
    sweep_.price_table = PathBeside(sweep_.path, sweep_.price_table);
    map.ReadInt("repeats", &sweep_.repeats, 1, 100);
    ReadLoad(map.Child("load"));
    ReadSweptModel(map.Child("model"));
    ReadPipelines(map, &pipelines_);
    map.Require("shapes", "a list of what is compared");
    for (YamlMap& shape : map.Items("shapes")) ReadShape(shape);
    if (sweep_.shapes.empty()) map.Fail("shapes", "'shapes' is empty: expected at least one");
    map.Close();
  }

 private:
  inline static const std::vector<const char*> kKinds = {"one_process", "nodes", "cluster", "url"};

  static void ReadPipelines(YamlMap& map, std::vector<std::optional<PipelineMode>>* pipelines) {
    std::vector<std::string> words;
    map.ReadChoices("pipeline", &words, kPipelineModesAutoLast.words());
    if (words.empty()) return;
    pipelines->clear();
    for (const std::string& word : words) pipelines->push_back(kPipelineModesAutoLast.Named(word));
  }

  void ReadLoad(YamlMap map) {
    SweepLoad& load = sweep_.load;
    map.ReadInts("batch", &load.batches, 1, 65536);
    map.ReadInts("context", &load.contexts, 1, 1 << 24);
    map.ReadInt("output_tokens", &load.output_tokens, 1, 1 << 20);
    std::string prefill = "computed";
    map.ReadChoice("prefill", &prefill, {"computed", "left-out"});
    load.prefill_left_out = prefill == "left-out";
    map.ReadInt("waves", &load.waves, 1, 1000);
    if (load.prefill_left_out && load.waves > 1)
      map.Fail("waves", "'waves' is for loads whose prefill is computed: expected 1");
    if (load.prefill_left_out && load.output_tokens < 2)
      map.Fail("output_tokens",
               "'output_tokens' is 1: without prefill expected at least 2, as the first token "
               "belongs to the prompt");
    map.ReadInt("seed", &load.seed, 0, 1 << 30);
    map.ReadDuration("timeout", &load.timeout);
    map.Close();
  }

  void ReadSweptModel(YamlMap map) {
    map.ReadString("path", &model_.model_path);
    ReadSetting(map, "load_format", kLoadFormats, &model_.load_format);
    ReadSetting(map, "kv_dtype", kKvDTypeChoices, &model_.kv_dtype);
    map.Close();
    if (model_.model_path.empty()) return;
    const Result<std::string> found = FindModelBeside(sweep_.path, model_.model_path);
    if (!found.ok()) return map.Fail("path", "'path': " + found.status().message());
    model_.model_path = *found;
    while (model_.model_path.size() > 1 && model_.model_path.back() == '/')
      model_.model_path.pop_back();
    model_.served_name = ModelName(model_.model_path);
    if (const auto config = ModelConfig::Load(model_.model_path); !config.ok())
      map.Fail("path", "'path': " + config.status().message());
  }

  void ReadShape(YamlMap& map) {
    SweepShape shape;
    map.Require("name");
    map.ReadString("name", &shape.name);
    if (!shape.name.empty()) map.Rename("shape '" + shape.name + "'");
    if (!names_.insert(shape.name).second)
      map.Fail("name", "there are two shapes with the name '" + shape.name + "'");
    ReadKind(map, shape);
    if (shape.kind == ShapeKind::kCluster) {
      shape.pipelines = {shape.config.pipeline};
      if (!pipelines_.empty()) shape.pipelines = pipelines_;
      ReadPipelines(map, &shape.pipelines);
      map.ReadInt("num_batches", &shape.config.num_batches, 1, 16);
      ReadSetting(map, "transport", kTransportKinds, &shape.config.transport);
    } else {
      shape.pipelines = {std::nullopt};
    }
    shape.label =
        shape.kind == ShapeKind::kEndpoint ? model_.served_name : shape.config.served_name;
    map.ReadString("label", &shape.label);
    map.Close();
    sweep_.shapes.push_back(std::move(shape));
  }

  void ReadKind(YamlMap& map, SweepShape& shape) {
    const auto has = [&](const char* key) { return map.Has(key); };
    if (std::ranges::count_if(kKinds, has) != 1)
      return errors_.Add(map.line(),
                         map.section() +
                             " needs one of one_process, nodes, cluster and url, and has " +
                             (std::ranges::any_of(kKinds, has) ? "several" : "none"));
    if (has("one_process")) return ReadOneProcess(map, shape);
    if (has("nodes")) return ReadNodes(map, shape);
    if (has("cluster")) return ReadClusterFile(map, shape);
    ReadEndpoint(map, shape);
  }

  void ReadOneProcess(YamlMap& map, SweepShape& shape) {
    shape.kind = ShapeKind::kOneProcess;
    UseModel(map, shape);
    YamlMap part = map.Child("one_process");
    NodeConfig node;
    node.role = NodeRole::kCompute;
    node.name = "all";
    part.ReadInt("threads", &node.threads, 0, 4096);
    part.ReadSize("memory", &node.memory_bytes, 0);
    AddPrice(part, shape, node, 1, ReadPrice(part));
    shape.config.nodes = {node};
    part.Close();
  }

  void ReadNodes(YamlMap& map, SweepShape& shape) {
    UseModel(map, shape);
    shape.config.device_catalog = sweep_.price_table;
    int num_compute = 0, num_memory = 0;
    for (YamlMap& item : map.Items("nodes")) {
      NodeConfig node;
      std::string role = "memory";
      item.Require("role", "compute or memory");
      item.ReadChoice("role", &role, {"compute", "memory"});
      node.role = role == "compute" ? NodeRole::kCompute : NodeRole::kMemory;
      int count = 1;
      item.ReadInt("count", &count, 1, 64);
      item.ReadString("device", &node.device);
      if (const auto device = FindModelledDevice(node.device, shape.config.device_catalog);
          !device.ok())
        item.Fail("device", "'device': " + device.status().message());
      item.ReadInt("threads", &node.threads, 0, 4096);
      if (node.role == NodeRole::kMemory)
        item.Require("memory", "how much it may use for the KV cache, for example 4GiB");
      item.ReadSize("memory", &node.memory_bytes, 0);
      AddPrice(item, shape, node, count, ReadPrice(item));
      int& number = node.role == NodeRole::kCompute ? num_compute : num_memory;
      for (int i = 0; i < count; ++i) {
        node.name = (node.role == NodeRole::kCompute ? "c" : "m") + std::to_string(number++);
        shape.config.nodes.push_back(node);
      }
      item.Close();
    }
    CheckRoles(map, shape, num_compute, num_memory);
  }

  static void CheckRoles(YamlMap& map, const SweepShape& shape, int num_compute, int num_memory) {
    if (num_compute == 0) map.Fail("nodes", "no node has the role compute: at least one must");
    if (num_compute > 1 && num_memory == 0)
      map.Fail("nodes", "several compute nodes need a node with the role memory");
    for (const NodeConfig& node : shape.config.nodes) {
      if (node.role != NodeRole::kCompute) continue;
      if (num_memory > 0 && node.memory_bytes > 0)
        map.Fail("nodes", "a compute node has 'memory', which is for KV, but memory nodes hold it");
      if (num_memory == 0 && node.memory_bytes == 0)
        map.Fail("nodes", "without memory nodes the compute node needs 'memory' for the KV cache");
    }
  }

  void ReadClusterFile(YamlMap& map, SweepShape& shape) {
    std::string path;
    map.ReadString("cluster", &path);
    Result<ClusterConfig> config = ClusterConfig::Load(PathBeside(sweep_.path, path));
    if (!config.ok()) return map.Fail("cluster", "'cluster': " + config.status().message());
    shape.config = *std::move(config);
    for (const NodeConfig& node : shape.config.nodes)
      AddPrice(map, shape, node, 1, {node.price_per_hour, ""});
  }

  void ReadEndpoint(YamlMap& map, SweepShape& shape) {
    shape.kind = ShapeKind::kEndpoint;
    map.ReadString("url", &shape.url);
    map.ReadString("api_key", &shape.api_key);
    map.ReadString("ca", &shape.ca_file);
    if (!shape.ca_file.empty()) shape.ca_file = PathBeside(sweep_.path, shape.ca_file);
    map.ReadString("model", &shape.served_model);
    map.ReadString("tokenizer", &shape.tokenizer);
    if (!shape.tokenizer.empty()) shape.tokenizer = PathBeside(sweep_.path, shape.tokenizer);
    const PriceWords price = ReadPrice(map);
    NodeConfig server;
    server.name = "server";
    AddPrice(map, shape, server, 1, price);
    if (const auto url = HttpUrl::Parse(shape.url); !url.ok())
      map.Fail("url", "'url': " + url.status().message());
    if (sweep_.load.prefill_left_out)
      map.Fail("url", "'prefill' is left-out, and a server at a url always computes its prompts");
  }

  void UseModel(YamlMap& map, SweepShape& shape) {
    if (model_.model_path.empty())
      errors_.Add(map.line(),
                  map.section() + " needs a model: give 'model: {path: FOLDER}' at the top level");
    shape.config = model_;
    shape.config.name = "dollar";
    shape.config.pipeline = PipelineMode::kNone;  // all nodes share this machine's cores
  }

  static PriceWords ReadPrice(YamlMap& map) {
    PriceWords price;
    map.ReadDouble("price_per_hour", &price.per_hour);
    map.ReadString("priced_as", &price.priced_as);
    if (price.per_hour > 0 && !price.priced_as.empty())
      map.Fail("priced_as", "give one of 'priced_as' and 'price_per_hour'");
    return price;
  }

  // Adds the price of `count` such nodes to the shape's. One node without a price leaves the shape
  // without one.
  void AddPrice(YamlMap& map, SweepShape& shape, const NodeConfig& node, int count,
                const PriceWords& words) {
    NodePrice price{node.device, count, words.per_hour};
    const bool modelled = node.device.starts_with(kModelledPrefix);
    const std::string device = !words.priced_as.empty() ? words.priced_as
                               : modelled               ? node.device.substr(kModelledPrefix.size())
                                                        : "";
    if (price.price_per_hour == 0 && !device.empty()) {
      if (!catalog_) catalog_.emplace(DeviceCatalog::Load(sweep_.price_table));
      const Result<DeviceSpec> found =
          catalog_->ok() ? (*catalog_)->Find(device) : Result<DeviceSpec>(catalog_->status());
      if (!found.ok() && !words.priced_as.empty())
        return map.Fail("priced_as", "'priced_as': " + found.status().message());
      if (found.ok()) price.price_per_hour = found->price_per_hour;
      price.device = device;
    }
    if (price.price_per_hour == 0 && shape.no_price.empty())
      shape.no_price = "no price_per_hour is known of " +
                       (node.name.empty() ? device.empty() ? "a node" : device : node.name);
    if (!shape.no_price.empty()) return shape.prices.reset();
    if (!shape.prices) shape.prices.emplace();
    shape.prices->table = sweep_.price_table;
    shape.prices->nodes.push_back(price);
  }

  Sweep& sweep_;
  YamlErrors& errors_;
  ClusterConfig model_;
  // Empty: a shape has the pipeline of its cluster file, or none.
  std::vector<std::optional<PipelineMode>> pipelines_;
  std::set<std::string> names_;
  std::optional<Result<DeviceCatalog>> catalog_;
};

}  // namespace

Result<Sweep> Sweep::Load(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return NotFound(path + ": no such file");
  std::ifstream in(path);
  std::stringstream text;
  if (!(text << in.rdbuf())) return InvalidArgument(path + ": cannot be read, or is empty");
  return Parse(text.str(), path);
}

Result<Sweep> Sweep::Parse(const std::string& yaml, const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(yaml, path));
  Sweep sweep;
  sweep.path = path;
  sweep.title = fs::path(path).stem().string();
  sweep.price_table = "devices-2026.yaml";
  YamlErrors errors(path);
  YamlMap map(root, "the top level", errors);
  SweepReader(sweep, errors).Read(map);
  LAMINA_RETURN_IF_ERROR(errors.status());
  return sweep;
}

std::vector<SweepPoint> PointsOf(const Sweep& sweep) {
  std::vector<SweepPoint> points;
  for (size_t shape = 0; shape < sweep.shapes.size(); ++shape) {
    for (const std::optional<PipelineMode> pipeline : sweep.shapes[shape].pipelines) {
      for (const int context : sweep.load.contexts) {
        for (const int batch : sweep.load.batches)
          points.push_back({shape, pipeline, context, batch});
      }
    }
  }
  return points;
}

std::string SeriesName(const Sweep& sweep, const SweepPoint& point) {
  const SweepShape& shape = sweep.shapes[point.shape];
  if (shape.pipelines.size() <= 1) return shape.name;
  return shape.name + ", " + std::string(PipelineModeName(point.pipeline.value()));
}

}  // namespace lamina
