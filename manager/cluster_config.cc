#include "manager/cluster_config.h"

#include <algorithm>
#include <cctype>
#include <climits>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <set>
#include <sstream>

#include "base/cpu_list.h"
#include "base/net_address.h"
#include "base/path_beside.h"
#include "base/yaml.h"
#include "cost/node_device.h"
#include "hub/find_model.h"
#include "manager/read_setting.h"
#include "model/model_files.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxPort = 65535;
constexpr int kMaxOffloadInterval = 1 << 16, kMaxOffloadBuffers = 1 << 10;
// Less holds no useful number of tokens of any model.
constexpr int64_t kMinNodeMemory = int64_t{1} << 20;

// Names go into commands, file names and metric labels.
bool IsName(const std::string& text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  return !text.empty() && text.size() <= 63 && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), allowed);
}

bool IsModelled(const NodeConfig& node) { return IsModelledName(node.device); }

// Hosts go onto the command line of ssh, where a leading '-' would be an option.
bool IsHost(const std::string& text) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view(".-_:@").find(c) != std::string_view::npos;
  };
  return !text.empty() && text[0] != '-' && std::all_of(text.begin(), text.end(), allowed);
}

void ReadName(YamlMap& map, const std::string& key, std::string* name) {
  map.ReadString(key, name);
  if (!IsName(*name))
    map.Fail(key, "'" + key + "' is '" + *name +
                      "': expected up to 63 of the characters a-z, 0-9 and -");
}

void ReadHost(YamlMap& map, const std::string& key, std::string* host) {
  map.ReadString(key, host);
  *host = CanonicalHost(*host);
  if (!IsHost(*host))
    map.Fail(key, "'" + key + "' is '" + *host + "': expected a host name or an address");
}

// If there is any of the files, `required` must be; `why` says so.
void ReadTlsFiles(YamlMap map, const std::string& yaml_path,
                  std::initializer_list<const char*> required, const std::string& why,
                  TlsFiles* files) {
  const std::pair<const char*, std::string*> paths[] = {
      {"certificate", &files->certificate}, {"key", &files->key}, {"ca", &files->ca}};
  for (const auto& [key, path] : paths) {
    map.ReadString(key, path);
    if (!path->empty()) *path = PathBeside(yaml_path, *path);
  }
  for (const char* key : required) {
    if (!files->empty()) map.Require(key, why);
  }
  map.Close();
}

void ReadCluster(YamlMap map, const std::string& yaml_path, ClusterConfig* config) {
  ReadName(map, "name", &config->name);
  ReadHost(map, "controller", &config->controller_host);
  map.ReadInt("http_port", &config->http_port, 1, kMaxPort);
  map.ReadInt("front_port", &config->front_port, 0, kMaxPort);
  map.ReadString("secret_file", &config->secret_file);
  if (!config->secret_file.empty())
    config->secret_file = PathBeside(yaml_path, config->secret_file);
  map.ReadString("device_catalog", &config->device_catalog);
  ReadTlsFiles(map.Child("tls"), yaml_path, {"certificate", "key", "ca"},
               "TLS takes certificate, key and ca together", &config->tls);
  ReadTlsFiles(map.Child("https"), yaml_path, {"certificate", "key"},
               "HTTPS takes certificate and key together", &config->https);
  map.Close();
}

void ReadDefaults(YamlMap map, ClusterConfig* config) {
  map.ReadString("ssh", &config->ssh);
  map.ReadStrings("env", &config->env);
  map.ReadString("workdir", &config->workdir);
  map.ReadString("log_dir", &config->log_dir);
  map.Close();
}

// Under the names of vLLM's options: of each group of slices the last ones lie outside, and so many
// come before the one that runs.
void ReadOffloadGroup(YamlMap& map, OffloadOptions* offload) {
  map.Require("num_in_group", "how many slices of each group lie outside");
  map.ReadInt("group_size", &offload->interval, 1, kMaxOffloadInterval);
  map.ReadInt("num_in_group", &offload->num_in_group, 1, kMaxOffloadInterval);
  if (offload->num_in_group > offload->interval)
    map.Fail("num_in_group", "'num_in_group' is more than 'group_size'");
  int ahead = 1;
  map.ReadInt("prefetch_step", &ahead, 0, kMaxOffloadBuffers);
  offload->buffers = ahead + 1;
}

