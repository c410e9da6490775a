// Reading settings of cluster_settings.h from YAML.
#pragma once

#include <optional>
#include <string>

#include "base/yaml.h"
#include "manager/cluster_settings.h"

namespace lamina {

// As YamlMap::ReadChoice, among the words of the setting.
template <typename Setting>
void ReadSetting(YamlMap& map, const std::string& key, const SettingWords<Setting>& words,
                 Setting* setting) {
  std::string word(words.NameOf(*setting));
  map.ReadChoice(key, &word, words.words());
  if (const std::optional<Setting> named = words.Named(word)) *setting = *named;
}

}  // namespace lamina
