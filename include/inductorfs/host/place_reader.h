// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/inotify.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/fingerprint/reader.h"
#include "inductorfs/host/learn.h"

namespace inductorfs::host {

/// The program that a worker runs as a reader: its own file, whatever lies at its path now.
inline constexpr const char* kThisProgram = "/proc/self/exe";

/// Where jobs that use the facts' interpreter find shared libraries.
struct LibraryPlaces {
  std::string torch;                     ///< torch's folder; empty when it is not on this host
  std::vector<std::string> directories;  ///< as library_directories()
  std::string glibcxx;                   ///< newest GLIBCXX_ version that their libstdc++ offers; empty: there is none
  std::string cxxabi;
};

/// Looks at the places that the facts name. With --python they are a user's, and may lie on a file system that does not
/// answer; therefore another process looks, which is ended at the deadline: a worker's examiner, or a child
/// (`inductorfs host-places`). Each call blocks until then. Without either this process looks by itself.
/// Safe for concurrent use.
class PlaceReader {
 public:
  PlaceReader() = default;
  /// The program is run as `program host-places` and calls run_place_reader().
  explicit PlaceReader(fingerprint::ReaderOptions options) : options_(std::move(options)) {}
  explicit PlaceReader(AskedExaminer examiner) : examiner_(std::move(examiner)) {}

  [[nodiscard]] Result<Places> places(const fingerprint::Fingerprint& facts) const;
  /// Returns a digest of traces_of() below /proc.
  [[nodiscard]] Result<std::string> traces(const Places& places) const;
  [[nodiscard]] Result<LibraryPlaces> library_places(const fingerprint::Fingerprint& facts) const;
  /// Returns the file that a soname means in these directories; empty when there is none.
  [[nodiscard]] Result<std::string> find_library(const std::vector<std::string>& directories,
                                                 const std::string& soname) const;
  /// Watches directories by inotify(7) for some of kWatchable. The other process adds the watches to this one's
  /// descriptor. Returns for each directory its watch, or -errno; an examiner answers -EPERM where no packages are.
  [[nodiscard]] Result<std::vector<int>> watch(int inotify, const std::vector<std::string>& directories,
                                               unsigned events) const;

 private:
  [[nodiscard]] Result<std::string> ask(const std::string& request, int inotify = -1) const;

  fingerprint::ReaderOptions options_;
  std::optional<AskedExaminer> examiner_;
};

/// That something is made, written or gone; not that it is read.
inline constexpr unsigned kWatchable =
    IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

inline constexpr std::string_view kPlacesTask = "places";
/// A worker is not believed that a place is one of its facts: no answer has anything of a file's content but the
/// versions that a libstdc++.so.6 names, and names alone of what is there.
[[nodiscard]] fingerprint::ExaminerTask places_task();

/// Runs the body of the child, which answers one question of a PlaceReader.
[[nodiscard]] int run_place_reader();

}  // namespace inductorfs::host
