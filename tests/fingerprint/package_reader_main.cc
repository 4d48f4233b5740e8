// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/writers.h"

int main() { return inductorfs::fingerprint::run_package_reader(); }
