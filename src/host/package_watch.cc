// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/package_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "inductorfs/base/log.h"

namespace inductorfs::host {
namespace {

constexpr size_t kWatchLimit = 16;

bool is_version_file(const std::string& name) { return name == "version.py" || name == "__init__.py"; }

}  // namespace

bool is_package_name(const std::string& name) {
  return name.starts_with("torch") || name.starts_with("triton") || name.starts_with("pytorch") ||
         fingerprint::names_engine(name);
}

Result<PackageWatch> PackageWatch::open(PlaceReader reader) {
  Fd fd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!fd) return fail_errno("inotify_init1");
  return PackageWatch(std::move(fd), std::move(reader));
}

void PackageWatch::follow(const Places& places) {
  if (!fd_) return;
  // A folder that was replaced has another inode, so that its old watch says nothing more.
  for (const auto& [watch, kind] : watches_) (void)::inotify_rm_watch(fd_.get(), watch);  // may have gone with it
  watches_.clear();
  std::vector<std::string> directories = places.packages;
  directories.insert(directories.end(), places.sites.begin(), places.sites.end());
  directories.resize(std::min(directories.size(), kWatchLimit));
  const Result<std::vector<int>> made = reader_.watch(fd_.get(), directories, kWatchable);
  // Without a watch (fs.inotify.max_user_watches) the timer still notices.
  if (!made) log::write_limited(log::Level::kWarning, "host.watch_failed", {{"why", made.error().what()}});
  for (size_t i = 0; made && i < made->size(); ++i) {
    const int watch = (*made)[i];
    if (watch < 0) {
      log::write_limited(log::Level::kWarning, "host.watch_failed",
                         {{"directory", directories[i]}, {"why", std::strerror(-watch)}});
    }
    if (watch >= 0) watches_.emplace(watch, i < places.packages.size() ? Kind::kPackage : Kind::kSite);
  }
}

bool PackageWatch::concerns(int watch, unsigned mask, const std::string& name) const {
  if ((mask & IN_Q_OVERFLOW) != 0) return true;
  const auto at = watches_.find(watch);
  if (at == watches_.end() || (mask & IN_IGNORED) != 0) return false;
  if ((mask & (IN_DELETE_SELF | IN_MOVE_SELF)) != 0) return true;
  return at->second == Kind::kPackage ? is_version_file(name) : is_package_name(name);
}

bool PackageWatch::take() {
  if (!fd_) return false;
  bool concerned = false;
  alignas(inotify_event) std::array<char, 16384> buffer{};
  while (true) {
    const ssize_t got = ::read(fd_.get(), buffer.data(), buffer.size());
    if (got <= 0) return concerned;  // EAGAIN: all taken
    for (size_t at = 0; at + sizeof(inotify_event) <= static_cast<size_t>(got);) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      const char* const name = buffer.data() + at + sizeof event;
      concerned = concerned || concerns(event.wd, event.mask, event.len > 0 ? std::string(name) : std::string());
      at += sizeof event + event.len;
    }
  }
}

}  // namespace inductorfs::host
