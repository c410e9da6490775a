// A server with a fake engine, and a client that sees every byte. With LAMINA_TEST_HTTPS in the
// environment they speak HTTPS, so that every test of the server is one of that too.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/types.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/http_server.h"
#include "base/clock.h"
#include "base/tls_files.h"
#include "tests/support/fake_engine.h"
#include "tests/support/golden_prompts.h"

namespace lamina::testing {

inline Deadline Soon() { return Deadline::After(std::chrono::seconds(30)); }

struct ClientResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without chunk framing
  std::vector<std::string> chunks;
  bool complete = false;  // the end came as announced

  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }

  // The data of each server-sent event; comments are skipped.
  std::vector<std::string> Events() const;
};

// For 127.0.0.1 and localhost; its CA is a file too.
const TlsFiles& ServerCertificate();
bool TestsUseHttps();

// One connection of a client, blocking with a deadline of 30 seconds for each wait.
class ClientConnection {
 public:
  explicit ClientConnection(uint16_t port, int receive_buffer_bytes = 0);
  ~ClientConnection() { Close(); }
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  bool Send(const std::string& bytes);  // false if the server closed
  void SendRequest(const std::string& method, const std::string& path, const std::string& body = "",
                   const std::string& more_headers = "");
  ClientResponse Receive();  // past interim ones

  // Reads until `text` was seen; false at the end of the connection.
  bool ReceiveUntil(const std::string& text);
  bool ReceivedEnd();  // waits for the server to close
  bool Fill();         // reads more; false at the end
  void CloseSending();
  void Close();

 private:
  std::string TakeLine();
  void BeginTls();

  int fd_ = -1;
  SSL* ssl_ = nullptr;
  std::string buffer_;
};

// What a test says the model goes on with.
inline FakeEngine::Script AlwaysAnswer(std::vector<TokenId> tokens) {
  return [tokens](const GenerateRequest&, int) { return tokens; };
}

// The golden continuation of the prompt, if it is one.
FakeEngine::Script GoldenAnswers();

class HttpTest : public ::testing::Test {
 protected:
  static constexpr TokenId kEos = 2;
  static const Tokenizer& tokenizer();

  // Options, the tokenizer and the chat template may be changed before. Without a script the golden
  // one is used.
  void StartServer(FakeEngine::Script script = nullptr);
  void TearDown() override;

  ClientResponse Get(const std::string& path) { return Request("GET", path, ""); }
  ClientResponse Post(const std::string& path, const nlohmann::json& body) {
    return Request("POST", path, body.dump());
  }
  ClientResponse Request(const std::string& method, const std::string& path,
                         const std::string& body, const std::string& more_headers = "");
  uint16_t port() const { return server_->port(); }

  // The events of a stream as JSON, without [DONE], whose presence is checked.
  std::vector<nlohmann::json> Stream(const std::string& path, const nlohmann::json& body);

  ServerOptions options_;
  bool with_chat_template_ = true;
  int64_t max_model_len_ = 1024;
  std::optional<ToolFormat> tool_format_;
  bool reasoning_ = false;
  std::string no_vectors_reason_;
  const Tokenizer* tokenizer_ = &tokenizer();
  std::unique_ptr<ChatTemplate> chat_template_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace lamina::testing
