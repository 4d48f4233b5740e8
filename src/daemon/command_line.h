// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "inductorfs/base/result.h"
#include "settings.h"

namespace inductorfs::daemon {

/// What the user asked for. Immutable value.
struct Invocation {
  enum class Verb {
    kPrint,
    kMount,
    kUnmount,
    kStatus,
    kSync,
    kExplain,
    kUpgrade,
    kFingerprint,
    kCheck,
    kGpuProbe,
    kPackageFacts,
    kWorker
  };
  Verb verb = Verb::kPrint;
  std::string path;  ///< as given, for all verbs with a path
  bool json = false;
  bool lazy = false;
  bool all = false;     ///< upgrade: every mount of this user
  std::string program;  ///< upgrade: which one; empty: this one
  std::chrono::seconds timeout{60};
  std::string config;
  RawValues options;      ///< of mount and fingerprint
  bool families = false;  ///< fingerprint: the rules instead of the facts
  std::string compare;    ///< fingerprint: another host's
  std::string cache;      ///< fingerprint: file that remembers digests of large files
  std::string store;      ///< check: the directory
  bool repair = false;    ///< check: remove what is bad
  std::string text;       ///< kPrint: what to print, to standard error unless exit_code is 0
  int exit_code = 0;
};

/// Never fails: a wrong command line is a kPrint with exit code 2 and one line.
[[nodiscard]] Invocation parse_command_line(int argc, const char* const* argv);

/// The settings of `mount`, or of `fingerprint` those that concern facts: defaults, then the file, then the command
/// line.
[[nodiscard]] Result<Settings> settings_of(const Invocation& invocation, const User& user,
                                           const Environment& environment);
[[nodiscard]] Result<Settings> facts_settings_of(const Invocation& invocation);

/// Overwrites user and password of every URL in place: what ps shows is the process's own memory.
void hide_secrets(int argc, char** argv);

}  // namespace inductorfs::daemon
