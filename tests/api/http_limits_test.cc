// Connections: keep-alive, limits, strange clients.
#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "api/body_memory.h"
#include "api/client_patience.h"
#include "api/http_client.h"
#include "api/http_wire.h"
#include "tests/support/gated_tokenizer.h"
#include "tests/support/http_fixture.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

class HttpLimits : public HttpTest {};

TEST_F(HttpLimits, ConnectionsServeManyRequests) {
  StartServer();
  ClientConnection connection(port());
  for (int i = 0; i < 5; ++i) {
    connection.SendRequest(
        "POST", "/v1/completions",
        i % 2 == 0 ? R"({"prompt": "x"})" : R"({"prompt": "x", "stream": true})");
    const ClientResponse response = connection.Receive();
    EXPECT_EQ(response.status, 200);
    EXPECT_TRUE(response.complete);
    EXPECT_EQ(response.headers.at("connection"), "keep-alive");
  }
}

TEST_F(HttpLimits, RequestsSentAheadAreAnsweredInOrder) {
  StartServer();
  ClientConnection connection(port());
  std::string requests;
  for (int i = 0; i < 3; ++i) {
    const std::string body = R"({"prompt": "x", "n": )" + std::to_string(i + 1) + "}";
    requests += "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  connection.Send(requests);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(connection.Receive().json()["choices"].size(), i + 1);
}

TEST_F(HttpLimits, ConnectionCloseIsHonoured) {
  StartServer();
  ClientConnection connection(port());
  connection.SendRequest("GET", "/version", "", "Connection: close\r\n");
  EXPECT_EQ(connection.Receive().headers.at("connection"), "close");
  EXPECT_TRUE(connection.ReceivedEnd());
}

TEST_F(HttpLimits, LargeBodiesAre413) {
  StartServer();
  const std::string body = R"({"prompt": ")" + std::string(10 << 20, 'a') + "\"}";
  const ClientResponse announced = Request("POST", "/v1/completions", body);
  EXPECT_EQ(announced.status, 413);
  EXPECT_THAT(announced.json()["error"]["message"].get<std::string>(), HasSubstr("8388608 bytes"));
  ClientConnection chunked(port());
  chunked.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "100000\r\n" + std::string(0x100000, 'a') + "\r\n";
  for (int i = 0; i < 10; ++i) chunked.Send(chunk);
  EXPECT_EQ(chunked.Receive().status, 413);
  EXPECT_EQ(Get("/health").status, 200);
}

TEST_F(HttpLimits, BodiesUpToTheLimitAreRead) {
  StartServer();
  const std::string body = R"({"prompt": ")" + std::string(7 << 20, ' ') + "\"}";
  // Too long for the context, but read.
  EXPECT_EQ(Request("POST", "/v1/completions", body).status, 400);
  ClientConnection chunked(port());
  chunked.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: "
      "chunked\r\n\r\nf\r\n{\"prompt\": \"x\"}\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.Receive().status, 200);
}

TEST_F(HttpLimits, OtherTransferEncodingsAreRefusedAndWhatFollowsIsNoRequest) {
  StartServer();
  for (const char* encoding : {"gzip", "identity", "xchunked", "chunked, gzip", "gzip, chunked"}) {
    ClientConnection connection(port());
    connection.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: " +
                    std::string(encoding) + "\r\n\r\nGET /version HTTP/1.1\r\nHost: t\r\n\r\n");
    EXPECT_GE(connection.Receive().status, 400) << encoding;
    EXPECT_TRUE(connection.ReceivedEnd()) << encoding;
  }
}

