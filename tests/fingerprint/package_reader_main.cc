// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "inductorfs/fingerprint/writers.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "host-facts") == 0) return inductorfs::fingerprint::run_host_reader();
  return inductorfs::fingerprint::run_package_reader();
}
