// Which weights of a compute node, or layers of a KV cache, lie outside of memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/layers_inside.h"
#include "base/status.h"

namespace lamina {

// Of an expansion that changes, unless another limit is told.
inline constexpr double kMaxExpansion = 2;

// Value type.
struct OffloadOptions {
  // Of every so many slices in a row the weights of the last lie outside; 0: none do.
  int interval = 0;
  // Not of the last one alone, but of the last so many.
  int num_in_group = 1;
  // In place of an interval, for layers of a KV cache: all of them take turns, in so few places
  // that each has room for so many times the tokens (Pie's usable expansion). 0: an interval says
  // it.
  // With is_auto that is the most, and the number of places changes while the node serves.
  double expansion = 0;
  // Of each of these slices so much of the weights, in whole matrices, lies outside; the rest
  // stays.
  double portion = 1;
  // `interval`, or the number of places, is not fixed: the manager says with each step what it is.
  bool is_auto = false;
  // With is_auto: what the weights of slices may take in memory; 0: no limit.
  int64_t memory_bytes = 0;
  // Where the file is that they lie in, a folder on a disk. Modelled devices: "".
  std::string folder = {};
  // Slices that lie outside have so many places in memory, in which they take turns.
  int buffers = 2;
  // What may be read in a second, in 10^9 bytes; 0: what the disk can, or what the device catalog
  // says.
  double gb_per_s = 0;
  // Modelled devices: the bus that they come over, which others of the same name use as well. "":
  // the device has one to itself.
  std::string bus = {};
  // What a slice has left behind in memory is overwritten, for tests.
  bool poison = false;

  bool any() const { return interval > 0 || is_auto || expansion > 1; }
  bool is_elastic() const { return is_auto && expansion > 1; }
  friend bool operator==(const OffloadOptions&, const OffloadOptions&) = default;
};

// Of a compute node. Value type.
struct ComputeOffload {
  OffloadOptions weights = {};
  OffloadOptions kv = {};  // of layers, where it keeps the KV cache itself

  bool any() const { return weights.any() || kv.any(); }
};

// Which of `num_blocks` blocks lie outside: of every `interval` in a row the last `num_in_group`.
// 0: none do.
std::vector<bool> OutsideByInterval(int num_blocks, int interval, int num_in_group = 1);

// How many of n blocks have to find room if the memory is to hold `expansion` times as much of
// each, at least 2. kInvalidArgument if that are all of them.
Result<int> SlotsForExpansion(int num_blocks, double expansion);

// Which parts of a slice lie outside so that they have about `portion` of its bytes: those that
// lie, in their order, behind the rest of it, where the middle of a part counts. [parts]
std::vector<bool> OutsideByPortion(const std::vector<int64_t>& part_bytes, double portion);

// What blocks take in memory if those that lie outside take turns in so many buffers.
int64_t BytesInMemory(const std::vector<int64_t>& block_bytes, const std::vector<bool>& outside,
                      int buffers);

// The intervals that differ in how many of `num_blocks` blocks lie outside, ascending, the largest
// of each kind; those of which as few lie outside as there are buffers are left out, as these could
// stay in memory. Ends with 0, where none lie outside.
std::vector<int> UsefulIntervals(int num_blocks, int buffers);

// The blocks that lie outside when a node begins, see FirstInterval.
Result<std::vector<bool>> FirstOutside(const OffloadOptions& options,
                                       const std::vector<int64_t>& block_bytes);

// The interval that a node begins with: the fixed one, or, if it is not fixed, the one with the
// most blocks in memory. kInvalidArgument if as few lie outside as there are buffers; kOutOfSpace,
// with both sizes, if options.memory_bytes are not enough for any.
Result<int> FirstInterval(const OffloadOptions& options, const std::vector<int64_t>& block_bytes);

// Whether the interval is not fixed, and there is memory for this one. REQUIRES: interval >= 0.
bool MayChangeTo(int interval, const OffloadOptions& options,
                 const std::vector<int64_t>& block_bytes);

// The cache has room for so many tokens while all layers are inside. kInvalidArgument as
// SlotsForExpansion. REQUIRES: options.is_elastic().
Result<ElasticKv> ElasticKvOf(const OffloadOptions& options, int num_layers, int64_t tokens_of_all);

// [number of layers inside] What a layer takes then, if a token takes so much of each.
std::vector<int64_t> LayerBytes(const ElasticKv& kv, int64_t layer_token_bytes);

// How many tokens of a KV cache of `num_layers` layers, of each of which a token takes
// `layer_token_bytes`, find room in so much memory; while all layers are inside, if that changes.
// kInvalidArgument as FirstOutside.
Result<int64_t> TokensInMemory(int num_layers, int64_t layer_token_bytes,
                               const OffloadOptions& offload, int64_t memory_bytes);

}  // namespace lamina
