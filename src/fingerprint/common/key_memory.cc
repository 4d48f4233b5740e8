// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/common/key_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/mount_table.h"

namespace inductorfs::fingerprint {
namespace {

constexpr int kFormat = 1;
constexpr uint64_t kFileLimit = 1 << 20;
/// One environment keeps five, eight with a compiler of its own, and one for each package of an engine; this is many
/// environments.
constexpr size_t kKeptLimit = 250;
/// Below this, hashing costs no more than looking up.
constexpr off_t kLargeFile = off_t{16} << 20;
/// libtriton.so of Triton 3.9 has 500 MB. A sparse file of another user may claim to have many TB.
constexpr uint64_t kHashedFileLimit = uint64_t{4} << 30;
constexpr WallNanoseconds kFreshSpan = 2'000'000'000;
constexpr WallNanoseconds kSecond = 1'000'000'000;

WallNanoseconds nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

/// Times there are those that somebody has written into an image. Of FUSE nobody knows.
bool may_be_image(const MountEntry& mount) {
  constexpr std::array<std::string_view, 7> kTypes = {"squashfs", "erofs",   "iso9660", "cramfs",
                                                      "romfs",    "overlay", "fuse"};
  return std::ranges::find(kTypes, mount.type) != kTypes.end() || mount.type.starts_with("fuse.");
}

/// The directory is the mount's worker's, who is not to lead root's children elsewhere, or to tell them what a package
/// is: what is not this user's own file, with no other name, is as if it were not there.
std::optional<std::string> read_own(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  if (status.st_uid != ::geteuid() || status.st_nlink != 1 || status.st_size > static_cast<off_t>(kFileLimit)) {
    return std::nullopt;
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  const auto got = pread_full(file.get(), text.data(), text.size(), 0);
  return got && *got == text.size() ? std::optional(std::move(text)) : std::nullopt;
}

std::optional<std::string> string_in(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

}  // namespace

std::string identity_of(const struct stat& status) {
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino) + ":" + std::to_string(status.st_size) +
         ":" + std::to_string(nanoseconds(status.st_mtim)) + ":" + std::to_string(nanoseconds(status.st_ctim));
}

bool is_too_fresh(const struct stat& status) {
  return nanoseconds(status.st_ctim) + kFreshSpan > system_clock().wall_now();
}

void ManifestMaker::add(std::string_view name, const struct stat& status, const KeyMemory& memory) {
  too_fresh_ = too_fresh_ || is_too_fresh(status);
  tells_apart_ = tells_apart_ && memory.tells_apart(status);
  hasher_.update(name);
  hasher_.update(std::string_view("\0", 1));
  hasher_.update(memory.identity_of_file(status));
  hasher_.update("\n");
}

Manifest ManifestMaker::finish() {
  std::string digest = hasher_.finish().to_hex();
  if (!tells_apart_) digest += " " + std::to_string(system_clock().now().time_since_epoch().count());
  return {std::move(digest), too_fresh_ || !tells_apart_};
}

Result<Manifest> manifest_of(const std::vector<std::string>& files) {
  return manifest_of(InRoot::host(), files, KeyMemory(""));
}

Result<Manifest> manifest_of(const InRoot& root, const std::vector<std::string>& files, const KeyMemory& memory) {
  ManifestMaker maker;
  for (const std::string& file : files) {
    const auto status = root.status(file);
    if (!status) return fail(ErrorCode::kNotFound, file + " cannot be read");
    maker.add(file, *status, memory);
  }
  return maker.finish();
}

KeyMemory::KeyMemory(std::string path, uid_t owner) : path_(std::move(path)), owner_(owner) {
  if (const auto text = path_.empty() ? std::nullopt : read_own(path_)) load(*text);
}

KeyMemory KeyMemory::handed(const std::string& text, uid_t user, bool is_of_containers) {
  KeyMemory memory("", user);
  memory.is_of_containers_ = is_of_containers;
  memory.load(text);
  return memory;
}

std::string KeyMemory::text() const {
  KeptValues found = kept_;
  std::erase_if(found, [this](const auto& one) { return one.second.owner != owner_ && one.second.owner != 0; });
  return text_of(found);
}

void KeyMemory::load(const std::string& text) {
  const auto root = nlohmann::json::parse(text, nullptr, false);
  if (!root.is_object() || root.value("format", nlohmann::json()) != kFormat) return;
  const auto kept = root.find("kept");
  if (kept == root.end() || !kept->is_object()) return;
  for (const auto& [name, entry] : kept->items()) {
    if (!entry.is_object() || kept_.size() >= kKeptLimit) continue;
    auto manifest = string_in(entry, "manifest");
    auto value = string_in(entry, "value");
    const auto owner = entry.value("owner", nlohmann::json());
    const uid_t of = owner.is_number_unsigned() ? owner.get<uid_t>() : 0;
    if (manifest && value) kept_[name] = {std::move(*manifest), std::move(*value), of};
  }
}

KeyMemory KeyMemory::of_containers(const std::string& path, uid_t user) {
  KeyMemory memory(path.empty() ? path : path + ".containers", user);
  memory.is_of_containers_ = true;
  return memory;
}

/// What is forgotten costs its owner time, and nobody else.
void KeyMemory::make_room(KeptValues& kept, size_t more) {
  while (!kept.empty() && kept.size() + more > kKeptLimit) {
    std::map<uid_t, size_t> counts;
    for (const auto& [name, entry] : kept) ++counts[entry.owner];
    const uid_t most = std::ranges::max_element(counts, {}, [](const auto& one) { return one.second; })->first;
    std::erase_if(kept, [most](const auto& one) { return one.second.owner == most; });
  }
}

std::string KeyMemory::identity_of_file(const struct stat& status) const {
  if (!is_of_containers_) return identity_of(status);
  return std::to_string(status.st_size) + ":" + std::to_string(nanoseconds(status.st_mtim)) + ":" +
         std::to_string(nanoseconds(status.st_ctim));
}

bool KeyMemory::tells_apart(const struct stat& status) const {
  if (nanoseconds(status.st_mtim) != nanoseconds(status.st_ctim)) return true;
  const std::string device = std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev));
  return !is_of_containers_ && !is_image(device);
}

