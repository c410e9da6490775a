// What the measured machines cost, and what a dollar buys on them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/serve/serve_figures.h"

namespace lamina {

struct NodePrice {
  std::string device;  // its name in the catalog; "" if only a price was given
  int count = 1;
  double price_per_hour = 0;  // of each, USD
};

// The nodes that serve.
struct Prices {
  std::vector<NodePrice> nodes;
  std::string table;  // where the prices come from

  double per_hour() const;
};

// `devices`: "H100" or "H100=2", with the hourly price that the catalog has; `per_hour`: of
// everything, instead. None of both: none. kInvalidArgument: both, not understood, or the catalog
// has no hourly price; kNotFound as DeviceCatalog.
Result<std::optional<Prices>> FindPrices(const std::vector<std::string>& devices,
                                         const std::string& catalog_path, double per_hour);

// USD.
struct Purchase {
  double tokens_per_dollar = 0;        // of output
  double total_tokens_per_dollar = 0;  // prompts included
  double requests_per_dollar = 0;
  std::optional<double> goodput_per_dollar;  // requests within the service level
};

Purchase PerDollar(const ServeFigures& figures, const Prices& prices);

}  // namespace lamina