void ReadOffloadInterval(YamlMap& map, const std::string& yaml_path, NodeConfig* node) {
  OffloadOptions& offload = node->offload;
  map.Require("interval",
              "of how many slices in a row one lies outside, for example 4, or auto: as few as the "
              "requests' objectives allow");
  std::string interval;
  map.ReadString("interval", &interval);
  offload.is_auto = interval == "auto";
  map.ReadInt("buffers", &offload.buffers, 1, kMaxOffloadBuffers);
  if (!offload.is_auto) {
    map.ReadInt("interval", &offload.interval, 1, kMaxOffloadInterval);
    return;
  }
  map.Require("record", "the file of step times that `lamina bench record` has measured");
  map.ReadString("record", &node->offload_record);
  if (!node->offload_record.empty())
    node->offload_record = PathBeside(yaml_path, node->offload_record);
  map.ReadSize("memory", &offload.memory_bytes, 0);
}

// What lies outside a GPU's memory lies in its host's.
void CheckOutsideGpu(YamlMap& map, const NodeConfig& node, const OffloadOptions& offload) {
  if (!IsGpuName(node.device)) return;
  if (offload.is_elastic()) {
    map.Fail("expansion",
             "'expansion: auto' is not there for GPUs yet: 'device' is '" + node.device + "'");
  }
  if (!offload.folder.empty() || offload.gb_per_s > 0) {
    map.Fail(offload.folder.empty() ? "gb_per_s" : "folder",
             "what lies outside a GPU's memory lies in the host's: leave out 'folder' and "
             "'gb_per_s'");
  }
  if (node.host_memory_bytes > 0) {
    map.Fail("folder",
             "layers outside take turns, or are read where they lie, with 'host_memory': give one "
             "of both");
  }
}

// Of layers' K and V: how many lie outside, and where.
void ReadKvOffload(YamlMap& map, const NodeConfig& node, OffloadOptions* offload) {
  if (map.Has("expansion")) {
    std::string expansion;
    map.ReadString("expansion", &expansion);
    offload->is_auto = expansion == "auto";
    const char* const key = offload->is_auto ? "max_expansion" : "expansion";
    if (offload->is_auto) offload->expansion = kMaxExpansion;
    map.ReadDouble(key, &offload->expansion);
    if (offload->expansion <= 1) map.Fail(key, "'" + std::string(key) + "' has to be more than 1");
  } else if (map.Has("group_size")) {
    ReadOffloadGroup(map, offload);
  } else {
    map.Require("interval", "of how many layers in a row one lies outside; or 'expansion'");
    map.ReadInt("interval", &offload->interval, 1, kMaxOffloadInterval);
    map.ReadInt("buffers", &offload->buffers, 1, kMaxOffloadBuffers);
  }
  if (node.device == "cpu") map.Require("folder", "where they lie, on a disk of the node's host");
  map.ReadString("folder", &offload->folder);
  map.ReadDouble("gb_per_s", &offload->gb_per_s);
  const bool own = node.role == NodeRole::kCompute;
  if (!own && IsModelled(node)) {
    map.Fail("folder",
             "layers that lie outside are not there yet for modelled memory nodes: 'device' is '" +
                 node.device + "'");
  }
  CheckOutsideGpu(map, node, *offload);
  if (own && node.memory_bytes == 0)
    map.Fail("folder",
             "'kv_offload' is for a compute node with 'memory', which keeps the KV itself");
  map.Close();
}

void ReadOffload(YamlMap map, const std::string& yaml_path, NodeConfig* node) {
  OffloadOptions& offload = node->offload;
  if (node->role == NodeRole::kMemory) return ReadKvOffload(map, *node, &offload);
  if (map.Has("group_size"))
    ReadOffloadGroup(map, &offload);
  else
    ReadOffloadInterval(map, yaml_path, node);
  map.ReadString("bus", &offload.bus);
  if (!offload.bus.empty() && !IsModelled(*node))
    map.Fail("bus", "'bus' is for modelled devices: 'device' is '" + node->device + "'");
  map.ReadDouble("portion", &offload.portion);
  if (offload.portion <= 0 || offload.portion > 1)
    map.Fail("portion", "'portion' has to be more than 0 and at most 1");
  if (node->device == "cpu") map.Require("folder", "where they lie, on a disk of the node's host");
  map.ReadString("folder", &offload.folder);
  map.ReadDouble("gb_per_s", &offload.gb_per_s);
  CheckOutsideGpu(map, *node, offload);
  map.Close();
}

