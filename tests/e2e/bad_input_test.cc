// What a user can get wrong: each ends in one clear sentence and the right exit status or HTTP
// status, never in a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace bad_input_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const fs::path kModel = SourcePath("/models/tiny-stories");

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "lamina: <one sentence>\n" on standard error and nothing else there.
void ExpectOneSentence(const CommandOutput& output, const std::string& what) {
  EXPECT_EQ(output.exit_status, 1);
  EXPECT_THAT(output.err, AllOf(StartsWith("lamina: "), EndsWith("\n"), HasSubstr(what)));
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
}

// A copy of the shipped model with one thing wrong.
struct BadModel {
  std::string name;
  std::function<void(const fs::path& folder)> spoil;
  std::string error;
};

void PrintTo(const BadModel& model, std::ostream* stream) { *stream << model.name; }

std::function<void(const fs::path&)> Config(std::function<void(json&)> change) {
  return [change](const fs::path& folder) {
    json config = json::parse(ReadFile(folder / "config.json"));
    change(config);
    WriteFile(folder / "config.json", config.dump());
  };
}

std::function<void(const fs::path&)> Weights(std::function<std::string(std::string)> change) {
  return [change](const fs::path& folder) {
    const fs::path path = folder / "model.safetensors";
    WriteFile(path, change(ReadFile(path)));
  };
}

// Changes the header; its length is written anew, the data stays.
std::function<void(const fs::path&)> Header(std::function<void(json&)> change) {
  return Weights([change](const std::string& file) {
    uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof(size));
    json header = json::parse(file.substr(sizeof(size), size));
    change(header);
    const std::string text = header.dump();
    const uint64_t new_size = text.size();
    return std::string(reinterpret_cast<const char*>(&new_size), sizeof(new_size)) + text +
           file.substr(sizeof(size) + size);
  });
}

const std::string kTensor = "model.layers.0.self_attn.q_proj.weight";

const BadModel kBadModels[] = {
    {"TruncatedWeights", Weights([](std::string file) { return file.substr(0, file.size() / 2); }),
     "cut short: tensor"},
    {"TruncatedHeader", Weights([](std::string file) { return file.substr(0, 100); }),
     "cut short: the header has 4168 bytes, the file 100"},
    {"EmptyWeights", Weights([](const std::string&) { return ""; }), "model.safetensors"},
    {"HugeHeader",
     Weights([](std::string file) { return std::string(8, '\xff') + file.substr(8); }),
     "not a safetensors file"},
    {"HeaderIsNoJson",
     Weights([](std::string file) { return std::string("\x04\0\0\0\0\0\0\0{{{{", 12) + file; }),
     "syntax error at byte 2"},
    {"OffsetsOutside", Header([](json& h) {
       h[kTensor]["data_offsets"] = {0, int64_t{1} << 62};
     }),
     kTensor},
    {"OffsetsBackwards", Header([](json& h) {
       h[kTensor]["data_offsets"] = {4096, 0};
     }),
     kTensor},
    {"WrongShape", Header([](json& h) {
       h[kTensor]["shape"] = {512, 128};
     }),
     "has shape [512, 128], expected [256, 256]"},
    {"NegativeShape", Header([](json& h) {
       h[kTensor]["shape"] = {-256, -256};
     }),
     kTensor},
    {"UnknownDtype", Header([](json& h) { h[kTensor]["dtype"] = "F12"; }), "F12"},
    {"MissingTensor", Header([](json& h) { h["other"] = h[kTensor], h.erase(kTensor); }),
     kTensor + " is not in"},
    {"NoWeights", [](const fs::path& folder) { fs::remove(folder / "model.safetensors"); },
     "expected model.safetensors or"},
    {"NoConfig", [](const fs::path& folder) { fs::remove(folder / "config.json"); },
     "config.json: No such file"},
    {"ConfigIsNoJson", [](const fs::path& folder) { WriteFile(folder / "config.json", "{\"a\":"); },
     "config.json is not JSON"},
    {"ConfigLacksAKey", Config([](json& c) { c.erase("hidden_size"); }),
     "config.json: \"hidden_size\" is missing"},
    {"ConfigOfWrongType", Config([](json& c) { c["num_hidden_layers"] = "four"; }),
     "\"num_hidden_layers\""},
    {"HeadsDoNotDivide", Config([](json& c) { c["num_key_value_heads"] = 3; }),
     "num_key_value_heads"},
    {"UnknownArchitecture", Config([](json& c) { c["architectures"] = {"GPT9ForCausalLM"}; }),
     "GPT9ForCausalLM"},
    {"NoTokenizer",
     [](const fs::path& folder) {
       fs::remove(folder / "tokenizer.model");
       fs::remove(folder / "tokenizer.json");
     },
     "there is no tokenizer.json or tokenizer.model"},
    {"TokenizerIsGarbage",
     [](const fs::path& folder) {
       fs::remove(folder / "tokenizer.json");
       WriteFile(folder / "tokenizer.model", std::string(2000, '\x9a'));
     },
     "tokenizer.model"},
};

