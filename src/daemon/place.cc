// SPDX-License-Identifier: Apache-2.0
#include "place.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

namespace inductorfs::daemon {
namespace {

constexpr mode_t kMode = 0755;
constexpr mode_t kWorldWritable = 0002;
constexpr std::string_view kTorchPrefix = "torchinductor_";

struct Owner {
  uid_t uid;
  gid_t gid;
};

/// The user of a directory `torchinductor_<user>`, when there is one.
Owner owner_by_name(const std::string& name) {
  const Owner self{::geteuid(), ::getegid()};
  if (name.compare(0, kTorchPrefix.size(), kTorchPrefix) != 0) return self;
  std::array<char, 4096> buffer{};
  passwd record{};
  passwd* found = nullptr;
  const std::string user = name.substr(kTorchPrefix.size());
  if (::getpwnam_r(user.c_str(), &record, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return self;
  return {found->pw_uid, found->pw_gid};
}

Result<struct stat> attributes_of(const Fd& directory, const std::string& path) {
  struct stat found {};
  if (::fstat(directory.get(), &found) != 0) return fail_errno("stat", path);
  return found;
}

tl::unexpected<Error> not_found_or_errno(const std::string& path) {
  if (errno == ENOENT) return fail(ErrorCode::kNotFound);
  return fail_errno("open", path);
}

/// One component: the directory `name` in `parent`, which has the attributes `around`.
Result<Fd> enter(const Fd& parent, const struct stat& around, const std::string& name, const std::string& path) {
  Fd plain(::openat(parent.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (plain) return plain;
  if (errno != ENOTDIR && errno != ELOOP) return not_found_or_errno(path);
  struct stat link {};
  if (::fstatat(parent.get(), name.c_str(), &link, AT_SYMLINK_NOFOLLOW) != 0) return not_found_or_errno(path);
  const bool trusted = (around.st_mode & kWorldWritable) == 0 || link.st_uid == 0 || link.st_uid == ::geteuid();
  if (S_ISLNK(link.st_mode) && !trusted) {
    return fail(ErrorCode::kNotPermitted, path + " is a symbolic link of another user: remove it");
  }
  Fd followed(::openat(parent.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!followed && errno == ENOTDIR) return fail(ErrorCode::kNotDirectory, path + " is no directory: remove it");
  if (!followed) return fail_errno("open", path);  // a link to nowhere is no place to make something
  return followed;
}

Result<void> make(const Fd& parent, const struct stat& around, const std::string& name, const std::string& path) {
  if (::mkdirat(parent.get(), name.c_str(), kMode) != 0) return fail_errno("mkdir", path);
  if (::geteuid() != 0) return {};
  const bool shared = (around.st_mode & kWorldWritable) != 0;
  const Owner owner = shared ? owner_by_name(name) : Owner{around.st_uid, around.st_gid};
  if (::fchownat(parent.get(), name.c_str(), owner.uid, owner.gid, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_errno("chown", path);
  }
  return {};
}

Result<void> step_into(MadeDirectory& place, const std::string& name, const std::string& path) {
  const Result<struct stat> around = attributes_of(place.fd, path);
  if (!around) return fail(around.error());
  Result<Fd> next = enter(place.fd, *around, name, path);
  if (!next && next.error().code() == ErrorCode::kNotFound) {
    Result<void> made = make(place.fd, *around, name, path);
    if (made) place.made.push_back(path);
    // Another process made it meanwhile: as good.
    if (!made && made.error().code() != ErrorCode::kExists) return made;
    next = enter(place.fd, *around, name, path);
  }
  if (!next) return fail(next.error());
  place.fd = std::move(*next);
  return {};
}

}  // namespace

Result<MadeDirectory> make_place(const std::string& path) {
  MadeDirectory place;
  place.fd = Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!place.fd) return fail_errno("open", "/");
  size_t from = 1;
  while (from < path.size()) {
    const size_t end = std::min(path.find('/', from), path.size());
    const std::string name = path.substr(from, end - from);
    if (Result<void> done = step_into(place, name, path.substr(0, end)); !done) {
      remove_made(place.made);
      return fail(done.error());
    }
    from = end + 1;
  }
  return place;
}

void remove_made(const std::vector<std::string>& made) {
  for (auto path = made.rbegin(); path != made.rend(); ++path) {
    if (::rmdir(path->c_str()) != 0) return;  // in use by somebody else by now, which keeps those around it too
  }
}

}  // namespace inductorfs::daemon