NodeConfig ReadNode(YamlMap& map, const std::string& yaml_path, bool* is_standby) {
  NodeConfig node;
  // The name is read before it is checked, so that all messages about this node can carry it.
  map.Require("name");
  map.ReadString("name", &node.name);
  if (!node.name.empty()) map.Rename("node '" + node.name + "'");
  ReadName(map, "name", &node.name);
  if (node.name == "manager")
    map.Fail("name", "'manager' is the name of the manager's own process: choose another");

  std::string role = "memory";
  map.Require("role", "compute or memory");
  map.ReadChoice("role", &role, {"compute", "memory"});
  node.role = role == "compute" ? NodeRole::kCompute : NodeRole::kMemory;
  map.ReadBool("standby", is_standby);
  if (*is_standby && node.role != NodeRole::kCompute)
    map.Fail("standby", "'standby' is for compute nodes: no other node has a memory node's KV");

  ReadHost(map, "host", &node.host);
  map.Require("port", "where its daemon listens");
  map.ReadInt("port", &node.port, 1, kMaxPort);
  map.ReadString("device", &node.device);
  if (!IsDeviceName(node.device))
    map.Fail("device", "'device' is '" + node.device + "': " + std::string(kExpectedDevice));
  map.ReadInt("threads", &node.threads, 0, 4096);
  map.ReadString("cpus", &node.cpus);
  if (!node.cpus.empty()) {
    const Result<std::vector<int>> cpus = ParseCpuList(node.cpus);
    if (!cpus.ok()) map.Fail("cpus", "'cpus': " + cpus.status().message());
    if (cpus.ok() && node.threads > std::ssize(*cpus)) {
      map.Fail("threads", "'threads' is " + std::to_string(node.threads) + ", and 'cpus' names " +
                              std::to_string(cpus->size()) +
                              ": each thread gets a core of its own");
    }
  }
  map.ReadDouble("price_per_hour", &node.price_per_hour);
  if (node.role == NodeRole::kMemory) {
    map.Require("memory", "how much it may use for the KV cache, for example 4GiB");
    map.ReadSize("memory", &node.memory_bytes, kMinNodeMemory);
    map.ReadSize("host_memory", &node.host_memory_bytes, 0);
    if (node.host_memory_bytes > node.memory_bytes)
      map.Fail("host_memory", "'host_memory' is a part of 'memory', and larger than that");
    if (node.host_memory_bytes > 0 && !IsGpuName(node.device))
      map.Fail("host_memory",
               "'host_memory' is for memory nodes on a GPU: 'device' is '" + node.device + "'");
  } else {
    map.ReadSize("memory", &node.memory_bytes, 0);
  }
  if (map.Has("offload")) ReadOffload(map.Child("offload"), yaml_path, &node);
  if (node.role == NodeRole::kCompute && map.Has("kv_offload")) {
    YamlMap kv = map.Child("kv_offload");
    ReadKvOffload(kv, node, &node.kv_offload);
  }
  map.Close();
  return node;
}

// Reads the nodes and checks the rules that concern several: names and addresses are unique, and
// the roles make a cluster.
void ReadNodes(std::vector<YamlMap> maps, int nodes_line, const std::string& yaml_path,
               YamlErrors& errors, ClusterConfig* config) {
  std::set<std::string> names;
  std::map<std::string, std::string> addresses;
  std::vector<std::pair<int, int64_t>> compute_nodes;  // {line, memory_bytes}
  for (YamlMap& map : maps) {
    bool is_standby = false;
    const NodeConfig node = ReadNode(map, yaml_path, &is_standby);
    if (node.role == NodeRole::kCompute)
      compute_nodes.emplace_back(map.LineOf("role"), node.memory_bytes);
    (is_standby ? config->standbys : config->nodes).push_back(node);
    if (!names.insert(node.name).second)
      errors.Add(map.LineOf("name"), "there are two nodes with the name '" + node.name + "'");
    const std::string address = ClusterConfig::Address(node);
    const auto [other, is_new] = addresses.emplace(address, node.name);
    if (!is_new)
      errors.Add(map.LineOf("port"), "node '" + node.name + "' has the address " + address +
                                         " of node '" + other->second + "'");
  }
  const auto num_compute = std::ranges::count(config->nodes, NodeRole::kCompute, &NodeConfig::role);
  if (num_compute == 0) {
    errors.Add(nodes_line, config->standbys.empty()
                               ? "no node has the role compute: at least one must"
                               : "all nodes with the role compute are standbys: at least one must "
                                 "be none");
  }
  const std::vector<NodeConfig> all = config->daemons();
  const bool has_memory = std::ranges::count(all, NodeRole::kMemory, &NodeConfig::role) > 0;
  if (num_compute > 1 && !has_memory)
    errors.Add(nodes_line, "several compute nodes need a node with the role memory");
  for (const auto& [line, memory_bytes] : compute_nodes) {
    if (has_memory && memory_bytes > 0)
      errors.Add(line,
                 "'memory' is for memory nodes: where there are any, a compute node holds no "
                 "KV cache");
    if (!has_memory && num_compute <= 1 && memory_bytes < kMinNodeMemory)
      errors.Add(line,
                 "without memory nodes a compute node holds the KV cache, and needs "
                 "'memory': how much it may use, for example 4GiB");
  }
}

