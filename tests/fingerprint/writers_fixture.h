// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "fake_packages.h"
#include "fingerprint/writers_process.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/fingerprint/variables.h"
#include "inductorfs/fingerprint/writers.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint::testing {

using Environment = std::map<std::string, std::string>;

/// A running writers_program. Needs external synchronisation.
class Program {
 public:
  explicit Program(const Environment& environment = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// The answer to one command; fails the test when it is not `expected`.
  void tell(const std::string& command, const std::string& expected = "ok");
  /// The id that `thread`, `fork` and `spawn` answer.
  [[nodiscard]] pid_t start(const std::string& command);
  /// Ends it and waits for that.
  void end();

 private:
  [[nodiscard]] std::string ask(const std::string& command);

  pid_t pid_ = -1;
  FILE* in_ = nullptr;
  FILE* out_ = nullptr;
};

/// A site-packages folder with the small torch and Triton of the recorded vectors. Needs external synchronisation.
class Site {
 public:
  explicit Site(const std::string& folder);
  [[nodiscard]] std::string torch() const { return folder_ + "/torch"; }
  [[nodiscard]] std::string triton() const { return folder_ + "/triton"; }
  [[nodiscard]] std::string libtorch() const { return torch() + "/lib/libtorch_cpu.so"; }
  [[nodiscard]] std::string libtriton() const { return triton() + "/_C/libtriton.so"; }
  /// Takes its RECORD away, as of a torch that is no wheel.
  void remove_record() const;
  /// What the interpreter maps when it loads torch, in its order.
  void load_torch(Program& program) const;

 private:
  std::string folder_;
};

/// The facts of a mount with that site, this host's libc and nothing declared.
[[nodiscard]] Fingerprint facts_of(const Site& site, const Environment& declared = {});

/// As a test wants them: packages are read by the reader of the tests.
[[nodiscard]] WritersOptions writers_options();
/// As open_writers, and waits long for a look at a process.
[[nodiscard]] std::unique_ptr<Writers> open_patient_writers(const WritersOptions& options, const Fingerprint& facts,
                                                            Counters& counters);
/// Asks until there is an answer.
[[nodiscard]] Judgement judge_to_the_end(Writers& writers, const Writer* writer, std::span<const Facet> facets);

inline constexpr const char* kSoabi = "cpython-311-x86_64-linux-gnu";

}  // namespace inductorfs::fingerprint::testing
