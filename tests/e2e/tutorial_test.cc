// The commands of docs/tutorial.md, one after the other as a reader types them, and what stands
// there of their output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/text_file.h"
#include "manager/process.h"
#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;

// What stands between two lines ``` with something behind the first one, or a heading.
struct Block {
  std::string kind;  // "sh", "sh server", "text", "console", "heading"
  std::string text;
};

std::vector<Block> BlocksOf(const std::string& document) {
  std::vector<Block> blocks;
  std::istringstream lines(document);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) blocks.push_back({line.substr(3), ""});
    } else if (inside) {
      blocks.back().text += line + "\n";
    } else if (line.starts_with("## ")) {
      blocks.push_back({"heading", line.substr(3)});
    }
  }
  return blocks;
}

void ReplaceAll(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Whether `text` has the pieces of `pattern` between "..." in this order, and whether it is `text`
// from its beginning to its end where no "..." stands there.
bool Matches(const std::string& text, std::string pattern) {
  ReplaceAll(pattern, "...", "\1");
  size_t at = 0;
  for (size_t begin = 0; begin <= pattern.size();) {
    const size_t end = std::min(pattern.find('\1', begin), pattern.size());
    std::string piece = pattern.substr(begin, end - begin);
    // Columns are as wide as their contents.
    while (piece.starts_with(' ') && begin > 0) piece.erase(0, 1);
    while (piece.ends_with(' ') && end < pattern.size()) piece.pop_back();
    const size_t found = text.find(piece, at);
    if (found == std::string::npos || (begin == 0 && found != 0)) return false;
    at = found + piece.size();
    if (end == pattern.size()) return piece.empty() || text.ends_with(piece);
    begin = end + 1;
  }
  return true;
}

class Tutorial : public ::testing::Test {
 protected:
  // On ports and in a folder of its own.
  Tutorial() {
    setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1);
    setenv("PATH", (BinPath("") + ":" + getenv("PATH")).c_str(), 1);
    setenv("LAMINA_URL", ("http://127.0.0.1:" + port_).c_str(), 1);
    std::string cluster = *ReadTextFile(SourcePath("/configs/local.yaml"));
    for (const char* port : {"7100", "7101", "7102"})
      ReplaceAll(cluster, port, std::to_string(FreePort()));
    ReplaceAll(cluster, "8000", port_);
    ReplaceAll(cluster, "../models", SourcePath("/models"));
    std::ofstream(cluster_) << cluster;
  }
  ~Tutorial() override {
    EndServer();
    (void)Run("lamina cluster down " + cluster_).status();
  }

  std::string Ours(std::string text) const {
    ReplaceAll(text, "/tmp/", folder_.path() + "/");
    ReplaceAll(text, "configs/local.yaml", cluster_);
    ReplaceAll(text, "8000", port_);
    return text;
  }
  static Result<CommandOutput> Run(const std::string& script) {
    const std::string in_source = "cd " + ShellQuote(SourcePath("")) + "\n" + script;
    return RunCommand({"bash", "-euo", "pipefail", "-c", "exec 2>&1\n" + in_source},
                      Deadline::After(seconds(120)));
  }
  void StartServer(const std::string& command) {
    ChildProcess::Options options;
    options.argv = {"bash", "-c", "cd " + ShellQuote(SourcePath("")) + "\nexec " + command};
    options.log_path = log_;
    Result<ChildProcess> server = ChildProcess::Spawn(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_.emplace(*std::move(server));
  }
  // As Ctrl-C does.
  void EndServer() {
    if (!server_) return;
    server_->Kill(SIGINT);
    server_->Wait(Deadline::After(seconds(20)));
    server_.reset();
  }
  std::string ServerOutput() const {
    const Result<std::string> log = ReadTextFile(log_);
    return log.ok() ? *log : "";
  }

  // Says which of the lines is not in the output behind the ones before; "" if all are.
  static std::string Missing(const std::string& output, const std::string& expected) {
    std::istringstream lines(output), wanted(expected);
    std::string line;
    for (std::string pattern; std::getline(wanted, pattern);) {
      bool found = false;
      while (!found && std::getline(lines, line)) found = Matches(line, pattern);
      if (!found) return pattern;
    }
    return "";
  }

  const TemporaryFolder folder_;
  const std::string port_ = std::to_string(FreePort());
  const std::string cluster_ = folder_ / "local.yaml", log_ = folder_ / "serve.log";
  std::optional<ChildProcess> server_;
};

TEST(TutorialPatterns, DotsStandForAnything) {
  EXPECT_TRUE(Matches("started m0 on h, pid 7", "started m0 ... pid ..."));
  EXPECT_TRUE(Matches("c0    compute  ready  -", "c0 ... compute ... ready ..."));
  EXPECT_FALSE(Matches("c0    compute  lost  -", "c0 ... compute ... ready ..."));
  EXPECT_FALSE(Matches("xc0 ready", "c0 ... ready"));
  EXPECT_FALSE(Matches("c0 is ready now", "c0 ... ready"));
  EXPECT_TRUE(Matches(R"({"a":1,"text":"x"})", R"(..."text":"x"...)"));
  EXPECT_FALSE(Matches("abc", "ab"));
}

TEST_F(Tutorial, EveryCommandDoesWhatStandsThere) {
  const Result<std::string> document = ReadTextFile(SourcePath("/docs/tutorial.md"));
  ASSERT_TRUE(document.ok()) << document.status();
  std::string output;
  bool of_server = false;
  int num_commands = 0;
  for (const Block& block : BlocksOf(*document)) {
    const std::string text = Ours(block.text);
    SCOPED_TRACE(text);
    if (block.kind == "heading") {
      EndServer();
    } else if (block.kind == "sh server") {
      ASSERT_NO_FATAL_FAILURE(StartServer(text));
      of_server = true;
    } else if (block.kind == "sh") {
      const Result<CommandOutput> ran = Run(text);
      ASSERT_TRUE(ran.ok()) << ran.status();
      output = ran->out;
      ASSERT_EQ(ran->exit_status, 0) << output;
      of_server = false;
      ++num_commands;
    } else if (block.kind == "text" && of_server) {
      ASSERT_TRUE(AwaitTrue([&] { return Missing(ServerOutput(), text).empty(); },
                            Deadline::After(seconds(60))))
          << ServerOutput();
    } else if (block.kind == "text") {
      ASSERT_EQ(Missing(output, text), "") << "is not in\n" << output;
    }
  }
  EXPECT_GT(num_commands, 8);
}

}  // namespace
}  // namespace lamina::testing
