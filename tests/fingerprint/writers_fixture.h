// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "fake_packages.h"
#include "fingerprint/processes/looker.h"
#include "fingerprint/processes/package_reader.h"
#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/fingerprint/variables.h"
#include "inductorfs/fingerprint/writers.h"
#include "support/emulator.h"
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

/// A process of another user, which waits until the object ends. Needs external synchronisation.
class OtherUser {
 public:
  /// It does `prepare` as that user; is_ready() is false when that is not possible, or `prepare` fails.
  OtherUser(uid_t user, gid_t group, const std::function<bool()>& prepare);
  ~OtherUser();
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool is_ready() const { return ready_; }

 private:
  pid_t pid_ = -1;
  bool ready_ = false;
};

/// A site-packages folder with the small torch and Triton of the recorded vectors. Needs external synchronisation.
class Site {
 public:
  explicit Site(const std::string& folder);
  [[nodiscard]] std::string torch() const { return folder_ + "/torch"; }
  [[nodiscard]] std::string triton() const { return folder_ + "/triton"; }
  [[nodiscard]] std::string libtorch() const { return torch() + "/lib/libtorch_cpu.so"; }
  [[nodiscard]] std::string libtriton() const { return triton() + "/_C/libtriton.so"; }
  /// Installs a vLLM whose RECORD has this digest of its library.
  void install_vllm(const std::string& digest) const;
  [[nodiscard]] std::string libvllm() const { return folder_ + "/vllm/_C.abi3.so"; }
  /// Takes its RECORD away, as of a torch that is no wheel.
  void remove_record() const;
  /// What the interpreter maps when it loads torch, in its order.
  void load_torch(Program& program) const;

 private:
  std::string folder_;
};

/// The facts of a mount with that site, this host's libc and nothing declared.
[[nodiscard]] Fingerprint facts_of(const Site& site, const Environment& declared = {});

/// What a test wants of Writers and of their examiner.
struct OptionsOfTests : WritersOptions {
  std::string package_reader = PACKAGE_READER_PATH;  ///< ExaminerOptions::package_reader
};
/// Returns the socket to an examiner with these options, which ends with this process.
[[nodiscard]] int examiner_for(const OptionsOfTests& options);
/// As make_far_looker(), and ExaminerLink of that socket.
[[nodiscard]] std::unique_ptr<Looker> far_looker(int socket, std::function<void()> stands_still, Milliseconds patience);
/// Makes what this process says be told by a child of such an examiner.
void tell(Process& process);
/// As have_package_read(), of a process that nobody has told of.
[[nodiscard]] Fact read_package(const PackageRequest& request);
[[nodiscard]] inline OptionsOfTests writers_options() { return {}; }
/// As open_writers, and waits long for a look at a process.
[[nodiscard]] std::unique_ptr<Writers> open_patient_writers(const OptionsOfTests& options, Counters& counters);
/// Asks until there is an answer.
[[nodiscard]] Judgement judge_to_the_end(Writers& writers, const Writer* writer, std::span<const Facet> facets,
                                         const ExpectedFacts& expected);

/// Writers of a mount that expects these facts. Needs external synchronisation for set_facts() alone.
class WritersOfMount {
 public:
  WritersOfMount(std::unique_ptr<Writers> writers, const Fingerprint& facts)
      : writers_(std::move(writers)), expected_(facts) {}
  [[nodiscard]] std::shared_ptr<const Writer> identify(pid_t tid) { return writers_->identify(tid); }
  [[nodiscard]] Judgement glance(const Writer* writer, std::span<const Facet> facets) {
    return writers_->glance(writer, facets, expected_);
  }
  [[nodiscard]] Judgement judge(const Writer* writer, std::span<const Facet> facets) {
    return writers_->judge(writer, facets, expected_);
  }
  [[nodiscard]] JobFacts job_of(pid_t tid, Milliseconds patience) { return writers_->job_of(tid, {true, patience}); }
  void set_facts(const Fingerprint& facts) { expected_ = ExpectedFacts(facts); }
  [[nodiscard]] Judgement judge_to_the_end(const Writer* writer, std::span<const Facet> facets) {
    return testing::judge_to_the_end(*writers_, writer, facets, expected_);
  }

 private:
  std::unique_ptr<Writers> writers_;
  ExpectedFacts expected_;
};
[[nodiscard]] std::unique_ptr<WritersOfMount> open_patient_writers(const OptionsOfTests& options,
                                                                   const Fingerprint& facts, Counters& counters);
[[nodiscard]] inline Judgement judge_to_the_end(WritersOfMount& writers, const Writer* writer,
                                                std::span<const Facet> facets) {
  return writers.judge_to_the_end(writer, facets);
}

inline constexpr const char* kSoabi = "cpython-311-x86_64-linux-gnu";

}  // namespace inductorfs::fingerprint::testing
