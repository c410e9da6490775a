#include "base/yaml.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace lamina {
namespace {

// Reads `text` as one mapping with the keys below and returns what was wrong.
struct Values {
  std::string word = "default";
  std::string choice = "a";
  int number = 7;
  double price = 0.5;
  int64_t size = 1;
  Clock::duration wait = std::chrono::seconds(1);
  std::vector<std::pair<std::string, std::string>> env;
  std::vector<std::string> item_names;
  std::vector<int> numbers = {5};
  std::vector<std::string> choices = {"a"};
};

Status Read(const std::string& text, Values* values) {
  LAMINA_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, "f.yaml"));
  YamlErrors errors("f.yaml");
  YamlMap map(root, "the file", errors);
  map.ReadString("word", &values->word);
  map.ReadChoice("choice", &values->choice, {"a", "b"});
  map.ReadInt("number", &values->number, 1, 9);
  map.ReadDouble("price", &values->price);
  map.ReadInts("numbers", &values->numbers, 1, 9);
  map.ReadChoices("choices", &values->choices, {"a", "b"});
  YamlMap limits = map.Child("limits");
  limits.ReadSize("size", &values->size, 1);
  limits.ReadDuration("wait", &values->wait);
  limits.Close();
  map.ReadStrings("env", &values->env);
  for (YamlMap& item : map.Items("items")) {
    std::string name;
    item.Require("name");
    item.ReadString("name", &name);
    item.Close();
    values->item_names.push_back(name);
  }
  map.Close();
  return errors.status();
}

std::string ErrorOf(const std::string& text) {
  Values values;
  return Read(text, &values).message();
}

TEST(Yaml, ReadsEveryKind) {
  Values values;
  const Status status = Read(
      "word: hello\nchoice: b\nnumber: 3\nprice: 1.25\nlimits: {size: 4KiB, wait: 250ms}\nenv: {A: "
      "x, B: '2'}\nitems:\n- name: one\n- "
      "{name: two}\n",
      &values);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(values.word, "hello");
  EXPECT_EQ(values.choice, "b");
  EXPECT_EQ(values.number, 3);
  EXPECT_EQ(values.price, 1.25);
  EXPECT_EQ(values.size, 4096);
  EXPECT_EQ(values.wait, milliseconds(250));
  EXPECT_EQ(values.env, (std::vector<std::pair<std::string, std::string>>{{"A", "x"}, {"B", "2"}}));
  EXPECT_EQ(values.item_names, (std::vector<std::string>{"one", "two"}));
}

TEST(Yaml, ListsMayBeOneValue) {
  Values values;
  ASSERT_TRUE(Read("numbers: [1, 3, 9]\nchoices: [b, a]\n", &values).ok());
  EXPECT_EQ(values.numbers, (std::vector<int>{1, 3, 9}));
  EXPECT_EQ(values.choices, (std::vector<std::string>{"b", "a"}));
  ASSERT_TRUE(Read("numbers: 4\nchoices: b\n", &values).ok());
  EXPECT_EQ(values.numbers, std::vector<int>{4});
  EXPECT_EQ(values.choices, std::vector<std::string>{"b"});
  ASSERT_TRUE(Read("word: x\n", &values).ok());
  EXPECT_EQ(values.numbers, std::vector<int>{4}) << "an absent key changes nothing";
  EXPECT_EQ(ErrorOf("word: x\nnumbers: [1,\n 10]\n"),
            "f.yaml:3: 'numbers' has '10': expected whole numbers from 1 to 9");
  EXPECT_EQ(ErrorOf("numbers: []\n"),
            "f.yaml:1: 'numbers' must be a list such as [a, b]: expected whole numbers from 1 to 9 "
            "in it");
  EXPECT_EQ(ErrorOf("numbers: [[1]]\n"),
            "f.yaml:1: 'numbers' must be a list such as [a, b]: expected whole numbers from 1 to 9 "
            "in it");
  EXPECT_EQ(ErrorOf("choices: [a, c]\n"), "f.yaml:1: 'choices' has 'c': expected one of a, b");
}

TEST(Yaml, AbsentKeysKeepDefaults) {
  for (const char* text : {"", "# only a comment\n", "limits:\n", "env:\nitems:\n"}) {
    Values values;
    const Status status = Read(text, &values);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(values.word, "default");
    EXPECT_EQ(values.number, 7);
  }
}

TEST(Yaml, UnknownKeysAreErrorsWithLineAndSection) {
  EXPECT_EQ(ErrorOf("word: a\nlimits:\n  size: 1\n  x: 1\n"),
            "f.yaml:4: unknown key 'x' under 'limits'; known keys: size, wait");
  EXPECT_EQ(ErrorOf("wort: a\n"),
            "f.yaml:1: unknown key 'wort' under the file; known keys: word, choice, number, price, "
            "numbers, choices, limits, env, items");
}

