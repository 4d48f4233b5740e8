// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/places/place.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <string_view>
#include <vector>

#include "inductorfs/base/number.h"
#include "inductorfs/base/text.h"
#include "walk.h"

namespace inductorfs::places {
namespace {

constexpr mode_t kMode = 0755;
constexpr mode_t kOthersWrite = 0022;
constexpr mode_t kEverybodyWrites = 0002;
constexpr std::string_view kTorchPrefix = "torchinductor_";
/// As many as the kernel follows.
constexpr int kMostLinks = 40;
constexpr size_t kNone = std::string::npos;

/// Torch's name for a user whom the user database does not know.
std::optional<PlaceUser> user_by_number(std::string_view name) {
  constexpr std::string_view kUid = "uid_";
  if (!name.starts_with(kUid)) return std::nullopt;
  name.remove_prefix(kUid.size());
  const auto uid = number_in<uid_t>(name);
  return uid ? std::optional(PlaceUser{*uid, ::getegid()}) : std::nullopt;
}

/// The user of a directory `torchinductor_<user>`, when there is one.
std::optional<PlaceUser> user_by_name(const std::string& name) {
  if (!name.starts_with(kTorchPrefix)) return std::nullopt;
  std::array<char, 4096> buffer{};
  passwd record{};
  passwd* found = nullptr;
  const std::string user = name.substr(kTorchPrefix.size());
  if (::getpwnam_r(user.c_str(), &record, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return user_by_number(user);
  }
  return PlaceUser{found->pw_uid, found->pw_gid};
}

/// Root's and this user's own things lead nowhere that they do not want.
bool is_trusted(uid_t uid) { return uid == 0 || uid == ::geteuid(); }

enum class Purpose {
  kMakePlace,  ///< makes what is missing
  kOpenPlace,
  kOwnFiles,  ///< of this process alone; ends at what is missing
};

/// One walk from the root. Confined to one thread.
class Walk {
 public:
  explicit Walk(Purpose purpose) : purpose_(purpose) {}

  Result<Place> to(const std::string& path) {
    INDUCTORFS_TRY_ASSIGN(auto root, open_root());
    at_ = std::move(root);
    push(path);
    while (!rest_.empty()) {
      const std::string name = rest_.back();
      rest_.pop_back();
      if (rest_.size() < linked_) linked_ = kNone;
      INDUCTORFS_TRY(enter(name));
    }
    place_.fd = std::move(at_.fd);
    return std::move(place_);
  }

 private:
  /// The names of `path` are next; what was left comes after them.
  void push(std::string_view path) {
    std::vector<std::string> names;
    while (!path.empty()) {
      const std::string_view name = take_part(path, '/');
      if (!name.empty() && name != ".") names.emplace_back(name);
    }
    rest_.insert(rest_.end(), names.rbegin(), names.rend());
  }

  Result<void> enter(const std::string& name) {
    if (place_.covered) {
      return fail(ErrorCode::kBusy,
                  path_ + "/" + name + " lies in the inductorfs mount " + place_.covered->mount_point);
    }
    const std::string path = name == ".." ? parent_of(path_) : path_ + "/" + name;
    if (purpose_ != Purpose::kOwnFiles && !theirs_) {
      if (const std::optional<PlaceUser> user = user_by_name(name)) place_.user = user;
    }
    std::optional<MountEntry> entered;
    Result<Step> next = step_into(at_, name, path, entered);
    const bool missing = !next && next.error().code() == ErrorCode::kNotFound;
    bool made = false;
    if (missing && purpose_ == Purpose::kOwnFiles) {
      rest_.clear();
      return {};
    }
    if (missing && rest_.size() >= linked_) {
      return fail(ErrorCode::kNotFound, path + " does not exist, and a symbolic link leads there: make it");
    }
    if (missing && purpose_ == Purpose::kMakePlace) {
      INDUCTORFS_TRY_ASSIGN(const auto done, make(name, path));
      made = done;
      next = step_into(at_, name, path, entered);
    }
    if (!next) return fail(next.error());
    if (!entered || !entered->is_ours()) return arrive(std::move(*next), path, made);
    place_.covered = std::move(entered);
    at_ = std::move(*next);
    path_ = path;
    return {};
  }

  /// Answers whether it was this walk that made it.
  Result<bool> make(const std::string& name, const std::string& path) {
    int failed = 0;
    if (theirs_) {
      const ActingAs user(place_.user->uid, place_.user->gid);
      if (!user.works()) {
        return fail(ErrorCode::kNotPermitted, "no right to act as the user " + std::to_string(place_.user->uid) +
                                                  ", who owns " + path_ + ": make " + path + " as that user");
      }
      failed = ::mkdirat(at_.fd.get(), name.c_str(), kMode) == 0 ? 0 : errno;
    } else {
      failed = ::mkdirat(at_.fd.get(), name.c_str(), kMode) == 0 ? 0 : errno;
    }
    if (failed == EEXIST) return false;  // another process made it meanwhile: judged as if it had been there
    if (failed != 0) return fail(error_from_errno(failed, "mkdir", path));
    return true;
  }

  Result<void> arrive(Step next, const std::string& path, bool made) {
    struct stat found {};
    if (::fstat(next.fd.get(), &found) != 0) return fail_errno("stat", path);
    if (S_ISLNK(found.st_mode)) return follow(next, found, path);
    if (!S_ISDIR(found.st_mode)) return fail(ErrorCode::kNotDirectory, path + " is no directory: name another place");
    if (made && !theirs_ && place_.user && place_.user->uid != found.st_uid && ::geteuid() == 0) {
      // Root made it where nobody else can exchange it.
      if (::fchownat(next.fd.get(), "", place_.user->uid, place_.user->gid, AT_EMPTY_PATH) != 0) {
        return fail_errno("chown", path);
      }
      found.st_uid = place_.user->uid;
    }
    if (::geteuid() == 0) INDUCTORFS_TRY(judge(found, path));
    at_ = std::move(next);
    path_ = path;
    return {};
  }

  /// Whether root may make, and cover, something in this directory.
  Result<void> judge(const struct stat& found, const std::string& path) {
    const bool users = place_.user && found.st_uid == place_.user->uid;
    if (theirs_ ? !users : !users && !is_trusted(found.st_uid)) {
      return fail(ErrorCode::kNotPermitted, path + " belongs to the user " + std::to_string(found.st_uid) +
                                                ", who could replace it under root: remove it, or name another place");
    }
    theirs_ = theirs_ || !is_trusted(found.st_uid);
    const mode_t writers = purpose_ == Purpose::kOwnFiles ? kEverybodyWrites : kOthersWrite;
    if (theirs_ || (found.st_mode & writers) == 0 || (found.st_mode & S_ISVTX) != 0) return {};
    return fail(ErrorCode::kNotPermitted, path + " is writable by others, who could replace what root uses there: " +
                                              "run chmod go-w, or name another place");
  }

  Result<void> follow(const Step& link, const struct stat& found, const std::string& path) {
    if (theirs_ || !is_trusted(found.st_uid)) {
      return fail(ErrorCode::kNotPermitted, path + " is a symbolic link of the user " + std::to_string(found.st_uid) +
                                                ": remove it, or name the place that it leads to");
    }
    std::array<char, PATH_MAX> target{};
    const ssize_t size = ::readlinkat(link.fd.get(), "", target.data(), target.size());
    if (size <= 0) return fail_errno("readlink", path);
    if (++links_ > kMostLinks) return fail(ErrorCode::kInvalid, path + " leads through too many symbolic links");
    linked_ = std::min(linked_, rest_.size());
    push({target.data(), static_cast<size_t>(size)});
    if (target[0] != '/') return {};
    INDUCTORFS_TRY_ASSIGN(auto root, open_root());
    at_ = std::move(root);
    path_.clear();
    return {};
  }

  const Purpose purpose_;
  Step at_;
  std::string path_;               ///< of at_, without symbolic links; empty for the root
  std::vector<std::string> rest_;  ///< the next name last
  bool theirs_ = false;            ///< at_ belongs to place_.user, who is neither root nor this user
  size_t linked_ = kNone;          ///< of rest_, those from here on are of a link's target
  int links_ = 0;
  Place place_;
};

}  // namespace

Result<Place> make_place(const std::string& path) { return Walk(Purpose::kMakePlace).to(path); }

Result<Place> find_place(const std::string& path) { return Walk(Purpose::kOpenPlace).to(path); }

Result<void> check_own_place(const std::string& path) {
  if (::geteuid() != 0) return {};
  INDUCTORFS_TRY(Walk(Purpose::kOwnFiles).to(path));
  return {};
}

Result<Fd> open_parent(const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(auto parent, find_place(parent_of(path)));
  return std::move(parent.fd);
}

}  // namespace inductorfs::places
