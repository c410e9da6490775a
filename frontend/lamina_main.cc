#include "frontend/cli/commands.h"

int main(int argc, char** argv) { return lamina::RunCli(argc, argv); }
