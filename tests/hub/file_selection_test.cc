#include "hub/file_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::vector<std::string>> Selected(const std::vector<std::string>& paths,
                                          const std::string& name = "a/b",
                                          const std::vector<std::string>& include = {}) {
  std::vector<HubFile> files;
  for (const std::string& path : paths) files.push_back({path, 1, "", "x"});
  LAMINA_ASSIGN_OR_RETURN(const std::vector<HubFile> selected,
                          SelectFiles(files, *HubName::Parse(name), include));
  std::vector<std::string> chosen;
  for (const HubFile& file : selected) chosen.push_back(file.path);
  return chosen;
}

TEST(FileSelection, SafetensorsWithoutOtherFormsOfThem) {
  const auto chosen = Selected({".gitattributes",
                                "1_Pooling/config.json",
                                "2_Dense/config.json",
                                "LICENSE",
                                "README.md",
                                "config.json",
                                "chat_template.jinja",
                                "consolidated.safetensors",
                                "flax_model.msgpack",
                                "generation_config.json",
                                "merges.txt",
                                "model-00001-of-00002.safetensors",
                                "model-00002-of-00002.safetensors",
                                "model.safetensors.index.json",
                                "onnx/config.json",
                                "onnx/model.onnx",
                                "original/params.json",
                                "original/consolidated.00.pth",
                                "pytorch_model.bin",
                                "pytorch_model.bin.index.json",
                                "tf_model.h5",
                                "tokenizer.json",
                                "tokenizer.model",
                                "training_args.bin"});
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_THAT(*chosen,
              ElementsAre("1_Pooling/config.json", "LICENSE", "config.json", "chat_template.jinja",
                          "generation_config.json", "merges.txt",
                          "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json", "tokenizer.json", "tokenizer.model"));
}

TEST(FileSelection, OneQuantizationOfAGgufRepository) {
  const std::vector<std::string> paths = {
      "README.md", "m-Q4_K_M.gguf", "m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"};
  EXPECT_THAT(Selected(paths, "a/b:q8_0").value(),
              ElementsAre("m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"));
  const Status status = Selected(paths).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("Q4_K_M, Q8_0"));
  EXPECT_THAT(Selected({"README.md", "m-Q4_K_M.gguf"}).value(), ElementsAre("m-Q4_K_M.gguf"));
}

TEST(FileSelection, PatternsTakeWhatFitsThem) {
  const std::vector<std::string> paths = {"a.json", "b/c.json", "b/c.bin", "d.txt"};
  EXPECT_THAT(Selected(paths, "a/b", {"*.json", "d*"}).value(),
              ElementsAre("a.json", "b/c.json", "d.txt"));
  EXPECT_THAT(Selected(paths, "a/b", {"*.gguf"}).status().message(), HasSubstr("*.gguf"));
}

TEST(FileSelection, SaysWhatKindOfWeightsThereAre) {
  EXPECT_THAT(Selected({"config.json", "pytorch_model.bin"}).status().message(),
              HasSubstr("pytorch_model.bin, which is not read"));
}

}  // namespace
}  // namespace lamina