bool KeyMemory::is_image(const std::string& device) const {
  if (!images_) {
    images_.emplace();
    for (const MountEntry& mount : read_mount_table()) {
      if (may_be_image(mount)) images_->insert(mount.device);
    }
  }
  return images_->contains(device);
}

/// A path of one host holds one package; in containers the same path holds a different one for each image.
std::string KeyMemory::key_of(const std::string& name, std::string_view manifest) const {
  if (!is_of_containers_ && owner_ == 0) return name;
  std::string key = "user " + std::to_string(owner_) + " " + name;
  if (is_of_containers_) key.append(" ").append(manifest);
  return key;
}

const KeyMemory::Kept* KeyMemory::kept_at(const std::string& key, std::string_view manifest) const {
  const auto found = kept_.find(key);
  return found == kept_.end() || found->second.manifest != manifest ? nullptr : &found->second;
}

std::optional<std::string> KeyMemory::find(const std::string& name, std::string_view manifest) const {
  const Kept* found = kept_at(key_of(name, manifest), manifest);
  if (found == nullptr && !is_of_containers_) found = kept_at(name, manifest);
  return found == nullptr || (found->owner != owner_ && found->owner != 0) ? std::nullopt : std::optional(found->value);
}

void KeyMemory::keep(const std::string& name, std::string_view manifest, std::string_view value) {
  const std::string key = key_of(name, manifest);
  if (!kept_.contains(key)) make_room(kept_, 1);
  kept_[key] = {std::string(manifest), std::string(value), owner_};
  fresh_.insert(key);
  learned_.push_back({name, std::string(manifest), std::string(value)});
}

std::string KeyMemory::text_of(const KeptValues& values) {
  nlohmann::json kept = nlohmann::json::object();
  for (const auto& [name, entry] : values) {
    kept[name] = {{"manifest", entry.manifest}, {"value", entry.value}, {"owner", entry.owner}};
  }
  const nlohmann::json root = {{"format", kFormat}, {"kept", std::move(kept)}};
  return root.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<void> KeyMemory::save() {
  if (path_.empty() || fresh_.empty()) return {};
  KeyMemory saved(path_);
  std::erase_if(fresh_, [this](const std::string& name) { return !kept_.contains(name); });
  std::erase_if(saved.kept_, [this](const auto& one) { return fresh_.contains(one.first); });
  make_room(saved.kept_, fresh_.size());
  for (const std::string& name : fresh_) saved.kept_[name] = kept_[name];
  kept_ = std::move(saved.kept_);
  const std::string text = text_of(kept_);
  const std::string directory = std::filesystem::path(path_).parent_path().string();
  if (!directory.empty()) INDUCTORFS_TRY(make_directories(directory));
  INDUCTORFS_TRY(write_file_atomically(AT_FDCWD, path_, text, 0600));
  fresh_.clear();
  return {};
}

Result<codec::Digest> remembered_digest(const InRoot& root, const std::string& path, KeyMemory& memory) {
  const auto file = root.open_regular(path, kHashedFileLimit);
  if (!file && file.error().code() != ErrorCode::kNotFound) return fail(file.error());
  if (!file) return fail(ErrorCode::kNotFound, path + " cannot be read");
  return remembered_digest(file->get(), path, memory);
}

Result<codec::Digest> remembered_digest(int file, const std::string& name, KeyMemory& memory) {
  struct stat status {};
  if (fstat(file, &status) != 0) return fail_errno("fstat", name);
  if (status.st_size < kLargeFile || !memory.tells_apart(status)) return codec::digest_of_file(file);

  const std::string key = "sha256 " + name;
  const std::string identity = memory.identity_of_file(status);
  if (const auto known = memory.find(key, identity)) {
    if (const auto digest = codec::Digest::from_hex(*known)) return *digest;
  }
  auto digest = codec::digest_of_file(file);
  if (digest && !is_too_fresh(status)) memory.keep(key, identity, digest->to_hex());
  return digest;
}

}  // namespace inductorfs::fingerprint
