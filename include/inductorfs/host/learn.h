// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/fingerprint/fingerprint.h"

/// Learns the facts of this host, at the start and again later.
namespace inductorfs::host {

struct FactsRequest {
  std::string file;               ///< output of `inductorfs fingerprint --json`; empty: this host is asked
  std::string python;             ///< as ProbeOptions::python
  bool packages_of_jobs = false;  ///< as well
  std::string cache_file;
  std::map<std::string, std::string> environment;                ///< the values that the mount declares
  Milliseconds deadline = fingerprint::ProbeOptions{}.deadline;  ///< for each outside command
  fingerprint::ReaderOptions reader{};                           ///< as ProbeOptions::reader
};

/// Returns the facts from the file, or those of this host. The environment facet is what the mount declares; if the
/// mount declares nothing and the file has that facet, it is the file's.
[[nodiscard]] Result<fingerprint::Fingerprint> learn_facts(const FactsRequest& request);

// ---- by the examiner: the worker of a mount starts no programs and opens no files of users

/// Whom a worker asks, and for how long. Immutable value.
struct AskedExaminer {
  std::shared_ptr<const fingerprint::ExaminerLink> link;
  Milliseconds deadline{20'000};    ///< as ReaderOptions::deadline
  std::function<bool()> cancelled;  ///< as ReaderOptions::cancelled
};

/// Has the examiner learn the facts as the mount was made to; each outside command may take `command`, each reader
/// AskedExaminer::deadline. kTimedOut or kUnavailable when nobody has answered; other errors are learn_facts()'s own.
[[nodiscard]] Result<fingerprint::Fingerprint> learn_facts(const AskedExaminer& examiner, Milliseconds command);
/// As AskedExaminer::cancelled, for who must not wait for an examiner that is not there: true once none has taken a
/// question for ten seconds. To be called by one thread.
[[nodiscard]] std::function<bool()> when_none_answers(std::shared_ptr<const fingerprint::ExaminerLink> examiner);

/// The part of a request that the examiner gets from whoever mounts, so that no worker can say which program is run and
/// which file is read: without the times and the reader, which are the worker's and its own. No secrets are in it.
[[nodiscard]] std::string to_bytes(const FactsRequest& request);
[[nodiscard]] Result<FactsRequest> facts_request_from(std::string_view bytes);
inline constexpr std::string_view kFactsTask = "facts";
[[nodiscard]] fingerprint::ExaminerTask facts_task(FactsRequest request);

/// The difference between two sets of facts. Immutable value.
struct FactsChange {
  fingerprint::Fingerprint facts;  ///< the facts that are to be in force from now on
  bool scopes = false;             ///< some facet has another value, or became known or unknown
  std::vector<std::string> texts;  ///< one line for each such facet: its old and its new value
  std::vector<std::string> kept;   ///< facets that were not learned this time and keep their value: name and problem
};
/// Compares two sets of facts. With `keep`, a facet that was known and is not known now keeps its value.
[[nodiscard]] FactsChange change_of(const fingerprint::Fingerprint& before, const fingerprint::Fingerprint& now,
                                    bool keep);

/// Returns the lines that only one of two texts has, joined by "; ".
[[nodiscard]] std::pair<std::string, std::string> differing_lines(std::string_view one, std::string_view other);

/// Where the packages of these facts lie, and which other files show cheaply that the packages may have changed.
struct Places {
  std::vector<std::string> packages;  ///< folders of torch, Triton and serving engines
  std::vector<std::string> sites;     ///< folders that packages are installed in
  std::vector<std::string> files;     ///< interpreter, compiler, the loader's cache
};
/// Returns the folder of torch or Triton that a fact was read from; empty when it is not on this host.
[[nodiscard]] std::string package_of(const fingerprint::Fact& fact);
/// Returns the interpreter that the facts were read from; empty when it is not on this host.
[[nodiscard]] std::string interpreter_of(const fingerprint::Fingerprint& facts);
[[nodiscard]] Places places_of(const fingerprint::Fingerprint& facts);
/// Returns a text that changes with the driver, the devices or MIG, or the packages' folders. A timer compares it
/// before it asks the device itself, which makes a CUDA context. `proc` is "/proc".
[[nodiscard]] std::string traces_of(const Places& places, const std::string& proc);

}  // namespace inductorfs::host
