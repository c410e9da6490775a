// scripts/compare_llama_cpp.py with programs in place of both that only write down how they are
// called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "manager/process.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CompareLlamaCpp : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteProgram(
        "lamina",
        R"({"value": 2, "reference_value": 2, "ratio": 1, "details": {"share_of_limit": 0.5}})");
    WriteProgram("llama-batched-bench", R"({"speed_tg": 4})");
    WriteProgram("llama-quantize", "", "touch \"$3\"");
  }

  void WriteProgram(const std::string& name, const std::string& prints,
                    const std::string& also = "") const {
    const std::string path = folder_ / name;
    std::ofstream(path) << "#!/bin/sh\necho \"$@\" >> " << path << ".called\necho '" << prints
                        << "'\n"
                        << also << "\n";
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }

  CommandOutput Run(std::vector<std::string> before, const std::vector<std::string>& more) const {
    std::vector<std::string> command = std::move(before);
    command.insert(command.end(),
                   {"/usr/bin/python3", SourcePath("/scripts/compare_llama_cpp.py"), "--lamina",
                    folder_ / "lamina", "--gguf", folder_ / "any.gguf", "--llama-cpp", folder_ / "",
                    "--batch", "8", "--context", "512", "--rounds", "1"});
    command.insert(command.end(), more.begin(), more.end());
    const Result<CommandOutput> output =
        RunCommand(command, Deadline::After(std::chrono::minutes(1)));
    EXPECT_TRUE(output.ok()) << output.status();
    return output.ok() ? *output : CommandOutput{};
  }

  std::string Called(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(folder_ / (name + ".called")).rdbuf();
    return text.str();
  }

  const TemporaryFolder folder_;
};

TEST_F(CompareLlamaCpp, BothGetTheSameThreads) {
  const CommandOutput output = Run({}, {"--threads", "3"});
  ASSERT_EQ(output.exit_status, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("| bf16 | 8 | 512 | 2.0 | 2.0 | 1.00 | 0.50 | 4.0 | 0.50 |"));
  EXPECT_THAT(Called("lamina"), HasSubstr("--compute-threads 3 "));
  EXPECT_THAT(Called("llama-batched-bench"), HasSubstr("-t 3 "));
}

TEST_F(CompareLlamaCpp, TheyAreThoseThatTheProcessMayUse) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  const CommandOutput output = Run({"/usr/bin/taskset", "-c", std::to_string(core)}, {});
  ASSERT_EQ(output.exit_status, 0) << output.err;
  EXPECT_THAT(Called("lamina"), HasSubstr("--compute-threads 1 "));
  EXPECT_THAT(Called("llama-batched-bench"), HasSubstr("-t 1 "));
}

TEST_F(CompareLlamaCpp, OfQuantizedWeightsBothReadTheSameFile) {
  const CommandOutput output = Run({}, {"--quant", "f16,q4_k"});
  ASSERT_EQ(output.exit_status, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("| f16 | 8 | 512 | 2.0"));
  EXPECT_THAT(output.out, HasSubstr("| q4_k | 8 | 512 | 2.0"));
  EXPECT_THAT(Called("llama-quantize"), HasSubstr("--pure " + (folder_ / "any.gguf") + " "));
  for (const char* file : {"any.gguf", "any.q4_k.gguf"}) {
    EXPECT_THAT(Called("lamina"), HasSubstr("bench throughput " + (folder_ / file) + " --"));
    EXPECT_THAT(Called("llama-batched-bench"), HasSubstr("-m " + (folder_ / file) + " "));
  }
  EXPECT_THAT(Called("lamina"), Not(HasSubstr("dummy")));
}

// `lamina serve` is a server that answers anything, and `lamina pack` makes an empty file.
TEST_F(CompareLlamaCpp, StartupIsTimedColdAndWarm) {
  std::ofstream(folder_ / "any.gguf") << "GGUF";
  std::ofstream(folder_ / "lamina") << R"(#!/usr/bin/python3
import http.server, socketserver, sys
open(sys.argv[0] + ".called", "a").write(" ".join(sys.argv[1:]) + "\n")
if sys.argv[1] == "pack":
    open(sys.argv[2] + ".packed", "w").close()
    sys.exit()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        open(sys.argv[0] + ".asked", "a").write(self.path + "\n")
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
server = socketserver.TCPServer(("127.0.0.1", 0), Answer)  # an HTTPServer asks for its host's name
print("loading\nany is served on http://127.0.0.1:%d/v1" % server.server_address[1], flush=True)
server.serve_forever()
)";
  const CommandOutput output = Run({}, {"--startup", "--quant", "f16,q4_0"});
  ASSERT_EQ(output.exit_status, 0) << output.err;
  for (const char* row :
       {"| f16 | cold | ", "| f16 | warm | ", "| q4_0 | cold | ", "| q4_0 | warm | "})
    EXPECT_THAT(output.out, HasSubstr(row));
  EXPECT_THAT(Called("lamina"), HasSubstr("serve " + (folder_ / "any.q4_0.gguf") + " --port 0 "));
  EXPECT_THAT(Called("llama-batched-bench"), HasSubstr("-m " + (folder_ / "any.q4_0.gguf") + " "));
  std::stringstream asked;
  asked << std::ifstream(folder_ / "lamina.asked").rdbuf();
  EXPECT_EQ(asked.str(), "/v1/completions\n/v1/completions\n/v1/completions\n/v1/completions\n");
  EXPECT_THAT(Called("lamina"), Not(HasSubstr("pack")));

  const CommandOutput packed = Run({}, {"--startup", "--pack"});
  ASSERT_EQ(packed.exit_status, 0) << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("| f16, packed | cold | "));
  EXPECT_THAT(Called("lamina"), HasSubstr("pack " + (folder_ / "any.gguf") + "\nserve "));
  EXPECT_THAT(Run({}, {"--pack"}).err, HasSubstr("--pack needs --startup"));
}

TEST_F(CompareLlamaCpp, AServerThatEndsIsReportedWithWhatItSaid) {
  WriteProgram("lamina", "there is no such model", "exit 3");
  std::ofstream(folder_ / "any.gguf") << "GGUF";
  const CommandOutput output = Run({}, {"--startup"});
  EXPECT_NE(output.exit_status, 0);
  EXPECT_THAT(output.err, HasSubstr("there is no such model"));
}

}  // namespace
}  // namespace lamina::testing