TEST_F(HttpLimits, BodiesOfTooManyValuesAreRefusedBeforeTheyAreParsed) {
  StartServer();
  std::string objects, strings;
  for (int i = 0; i < 200'000; ++i) objects += "{},";
  for (int i = 0; i < 600'000; ++i) strings += "\"\",";
  for (const std::string& values : {objects, strings}) {
    const ClientResponse response =
        Request("POST", "/v1/completions", R"({"prompt": "x", "y": [)" + values + "0]}");
    EXPECT_EQ(response.status, 400);
    EXPECT_THAT(response.json()["error"]["message"].get<std::string>(),
                HasSubstr("lists and objects"));
  }
}

TEST_F(HttpLimits, LongHeadersAre431) {
  StartServer();
  EXPECT_EQ(Request("GET", "/version", "", "X-Long: " + std::string(40'000, 'a') + "\r\n").status,
            431);
  EXPECT_EQ(Request("GET", "/version", "", "X-Long: " + std::string(20'000, 'a') + "\r\n").status,
            200);
}

TEST_F(HttpLimits, ContinueIsSentWhenAskedFor) {
  StartServer();
  ClientConnection connection(port());
  connection.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: "
      "15\r\n\r\n");
  ASSERT_TRUE(connection.ReceiveUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  connection.Send("{\"prompt\": \"x\"}");
  EXPECT_TRUE(connection.ReceiveUntil("HTTP/1.1 200 OK"));
}

// RFC 9110, section 10.1.1: such clients know no interim answers.
TEST_F(HttpLimits, OldClientsGetNoContinue) {
  StartServer();
  ClientConnection connection(port());
  connection.Send(
      "POST /v1/completions HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n"
      "{\"prompt\": \"x\"}");
  ASSERT_TRUE(connection.ReceiveUntil("\r\n\r\n"));
  EXPECT_FALSE(connection.ReceiveUntil("100 Continue"));
}

TEST_F(HttpLimits, RequestsNameOneHost) {
  StartServer();
  const auto status_of = [this](const std::string& version, const std::string& hosts) {
    ClientConnection connection(port());
    connection.Send("GET /version HTTP/" + version + "\r\n" + hosts + "\r\n");
    return connection.Receive().status;
  };
  EXPECT_EQ(status_of("1.1", "Host: a\r\n"), 200);
  EXPECT_EQ(status_of("1.1", "Host:\r\n"), 200);
  EXPECT_EQ(status_of("1.1", ""), 400);
  EXPECT_EQ(status_of("1.1", "Host: a\r\nHost: a\r\n"), 400);
  EXPECT_EQ(status_of("1.0", ""), 200);
}

TEST_F(HttpLimits, GarbageIs400OrClosed) {
  StartServer();
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    ClientConnection connection(port());
    std::string garbage = round % 2 == 0 ? "" : "POST /v1/completions HTTP/1.1\r\n";
    for (int i = 0; i < 200; ++i) garbage += static_cast<char>(random() % 256);
    connection.Send(garbage + "\r\n\r\n");
    const ClientResponse response = connection.Receive();
    EXPECT_TRUE(response.status == 400 || response.status == 0) << response.status;
  }
  EXPECT_EQ(Get("/health").status, 200);
}

TEST_F(HttpLimits, ClientsThatVanishAtAnyPointAreHarmless) {
  StartServer();
  const std::string body = R"({"prompt": "x", "stream": true})";
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\n\r\n" + body;
  for (size_t size = 0; size <= request.size(); size += 3) {
    ClientConnection connection(port());
    connection.Send(request.substr(0, size));
  }
  EXPECT_TRUE(engine_->WaitUntilIdle(Soon()));
  EXPECT_EQ(Get("/health").status, 200);
}

TEST_F(HttpLimits, LongTextsAreReadBesideTheConnections) {
  max_model_len_ = 10'000'000;  // so that the text is not refused
  StartServer();
  std::string text;
  while (text.size() < 2'000'000) text += "Once upon a time ";
  std::atomic<bool> answered = false;
  ClientResponse tokens;
  std::thread client([&] {
    tokens = Post("/tokenize", {{"prompt", text}});
    answered = true;
  });
  int num_healthy = 0;
  while (!answered) num_healthy += Get("/health").status == 200 && !answered;
  client.join();
  EXPECT_EQ(tokens.status, 200) << tokens.body;
  EXPECT_GT(tokens.json()["count"], 400'000);
  EXPECT_GT(tokens.chunks.size(), 10u) << "others wait while it is sent";
  EXPECT_GT(num_healthy, 50);
}

TEST_F(HttpLimits, LongTextsAreTokenisedOneAtATimeAndShortOnesBesideThem) {
  max_model_len_ = 10'000'000;
  GatedTokenizer gated(tokenizer());
  tokenizer_ = &gated;
  StartServer();
  std::vector<std::thread> clients;
  std::atomic<int> num_answered = 0;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&] {
      num_answered +=
          Post("/tokenize", {{"prompt", std::string(GatedTokenizer::kLongBytes, 'a')}}).status ==
          200;
    });
  }
  const Deadline deadline = Soon();
  while (gated.num_inside == 0 && !deadline.Passed()) std::this_thread::yield();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Post("/tokenize", {{"prompt", "Once"}}).status, 200);
  EXPECT_EQ(gated.num_inside, 1);
  gated.open = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(num_answered, 6);
  EXPECT_EQ(gated.most_inside, 1);
  server_.reset();  // it uses the tokenizer
}

// Templates work one at a time, and one may take long on a small conversation.
TEST_F(HttpLimits, PromptsWithoutATemplateDoNotWaitForTemplates) {
  auto slow = ChatTemplate::Parse(
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", {});
  ASSERT_TRUE(slow.ok()) << slow.status();
  chat_template_ = *std::move(slow);
  StartServer();
  constexpr int kNumChats = 6;  // two seconds each under a sanitizer
  std::atomic<int> num_answered = 0;
  std::vector<std::thread> clients;
  std::vector<std::unique_ptr<ClientConnection>> chats;
  for (int i = 0; i < kNumChats; ++i) {
    chats.push_back(std::make_unique<ClientConnection>(port()));
    chats.back()->SendRequest("POST", i % 2 == 0 ? "/tokenize" : "/v1/chat/completions",
                              R"({"messages": [{"role": "user", "content": "x"}]})");
  }
  for (const auto& chat : chats)
    clients.emplace_back([&] { num_answered += chat->Receive().status == 400; });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Post("/v1/completions", {{"prompt", "x"}}).status, 200);
  EXPECT_LT(num_answered, kNumChats / 2);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(num_answered, kNumChats) << "it takes too long";
}

TEST_F(HttpLimits, TextThatCannotFitIsRefusedBeforeItIsTokenised) {
  StartServer();
  for (const char* path : {"/tokenize", "/v1/completions"}) {
    const ClientResponse refused = Post(path, {{"prompt", std::string(1'000'000, 'a')}});
    EXPECT_EQ(refused.status, 400) << path;
    EXPECT_THAT(
        refused.body,
        HasSubstr("1000000 bytes, which cannot fit into the model's context of 1024 tokens"))
        << path;
  }
  const std::vector<int> tokens(1025, 3);
  EXPECT_EQ(Post("/detokenize", {{"tokens", tokens}}).status, 400);
}

TEST_F(HttpLimits, AnswersThatWouldBeTooLargeAreRefused) {
  options_.service.max_answer_values = 21 * 10 * 4;
  StartServer();
  json body = {{"prompt", {"a", "b"}}, {"n", 2}, {"max_tokens", 10}, {"logprobs", 20}};
  EXPECT_EQ(Post("/v1/completions", body).status, 200);
  body["max_tokens"] = 11;
  const ClientResponse refused = Post("/v1/completions", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("may have 44 tokens in all its choices with 20 "
                                      "log-probabilities for each; at most 40 are possible"));
  EXPECT_THAT(refused.body, HasSubstr("'max_tokens'"));
  // Whatever fits into the context.
  const json chat = {{"messages", {{{"role", "user"}, {"content", "x"}}}}};
  EXPECT_EQ(Post("/v1/chat/completions", chat).status, 400);
}

TEST_F(HttpLimits, AnswersThatHoldTooMuchMemoryFail) {
  options_.service.max_answer_bytes = 20'000;
  StartServer(AlwaysAnswer(std::vector<TokenId>(200, 488)));
  json body = {{"prompt", "x"}, {"max_tokens", 200}, {"logprobs", 2}, {"n", 1}};
  EXPECT_EQ(Post("/v1/completions", body).status, 200);
  body["n"] = 8;
  const ClientResponse full = Post("/v1/completions", body);
  EXPECT_EQ(full.status, 503);
  EXPECT_THAT(full.body, HasSubstr("more memory than the server has for them"));
  EXPECT_TRUE(engine_->WaitUntilIdle(Soon()));
  body["stream"] = true;  // holds nothing for long
  EXPECT_EQ(Post("/v1/completions", body).status, 200);
  body["stream"] = false;
  body["n"] = 1;
  EXPECT_EQ(Post("/v1/completions", body).status, 200);  // what the failed one held was given back
}

// An answer of megabytes is written in pieces; it is the same as a small one otherwise.
TEST_F(HttpLimits, LargeAnswersComeInPieces) {
  StartServer(AlwaysAnswer(std::vector<TokenId>(1000, 488)));
  const json body = {{"prompt", "x"}, {"max_tokens", 1000}, {"logprobs", 2}, {"n", 20}};
  const ClientResponse large = Post("/v1/completions", body);
  EXPECT_EQ(large.status, 200);
  EXPECT_TRUE(large.complete);
  EXPECT_EQ(large.headers.at("content-type"), "application/json");
  EXPECT_GT(large.chunks.size(), 5u);
  for (const std::string& chunk : large.chunks) EXPECT_LT(chunk.size(), 100'000u);
  const json answer = large.json();
  ASSERT_EQ(answer["choices"].size(), 20u);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 20'000);
  for (const json& choice : answer["choices"]) {
    EXPECT_EQ(choice["logprobs"]["tokens"].size(), 1000u);
    EXPECT_EQ(choice["logprobs"]["top_logprobs"].size(), 1000u);
    EXPECT_EQ(choice["logprobs"]["text_offset"][999], 999 * 5);
    EXPECT_EQ(choice["finish_reason"], "length");
  }
  ClientConnection next(port());
  next.SendRequest("POST", "/v1/completions", body.dump());
  EXPECT_EQ(next.Receive().body.size(), large.body.size());
  next.SendRequest("GET", "/health");  // the connection goes on behind it
  EXPECT_EQ(next.Receive().status, 200);
  next.SendRequest("POST", "/v1/completions", body.dump());
  next.Close();  // and a client may leave in the middle of it
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_TRUE(engine_->WaitUntilIdle(Soon()));
}

// It takes a little again and again, so that no single wait is too long.
TEST_F(HttpLimits, AClientThatTakesItsAnswerTooSlowlyIsCutOff) {
  options_.write_timeout = milliseconds(100);
  options_.min_bytes_per_second = size_t{1} << 40;  // so that any client is slow
  StartServer(AlwaysAnswer(std::vector<TokenId>(1000, 488)));
  ClientConnection slow(port(), /*receive_buffer_bytes=*/4096);
  slow.SendRequest("POST", "/v1/completions",
                   R"({"prompt": "x", "max_tokens": 1000, "logprobs": 20, "n": 64})",
                   "Connection: close\r\n");
  while (slow.Fill()) EXPECT_EQ(Get("/health").status, 200);
  EXPECT_FALSE(slow.ReceiveUntil("\"total_tokens\""));
  EXPECT_TRUE(engine_->WaitUntilIdle(Soon()));
}

// The system would keep megabytes for a client that reads nothing, as if it had taken them.
TEST_F(HttpLimits, WhatAClientDoesNotTakeIsNotKeptByTheSystem) {
  options_.write_timeout = milliseconds(100);
  options_.request_timeout = milliseconds(500);
  StartServer(AlwaysAnswer(std::vector<TokenId>(1000, 488)));
  ClientConnection slow(port(), /*receive_buffer_bytes=*/4096);
  slow.SendRequest("POST", "/v1/completions",
                   R"({"prompt": "x", "max_tokens": 1000, "logprobs": 0, "n": 10})",
                   "Connection: close\r\n");
  ASSERT_TRUE(slow.ReceiveUntil("HTTP/1.1 200 OK"));
  ClientConnection silent(port());
  EXPECT_TRUE(silent.ReceivedEnd());  // longer than the answer may wait has passed
  EXPECT_FALSE(slow.ReceiveUntil("\"total_tokens\""));
}

TEST(ClientPatience, LastsForTheSlowestRateThatIsServed) {
  ClientPatience patience(seconds(30), /*bytes_per_second=*/1000);
  EXPECT_EQ(patience.left(), seconds(30));
  patience.Took(0, seconds(20));
  EXPECT_EQ(patience.left(), seconds(10));
  patience.Took(5000, seconds(0));
  EXPECT_EQ(patience.left(), seconds(15));
  patience.Took(size_t{1} << 40, seconds(3));
  EXPECT_EQ(patience.left(), seconds(30)) << "what was taken fast is not saved up";
  for (int i = 0; i < 1000; ++i) patience.Took(1000, seconds(1));
  EXPECT_EQ(patience.left(), seconds(30)) << "just fast enough";
  patience.Took(1, seconds(29));
  patience.Took(1, seconds(2));
  EXPECT_EQ(patience.left(), seconds(0));
}

// It takes a second after gigabytes, in which the server's thread has its connections to serve.
TEST(BodyMemory, GoesBackBesideTheCallerAndOnceAtATime) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> num_begun = 0;
  const auto memory = std::make_shared<BodyMemory>(size_t{1} << 30, [&] {
    ++num_begun;
    gone.wait_for(seconds(30));
  });
  const auto use = [&] { BodyMemory::Share(memory).Set(size_t{100} << 20); };
  memory->GiveBack();  // nothing was used
  use();
  memory->GiveBack();
  const Deadline deadline = Soon();
  while (num_begun == 0 && !deadline.Passed()) std::this_thread::yield();
  use();
  for (int i = 0; i < 10; ++i) memory->GiveBack();
  EXPECT_EQ(num_begun, 1);
  go.set_value();
  while (num_begun == 1 && !deadline.Passed()) memory->GiveBack();
  EXPECT_EQ(num_begun, 2) << "what was used in the meantime counts";
}

TEST_F(HttpLimits, SlowRequestsAreCutOff) {
  options_.request_timeout = milliseconds(100);
  StartServer();
  ClientConnection silent(port());
  EXPECT_TRUE(silent.ReceivedEnd());
  ClientConnection half(port());
  half.Send("POST /v1/completions HTTP/1.1\r\nContent-Le");
  EXPECT_TRUE(half.ReceivedEnd());
  ClientConnection body(port());
  body.Send("POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_TRUE(body.ReceivedEnd());
}

TEST_F(HttpLimits, TheRequestTimeoutDoesNotCutGenerations) {
  // Long enough for a handshake and a request on a machine with other work.
  options_.request_timeout = milliseconds(500);
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(1);
  ClientConnection connection(port());
  connection.SendRequest("POST", "/v1/completions", R"({"prompt": "x", "stream": true})");
  ASSERT_TRUE(connection.ReceiveUntil("Once"));
  ClientConnection other(port());
  EXPECT_TRUE(other.ReceivedEnd());  // longer than the timeout has passed
  engine_->Resume();
  EXPECT_TRUE(connection.ReceiveUntil("[DONE]"));
}

TEST_F(HttpLimits, TheConnectionThatWaitsLongestMakesRoom) {
  options_.max_connections = 2;
  StartServer();
  ClientConnection first(port());
  ClientConnection second(port());
  for (ClientConnection* connection : {&second, &first}) {
    connection->SendRequest("GET", "/version");
    EXPECT_EQ(connection->Receive().status, 200);
  }
  ClientConnection third(port());
  third.SendRequest("GET", "/version");
  EXPECT_EQ(third.Receive().status, 200);
  EXPECT_TRUE(second.ReceivedEnd()) << "the other one waited longer";
  first.SendRequest("GET", "/version");
  EXPECT_EQ(first.Receive().status, 200);
}

TEST_F(HttpLimits, RequestsUnderWayMakeNoRoomAndHealthIsAnsweredBesideThem) {
  options_.max_connections = 2;
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(1);
  ClientConnection first(port());
  ClientConnection second(port());
  for (ClientConnection* connection : {&first, &second}) {
    connection->SendRequest("POST", "/v1/completions", R"({"prompt": "x", "stream": true})");
    ASSERT_TRUE(connection->ReceiveUntil("Once"));
  }
  std::vector<std::unique_ptr<ClientConnection>> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(std::make_unique<ClientConnection>(port()));
  EXPECT_EQ(Get("/v1/models").status, 503);
  const ClientResponse health = Get("/health");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.headers.at("connection"), "close");
  silent.clear();
  engine_->Resume();
  for (ClientConnection* connection : {&first, &second})
    EXPECT_TRUE(connection->ReceiveUntil("[DONE]"));
  // Both wait for their next requests now, or will when they have seen that theirs is sent.
  const Deadline deadline = Soon();
  int status = 503;
  while (status == 503 && !deadline.Passed()) status = Get("/v1/models").status;
  EXPECT_EQ(status, 200);
}

std::string HeaderOf(const std::string& path, size_t body_bytes, const std::string& more = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: t\r\nContent-Length: " + std::to_string(body_bytes) +
         "\r\n" + more + "\r\n";
}

TEST_F(HttpLimits, WhatTheHeaderShowsIsRefusedBeforeTheBody) {
  options_.service.api_key = "sesame";
  StartServer();
  for (const char* more : {"", "Expect: 100-continue\r\n"}) {
    ClientConnection keyless(port());
    keyless.Send(HeaderOf("/v1/completions", 1'000'000, more));  // and no byte of it
    const ClientResponse refused = keyless.Receive();
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused.headers.at("connection"), "close");
  }
  ClientConnection nowhere(port());
  nowhere.Send(HeaderOf("/nowhere", 1'000'000));
  EXPECT_EQ(nowhere.Receive().status, 404);
  EXPECT_EQ(Request("GET", "/health", std::string(5'000, 'x')).status, 413)
      << "no key, no long body";
}

TEST_F(HttpLimits, AFewWrongKeysEndTheConnection) {
  options_.service.api_key = "sesame";
  StartServer();
  ClientConnection connection(port());
  const std::string right = "Authorization: Bearer sesame\r\n";
  for (const char* connection_header : {"keep-alive", "keep-alive", "close"}) {
    connection.SendRequest("GET", "/v1/models", "", right);
    EXPECT_EQ(connection.Receive().status, 200);
    connection.SendRequest("GET", "/v1/models", "", "Authorization: Bearer simsim\r\n");
    const ClientResponse refused = connection.Receive();
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused.headers.at("connection"), connection_header);
  }
  EXPECT_TRUE(connection.ReceivedEnd());
}

// As they are sent to proxies; servers have to accept them.
TEST_F(HttpLimits, TargetsMayNameTheServer) {
  for (const char* target : {"/health", "/health?x=http://a/b", "http://test/health",
                             "HTTP://test:80/health?x", "https://[::1]/health"})
    EXPECT_EQ(PathOfTarget(target), "/health") << target;
  for (const char* target : {"http://test", "http://test?x/y", "http://", "http:///"})
    EXPECT_EQ(PathOfTarget(target), "/") << target;
  EXPECT_EQ(PathOfTarget("*"), "*");
  EXPECT_EQ(PathOfTarget(""), "");
  EXPECT_EQ(PathOfTarget("test:80"), "test:80");
  StartServer();
  EXPECT_EQ(Get("http://test/health").status, 200);
  EXPECT_EQ(Request("POST", "http://test/v1/completions?y", R"({"prompt": "x"})").status, 200);
  EXPECT_EQ(Get("http://test/nowhere").status, 404);
}

TEST_F(HttpLimits, TheLargestOfTooManyBodiesIsRefused) {
  options_.max_body_bytes_in_flight = 1'000'000;
  StartServer();
  ClientConnection large(port());
  large.Send(HeaderOf("/v1/completions", 400'000) + std::string(300'000, ' '));
  ClientConnection larger(port());
  // The larger one when both have the limit's worth.
  larger.Send(HeaderOf("/v1/completions", 1'000'000) + std::string(900'000, ' '));
  const ClientResponse refused = larger.Receive();
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.json()["error"]["message"].get<std::string>(), HasSubstr("1000000"));
  EXPECT_EQ(Request("POST", "/v1/completions", R"({"prompt": "x"})").status, 200)
      << "small ones are served on";
  large.Send(std::string(100'000 - 15, ' ') + R"({"prompt": "x"})");
  EXPECT_EQ(large.Receive().status, 200) << "and what had its place too";
}

TEST_F(HttpLimits, ParsedBodiesDoNotCount) {
  options_.max_body_bytes_in_flight = 1'000'000;
  StartServer(AlwaysAnswer({488, 489, 2}));
  engine_->PauseAfter(1);
  std::vector<std::unique_ptr<ClientConnection>> connections;
  for (int i = 0; i < 4; ++i) {
    connections.push_back(std::make_unique<ClientConnection>(port()));
    connections.back()->SendRequest(
        "POST", "/v1/completions",
        R"({"prompt": "x", "stream": true})" + std::string(600'000, ' '));
    EXPECT_TRUE(connections.back()->ReceiveUntil("Once")) << i;
  }
  engine_->Resume();
}

TEST(OpenServerWarning, OnlyWhatStrangersReachWithoutAKey) {
  for (const char* loopback : {"127.0.0.1", "127.1.2.3", "::1"})
    EXPECT_EQ(OpenServerWarning(loopback, false), "");
  for (const char* open : {"0.0.0.0", "::", "192.0.2.1"}) {
    EXPECT_THAT(OpenServerWarning(open, false), HasSubstr("--api-key-file"));
    EXPECT_EQ(OpenServerWarning(open, true), "");
  }
}

TEST_F(HttpLimits, APortInUseIsToldClearly) {
  StartServer();
  ServerOptions options = options_;
  options.port = port();
  Metrics metrics("x");
  ServedModel model;
  model.tokenizer = &tokenizer();
  const Status status = HttpServer::Create(options, model, metrics).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("in use"));
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(port())));
  options.host = "no.such.host.invalid";
  EXPECT_THAT(HttpServer::Create(options, model, metrics).status().message(),
              HasSubstr("no.such.host.invalid"));
}

}  // namespace
}  // namespace lamina::testing
