// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <memory>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/fingerprint/examiner.h"

/// An examiner for tests: SOCKET PROC READER MILLISECONDS.
int main(int argc, char** argv) {
  if (argc != 5) return 2;
  inductorfs::fingerprint::ExaminerOptions options;
  options.proc = argv[2];
  options.package_reader = argv[3];
  options.deadline = inductorfs::Milliseconds(std::atol(argv[4]));
  options.seal_secret = std::make_shared<std::string>(inductorfs::fingerprint::kSealSecretSize, 's');
  options.reading = inductorfs::fingerprint::filter_of_reading().value_or(std::nullopt);
  inductorfs::fingerprint::run_examiner(std::atoi(argv[1]), options);
  return 0;
}
