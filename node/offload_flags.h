// The daemons' options for what lies outside of memory.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"
#include "splitter/offload_options.h"

namespace lamina {

// What lies outside: the weights of slices, the K and V of a memory node's layers, or those of a
// compute node that keeps the KV cache itself.
enum class OffloadedPart { kWeights, kKv, kOwnKv };

class OffloadFlags {
 public:
  // Adds the options to a program, which has to outlive this object.
  OffloadFlags(CLI::App& app, OffloadedPart part);
  OffloadFlags(const OffloadFlags&) = delete;

  // What they say, once they are parsed. kInvalidArgument names the option that is wrong.
  // `needs_folder`: the device's memory outside is a disk.
  Result<OffloadOptions> Parse(bool needs_folder) const;

 private:
  const std::string prefix_;
  OffloadOptions options_;
  double max_expansion_ = kMaxExpansion;
  std::string interval_, expansion_, memory_ = "0";
};

}  // namespace lamina
