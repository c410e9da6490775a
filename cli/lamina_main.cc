#include "base/descriptors.h"
#include "base/log.h"
#include "cli/commands.h"
#include "splitter/protobuf_log.h"

int main(int argc, char** argv) {
  lamina::InitLogging("lamina");
  lamina::TakeProtobufLog();
  lamina::RaiseDescriptorLimit();
  return lamina::RunCli(argc, argv);
}
