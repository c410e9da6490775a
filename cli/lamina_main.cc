// The program `lamina`: the commands of cli/ and, which nothing else links, those that compute.
#include "base/descriptors.h"
#include "base/log.h"
#include "bench/benchmarks.h"
#include "cli/commands.h"
#include "quantize/commands.h"
#include "wire/protobuf_log.h"

int main(int argc, char** argv) {
  lamina::InitLogging("lamina");
  lamina::TakeProtobufLog();
  lamina::RaiseDescriptorLimit();
  return lamina::RunCli(argc, argv, [](CLI::App& app) {
    lamina::RegisterQuantize(app);
    lamina::RegisterPerplexity(app);
    lamina::RegisterPack(app);
    lamina::RegisterBench(app);
  });
}
