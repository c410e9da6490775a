#include "bench/serve/serving_cost.h"

#include <charconv>

#include "cost/device_catalog.h"

namespace lamina {
namespace {

// "H100=2".
Result<NodePrice> ParseDevice(const std::string& text) {
  NodePrice node;
  const size_t equals = text.find('=');
  node.device = text.substr(0, equals);
  if (equals == std::string::npos) return node;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data() + equals + 1, end, node.count);
  if (error == std::errc() && stopped == end && node.count > 0) return node;
  return InvalidArgument("--device '" + text + "' is not understood; expected NAME or NAME=COUNT");
}

}  // namespace

double Prices::per_hour() const {
  double sum = 0;
  for (const NodePrice& node : nodes) sum += node.count * node.price_per_hour;
  return sum;
}

Result<std::optional<Prices>> FindPrices(const std::vector<std::string>& devices,
                                         const std::string& catalog_path, double per_hour) {
  if (per_hour > 0 && !devices.empty())
    return InvalidArgument("--device and --price-per-hour: give one of them");
  if (per_hour > 0) return std::optional(Prices{{{"", 1, per_hour}}, "--price-per-hour"});
  if (devices.empty()) return std::optional<Prices>();
  const Result<DeviceCatalog> catalog = DeviceCatalog::Load(catalog_path);
  if (!catalog.ok()) return catalog.status().WithContext("--device-catalog");
  Prices prices;
  prices.table = catalog_path;
  for (const std::string& text : devices) {
    LAMINA_ASSIGN_OR_RETURN(NodePrice node, ParseDevice(text));
    LAMINA_ASSIGN_OR_RETURN(const DeviceSpec device, catalog->Find(node.device));
    if (device.price_per_hour <= 0)
      return InvalidArgument(catalog_path + " has no price_per_hour for '" + node.device +
                             "'; add one, or give --price-per-hour of all nodes");
    node.price_per_hour = device.price_per_hour;
    prices.nodes.push_back(std::move(node));
  }
  return std::optional(std::move(prices));
}

Purchase PerDollar(const ServeFigures& figures, const Prices& prices) {
  const double seconds_per_dollar = 3600 / prices.per_hour();
  Purchase purchase;
  purchase.tokens_per_dollar = figures.output_throughput * seconds_per_dollar;
  purchase.total_tokens_per_dollar = figures.total_token_throughput * seconds_per_dollar;
  purchase.requests_per_dollar = figures.request_throughput * seconds_per_dollar;
  if (figures.request_goodput)
    purchase.goodput_per_dollar = *figures.request_goodput * seconds_per_dollar;
  return purchase;
}

}  // namespace lamina