TEST(Yaml, TypeErrorsNameLineValueAndExpectation) {
  EXPECT_EQ(ErrorOf("\nnumber: ten\n"),
            "f.yaml:2: 'number' is 'ten': expected a whole number from 1 to 9");
  EXPECT_EQ(ErrorOf("number: 10\n"),
            "f.yaml:1: 'number' is '10': expected a whole number from 1 to 9");
  EXPECT_EQ(ErrorOf("number: 3.5\n"),
            "f.yaml:1: 'number' is '3.5': expected a whole number from 1 to 9");
  EXPECT_EQ(ErrorOf("number: 99999999999999999999\n"),
            "f.yaml:1: 'number' is '99999999999999999999': expected a whole number from 1 to 9");
  EXPECT_EQ(ErrorOf("price: -1\n"), "f.yaml:1: 'price' is '-1': expected a number, 0 or more");
  EXPECT_EQ(ErrorOf("price: .nan\n"), "f.yaml:1: 'price' is '.nan': expected a number, 0 or more");
  EXPECT_EQ(ErrorOf("choice: c\n"), "f.yaml:1: 'choice' is 'c': expected one of a, b");
  EXPECT_EQ(ErrorOf("word: [a]\n"), "f.yaml:1: 'word' has no single value: expected a text");
  EXPECT_EQ(ErrorOf("word:\n"), "f.yaml:1: 'word' has no single value: expected a text");
  EXPECT_EQ(ErrorOf("limits: 3\n"), "f.yaml:1: 'limits' must be a mapping of keys to values");
  EXPECT_EQ(ErrorOf("limits: {size: 0}\n"), "f.yaml:1: 'size' is '0': expected at least 1");
  EXPECT_EQ(ErrorOf("limits: {wait: 0s}\n"), "f.yaml:1: 'wait' is '0s': expected more than 0");
  EXPECT_EQ(ErrorOf("items: 3\n"), "f.yaml:1: 'items' must be a list: lines that begin with '-'");
  EXPECT_EQ(ErrorOf("items:\n- name: a\n- {}\n"), "f.yaml:3: an item of 'items' needs 'name'");
  EXPECT_EQ(ErrorOf("env: {A: [1]}\n"), "f.yaml:1: 'A' has no single value: expected a text");
  EXPECT_EQ(ErrorOf("- a\n"), "f.yaml:1: the file must be a mapping of keys to values");
}

TEST(Yaml, TheFirstMistakeInTheFileIsReported) {
  EXPECT_EQ(ErrorOf("unknown: 1\nnumber: ten\n").substr(0, 28), "f.yaml:1: unknown key 'unkno");
  EXPECT_EQ(ErrorOf("number: ten\nunknown: 1\n").substr(0, 18), "f.yaml:1: 'number'");
}

TEST(Yaml, WhatIsNotYamlIsAnErrorWithItsLine) {
  EXPECT_EQ(ErrorOf("word: a\nnumber: [1\n").substr(0, 8), "f.yaml:3");
  EXPECT_EQ(ErrorOf("word: a\nword: b\n"), "f.yaml:2: key 'word' stands here twice");
  EXPECT_EQ(ErrorOf("{a: 1}: b\n"), "f.yaml:1: a key must be a plain word");
  EXPECT_EQ(ErrorOf("word: a\n---\nword: b\n"),
            "f.yaml:2: expected the end of the file: the document ended above");
}

TEST(Yaml, EnvironmentVariablesAreExpanded) {
  ASSERT_EQ(setenv("LAMINA_TEST_NAME", "x", 1), 0);
  unsetenv("LAMINA_TEST_ABSENT");
  Values values;
  ASSERT_TRUE(Read("word: a-${LAMINA_TEST_NAME}-${LAMINA_TEST_NAME}\n", &values).ok());
  EXPECT_EQ(values.word, "a-x-x");
  EXPECT_EQ(ErrorOf("\nword: ${LAMINA_TEST_ABSENT}\n"),
            "f.yaml:2: environment variable 'LAMINA_TEST_ABSENT' is not set");
  EXPECT_EQ(ErrorOf("word: ${LAMINA\n"), "f.yaml:1: '${' without '}' in '${LAMINA'");
}

TEST(Yaml, DeepTreesAndAliasesAreRefused) {
  EXPECT_EQ(ErrorOf("word: " + std::string(40, '[') + std::string(40, ']') + "\n"),
            "f.yaml:1: nested too deeply");
  EXPECT_EQ(ErrorOf("word: " + std::string(5000, '[') + "\n").substr(0, 7), "f.yaml:");
  EXPECT_EQ(ErrorOf("word: &x a\nchoice: *x\n"), "f.yaml:1: anchors (&name) are not supported");
  EXPECT_EQ(ErrorOf("word: a\nchoice: *x\n").substr(0, 9), "f.yaml:2:");
}

TEST(Yaml, GarbageThatYamlCppEndsEarlyOnIsRefused) {
  EXPECT_EQ(ErrorOf("# a comment\n, b: 1}\nword: a\n").substr(0, 7), "f.yaml:");
}

}  // namespace
}  // namespace lamina
