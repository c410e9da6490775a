#include "node/offload_flags.h"

#include <charconv>

#include "base/units.h"

namespace lamina {

OffloadFlags::OffloadFlags(CLI::App& app, OffloadedPart part)
    : prefix_(part == OffloadedPart::kOwnKv ? "--kv-offload-" : "--offload-") {
  const bool weights = part == OffloadedPart::kWeights;
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(prefix_ + name, value, help)->capture_default_str();
  };
  CLI::Option* const interval = add(
      "interval", interval_,
      weights ? "of every so many slices in a row, the weights of the last lie on a disk until "
                "they are needed; auto: the manager says with each step how many"
              : "of every so many layers in a row, K and V of the last lie outside until they are "
                "needed, so that there is room for more tokens");
  const CLI::Validator count = CLI::Range(1, 1 << 16);
  interval->check(weights ? CLI::IsMember({"auto"}) | count : count);
  if (weights) {
    add("memory", memory_,
        "with auto: what the weights of slices may take in memory, such as 1GiB; 0: no limit")
        ->needs(interval);
    add("portion", options_.portion,
        "so much of the weights of each of these slices, in whole matrices; the rest stays")
        ->check(CLI::Range(0.0, 1.0))
        ->needs(interval);
    add("bus", options_.bus,
        "modelled devices: they come over the bus of this name, which all nodes of this host that "
        "name it share")
        ->needs(interval);
  } else {
    CLI::Option* const expansion =
        add("expansion", expansion_,
            "in place of an interval: as many layers as give the memory room for so many times the "
            "tokens; auto: the manager says with each step how many")
            ->check(CLI::IsMember({"auto"}) | CLI::Range(1.0, 1e3))
            ->excludes(interval);
    add("max-expansion", max_expansion_, "with auto: for no more than so many times the tokens")
        ->check(CLI::Range(1.0, 1e3))
        ->needs(expansion);
  }
  add("num-in-group", options_.num_in_group, "not the last alone, but so many")
      ->check(count)
      ->needs(interval);
  add("folder", options_.folder,
      "on that disk; not of modelled devices, whose memory outside is their host's");
  add("buffers", options_.buffers, "so many of them have room in memory at a time")
      ->check(CLI::Range(1, 1 << 10));
  add("gb-per-s", options_.gb_per_s, "copy no faster than this; 0: no limit")
      ->check(CLI::Range(0.0, 1e6));
}

Result<OffloadOptions> OffloadFlags::Parse(bool needs_folder) const {
  OffloadOptions options = options_;
  options.is_auto = interval_ == "auto" || expansion_ == "auto";
  if (expansion_ == "auto") {
    options.expansion = max_expansion_;
  } else {
    std::from_chars(expansion_.data(), expansion_.data() + expansion_.size(), options.expansion);
  }
  if (!options.is_auto)
    std::from_chars(interval_.data(), interval_.data() + interval_.size(), options.interval);
  const Result<int64_t> memory = ParseSize(memory_);
  if (!memory.ok()) return memory.status().WithContext(prefix_ + "memory");
  options.memory_bytes = *memory;
  if (options.any() && options.folder.empty() && needs_folder)
    return InvalidArgument("what lies outside of memory: on which disk? give " + prefix_ +
                           "folder");
  if (!options.any() && !options.folder.empty())
    return InvalidArgument(prefix_ + "folder: how much lies there? give " + prefix_ + "interval");
  return options;
}

}  // namespace lamina
