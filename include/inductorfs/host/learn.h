// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/fingerprint/fingerprint.h"

/// The facts of this host, at the start and again later.
namespace inductorfs::host {

struct FactsRequest {
  std::string file;    ///< of `inductorfs fingerprint --json`; empty: this host is asked
  std::string python;  ///< as ProbeOptions
  std::string cache_file;
  std::map<std::string, std::string> environment;  ///< what the mount declares
  Milliseconds deadline{20000};                    ///< for each outside command
  fingerprint::ReaderOptions reader{};             ///< as ProbeOptions
};

/// The facts from the file, or those of this host. The environment facet is what the mount declares, unless only the
/// file says something.
[[nodiscard]] Result<fingerprint::Fingerprint> learn_facts(const FactsRequest& request);

/// What two lists of facts have in common and what not. Immutable value.
struct FactsChange {
  fingerprint::Fingerprint facts;  ///< to be in force from now on
  bool scopes = false;             ///< some facet has another value, or is known no more or now
  std::vector<std::string> texts;  ///< one line for each such facet: what it was and is
  std::vector<std::string> kept;   ///< facets that were not learned this time and keep their value: name and problem
};
/// `keep`: a facet that was known and is not now keeps its value.
[[nodiscard]] FactsChange change_of(const fingerprint::Fingerprint& before, const fingerprint::Fingerprint& now,
                                    bool keep);

/// The lines that only one of two texts has, joined by "; ".
[[nodiscard]] std::pair<std::string, std::string> differing_lines(std::string_view one, std::string_view other);

/// Where the packages of these facts lie, and what else tells cheaply that they may be others now.
struct Places {
  std::vector<std::string> packages;  ///< folders of torch and Triton
  std::vector<std::string> sites;     ///< folders that packages are installed in
  std::vector<std::string> files;     ///< interpreter, compiler, the loader's cache
};
[[nodiscard]] Places places_of(const fingerprint::Fingerprint& facts);
/// Text that is another one after a change of driver, devices or MIG, or of the packages' folders: what a timer looks
/// at before the device itself is asked, which makes a CUDA context. `proc`: "/proc".
[[nodiscard]] std::string traces_of(const Places& places, const std::string& proc);

}  // namespace inductorfs::host
