// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/sweep.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <vector>

#include "inductorfs/base/log.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/runtime_directory.h"
#include "inductorfs/control/socket.h"
#include "inductorfs/places/also.h"

namespace inductorfs::places {
namespace {

/// More names than this in the directory are not ours; the rest waits for the next start.
constexpr size_t kMostNames = 4096;
/// A daemon is done with a name that ends in .new, and with a temporary file, in far less.
constexpr time_t kTemporarySeconds = 60;

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code ignored;  // no such directory: nothing to sweep
  for (auto item = std::filesystem::directory_iterator(directory, ignored);
       item != std::filesystem::directory_iterator() && names.size() < kMostNames; item.increment(ignored)) {
    names.push_back(item->path().filename().string());
  }
  return names;
}

/// Somebody bound it and does not listen any more. A daemon's socket listens before it gets its name (listen_at).
bool is_dead_socket(const std::string& path) {
  const Result<Fd> fd = control::connect_to(path);
  return !fd && fd.error().code() == ErrorCode::kUnavailable;
}

bool is_dangling(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) != 0 && errno == ENOENT;
}

void sweep(const std::string& path, const struct stat& found, bool and_places) {
  const bool old = ::time(nullptr) - found.st_mtime > kTemporarySeconds;
  if (S_ISSOCK(found.st_mode)) {
    if (path.ends_with(control::kTemporarySuffix) ? old : is_dead_socket(path)) (void)::unlink(path.c_str());
  } else if (S_ISLNK(found.st_mode)) {
    if ((path.ends_with(".sock") || path.ends_with(control::guests_path(".sock"))) && is_dangling(path))
      (void)::unlink(path.c_str());
  } else if (S_ISREG(found.st_mode) && path.ends_with(".also") && and_places) {
    const std::string socket = path.substr(0, path.rfind('.')) + ".sock";
    if (!control::is_listening(socket)) take_back_places(path);
  } else if (S_ISREG(found.st_mode) && path.ends_with(".tmp") && old) {
    (void)::unlink(path.c_str());  // of a record that was being written
  }
}

}  // namespace

void sweep_runtime_directory(const std::string& directory, bool and_places) {
  if (and_places) detach_orphaned_binds();
  if (!control::is_runtime_directory(directory, ::geteuid())) return;
  // Links last: they may lead to sockets that go.
  for (const bool links : {false, true}) {
    for (const std::string& name : names_in(directory)) {
      const std::string path = directory + "/" + name;
      struct stat found {};
      if (::lstat(path.c_str(), &found) != 0 || found.st_uid != ::geteuid()) continue;
      if (S_ISLNK(found.st_mode) == links) sweep(path, found, and_places);
    }
  }
}

}  // namespace inductorfs::places
