// Defaults are found from any working folder, and those of the working folder come first.
#include "cli/shipped_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "manager/process.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

TEST(ShippedFiles, AreFoundFromAnyFolder) {
  if (!ProgramFolder().starts_with(SourcePath()))
    GTEST_SKIP() << "this program was built outside of lamina's folder";
  const TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const std::string catalog = DefaultCatalog(), models = ShippedPath("configs/models"),
                    none = ShippedPath("configs/no-such.yaml");
  std::filesystem::create_directory("configs");
  std::ofstream("configs/devices-2026.yaml") << "devices: []\n";
  const std::string own = DefaultCatalog();
  std::filesystem::current_path(before);
  EXPECT_EQ(catalog, SourcePath("/configs/devices-2026.yaml"));
  EXPECT_EQ(models, SourcePath("/configs/models"));
  EXPECT_EQ(none, "configs/no-such.yaml") << "for the message of whoever opens it";
  EXPECT_EQ(own, "configs/devices-2026.yaml") << "of the working folder";
}

}  // namespace
}  // namespace lamina
