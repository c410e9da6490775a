#include "transport/control_handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "transport/crypto.h"

namespace lamina {
namespace control_handshake_test {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kSecret = "a secret that both ends know";
constexpr size_t kChallengeBytes = kControlHeaderBytes + 1 + kNonceBytes;
constexpr size_t kProofBytes = kControlHeaderBytes + kMacBytes;

ControlHandshake Listener(const std::string& secret, char nonce = 'l') {
  return ControlHandshake(
      {ControlRole::kListener, "the listener's hello", secret, std::string(kNonceBytes, nonce)});
}
ControlHandshake Connector(const std::string& secret, char nonce = 'c') {
  return ControlHandshake(
      {ControlRole::kConnector, "the connector's hello", secret, std::string(kNonceBytes, nonce)});
}

struct Outcome {
  Status listener = TryAgain(), connector = TryAgain();
  std::string to_listener, to_connector;  // every byte that was said
};

// Carries bytes both ways, `piece_bytes` at a time, until both ends are done or neither has
// anything to say.
Outcome Talk(ControlHandshake& listener, ControlHandshake& connector, size_t piece_bytes = 4096) {
  Outcome outcome;
  const auto carry = [&](ControlHandshake& from, ControlHandshake& to, Status& status,
                         std::string& said) {
    const std::string bytes = from.TakeOutput();
    said += bytes;
    for (size_t at = 0; at < bytes.size() && status.code() == StatusCode::kTryAgain;
         at += piece_bytes) {
      to.Append(std::string_view(bytes).substr(at, piece_bytes));
      status = to.Advance();
    }
    return !bytes.empty();
  };
  bool busy = true;
  while (busy) {
    busy = carry(listener, connector, outcome.connector, outcome.to_connector);
    busy |= carry(connector, listener, outcome.listener, outcome.to_listener);
  }
  return outcome;
}

TEST(ControlHandshake, SameSecretInPiecesOfAnySize) {
  for (const size_t piece_bytes : {1, 7, 44, 45, 46, 4096}) {
    ControlHandshake listener = Listener(kSecret), connector = Connector(kSecret);
    const Outcome outcome = Talk(listener, connector, piece_bytes);
    ASSERT_TRUE(outcome.listener.ok()) << outcome.listener;
    ASSERT_TRUE(outcome.connector.ok()) << outcome.connector;
    EXPECT_EQ(listener.peer_hello(), "the connector's hello");
    EXPECT_EQ(connector.peer_hello(), "the listener's hello");
    EXPECT_THAT(outcome.to_listener + outcome.to_connector, Not(HasSubstr(kSecret)));
  }
}

TEST(ControlHandshake, NoSecretAtBothEnds) {
  ControlHandshake listener = Listener(""), connector = Connector("");
  const Outcome outcome = Talk(listener, connector);
  EXPECT_TRUE(outcome.listener.ok()) << outcome.listener;
  EXPECT_TRUE(outcome.connector.ok()) << outcome.connector;
}

TEST(ControlHandshake, AnotherSecretIsRefusedAtBothEndsBeforeAnyHello) {
  ControlHandshake listener = Listener(kSecret),
                   connector = Connector("a secret that one end knows");
  const Outcome outcome = Talk(listener, connector);
  EXPECT_EQ(outcome.listener.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(outcome.connector.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(outcome.listener.message(), HasSubstr("another cluster secret"));
  EXPECT_THAT(outcome.connector.message(), HasSubstr("another cluster secret"));
  EXPECT_THAT(outcome.to_connector + outcome.to_listener, Not(HasSubstr("hello")));
  EXPECT_EQ(outcome.to_connector.size(), kChallengeBytes + kControlHeaderBytes)
      << "no proof of the listener's";
}

TEST(ControlHandshake, ASecretAtOneEndIsRefusedByBoth) {
  for (const bool listener_has_it : {true, false}) {
    ControlHandshake listener = Listener(listener_has_it ? kSecret : ""),
                     connector = Connector(listener_has_it ? "" : kSecret);
    const Outcome outcome = Talk(listener, connector);
    EXPECT_EQ(outcome.listener.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(outcome.connector.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(outcome.listener.message(),
                HasSubstr(listener_has_it ? "the peer was given no" : "this end was given none"));
    EXPECT_THAT(outcome.connector.message(), HasSubstr("--secret-file"));
    EXPECT_THAT(outcome.to_connector + outcome.to_listener, Not(HasSubstr("hello")));
  }
}

// Gives `end` foreign bytes until it says what it thinks of them.
Status Hear(ControlHandshake& end, const std::string& bytes) {
  end.Append(bytes);
  return end.Advance();
}

TEST(ControlHandshake, APeerThatSpeaksTlsIsKnownByItsFirstByte) {
  for (const std::string bytes : {"\x15", "\x16", "\x15\x03\x03", "\x16\x03\x01 and a hello"}) {
    ControlHandshake end = Connector("");
    const Status status = Hear(end, bytes);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr("the peer speaks TLS, and this end was given no certificate"));
  }
  ControlHandshake end = Connector("");
  EXPECT_EQ(Hear(end, "LMNA").code(), StatusCode::kTryAgain);
  EXPECT_EQ(Hear(end, "\x15").code(), StatusCode::kTryAgain) << "not the first byte";
}

TEST(ControlHandshake, AProofOfAnEarlierConnectionIsWrong) {
  ControlHandshake listener = Listener(kSecret), connector = Connector(kSecret);
  const Outcome recorded = Talk(listener, connector);
  ControlHandshake next_listener = Listener(kSecret, 'm'), next_connector = Connector(kSecret, 'd');
  EXPECT_EQ(Hear(next_listener, recorded.to_listener).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Hear(next_connector, recorded.to_connector).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(next_listener.TakeOutput(), Not(HasSubstr("hello")));
  EXPECT_THAT(next_connector.TakeOutput(), Not(HasSubstr("hello")));
}

TEST(ControlHandshake, AnEndThatHearsItselfIsNotConvinced) {
  ControlHandshake connector = Connector(kSecret);
  // Its challenge.
  EXPECT_EQ(Hear(connector, connector.TakeOutput()).code(), StatusCode::kTryAgain);
  // Its proof.
  EXPECT_EQ(Hear(connector, connector.TakeOutput()).code(), StatusCode::kInvalidArgument);

  // A connector's proof is good for no connector, whatever the nonces.
  ControlHandshake one = Connector(kSecret, 'x'), other = Connector(kSecret, 'x');
  const std::string challenge = one.TakeOutput();
  EXPECT_EQ(Hear(one, other.TakeOutput()).code(), StatusCode::kTryAgain);
  EXPECT_EQ(Hear(other, challenge).code(), StatusCode::kTryAgain);
  EXPECT_EQ(Hear(other, one.TakeOutput()).code(), StatusCode::kInvalidArgument);
}

TEST(ControlHandshake, EveryChangedBitOfAProofCounts) {
  ControlHandshake listener = Listener(kSecret), connector = Connector(kSecret);
  const std::string said = Talk(listener, connector).to_listener;
  for (size_t byte = kChallengeBytes + kControlHeaderBytes; byte < kChallengeBytes + kProofBytes;
       ++byte) {
    std::string changed = said;
    changed[byte] = static_cast<char>(changed[byte] ^ (1 << byte % 8));
    ControlHandshake victim = Listener(kSecret);
    EXPECT_EQ(Hear(victim, changed).code(), StatusCode::kInvalidArgument) << byte;
  }
}

TEST(ControlHandshake, TruncatedBytesWaitAndGarbageIsCorrupt) {
  ControlHandshake listener = Listener(kSecret), connector = Connector(kSecret);
  const std::string said = Talk(listener, connector).to_listener;
  for (size_t size = 0; size < said.size(); ++size) {
    ControlHandshake victim = Listener(kSecret);
    EXPECT_EQ(Hear(victim, said.substr(0, size)).code(), StatusCode::kTryAgain) << size;
    EXPECT_GT(victim.missing_bytes(), 0u);
    EXPECT_LE(victim.missing_bytes(), said.size() - size) << "reads nothing behind the hello";
  }
  const auto frame = [](uint16_t type, const std::string& payload) {
    const auto header = EncodeControlHeader(type, static_cast<uint32_t>(payload.size()));
    return std::string(header.data(), header.size()) + payload;
  };
  const std::string challenge = frame(kControlChallenge, '\1' + std::string(kNonceBytes, 'n'));
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), frame(kControlHello, "no challenge"),
        frame(kFirstUserType, "x"), frame(kControlChallenge, ""),
        frame(kControlChallenge, '\1' + std::string(kNonceBytes - 1, 'n')),
        frame(kControlChallenge, '\2' + std::string(kNonceBytes, 'n')), challenge + challenge,
        challenge + frame(kControlHello, "no proof"), challenge + frame(kFirstUserType, "no proof"),
        challenge + frame(kControlRefused, ""), frame(kControlChallenge, std::string(5000, 'x'))}) {
    ControlHandshake victim = Listener(kSecret);
    EXPECT_EQ(Hear(victim, bytes).code(), StatusCode::kCorrupt) << bytes;
    EXPECT_THAT(victim.TakeOutput(), Not(HasSubstr("hello")));
  }
  for (const std::string& proof :
       {std::string(), std::string(kMacBytes - 1, 'p'), std::string(kMacBytes + 1, 'p')}) {
    ControlHandshake victim = Listener(kSecret);
    EXPECT_EQ(Hear(victim, challenge + frame(kControlProof, proof)).code(),
              StatusCode::kInvalidArgument);
  }
}

// RFC 4231, test case 2.
TEST(Crypto, HmacSha256) {
  const Result<std::string> mac = HmacSha256("Jefe", "what do ya want for nothing?");
  ASSERT_TRUE(mac.ok()) << mac.status();
  EXPECT_EQ(mac->substr(0, 4), "\x5b\xdc\xc1\x46");
  EXPECT_EQ(mac->substr(28), "\x64\xec\x38\x43");
}

TEST(Crypto, RandomBytesAndComparison) {
  EXPECT_EQ(RandomBytes(16)->size(), 16u);
  EXPECT_NE(*RandomBytes(16), *RandomBytes(16));
  EXPECT_TRUE(EqualInConstantTime("same", "same"));
  EXPECT_FALSE(EqualInConstantTime("same", "sane"));
  EXPECT_FALSE(EqualInConstantTime("same", "same "));
  EXPECT_TRUE(EqualInConstantTime("", ""));
}

}  // namespace control_handshake_test
}  // namespace lamina
