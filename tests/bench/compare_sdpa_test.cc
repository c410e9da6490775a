// scripts/compare_sdpa.py with a program in place of lamina and a module in place of PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "manager/process.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kTorch[] = R"(
import contextlib, enum, types
bfloat16, float16 = "bf16", "fp16"
class Tensor:
    def __init__(self, *sizes, dtype, device):
        self.sizes = sizes
    def numel(self):
        product = 1
        for size in self.sizes:
            product *= size
        return product
    def element_size(self):
        return 2
randn = Tensor
cuda = types.SimpleNamespace(is_available=lambda: AVAILABLE, synchronize=lambda device: None)
class Backend(enum.Enum):
    FLASH_ATTENTION, CUDNN_ATTENTION, EFFICIENT_ATTENTION, MATH = range(4)
@contextlib.contextmanager
def sdpa_kernel(backend):
    if backend is Backend.FLASH_ATTENTION:
        raise RuntimeError("not for this shape")
    yield
def attention(q, k, v, enable_gqa):
    assert enable_gqa == (q.sizes[1] > k.sizes[1]) and q.sizes[2] == 1 and k.sizes == v.sizes == (16, 8, 4096, 128), (q.sizes, k.sizes)
nn = types.SimpleNamespace(attention=types.SimpleNamespace(SDPBackend=Backend, sdpa_kernel=sdpa_kernel),
                           functional=types.SimpleNamespace(scaled_dot_product_attention=attention))
)";

class CompareSdpa : public ::testing::Test {
 protected:
  // Without a program in place of lamina for "".
  CommandOutput Run(const std::string& available, const std::string& prints) const {
    std::filesystem::create_directory(folder_ / "modules");
    if (!available.empty())
      std::ofstream(folder_ / "modules/torch.py") << "AVAILABLE = " << available << kTorch;
    const std::string program = folder_ / "lamina";
    std::ofstream(program) << "#!/bin/sh\necho \"$@\" > " << program << ".called\n"
                           << prints << "\n";
    chmod(program.c_str(), 0755);
    // -I: no module of this machine's but the standard ones.
    const std::string script =
        "import sys, runpy; sys.path.insert(0, sys.argv.pop(1)); sys.argv.pop(0); "
        "runpy.run_path(sys.argv[0], run_name='__main__')";
    const Result<CommandOutput> output =
        RunCommand({"/usr/bin/python3", "-I", "-S", "-c", script, folder_ / "modules",
                    SourcePath("/scripts/compare_sdpa.py"), "--lamina", program, "--contexts",
                    "4096", "--groups", "4", "--rounds", "1"},
                   Deadline::After(std::chrono::minutes(1)));
    EXPECT_TRUE(output.ok()) << output.status();
    return output.ok() ? *output : CommandOutput{};
  }

  const TemporaryFolder folder_;
};

TEST_F(CompareSdpa, PrintsARowForEachCase) {
  const CommandOutput output = Run(
      "True",
      R"(echo '{"case": {"kv": "bfloat16", "head_dim": 128, "group": 4, "context": 4096, "kv_heads": 8, )"
      R"("sequences": 16}, "value": 2500, "ratio": 0.9}')");
  ASSERT_EQ(output.exit_status, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("| bfloat16 | 128 | 4 | 4096 | 16 | 2500 | 0.90 | "));
  std::stringstream called;
  called << std::ifstream(folder_ / "lamina.called").rdbuf();
  EXPECT_EQ(called.str(),
            "bench kernels --device cuda:0 --only attention --contexts 4096 --groups 4 --head-dims "
            "128 --kv bf16 --repeats 7 --json\n");
}

TEST_F(CompareSdpa, SaysWhatIsMissing) {
  EXPECT_THAT(Run("", "exit 1").err, HasSubstr("PyTorch is not installed for "));
  EXPECT_THAT(Run("False", "exit 1").err, HasSubstr("PyTorch finds no CUDA device"));
  const CommandOutput output = Run("True", "echo 'no such device' >&2; exit 1");
  EXPECT_EQ(output.exit_status, 1);
  EXPECT_THAT(output.err, HasSubstr("exit status 1\nno such device"));
}

}  // namespace
}  // namespace lamina::testing
