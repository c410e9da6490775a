#include "cli/cluster_status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "api/http_client.h"
#include "base/net_address.h"
#include "manager/api_key.h"

namespace lamina {
namespace {

using nlohmann::json;

// The field as a text for people, "" if it is missing: what a manager of another version sends must
// not end the command.
std::string Text(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return "";
  const json& value = object[key];
  return value.is_string() ? value.get<std::string>() : value.dump();
}

int64_t Number(const json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number()
             ? object[key].get<int64_t>()
             : 0;
}

// Columns as wide as their widest cell, two spaces between; the first row is the heading.
std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string KvUse(const json& node) {
  const int64_t capacity = Number(node, "capacity_tokens");
  if (capacity <= 0) return "-";
  const int64_t used = Number(node, "used_tokens");
  const std::string kv_heads = Text(node, "kv_heads");
  return std::to_string(used) + " / " + std::to_string(capacity) + " (" +
         std::to_string(used * 100 / capacity) + "%)" +
         (kv_heads.empty() ? "" : " of kv_heads " + kv_heads);
}

// What each compute node has of a model that none holds alone; "" if all hold it.
std::string Shares(const json& document) {
  std::string text;
  for (const json& node :
       document.is_object() ? document.value("nodes", json::array()) : json::array()) {
    if (const std::string holds = Text(node, "holds"); !holds.empty())
      text += fmt::format("\n{} holds {}: {:.1f} MB of weights", Text(node, "name"), holds,
                          static_cast<double>(Number(node, "weight_bytes")) * 1e-6);
  }
  return text.empty() ? "" : text + "\n";
}

// The paths to a node; empty if it has none, or the manager tells of none.
json PathsOf(const json& node) {
  const json paths = node.is_object() ? node.value("paths", json::array()) : json::array();
  return paths.is_array() ? paths : json::array();
}

// "shm", "ucx (tcp/eth0)".
std::string PathText(const json& path) {
  const std::string through = Text(path, "through");
  return Text(path, "fabric") + (through.empty() ? "" : " (" + through + ")");
}

// The node's worst path, as the manager judges it.
std::string Transport(const json& node) {
  const std::string worst = Text(node, "transport");
  const json paths = PathsOf(node);
  for (const json& path : paths) {
    if (Text(path, "fabric") == worst) return PathText(path);
  }
  return worst.empty() ? "-" : worst;
}

// The paths to nodes that are not all reached alike: of those the table shows only the worst.
std::string MixedPaths(const json& document) {
  std::string text;
  const json nodes = document.is_object() ? document.value("nodes", json::array()) : json::array();
  for (const json& node : nodes) {
    std::map<std::string, std::string> sources;  // by path
    const json paths = PathsOf(node);
    for (const json& path : paths) {
      std::string& from = sources[PathText(path)];
      from += (from.empty() ? "" : ", ") + Text(path, "from");
    }
    if (sources.size() < 2) continue;
    text += "\ndata paths to " + Text(node, "name") + ":";
    for (const auto& [path, from] : sources)
      text += (text.ends_with(':') ? " " : "; ") + path + " from " + from;
    text += "\n";
  }
  return text;
}

// Which data paths were passed over, with the reasons; a line for each set of pairs that has the
// same ones.
std::string NotUsed(const json& document) {
  std::map<std::string, std::string> nodes;  // by reason
  const json all = document.is_object() ? document.value("nodes", json::array()) : json::array();
  for (const json& node : all) {
    std::map<std::string, std::string> sources;  // likewise, of this node
    const json paths = PathsOf(node);
    for (const json& path : paths) {
      std::string& from = sources[Text(path, "refused")];
      from += (from.empty() ? "" : ", ") + Text(path, "from");
    }
    if (paths.empty()) sources[Text(node, "transport_refused")] = "";
    for (const auto& [refused, from] : sources) {
      if (refused.empty()) continue;
      nodes[refused] += (nodes[refused].empty() ? "" : ", ") + Text(node, "name") +
                        (sources.size() > 1 ? " from " + from : "");
    }
  }
  std::string text;
  for (const auto& [refused, names] : nodes)
    text += "\ndata paths not used to " + names + ": " + refused + "\n";
  return text;
}

// The nodes that a manager tells of if they are not those of the YAML; "" if they are, or if it
// tells of none because it is still starting.
std::string ForeignNodes(const ClusterConfig& config, const json& document) {
  std::set<std::string> told, ours;
  const json nodes = document.value("nodes", json::array());
  for (const json& node : nodes) told.insert(Text(node, "name") + " at " + Text(node, "address"));
  for (const NodeConfig& node : config.daemons())
    ours.insert(node.name + " at " + ClusterConfig::Address(node));
  if (told.empty() || told == ours) return "";
  return fmt::format("{}", fmt::join(told, ", "));
}

}  // namespace

std::string ManagerUrl(const ClusterConfig& config) {
  return (config.https.empty() ? "http://" : "https://") +
         JoinHostPort(config.controller_host, config.http_port);
}

ManagerAnswer AskManager(const ClusterConfig& config) {
  ManagerAnswer answer;
  HttpClientOptions options;
  // The manager got its key in the same way.
  const Result<std::string> key = FindApiKey(config.env);
  if (!key.ok()) {
    answer.detail = key.status().message();
    return answer;
  }
  options.api_key = *key;
  options.ca_file = config.https.ca;
  options.connect_timeout = std::chrono::seconds(2);
  options.silence_timeout = std::chrono::seconds(5);
  const Result<HttpClient> client = HttpClient::Create(ManagerUrl(config), options);
  if (!client.ok()) {
    answer.detail = client.status().message();
    return answer;
  }
  const Result<HttpResponse> health = client->Get("/health");
  if (!health.ok()) {
    answer.detail = "manager not reachable: " + health.status().message();
    return answer;
  }
  answer.healthy = health->status == 200;
  const Result<HttpResponse> status = client->Get("/cluster/status");
  if (!status.ok()) {
    answer.detail = "manager not reachable: " + status.status().message();
    return answer;
  }
  const json document = json::parse(status->body, nullptr, false);
  if (!status->ok() || !document.is_object()) {
    answer.detail = client->address() + " answered /cluster/status with status " +
                    std::to_string(status->status) + ": " + ErrorMessageOf(*status);
    return answer;
  }
  if (const std::string others = ForeignNodes(config, document); !others.empty()) {
    answer.healthy = false;
    answer.detail =
        "another server answers on " + ManagerUrl(config) + ", with the nodes " + others +
        ": stop it, change cluster.http_port, or was the YAML changed since it was started?";
    return answer;
  }
  answer.reachable = true;
  answer.serving = document.value("serving", json(false)) == json(true);
  answer.detail = Text(document, "detail");
  answer.status_json = status->body;
  if (!answer.status_json.ends_with('\n')) answer.status_json += '\n';
  return answer;
}

// ", 3 WHAT", or nothing.
std::string Unless0(int64_t number, const std::string& what) {
  return number == 0 ? "" : ", " + std::to_string(number) + what;
}

std::string StatusTable(const std::string& status_json) {
  const json document = json::parse(status_json, nullptr, false);
  const bool serving = document.is_object() && document.value("serving", json(false)) == json(true);
  const std::string detail = Text(document, "detail");
  std::string text =
      (serving ? "serving" : "not serving") + (detail.empty() ? "" : ": " + detail) + "\n\n";

  std::vector<std::vector<std::string>> rows = {
      {"NODE", "ROLE", "ADDRESS", "STATE", "TRANSPORT", "KV TOKENS", "SEQUENCES", "DETAIL"}};
  if (document.is_object() && document.contains("nodes") && document["nodes"].is_array()) {
    for (const json& node : document["nodes"]) {
      rows.push_back({Text(node, "name"), Text(node, "role"), Text(node, "address"),
                      Text(node, "state"), Transport(node), KvUse(node),
                      Text(node, "num_sequences"), Text(node, "detail")});
    }
  }
  text += Table(rows) + Shares(document) + MixedPaths(document) + NotUsed(document);
  const json scheduler =
      document.is_object() ? document.value("scheduler", json::object()) : json::object();
  text +=
      "\nrequests: " + std::to_string(Number(scheduler, "num_running")) + " running, " +
      std::to_string(Number(scheduler, "num_waiting")) + " waiting" +
      Unless0(Number(scheduler, "num_parked"), " parked until a node comes that can hold them") +
      Unless0(Number(scheduler, "num_suspended"), " sit out until their node answers") +
      Unless0(Number(scheduler, "num_rebuilding"), " start again") + "; " +
      std::to_string(Number(scheduler, "num_preemptions")) + " preemptions\n";
  return text;
}

std::string ProcessReport(const std::string& detail, const std::vector<DaemonRecord>& daemons,
                          const Result<std::vector<bool>>& running, bool json_wanted) {
  json processes = json::array();
  std::vector<std::vector<std::string>> rows = {{"PROCESS", "HOST", "PID", "STATE", "LOG"}};
  for (size_t i = 0; i < daemons.size(); ++i) {
    const DaemonRecord& daemon = daemons[i];
    const json is_running = running.ok() ? json(static_cast<bool>((*running)[i])) : json(nullptr);
    processes.push_back({{"name", daemon.name},
                         {"host", daemon.host},
                         {"pid", daemon.process.pid},
                         {"running", is_running},
                         {"log", daemon.log}});
    const std::string state = is_running.is_null()     ? "unknown"
                              : is_running.get<bool>() ? "running"
                                                       : "ended";
    rows.push_back(
        {daemon.name, daemon.host, std::to_string(daemon.process.pid), state, daemon.log});
  }
  const std::string why = detail + (running.ok() ? "" : "; " + running.status().message());
  if (json_wanted)
    return json({{"serving", false}, {"detail", why}, {"processes", processes}}).dump() + "\n";
  if (daemons.empty()) return "not up: " + why + "\n";
  return "not serving: " + why + "\n\n" + Table(rows);
}

}  // namespace lamina