class ABadModel : public ::testing::TestWithParam<BadModel> {};

TEST_P(ABadModel, IsRefusedInOneSentence) {
  const TemporaryFolder temp;
  const fs::path folder = temp / "model";
  fs::copy(kModel, folder);
  GetParam().spoil(folder);
  const CommandOutput output = RunLamina(
      {"serve", folder.string(), "--port", "0", "--prompt", "Once", "--max-tokens", "2", "--once"});
  ExpectOneSentence(output, GetParam().error);
  EXPECT_THAT(output.err, HasSubstr(folder.string()));
}

INSTANTIATE_TEST_SUITE_P(BadInput, ABadModel, ::testing::ValuesIn(kBadModels),
                         [](const auto& model) { return model.param.name; });

TEST(BadInput, AnUnknownYamlKeyIsNamedWithItsLine) {
  const TemporaryFolder temp;
  const std::string path = temp / "cluster.yaml";
  WriteFile(path,
            "version: 1\n"
            "nodes:\n"
            "  - {name: c0, role: compute, host: 127.0.0.1, port: 7100}\n"
            "  - {name: m0, role: memory, host: 127.0.0.1, port: 7101, memoyr: 1GiB}\n"
            "model:\n"
            "  path: " +
                kModel.string() + "\n");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"serve", "--cluster", path},
        {"cluster", "up", path},
        {"cluster", "status", "--config", path}}) {
    const CommandOutput output = RunLamina(command);
    EXPECT_EQ(output.exit_status, 1);
    EXPECT_THAT(output.err, HasSubstr(path + ":4: unknown key 'memoyr'"));
  }
}

TEST(BadInput, APortInUseIsSaid) {
  Result<std::unique_ptr<ServerProcess>> other =
      ServerProcess::Start({kModel.string(), "--memory-nodes", "0"});
  ASSERT_TRUE(other.ok()) << other.status();
  const std::string port = std::to_string((*other)->port());
  ExpectOneSentence(RunLamina({"serve", kModel.string(), "--port", port}),
                    "cannot listen on 127.0.0.1:" + port + ": the port is in use");
}

TEST(BadInput, NoMemoryNodeReachable) {
  const TemporaryFolder temp;
  const std::string path = temp / "cluster.yaml";
  const std::string port = std::to_string(FreePort());
  WriteFile(path,
            "version: 1\n"
            "nodes:\n"
            "  - {name: m0, role: memory, host: 127.0.0.1, port: " +
                port +
                ", memory: 1GiB}\n"
                "  - {name: c0, role: compute, host: 127.0.0.1, port: " +
                std::to_string(FreePort()) +
                "}\n"
                "model:\n"
                "  path: " +
                kModel.string() +
                "\n"
                "limits:\n"
                "  start_timeout: 4s\n");
  const CommandOutput output = RunLamina({"serve", "--cluster", path, "--port", "0"});
  ExpectOneSentence(output, "memory node m0: 127.0.0.1:" + port);
  EXPECT_THAT(output.err, HasSubstr("is its daemon running?"));
  EXPECT_THAT(output.out, HasSubstr("waiting up to")) << "a user who waits is told for what";
}

