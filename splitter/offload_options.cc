#include "splitter/offload_options.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/units.h"

namespace lamina {

std::vector<bool> OutsideByInterval(int num_blocks, int interval, int num_in_group) {
  std::vector<bool> outside(static_cast<size_t>(num_blocks));
  for (int block = 0; interval > 0 && block < num_blocks; ++block)
    outside[static_cast<size_t>(block)] = block % interval >= interval - num_in_group;
  return outside;
}

Result<int> SlotsForExpansion(int num_blocks, double expansion) {
  const int slots =
      std::max(2, static_cast<int>(std::ceil(num_blocks / std::max(expansion, 1.0) - 1e-9)));
  if (slots < num_blocks) return slots;
  return InvalidArgument("an expansion of " + std::to_string(expansion) + " leaves none of " +
                         std::to_string(num_blocks) + " layers outside: use a larger one, or none");
}

std::vector<bool> OutsideByPortion(const std::vector<int64_t>& part_bytes, double portion) {
  const auto all =
      static_cast<double>(std::accumulate(part_bytes.begin(), part_bytes.end(), int64_t{0}));
  std::vector<bool> outside;
  double before = 0;
  for (const int64_t part : part_bytes) {
    const auto bytes = static_cast<double>(part);
    outside.push_back(before + bytes / 2 >= (1 - portion) * all);
    before += bytes;
  }
  return outside;
}

int64_t BytesInMemory(const std::vector<int64_t>& block_bytes, const std::vector<bool>& outside,
                      int buffers) {
  int64_t stay = 0, largest_outside = 0;
  for (size_t i = 0; i < block_bytes.size(); ++i) {
    if (outside[i])
      largest_outside = std::max(largest_outside, block_bytes[i]);
    else
      stay += block_bytes[i];
  }
  return stay + buffers * largest_outside;
}

std::vector<int> UsefulIntervals(int num_blocks, int buffers) {
  std::vector<int> intervals;
  for (int outside = num_blocks; outside > buffers; --outside) {
    const int interval = num_blocks / outside;
    if (num_blocks / interval == outside) intervals.push_back(interval);
  }
  intervals.push_back(0);
  return intervals;
}

Result<int> FirstInterval(const OffloadOptions& options, const std::vector<int64_t>& block_bytes) {
  const int n = static_cast<int>(block_bytes.size());
  if (!options.is_auto) {
    const auto num_outside =
        std::ranges::count(OutsideByInterval(n, options.interval, options.num_in_group), true);
    if (num_outside > options.buffers) return options.interval;
    return InvalidArgument(
        std::to_string(num_outside) + " of " + std::to_string(n) +
        " blocks would lie outside and take turns in " + std::to_string(options.buffers) +
        " buffers: use a smaller interval, fewer buffers, or leave none outside");
  }
  std::vector<int> intervals = UsefulIntervals(n, options.buffers);
  std::ranges::reverse(intervals);  // the most in memory first
  int64_t least = 0;
  for (const int interval : intervals) {
    least = BytesInMemory(block_bytes, OutsideByInterval(n, interval), options.buffers);
    if (options.memory_bytes == 0 || least <= options.memory_bytes) return interval;
  }
  return OutOfSpace("the weights of slices need " + FormatSize(least) +
                    " of memory when all lie outside and take turns in " +
                    std::to_string(options.buffers) + " buffers, more than the " +
                    FormatSize(options.memory_bytes) + " that they may take");
}

Result<std::vector<bool>> FirstOutside(const OffloadOptions& options,
                                       const std::vector<int64_t>& block_bytes) {
  const int n = static_cast<int>(block_bytes.size());
  LAMINA_ASSIGN_OR_RETURN(const int interval, FirstInterval(options, block_bytes));
  return OutsideByInterval(n, interval, options.num_in_group);
}

bool MayChangeTo(int interval, const OffloadOptions& options,
                 const std::vector<int64_t>& block_bytes) {
  if (!options.is_auto) return false;
  const int n = static_cast<int>(block_bytes.size());
  return options.memory_bytes == 0 || BytesInMemory(block_bytes, OutsideByInterval(n, interval),
                                                    options.buffers) <= options.memory_bytes;
}

Result<ElasticKv> ElasticKvOf(const OffloadOptions& options, int num_layers,
                              int64_t tokens_of_all) {
  LAMINA_ASSIGN_OR_RETURN(const int least, SlotsForExpansion(num_layers, options.expansion));
  return ElasticKv{num_layers, least, tokens_of_all * num_layers};
}

std::vector<int64_t> LayerBytes(const ElasticKv& kv, int64_t layer_token_bytes) {
  std::vector<int64_t> bytes;
  for (int inside = 0; inside <= kv.num_layers; ++inside)
    bytes.push_back(layer_token_bytes * kv.Tokens(std::max(inside, kv.least_inside)));
  return bytes;
}

Result<int64_t> TokensInMemory(int num_layers, int64_t layer_token_bytes,
                               const OffloadOptions& offload, int64_t memory_bytes) {
  const std::vector<int64_t> of_token(static_cast<size_t>(num_layers), layer_token_bytes);
  if (!offload.any()) return memory_bytes / (num_layers * layer_token_bytes);
  if (offload.is_elastic()) {
    const int64_t tokens = memory_bytes / (num_layers * layer_token_bytes);
    LAMINA_RETURN_IF_ERROR(ElasticKvOf(offload, num_layers, tokens).status());
    return tokens;
  }
  if (offload.expansion > 0) {
    LAMINA_ASSIGN_OR_RETURN(const int slots, SlotsForExpansion(num_layers, offload.expansion));
    return memory_bytes / (slots * layer_token_bytes);
  }
  LAMINA_ASSIGN_OR_RETURN(const std::vector<bool> outside, FirstOutside(offload, of_token));
  return memory_bytes / BytesInMemory(of_token, outside, offload.buffers);
}

}  // namespace lamina
