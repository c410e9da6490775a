// What the measured machines cost, and what a dollar buys on them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/serve/serve_figures.h"

namespace lamina {

// Nodes of one kind.
struct NodePrice {
  // Its name in the catalog; "" if only a price was given.
  std::string device;
  int count = 1;
  double price_per_hour = 0;  // of each, USD
};

// All nodes that serve.
struct Prices {
  std::vector<NodePrice> nodes;
  std::string table;  // where the prices come from

  // The price of all nodes together, USD.
  double per_hour() const;
};

// From `devices`, "H100" or "H100=2", with the hourly prices of the catalog; or from `per_hour`,
// the price of everything. Nothing if neither is given. kInvalidArgument if both are, if a device
// is not understood, or if the catalog has no hourly price for it. kNotFound if there is no such
// catalog or device.
Result<std::optional<Prices>> FindPrices(const std::vector<std::string>& devices,
                                         const std::string& catalog_path, double per_hour);

// What a dollar (USD) buys.
struct Purchase {
  double tokens_per_dollar = 0;        // of output
  double total_tokens_per_dollar = 0;  // prompts included
  double requests_per_dollar = 0;
  std::optional<double> goodput_per_dollar;  // requests within the service level
};

// REQUIRES: prices.per_hour() > 0.
Purchase PerDollar(const ServeFigures& figures, const Prices& prices);

}  // namespace lamina