TEST(BadInput, ABadCommandLineIsAUsageError) {
  const std::vector<std::vector<std::string>> commands = {
      {"frobnicate"},
      {"serve", kModel.string(), "--frobnicate"},
      {"serve", kModel.string(), "--port", "notaport"},
      {"serve", kModel.string(), "--port", "70000"},
      {"serve", kModel.string(), "--memory-nodes", "-1"},
      {"serve", kModel.string(), "--transport", "pigeon"},
      {"cluster"},
      {"cluster", "up"},
      {"split"},
      {"complete"},
  };
  for (const std::vector<std::string>& command : commands) {
    const CommandOutput output = RunLamina(command);
    EXPECT_EQ(output.exit_status, 2) << command.back() << output.out;
    EXPECT_NE(output.err, "") << command.back();
  }
}

class BadRequests : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start({kModel.string(), "--memory-nodes", "1"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override { ASSERT_NE(server_, nullptr); }

  // The body must be refused with this status and one sentence that holds `what`; then a good
  // request still works.
  static void Expect(const std::string& path, const std::string& body, int status,
                     const std::string& what) {
    const Result<HttpResponse> response = server_->client().PostJson(path, body);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->status, status) << response->body;
    const json answer = json::parse(response->body, nullptr, false);
    ASSERT_TRUE(answer.is_object()) << response->body;
    EXPECT_THAT(answer["error"]["message"].get<std::string>(),
                AllOf(HasSubstr(what), Not(HasSubstr("\n"))));
    const Result<HttpResponse> good =
        server_->client().PostJson("/v1/completions", R"({"prompt": "Once", "max_tokens": 2})");
    ASSERT_TRUE(good.ok()) << good.status();
    EXPECT_EQ(good->status, 200) << good->body;
  }

  static std::unique_ptr<ServerProcess> server_;
};

std::unique_ptr<ServerProcess> BadRequests::server_;

TEST_F(BadRequests, APromptLongerThanTheContext) {
  std::string prompt;
  for (int i = 0; i < 3000; ++i) prompt += "rabbit ";
  Expect("/v1/completions", json{{"prompt", prompt}}.dump(), 400, "1024");
  Expect("/v1/chat/completions",
         json{{"messages", {{{"role", "user"}, {"content", prompt}}}}}.dump(), 400, "1024");
}

TEST_F(BadRequests, InvalidJson) {
  Expect("/v1/completions", R"({"prompt": "Once")", 400, "JSON");
  Expect("/v1/completions", "", 400, "JSON");
  Expect("/v1/completions", "[1, 2]", 400, "object");
  Expect("/v1/completions", std::string(100'000, '['), 400, "");
}

TEST_F(BadRequests, InvalidUtf8) {
  Expect("/v1/completions", "{\"prompt\": \"Once \xff\xfe\"}", 400, "UTF-8");
  Expect("/v1/chat/completions",
         "{\"messages\": [{\"role\": \"user\", \"content\": \"\xc0\xaf\"}]}", 400, "UTF-8");
}

TEST_F(BadRequests, TenMegabytesAreTooLarge) {
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize"}) {
    Expect(path, json{{"prompt", std::string(10'000'000, 'a')}}.dump(), 413,
           "larger than 8388608 bytes");
  }
}

TEST_F(BadRequests, EightMegabytesAreReadAndRefusedForWhatTheyHold) {
  const std::string text(8'000'000, 'a');
  Expect("/v1/completions", json{{"prompt", text}}.dump(), 400, "1024");
  Expect("/v1/completions", text, 400, "JSON");
  Expect("/v1/completions", json{{"prompt", "Once"}, {"stop", text}}.dump(), 400, "stop");
}

TEST_F(BadRequests, AHundredMegabytesAreNotRead) {
  Expect("/v1/completions", json{{"prompt", std::string(100'000'000, 'a')}}.dump(), 413,
         "larger than");
}

TEST_F(BadRequests, WrongFields) {
  Expect("/v1/completions", R"({"prompt": 5})", 400, "prompt");
  Expect("/v1/completions", R"({"prompt": "Once", "temperature": -1})", 400, "temperature");
  Expect("/v1/completions", R"({"prompt": "Once", "max_tokens": 0})", 400, "max_tokens");
  Expect("/v1/completions", R"({"prompt": [99999]})", 400, "99999");
  Expect("/v1/completions", R"({"prompt": "Once", "model": "gpt-9"})", 404, "gpt-9");
  Expect("/v1/nowhere", "{}", 404, "nothing at this path");
}

}  // namespace bad_input_test
}  // namespace lamina::testing
