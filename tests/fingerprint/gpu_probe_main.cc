// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/fingerprint.h"

int main() { return inductorfs::fingerprint::run_gpu_probe(); }
