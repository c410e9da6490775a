#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/support/golden_prompts.h"
#include "text/utf8.h"

namespace lamina {
namespace {

const Tokenizer& TinyStories() {
  static const std::unique_ptr<Tokenizer> tokenizer =
      LoadTokenizer(testing::TinyStoriesDir()).value();
  return *tokenizer;
}

// Tokens are arbitrary byte strings, so that a text can be cut anywhere.
class ByteStringTokenizer final : public Tokenizer {
 public:
  std::vector<TokenId> Cut(const std::vector<std::string>& parts) {
    std::vector<TokenId> ids;
    for (const std::string& part : parts) {
      ids.push_back(static_cast<TokenId>(parts_.size()));
      parts_.push_back(part);
    }
    return ids;
  }
  Result<std::vector<TokenId>> Encode(std::string_view, bool) const override {
    return std::vector<TokenId>();
  }
  void Append(DecodeState& state, TokenId id, bool, std::string& text) const override {
    state.incomplete += parts_[static_cast<size_t>(id)];
    TakeCompleteUtf8(state.incomplete, text);
  }
  std::string TokenBytes(TokenId id) const override { return parts_[static_cast<size_t>(id)]; }
  std::string IdToPiece(TokenId id) const override { return TokenBytes(id); }
  int64_t vocab_size() const override { return static_cast<int64_t>(parts_.size()); }
  int64_t MinTokens(std::string_view) const override { return 0; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return std::nullopt; }

 private:
  std::vector<std::string> parts_;
};

struct Streamed {
  std::vector<std::string> pieces;  // what each token, and then the end, brought
  std::string text;
  std::optional<std::string> stop;
};

Streamed Stream(const std::vector<std::string>& parts, DetokenizerOptions options) {
  ByteStringTokenizer tokenizer;
  const std::vector<TokenId> ids = tokenizer.Cut(parts);
  Detokenizer detokenizer(tokenizer, std::move(options), {});
  Streamed result;
  for (const TokenId id : ids) result.pieces.push_back(detokenizer.Push(id));
  result.pieces.push_back(detokenizer.Finish());
  for (const std::string& piece : result.pieces) result.text += piece;
  result.stop = detokenizer.matched_stop();
  return result;
}

TEST(Detokenizer, GoldenContinuations) {
  for (const auto& golden : testing::GoldenPrompts()) {
    Detokenizer detokenizer(TinyStories(), {}, golden.prompt_ids);
    std::string text;
    for (const TokenId id : golden.continuation_ids) text += detokenizer.Push(id);
    EXPECT_EQ(text + detokenizer.Finish(), golden.text) << golden.prompt;
  }
}

TEST(Detokenizer, EqualsDecodingTheWholeAndCuttingThePrompt) {
  std::mt19937 random(11);
  for (int round = 0; round < 1000; ++round) {
    std::vector<TokenId> prompt = {1};
    for (size_t i = random() % 4; i > 0; --i)
      // No bytes: the prompt's text ends with a character.
      prompt.push_back(static_cast<TokenId>(259 + random() % 765));
    std::vector<TokenId> all = prompt;
    Detokenizer detokenizer(TinyStories(), {}, prompt);
    std::string text;
    for (size_t i = random() % 10; i > 0; --i) {
      all.push_back(static_cast<TokenId>(random() % 1024));
      text += detokenizer.Push(all.back());
    }
    text += detokenizer.Finish();
    EXPECT_EQ(TinyStories().Decode(prompt, true) + text, TinyStories().Decode(all, true));
  }
}

TEST(Detokenizer, TheFirstSpaceBelongsToTheContinuationOnlyBehindAPrompt) {
  const TokenId once = 488;  // " Once"
  Detokenizer behind_text(TinyStories(), {}, std::vector<TokenId>{1, 488});
  EXPECT_EQ(behind_text.Push(once), " Once");
  Detokenizer behind_bos(TinyStories(), {}, std::vector<TokenId>{1});
  EXPECT_EQ(behind_bos.Push(once), "Once");
}

TEST(Detokenizer, CharactersOfManyTokensComeWhole) {
  const Streamed result = Stream({"a", "\xE2", "\x98", "\x83", "b\xF0\x9F", "\x98\x80"}, {});
  EXPECT_EQ(result.pieces,
            (std::vector<std::string>{"a", "", "", "\xE2\x98\x83", "b", "\xF0\x9F\x98\x80", ""}));
}

TEST(Detokenizer, ACutOffCharacterIsReplacedAtTheEnd) {
  const Streamed result = Stream({"a\xE2", "\x98"}, {});
  EXPECT_EQ(result.text, "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Detokenizer, PossibleStopStringsAreHeldBack) {
  const Streamed result = Stream({"x EN", "D?", " EN", "D", "!", " more"}, {{"END!"}});
  EXPECT_EQ(result.pieces, (std::vector<std::string>{"x ", "END?", " ", "", "", "", ""}));
  EXPECT_EQ(result.text, "x END? ");
  EXPECT_EQ(result.stop, "END!");
}

TEST(Detokenizer, HeldBackTextComesAtTheEnd) {
  const Streamed result = Stream({"wait\n", "\nH"}, {{"\n\nHuman:"}});
  EXPECT_EQ(result.pieces, (std::vector<std::string>{"wait", "", "\n\nH"}));
  EXPECT_EQ(result.stop, std::nullopt);
}

TEST(Detokenizer, StopStringsCanStay) {
  EXPECT_EQ(Stream({"one.", " two."}, {{"."}, true}).text, "one.");
  EXPECT_EQ(Stream({"one.", " two."}, {{"."}, false}).text, "one");
}

TEST(Detokenizer, StopStringsInsideOneToken) {
  EXPECT_EQ(Stream({"abcSTOPdef"}, {{"STOP"}}).text, "abc");
}

TEST(Detokenizer, MinTokensComeBeforeStopStringsCount) {
  const Streamed result = Stream({"a.", "b.", "c.", "d."}, {{"."}, false, true, /*min_tokens=*/3});
  EXPECT_EQ(result.text, "a.b.c");
}

// Whatever the division into tokens, the text and the stop string are the same.
TEST(Detokenizer, TheDivisionIntoTokensDoesNotMatter) {
  std::mt19937 random(3);
  const std::string alphabet[] = {"a", "b", "c", "\xC3\xA9", "\xE2\x98\x83"};
  for (int round = 0; round < 2000; ++round) {
    const auto draw = [&](size_t max) {
      std::string text;
      for (size_t i = 1 + random() % max; i > 0; --i) text += alphabet[random() % 5];
      return text;
    };
    const std::string text = draw(12);
    DetokenizerOptions options;
    for (size_t i = 1 + random() % 3; i > 0; --i) options.stop.push_back(draw(3));
    options.include_stop_in_output = random() % 2 == 0;
    const Streamed whole = Stream({text}, options);
    std::vector<std::string> parts;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 4;
      parts.push_back(text.substr(at, size));
      at += size;
    }
    const Streamed divided = Stream(parts, options);
    EXPECT_EQ(divided.text, whole.text) << text;
    EXPECT_EQ(divided.stop, whole.stop) << text;
    for (const std::string& piece : divided.pieces) {
      std::string pending = piece;
      std::string clean;
      TakeAllUtf8(pending, clean);
      EXPECT_EQ(clean, piece) << "a piece is no valid UTF-8";
    }
  }
}

}  // namespace
}  // namespace lamina