void ReadModel(YamlMap map, const std::string& yaml_path, ClusterConfig* config) {
  map.Require("path", "the model's folder or GGUF file");
  map.ReadString("path", &config->model_path);
  map.ReadString("served_name", &config->served_name);
  ReadSetting(map, "load_format", kLoadFormats, &config->load_format);
  ReadSetting(map, "kv_dtype", kKvDTypeChoices, &config->kv_dtype);
  map.Close();
  if (config->model_path.empty()) return;  // a mistake that is in the errors already

  const Result<std::string> found = FindModelBeside(yaml_path, config->model_path);
  if (found.ok()) {
    config->model_path = *found;
  } else {
    config->missing_model = found.status().message();
  }
  // A '/' at the end would leave served_name empty.
  if (config->model_path.size() > 1 && config->model_path.back() == '/')
    config->model_path.pop_back();
  if (config->served_name.empty()) config->served_name = ModelName(config->model_path);
}

bool OnOneHost(const ClusterConfig& config) {
  const std::vector<NodeConfig> all = config.daemons();
  return std::ranges::all_of(all,
                             [&](const NodeConfig& node) { return node.host == all.front().host; });
}

void ReadTransport(YamlMap map, ClusterConfig* config) {
  ReadSetting(map, "kind", kTransportKinds, &config->transport);
  map.ReadBool("fallback", &config->transport_fallback);
  ReadSetting(map, "checksum", kSwitches, &config->payload_checksum);
  ReadSetting(map, "polling", kPollingModes, &config->polling);
  if (config->transport == TransportKind::kShm && !OnOneHost(*config) &&
      !config->transport_fallback)
    map.Fail(
        "kind",
        "'kind' is 'shm', but the nodes are not all on one host: use auto, or set fallback: true");
  map.Close();
}

void ReadAttention(YamlMap map, ClusterConfig* config) {
  map.ReadInt("kv_head_parallel", &config->kv_head_parallel, 1, 1024);
  map.ReadSize("spread_tokens", &config->spread_tokens, 0);
  ReadSetting(map, "wire_dtype", kWireDTypeChoices, &config->wire_dtype);
  map.ReadBool("prefix_caching", &config->prefix_caching);
  const auto num_memory = std::ranges::count_if(
      config->nodes, [](const NodeConfig& node) { return node.role == NodeRole::kMemory; });
  if (num_memory % config->kv_head_parallel != 0) {
    map.Fail("kv_head_parallel",
             "'kv_head_parallel' is " + std::to_string(config->kv_head_parallel) + ": the " +
                 std::to_string(num_memory) + " memory nodes cannot be grouped like that");
  }
  map.Close();
}

void ReadNetwork(YamlMap map, ClusterConfig* config) {
  map.ReadDuration("modelled_latency", &config->modelled_latency);
  map.ReadDouble("modelled_gb_per_s", &config->modelled_gb_per_s);
  if (config->modelled_gb_per_s != 0 &&
      (config->modelled_gb_per_s < 0.001 || config->modelled_gb_per_s > 1e6))
    map.Fail("modelled_gb_per_s", "'modelled_gb_per_s' must be 0 or from 0.001 to 1000000");
  if (config->models_network() && !OnOneHost(*config)) {
    map.Fail(config->modelled_gb_per_s > 0 ? "modelled_gb_per_s" : "modelled_latency",
             "a network can only be modelled between nodes on one host, and there are several");
  }
  map.Close();
}

