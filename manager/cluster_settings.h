// The settings of a cluster that are one of a few words: the types of their values, as far as they
// do not stand in wire/settings.h, and their words in the cluster's YAML, on command lines and in
// output.
//
//   PipelineModeName(PipelineMode::kFixed)  ->  "fixed"
//   kPipelineModes.Named("fixed")           ->  PipelineMode::kFixed
//   kPipelineModes.listed()                 ->  "auto | none | fixed | rotational"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "wire/settings.h"

namespace lamina {

// The words of a setting, each once, in the order in which --help and messages list them. Value
// type.
template <typename Setting>
class SettingWords {
 public:
  struct Entry {
    Setting value{};
    std::string_view word;
  };

  // At most seven.
  constexpr SettingWords(std::initializer_list<Entry> entries) {
    for (const Entry& entry : entries) entries_[size_++] = entry;
  }

  // "" if the value has no word here.
  constexpr std::string_view NameOf(const Setting& value) const {
    for (const Entry& entry : entries()) {
      if (entry.value == value) return entry.word;
    }
    return "";
  }

  // nullopt if there is no such word.
  constexpr std::optional<Setting> Named(std::string_view word) const {
    for (const Entry& entry : entries()) {
      if (entry.word == word) return std::optional<Setting>(std::in_place, entry.value);
    }
    return std::nullopt;
  }

  // Some of them, for a place that takes no others or lists them in another order.
  constexpr SettingWords Only(std::initializer_list<Setting> values) const {
    SettingWords some({});
    for (const Setting& value : values) some.entries_[some.size_++] = {value, NameOf(value)};
    return some;
  }

  std::vector<std::string> words() const {
    std::vector<std::string> words;
    for (const Entry& entry : entries()) words.emplace_back(entry.word);
    return words;
  }

  // "auto | on | off".
  std::string listed() const {
    std::string text;
    for (const Entry& entry : entries()) text.append(text.empty() ? "" : " | ").append(entry.word);
    return text;
  }

 private:
  constexpr std::span<const Entry> entries() const { return {entries_.data(), size_}; }

  std::array<Entry, 7> entries_{};
  size_t size_ = 0;
};

// How steps of several batches share the compute nodes while memory nodes attend for others.
enum class PipelineMode : uint8_t {
  // Begins with kNone, then takes whichever of the others, with up to num_batches, is fastest by
  // the measured times of slices and attention.
  kAuto,
  kNone,   // one batch per compute node
  kFixed,  // each compute node runs every slice of its batches
  // Slice k of batch j runs on compute node (j + k) mod their number; the batch's context moves
  // from node to node.
  kRotational,
};

inline constexpr SettingWords<PipelineMode> kPipelineModes({{PipelineMode::kAuto, "auto"},
                                                            {PipelineMode::kNone, "none"},
                                                            {PipelineMode::kFixed, "fixed"},
                                                            {PipelineMode::kRotational,
                                                             "rotational"}});

// "auto", "none", "fixed" or "rotational".
constexpr std::string_view PipelineModeName(PipelineMode mode) {
  return kPipelineModes.NameOf(mode);
}

// The same as options and files of benchmarks list them.
inline constexpr SettingWords<PipelineMode> kPipelineModesAutoLast = kPipelineModes.Only(
    {PipelineMode::kNone, PipelineMode::kFixed, PipelineMode::kRotational, PipelineMode::kAuto});

// Which waiting request is served next, see scheduler/policies.h.
enum class QueueMode : uint8_t {
  kFifo,
  kPriority,  // smaller ones first
  kDeadline,  // whose next token is due first
};

inline constexpr SettingWords<QueueMode> kQueueModes({{QueueMode::kFifo, "fifo"},
                                                      {QueueMode::kPriority, "priority"},
                                                      {QueueMode::kDeadline, "deadline"}});

// "fifo", "priority" or "deadline".
constexpr std::string_view QueueModeName(QueueMode mode) { return kQueueModes.NameOf(mode); }

// What becomes of requests that wait when their first token is due.
enum class HopelessMode : uint8_t { kServe, kDrop };

inline constexpr SettingWords<HopelessMode> kHopelessModes({{HopelessMode::kServe, "serve"},
                                                            {HopelessMode::kDrop, "drop"}});

inline constexpr SettingWords<TransportKind> kTransportKinds(
    {{TransportKind::kAuto, TransportKindName(TransportKind::kAuto)},
     {TransportKind::kVerbs, TransportKindName(TransportKind::kVerbs)},
     {TransportKind::kUcx, TransportKindName(TransportKind::kUcx)},
     {TransportKind::kShm, TransportKindName(TransportKind::kShm)},
     {TransportKind::kTcp, TransportKindName(TransportKind::kTcp)}});

inline constexpr SettingWords<Switch> kSwitches({{Switch::kAuto, "auto"},
                                                 {Switch::kOn, "on"},
                                                 {Switch::kOff, "off"}});

// "auto", "on" or "off".
constexpr std::string_view SwitchName(Switch value) { return kSwitches.NameOf(value); }

inline constexpr SettingWords<PollingMode> kPollingModes({{PollingMode::kAuto, "auto"},
                                                          {PollingMode::kDevice, "device"},
                                                          {PollingMode::kHost, "host"}});

// "auto", "device" or "host".
constexpr std::string_view PollingModeName(PollingMode mode) { return kPollingModes.NameOf(mode); }

inline constexpr SettingWords<LoadFormat> kLoadFormats({{LoadFormat::kAuto, "auto"},
                                                        {LoadFormat::kSafetensors, "safetensors"},
                                                        {LoadFormat::kDummy, "dummy"}});

// "auto", "safetensors" or "dummy".
constexpr std::string_view LoadFormatName(LoadFormat format) { return kLoadFormats.NameOf(format); }

// A dtype, or nullopt for "auto".
using DTypeSetting = std::optional<DType>;

// Of the KV cache. fp8 is E4M3 without scales: values beyond +-448 are stored as +-448. The last
// two have 8 bits and a scale for each token and kv_head.
inline constexpr SettingWords<DTypeSetting> kKvDTypeChoices(
    {{std::nullopt, "auto"},
     {DType::kF32, DTypeName(DType::kF32)},
     {DType::kBF16, DTypeName(DType::kBF16)},
     {DType::kF16, DTypeName(DType::kF16)},
     {DType::kF8, DTypeName(DType::kF8)},
     {DType::kI8Scaled, DTypeName(DType::kI8Scaled)},
     {DType::kF8Scaled, DTypeName(DType::kF8Scaled)}});
// Of q and outputs in messages.
inline constexpr SettingWords<DTypeSetting> kWireDTypeChoices =
    kKvDTypeChoices.Only({std::nullopt, DType::kF32, DType::kBF16, DType::kF16});

}  // namespace lamina
