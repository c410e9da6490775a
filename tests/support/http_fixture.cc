#include "tests/support/http_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "tests/support/certificates.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {

const TlsFiles& ServerCertificate() {
  static const TemporaryFolder folder;
  static const TlsFiles files = TestCa(folder.path()).Issue("server");
  return files;
}

bool TestsUseHttps() { return std::getenv("LAMINA_TEST_HTTPS") != nullptr; }

std::vector<std::string> ClientResponse::Events() const {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "the stream ends inside an event";
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (event.starts_with(':')) continue;
    EXPECT_EQ(event.substr(0, 6), "data: ");
    events.push_back(event.substr(6));
  }
  return events;
}

ClientConnection::ClientConnection(uint16_t port, int receive_buffer_bytes)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer_bytes > 0)
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  if (TestsUseHttps()) BeginTls();
}

// The handshake comes with what is sent first: a server that is full may not answer it.
void ClientConnection::BeginTls() {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets that are closed
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  ssl_ = SSL_new(context);
  SSL_CTX_free(context);  // ssl_ keeps it
  SSL_set_fd(ssl_, fd_);
  SSL_set_connect_state(ssl_);
}

void ClientConnection::CloseSending() { shutdown(fd_, SHUT_WR); }

void ClientConnection::Close() {
  SSL_free(ssl_);
  ssl_ = nullptr;
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool ClientConnection::Send(const std::string& bytes) {
  if (ssl_ != nullptr)
    return bytes.empty() || SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) > 0;
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

void ClientConnection::SendRequest(const std::string& method, const std::string& path,
                                   const std::string& body, const std::string& more_headers) {
  std::string request = method + " " + path + " HTTP/1.1\r\nHost: test\r\n" + more_headers;
  if (!body.empty())
    request +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  Send(request + "\r\n" + body);
}

bool ClientConnection::Fill() {
  pollfd wait{fd_, POLLIN, 0};
  const bool is_here = ssl_ != nullptr && SSL_pending(ssl_) > 0;
  if (!is_here && poll(&wait, 1, Soon().RemainingMs()) != 1) {
    ADD_FAILURE() << "the server says nothing for 30 seconds";
    return false;
  }
  char bytes[65536];
  const ssize_t count =
      ssl_ != nullptr ? SSL_read(ssl_, bytes, sizeof(bytes)) : recv(fd_, bytes, sizeof(bytes), 0);
  if (count <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(count));
  return true;
}

std::string ClientConnection::TakeLine() {
  size_t end;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!Fill()) return "";
  }
  const std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

bool ClientConnection::ReceiveUntil(const std::string& text) {
  while (buffer_.find(text) == std::string::npos) {
    if (!Fill()) return false;
  }
  return true;
}

bool ClientConnection::ReceivedEnd() {
  while (Fill()) continue;
  return true;
}

ClientResponse ClientConnection::Receive() {
  ClientResponse response;
  std::string status_line = TakeLine();
  while (status_line.starts_with("HTTP/1.1 100")) {
    TakeLine();
    status_line = TakeLine();
  }
  if (status_line.size() < 12) return response;
  response.status = std::stoi(status_line.substr(9, 3));
  for (std::string line = TakeLine(); !line.empty(); line = TakeLine()) {
    const size_t colon = line.find(": ");
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    response.headers[name] = line.substr(colon + 2);
  }
  if (response.headers.contains("transfer-encoding")) {
    for (std::string line = TakeLine(); !line.empty(); line = TakeLine()) {
      const size_t size = std::stoul(line, nullptr, 16);
      while (buffer_.size() < size + 2) {
        if (!Fill()) return response;
      }
      if (size > 0) response.chunks.push_back(buffer_.substr(0, size));
      response.body += buffer_.substr(0, size);
      EXPECT_EQ(buffer_.substr(size, 2), "\r\n");
      buffer_.erase(0, size + 2);
      response.complete = size == 0;
      if (size == 0) break;
    }
    return response;
  }
  const auto length = response.headers.find("content-length");
  const size_t size = length == response.headers.end() ? SIZE_MAX : std::stoul(length->second);
  while (buffer_.size() < size && Fill()) continue;
  response.complete = size == SIZE_MAX || buffer_.size() >= size;
  response.body = buffer_.substr(0, size);
  buffer_.erase(0, response.body.size());
  return response;
}

FakeEngine::Script GoldenAnswers() {
  return [prompts = GoldenPrompts()](const GenerateRequest& request, int) {
    for (const GoldenPrompt& golden : prompts) {
      if (golden.prompt_ids == request.prompt) return golden.continuation_ids;
    }
    return std::vector<TokenId>{488, 489, 2};
  };
}

const Tokenizer& HttpTest::tokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(TinyStoriesDir()).value();
  return *tokenizer;
}

void HttpTest::StartServer(FakeEngine::Script script) {
  options_.port = 0;
  if (TestsUseHttps() && options_.ssl_certfile.empty()) {
    options_.ssl_certfile = ServerCertificate().certificate;
    options_.ssl_keyfile = ServerCertificate().key;
  }
  metrics_ = std::make_unique<Metrics>("tiny");
  engine_ = std::make_unique<FakeEngine>(script ? std::move(script) : GoldenAnswers(),
                                         max_model_len_, kEos);
  ServedModel model;
  model.name = "tiny";
  model.tokenizer = tokenizer_;
  if (with_chat_template_) {
    if (chat_template_ == nullptr) chat_template_ = ChatTemplate::Load(TinyStoriesDir()).value();
    model.chat_template = chat_template_.get();
  }
  model.tool_format = tool_format_;
  model.reasoning = reasoning_;
  model.no_vectors_reason = no_vectors_reason_;
  model.infill = FindInfillFormat(*tokenizer_);
  model.config.vocab_size = 1024;
  model.config.hidden_size = 4;
  model.config.max_positions = 1024;
  auto server = HttpServer::Create(options_, model, *metrics_);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  server_->SetEngine(engine_.get());
  server_->Start();
}

void HttpTest::TearDown() {
  if (server_) server_->Stop(Clock::duration::zero());
}

ClientResponse HttpTest::Request(const std::string& method, const std::string& path,
                                 const std::string& body, const std::string& more_headers) {
  ClientConnection connection(port());
  connection.SendRequest(method, path, body, more_headers);
  return connection.Receive();
}

std::vector<nlohmann::json> HttpTest::Stream(const std::string& path, const nlohmann::json& body) {
  const ClientResponse response = Post(path, body);
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_TRUE(response.complete);
  EXPECT_THAT(response.headers.at("content-type"), ::testing::StartsWith("text/event-stream"));
  std::vector<std::string> events = response.Events();
  EXPECT_FALSE(events.empty());
  EXPECT_EQ(events.empty() ? "" : events.back(), "[DONE]");
  if (!events.empty()) events.pop_back();
  std::vector<nlohmann::json> parsed;
  for (const std::string& event : events) {
    parsed.push_back(nlohmann::json::parse(event, nullptr, false));
    EXPECT_FALSE(parsed.back().is_discarded()) << event;
  }
  return parsed;
}

}  // namespace lamina::testing
