#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "hub/find_model.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace lamina {
namespace {

struct TokenizeArguments {
  std::string model;
  std::string text;  // "-": stdin
  bool json = false;
  bool bare = false;
};

Status Tokenize(const TokenizeArguments& arguments) {
  LAMINA_ASSIGN_OR_RETURN(const std::string path, FindModel(arguments.model));
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(path));
  std::string given = arguments.text;
  if (given == "-") given.assign(std::istreambuf_iterator<char>(std::cin), {});
  std::string text;  // what a terminal gives need not be UTF-8
  TakeAllUtf8(given, text);
  LAMINA_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer->Encode(text, !arguments.bare));
  if (arguments.json) {
    std::cout << nlohmann::json(ids) << '\n';
    return OkStatus();
  }
  for (const TokenId id : ids) {
    const nlohmann::json piece = tokenizer->TokenBytes(id);
    std::printf("%8d  %s\n", id,
                piece.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  }
  std::printf("%zu tokens, %zu bytes\n", ids.size(), text.size());
  return OkStatus();
}

}  // namespace

void RegisterTokenize(CLI::App& app) {
  auto arguments = std::make_shared<TokenizeArguments>();
  CLI::App* command = app.add_subcommand("tokenize", "Show the tokens that a text becomes");
  command
      ->add_option("MODEL", arguments->model,
                   "The model's folder, GGUF file or name; only its tokenizer is read")
      ->required();
  command->add_option("TEXT", arguments->text, "The text; - reads it from stdin")->required();
  command->add_flag("--no-special-tokens", arguments->bare,
                    "Without the tokens that are put around a prompt");
  command->add_flag("--json", arguments->json, "The ids only, as JSON");
  command->footer("Example:\n  lamina tokenize models/tiny-stories \"Once upon a time\"");
  OnRun(*command, "lamina", [arguments] { return Tokenize(*arguments); });
}

}  // namespace lamina
