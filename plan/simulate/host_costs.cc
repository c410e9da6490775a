#include "plan/simulate/host_costs.h"

#include "base/input_file.h"
#include "base/yaml.h"

namespace lamina {

Result<HostCosts> HostCosts::Load(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const std::string text, ReadInput(path, kMaxYamlBytes));
  LAMINA_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, path));
  YamlErrors errors(path);
  YamlMap map(root, "the top level", errors);
  HostCosts costs;
  map.ReadDouble("step_us", &costs.step_us);
  map.ReadDouble("row_us", &costs.row_us);
  map.ReadDouble("layer_us", &costs.layer_us);
  map.ReadDouble("layer_row_us", &costs.layer_row_us);
  map.ReadDouble("post_us", &costs.post_us);
  map.ReadDouble("attend_us", &costs.attend_us);
  map.ReadDouble("attend_row_us", &costs.attend_row_us);
  map.ReadDouble("message_us", &costs.message_us);
  map.ReadDouble("sample_row_us", &costs.sample_row_us);
  map.Close();
  LAMINA_RETURN_IF_ERROR(errors.status());
  return costs;
}

}  // namespace lamina