void ReadPipeline(YamlMap map, ClusterConfig* config) {
  ReadSetting(map, "policy", kPipelineModes, &config->pipeline);
  map.ReadInt("num_batches", &config->num_batches, 1, 16);
  ReadSetting(map, "overlap", kSwitches, &config->overlap);
  map.Close();
}

void ReadParallel(YamlMap map, ClusterConfig* config) {
  map.ReadInt("pipeline_parallel_size", &config->pipeline_parallel_size, 1, 256);
  map.ReadInt("tensor_parallel_size", &config->tensor_parallel_size, 1, 256);
  const auto num_compute = std::ranges::count(config->nodes, NodeRole::kCompute, &NodeConfig::role);
  const int64_t shares = int64_t{config->pipeline_parallel_size} * config->tensor_parallel_size;
  if (config->shares_model() && shares != num_compute) {
    const std::string key =
        config->tensor_parallel_size > 1 ? "tensor_parallel_size" : "pipeline_parallel_size";
    map.Fail(key, "pipeline_parallel_size x tensor_parallel_size is " + std::to_string(shares) +
                      ": it needs as many nodes with the role compute, and there are " +
                      std::to_string(num_compute));
  }
  map.Close();
}

// The buses, and the nodes whose weights come over them.
void ReadBuses(std::vector<YamlMap> maps, int nodes_line, YamlErrors& errors,
               ClusterConfig* config) {
  for (YamlMap& map : maps) {
    std::string name;
    double gb_per_s = 0;
    map.Require("name");
    ReadName(map, "name", &name);
    map.Require("gb_per_s", "what comes over it in a second, in 10^9 bytes");
    map.ReadDouble("gb_per_s", &gb_per_s);
    if (gb_per_s <= 0) map.Fail("gb_per_s", "'gb_per_s' has to be more than 0");
    map.Close();
    config->buses[name] = gb_per_s;
  }
  for (std::vector<NodeConfig>* const nodes : {&config->nodes, &config->standbys}) {
    for (NodeConfig& node : *nodes) {
      if (node.offload.bus.empty()) continue;
      const auto bus = config->buses.find(node.offload.bus);
      if (bus == config->buses.end()) {
        errors.Add(nodes_line, "node '" + node.name + "' names the bus '" + node.offload.bus +
                                   "', which is not in 'buses'");
      } else if (node.offload.gb_per_s > 0) {
        errors.Add(nodes_line,
                   "node '" + node.name + "' has a bus, whose 'gb_per_s' is said there");
      } else {
        node.offload.gb_per_s = bus->second;
      }
    }
  }
}

void ReadScheduling(YamlMap map, ClusterConfig* config) {
  map.ReadBool("coordinate_buses", &config->coordinate_buses);
  ReadSetting(map, "queue", kQueueModes, &config->queue);
  ReadSetting(map, "on_hopeless", kHopelessModes, &config->on_hopeless);
  map.Close();
}

void ReadSlo(YamlMap map, SloRule* slo) {
  const Clock::duration none{};
  for (const auto& [key, value] :
       {std::pair("ttft", &slo->ttft),
        std::pair("ttft_per_input_token", &slo->ttft_per_input_token),
        std::pair("max_ttft", &slo->max_ttft), std::pair("tpot", &slo->tpot)}) {
    map.ReadDuration(key, value);
    if (*value > kLongestObjective) map.Fail(key, std::string("'") + key + "' must be at most 10m");
  }
  if (slo->ttft_per_input_token > std::chrono::seconds(1))
    map.Fail("ttft_per_input_token", "'ttft_per_input_token' must be at most 1s");
  if (slo->max_ttft > none && slo->ttft == none && slo->ttft_per_input_token == none)
    map.Fail("max_ttft", "'max_ttft' limits 'ttft' and 'ttft_per_input_token', which are not set");
  if (slo->max_ttft > none && slo->max_ttft < slo->ttft)
    map.Fail("max_ttft", "'max_ttft' is shorter than 'ttft'");
  map.Close();
}

