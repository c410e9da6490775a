#include "cli/other_names.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace lamina {
namespace {

enum class Becomes {
  kOption,    // another option
  kArgument,  // nothing: the value is the command's argument
  kNothing,   // a flag that says what is so anyway
  kAuto,      // the value auto says what is so anyway; another one gets the answer
  kAnswer,    // an error
};

struct OtherName {
  std::string_view name;
  Becomes becomes;
  std::string_view text;  // the option, or the answer
};

constexpr OtherName kOfServers[] = {
    {"-m", Becomes::kArgument, ""},
    {"--model", Becomes::kArgument, ""},
    {"-hf", Becomes::kArgument, ""},
    {"--hf-repo", Becomes::kArgument, ""},
    {"-c", Becomes::kOption, "--max-model-len"},
    {"--ctx-size", Becomes::kOption, "--max-model-len"},
    {"-a", Becomes::kOption, "--served-model-name"},
    {"--alias", Becomes::kOption, "--served-model-name"},
    {"--ssl-cert-file", Becomes::kOption, "--ssl-certfile"},
    {"--ssl-key-file", Becomes::kOption, "--ssl-keyfile"},
    {"-np", Becomes::kOption, "--max-num-seqs"},
    {"--parallel", Becomes::kOption, "--max-num-seqs"},
    {"-t", Becomes::kOption, "--compute-threads"},
    {"--threads", Becomes::kOption, "--compute-threads"},
    {"-b", Becomes::kOption, "--max-num-batched-tokens"},
    {"--batch-size", Becomes::kOption, "--max-num-batched-tokens"},
    {"-tp", Becomes::kOption, "--tensor-parallel-size"},
    {"-pp", Becomes::kOption, "--pipeline-parallel-size"},
    {"--kv-cache-dtype", Becomes::kOption, "--kv-dtype"},
    {"--enable-log-requests", Becomes::kOption, "--log-requests"},
    {"--uvicorn-log-level", Becomes::kOption, "--log-level"},
    {"--disable-log-requests", Becomes::kNothing, ""},
    {"--no-enable-log-requests", Becomes::kNothing, ""},
    {"--enable-ssl-refresh", Becomes::kNothing, ""},  // a renewed certificate is read in any case
    {"--enable-prefix-caching", Becomes::kNothing, ""},
    {"--enable-chunked-prefill", Becomes::kNothing, ""},
    {"--enable-auto-tool-choice", Becomes::kNothing, ""},
    {"--jinja", Becomes::kNothing, ""},
    {"--metrics", Becomes::kNothing, ""},
    {"--trust-remote-code", Becomes::kNothing, ""},  // no code of a checkpoint is run
    {"--enforce-eager", Becomes::kNothing, ""},      // nothing is compiled while it serves
    // Every model answers /v1/embeddings and /rerank.
    {"--embedding", Becomes::kNothing, ""},
    {"--embeddings", Becomes::kNothing, ""},
    {"--reranking", Becomes::kNothing, ""},
    {"--rerank", Becomes::kNothing, ""},
    {"--task", Becomes::kAuto,
     "every model answers /v1/embeddings and /rerank beside requests for text; leave it out"},
    {"--runner", Becomes::kAuto,
     "every model answers /v1/embeddings and /rerank beside requests for text; leave it out"},
    {"--convert", Becomes::kAuto,
     "every model answers /v1/embeddings and /rerank beside requests for text; leave it out"},
    {"--pooling", Becomes::kAnswer,
     "the vector of a text is that of its last token, as with pooling last; leave it out"},
    {"--pooler-config", Becomes::kAnswer,
     "the vector of a text is that of its last token, as with pooling LAST; leave it out"},
    {"--override-pooler-config", Becomes::kAnswer,
     "the vector of a text is that of its last token, as with pooling LAST; leave it out"},
    {"--dtype", Becomes::kAuto,
     "weights are kept in the type of the checkpoint; --kv-dtype chooses that of the KV cache"},
    {"--tokenizer-mode", Becomes::kAuto, "the tokenizer is read from the checkpoint's files"},
    {"--tokenizer", Becomes::kAnswer, "the tokenizer is read from the checkpoint's folder"},
    {"--gpu-memory-utilization", Becomes::kAnswer,
     "--memory, such as --memory 64GiB, is how much KV cache each memory node holds"},
    {"-ngl", Becomes::kAnswer,
     "--device cuda:0 runs all layers on that GPU; docs/offload.md says how weights lie on a disk"},
    {"--n-gpu-layers", Becomes::kAnswer,
     "--device cuda:0 runs all layers on that GPU; docs/offload.md says how weights lie on a disk"},
    {"--gpu-layers", Becomes::kAnswer,
     "--device cuda:0 runs all layers on that GPU; docs/offload.md says how weights lie on a disk"},
    {"--cpu-offload-gb", Becomes::kAnswer, "docs/offload.md says how weights lie on a disk"},
    {"--swap-space", Becomes::kAnswer,
     "memory nodes hold the KV cache: more of them (--memory-nodes), or more --memory, hold more"},
    {"--block-size", Becomes::kAnswer, "KV cache is given out token by token; leave it out"},
    {"--revision", Becomes::kAnswer, "write it behind the model's name: OWNER/NAME@REVISION"},
    {"-q", Becomes::kAnswer, "the checkpoint says how it is quantized; leave it out"},
    {"--quantization", Becomes::kAnswer, "the checkpoint says how it is quantized; leave it out"},
    {"-dp", Becomes::kAnswer, "--compute-nodes is how many nodes have the whole model each"},
    {"--data-parallel-size", Becomes::kAnswer,
     "--compute-nodes is how many nodes have the whole model each"},
    {"--chat-template", Becomes::kAnswer,
     "put it into the checkpoint's folder as chat_template.jinja"},
    {"--enable-lora", Becomes::kAnswer, "adapters are not supported; merge them into the weights"},
    {"--lora-modules", Becomes::kAnswer, "adapters are not supported; merge them into the weights"},
    {"--speculative-config", Becomes::kAnswer, "there is no speculative decoding; leave it out"},
};

constexpr OtherName kOfClients[] = {
    {"-p", Becomes::kArgument, ""},
    {"--prompt", Becomes::kArgument, ""},
    {"-n", Becomes::kOption, "--max-tokens"},
    {"--predict", Becomes::kOption, "--max-tokens"},
    {"--n-predict", Becomes::kOption, "--max-tokens"},
    {"--temp", Becomes::kOption, "--temperature"},
    {"-s", Becomes::kOption, "--seed"},
    {"-sys", Becomes::kOption, "--system"},
    {"--system-prompt", Becomes::kOption, "--system"},
    {"--base-url", Becomes::kOption, "--url"},
    {"--model-name", Becomes::kOption, "--model"},
    {"-m", Becomes::kAnswer, "a server has the model: start it with lamina serve MODEL"},
};

const OtherName* Find(std::string_view command, std::string_view name) {
  const auto in = [&](const auto& names) -> const OtherName* {
    const auto found = std::ranges::find(names, name, &OtherName::name);
    return found == std::end(names) ? nullptr : &*found;
  };
  if (command == "serve" || command == "front") return in(kOfServers);
  return command == "complete" || command == "chat" ? in(kOfClients) : nullptr;
}

}  // namespace

Result<std::vector<std::string>> WithOurNames(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return arguments;
  std::vector<std::string> ours = {arguments.front()};
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      ours.insert(ours.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    const size_t equals = argument.starts_with('-') ? argument.find('=') : std::string::npos;
    const std::string name = argument.substr(0, equals);
    const OtherName* other = Find(arguments.front(), name);
    if (other == nullptr) {
      ours.push_back(argument);
      continue;
    }
    const bool attached = equals != std::string::npos;
    const std::string value = attached ? argument.substr(equals + 1) : "";
    switch (other->becomes) {
      case Becomes::kOption:
        ours.push_back(std::string(other->text) + (attached ? "=" + value : ""));
        break;
      case Becomes::kArgument:
        if (attached) ours.push_back(value);
        break;
      case Becomes::kNothing: break;
      case Becomes::kAuto:
        if (attached ? value == "auto" : i + 1 < arguments.size() && arguments[i + 1] == "auto") {
          if (!attached) ++i;
          break;
        }
        [[fallthrough]];
      case Becomes::kAnswer:
        return InvalidArgument("there is no " + name + " here: " + std::string(other->text));
    }
  }
  return ours;
}

}  // namespace lamina
