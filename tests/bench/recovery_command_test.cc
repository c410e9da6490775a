// `lamina bench recovery` refuses what it cannot do before it starts anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RecoveryCommand : public ::testing::Test {
 protected:
  void SetUp() override { Write("127.0.0.1"); }

  void Write(const std::string& host) const {
    WriteFile(folder_ / "c.yaml",
              "version: 1\n"
              "cluster: {name: small}\n"
              "nodes:\n"
              "  - {name: c0, role: compute, port: 7100}\n"
              "  - {name: m0, role: memory, host: " +
                  host +
                  ", port: 7101, memory: 16MiB}\n"
                  "model: {path: " +
                  SourcePath("/models/tiny-stories") +
                  "}\n"
                  "limits: {max_num_seqs: 8}\n");
  }

  CommandOutput Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"bench", "recovery", folder_ / "c.yaml"});
    return RunLamina(arguments);
  }

  // What it says when it refuses.
  std::string Refusal(const std::vector<std::string>& arguments) const {
    const CommandOutput output = Run(arguments);
    EXPECT_EQ(output.exit_status, 1) << output.out;
    EXPECT_EQ(output.out, "");
    return output.err;
  }

  const TemporaryFolder folder_;
};

TEST_F(RecoveryCommand, SaysWhichFaultsItCannotDo) {
  EXPECT_THAT(Refusal({"--streams", "8", "--kill", "m7@5s"}),
              AllOf(HasSubstr("lamina bench recovery: "), HasSubstr("c.yaml"),
                    HasSubstr("kill m7@5s: the cluster file has no node 'm7'; it has c0, m0")));
  EXPECT_THAT(Refusal({"--streams", "8", "--kill", "m0@5"}),
              HasSubstr("--kill 'm0@5': expected NAME@TIME, such as m0@5s"));
  EXPECT_THAT(Refusal({"--streams", "8", "--kill", "m0@5s", "--kill", "m0@6s"}),
              HasSubstr("kill m0@6s: it is dead since 'kill m0@5s'"));
  EXPECT_THAT(Refusal({"--streams", "8"}), HasSubstr("nothing fails: give --kill NAME@TIME"));
  EXPECT_THAT(Refusal({"--streams", "8", "--stop", "m0@20s"}),
              HasSubstr("stop m0@20s: the run is over after 20s; give a longer --duration"));
}

TEST_F(RecoveryCommand, NeedsNodesThatItCanStart) {
  Write("192.0.2.17");
  EXPECT_THAT(Refusal({"--streams", "8", "--kill", "m0@5s"}),
              AllOf(HasSubstr("node 'm0' is on host 192.0.2.17"),
                    HasSubstr("every node needs host: 127.0.0.1")));
}

TEST_F(RecoveryCommand, NeedsStreamsThatFitTheCluster) {
  EXPECT_THAT(Refusal({"--kill", "m0@5s"}),
              HasSubstr("--streams 32: the cluster serves 8 sequences at a time; give fewer, or "
                        "raise limits.max_num_seqs"));
  EXPECT_THAT(Refusal({"--streams", "8", "--kill", "m0@5s", "--tokens", "1000"}),
              HasSubstr("128 tokens of prompt and 1000 of answer are more than the 1024"));
}

TEST_F(RecoveryCommand, ExplainsItself) {
  const CommandOutput help = RunLamina({"bench", "recovery", "--help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--kill"), HasSubstr("--stop"), HasSubstr("--restart"),
                              HasSubstr("Examples:")));
  EXPECT_EQ(Run({"--duration", "5s", "--tokens", "10", "--kill", "m0@1s"}).exit_status, 2)
      << "one of the two ends the run";
}

TEST_F(RecoveryCommand, APictureThatCannotBeWrittenIsSaidFirst) {
  EXPECT_THAT(Refusal({"--streams", "8", "--kill", "m0@5s", "--chart", "/no/such/folder/r.svg"}),
              HasSubstr("/no/such/folder/r.svg"));
}

}  // namespace
}  // namespace lamina::testing
