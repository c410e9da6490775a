#include "base/descriptors.h"
#include "base/log.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  lamina::InitLogging("lamina");
  lamina::RaiseDescriptorLimit();
  return lamina::RunCli(argc, argv);
}
