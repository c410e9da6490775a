#include "base/log.h"
#include "frontend/cli/commands.h"

int main(int argc, char** argv) {
  lamina::InitLogging("lamina");
  return lamina::RunCli(argc, argv);
}
