// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/cli/run.h"

int main(int argc, char** argv) { return inductorfs::cli::run(argc, argv); }