void ReadLimits(YamlMap map, ClusterConfig* config) {
  map.ReadInt("max_num_seqs", &config->max_num_seqs, 1, 65536);
  map.ReadInt("max_num_batched_tokens", &config->max_num_batched_tokens, 1, 1 << 20);
  map.ReadSize("max_model_len", &config->max_model_len, 0);
  map.ReadInt("max_num_queued_reqs", &config->max_num_queued_reqs, 1, INT_MAX);
  map.ReadInt("max_rebuilds", &config->max_rebuilds, 0, 1000);
  map.ReadDuration("start_timeout", &config->start_timeout);
  map.ReadDuration("step_timeout", &config->step_timeout);
  map.ReadDuration("peer_timeout", &config->peer_timeout);
  map.ReadDuration("suspect_after", &config->suspect_after);
  map.ReadDuration("drain_timeout", &config->drain_timeout);
  if (config->max_num_batched_tokens < config->max_num_seqs) {
    map.Fail("max_num_batched_tokens",
             "'max_num_batched_tokens' is " + std::to_string(config->max_num_batched_tokens) +
                 ": expected at least max_num_seqs, " + std::to_string(config->max_num_seqs));
  }
  map.Close();
}

}  // namespace

bool ClusterConfig::has_modelled() const { return std::ranges::any_of(daemons(), IsModelled); }

std::vector<NodeConfig> ClusterConfig::daemons() const {
  std::vector<NodeConfig> all = nodes;
  all.insert(all.end(), standbys.begin(), standbys.end());
  return all;
}

std::string ClusterConfig::Address(const NodeConfig& node) {
  return JoinHostPort(node.host, node.port);
}

std::string ClusterConfig::FrontAddress() const {
  return JoinHostPort(controller_host, front_port);
}

NodeId ClusterConfig::IdOf(size_t place) const {
  const NodeId id = nodes[place].id;
  return id == NodeId{} ? NodeId{static_cast<uint32_t>(place + 1)} : id;
}

Result<ModelConfig> ClusterConfig::LoadModel() const {
  if (!missing_model.empty()) return NotFound(missing_model);
  return ModelConfig::Load(model_path);
}

Result<ClusterConfig> ClusterConfig::Load(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return NotFound(path + ": no such file");
  std::ifstream in(path);
  std::stringstream text;
  if (!(text << in.rdbuf())) return InvalidArgument(path + ": cannot be read, or is empty");
  LAMINA_ASSIGN_OR_RETURN(ClusterConfig config, Parse(text.str(), path));
  for (const NodeConfig& node : config.daemons()) {
    const Result<std::optional<DeviceSpec>> device =
        FindModelledDevice(node.device, config.device_catalog);
    const std::string named = path + ": node '" + node.name + "'";
    if (!device.ok()) return device.status().WithContext(named);
    if (*device && node.memory_bytes > (*device)->memory_bytes) {
      return InvalidArgument(named + ": 'memory' is " + FormatGigabytes(node.memory_bytes) +
                             ", more than the " + FormatGigabytes((*device)->memory_bytes) +
                             " of device " + (*device)->name);
    }
  }
  return config;
}

Result<ClusterConfig> ClusterConfig::Parse(const std::string& yaml, const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(yaml, path));
  ClusterConfig config;
  YamlErrors errors(path);
  YamlMap map(root, "the top level", errors);
  map.Require("version", "1");
  map.ReadInt("version", &config.version, 1, 1);
  ReadCluster(map.Child("cluster"), path, &config);
  ReadDefaults(map.Child("defaults"), &config);

  map.Require("nodes");
  ReadNodes(map.Items("nodes"), map.LineOf("nodes"), path, errors, &config);
  ReadBuses(map.Items("buses"), map.LineOf("nodes"), errors, &config);
  // The catalog's default is known only now: whether one is needed depends on the nodes.
  if (config.has_modelled() && config.device_catalog.empty())
    config.device_catalog = "devices.yaml";
  if (!config.device_catalog.empty())
    config.device_catalog = PathBeside(path, config.device_catalog);

  // The sections below are checked against config.nodes, which therefore is read first.
  map.Require("model");
  ReadModel(map.Child("model"), path, &config);
  ReadTransport(map.Child("transport"), &config);
  ReadAttention(map.Child("attention"), &config);
  ReadNetwork(map.Child("network"), &config);
  ReadPipeline(map.Child("pipeline"), &config);
  ReadParallel(map.Child("parallel"), &config);
  ReadScheduling(map.Child("scheduling"), &config);
  ReadSlo(map.Child("slo"), &config.slo);
  ReadLimits(map.Child("limits"), &config);
  map.Close();
  LAMINA_RETURN_IF_ERROR(errors.status());
  return config;
}

}  // namespace lamina
