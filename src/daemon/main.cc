// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/daemon/daemon.h"

int main(int argc, char** argv) { return inductorfs::daemon::run(argc, argv); }
