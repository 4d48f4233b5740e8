// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "vfs/model.h"

/// What a host must show, may show and must not.
namespace inductorfs::testing {

bool ModelRun::verify(const std::string& path) {
  if (failed_) return false;
  const auto known = at_->own.find(path);
  const auto found = at_->host->look_up(path);
  if (known == at_->own.end()) {
    if (!found) return true;
    if (S_ISDIR(found->attributes.mode)) return expect(path.size() == 2, "a directory that nobody made: " + path);
    const auto bytes = at_->host->read(path);
    if (!bytes)
      return expect(bytes.error().code() == ErrorCode::kNotFound, "read of " + path + ": " + bytes.error().to_string());
    return expect(may_be(path, *bytes), path + " shows " + bytes->substr(0, 20) + ", which it must not");
  }
  if (!expect(found.has_value(), path + " is absent: " + (found ? "" : found.error().to_string()))) return false;
  const mode_t mode = found->attributes.mode;
  switch (known->second.type) {
    case Item::Type::kDirectory:
      return expect(S_ISDIR(mode), path + " is no directory");
    case Item::Type::kLink: {
      const auto target = at_->host->names().read_link(found->node, {::getuid(), ::getgid(), own_pid()});
      return expect(target && *target == known->second.target, path + " is another link");
    }
    case Item::Type::kFile:
      break;
  }
  const auto bytes = at_->host->read(path);
  const auto& file = *known->second.file;
  if (!expect(bytes.has_value(), "read of " + path + ": " + (bytes ? "" : bytes.error().to_string()))) return false;
  if (!expect(*bytes == file.bytes, path + " is " + bytes->substr(0, 20) + ", not " + file.bytes.substr(0, 20)))
    return false;
  if (!expect(found->attributes.size == file.bytes.size(), path + " has another size")) return false;
  const mode_t right = shown_mode(path, known->second.file);
  return expect((mode & 07777) == right,
                path + " has mode " + std::to_string(mode & 07777) + ", not " + std::to_string(right));
}

bool ModelRun::has_more_names(const std::shared_ptr<ModelFile>& file) const {
  return std::ranges::count_if(at_->own, [&](const auto& item) { return item.second.file == file; }) > 1;
}

/// Whoever may read the root may read a file of a family, unless the file has a further name, or a mode that somebody
/// chose.
mode_t ModelRun::shown_mode(const std::string& path, const std::shared_ptr<ModelFile>& file) const {
  if (!is_shared(path) || file->mode_is_chosen || has_more_names(file)) return file->mode;
  return file->mode | 0444 | ((file->mode & 0100) != 0 ? 0111 : 0);
}

bool ModelRun::verify_listing(const std::string& directory) {
  const auto names = at_->host->list(directory);
  if (!names)
    return expect(!at_->own.contains(directory) && !directory.empty(),
                  "list " + directory + ": " + names.error().to_string());
  const std::set<std::string> shown(names->begin(), names->end());
  if (!expect(shown.size() == names->size(), "a name twice in " + directory)) return false;
  const std::string prefix = directory.empty() ? "" : directory + "/";
  for (const auto& [path, item] : at_->own) {
    if (!path.starts_with(prefix) || path.find('/', prefix.size()) != std::string::npos) continue;
    if (!expect(shown.contains(path.substr(prefix.size())), "the listing of " + directory + " lacks " + path))
      return false;
  }
  for (const auto& name : shown) {
    const std::string path = prefix + name;
    const bool may = at_->own.contains(path) || is_shared(path) || name.size() == 2;
    if (!expect(may, "the listing of " + directory + " shows " + name)) return false;
  }
  return true;
}

bool ModelRun::verify_all() {
  for (const auto& path : files_) {
    if (!verify(path)) return false;
  }
  for (const auto& path : directories_) {
    if (!verify(path) || !verify_listing(path)) return false;
  }
  return verify_listing("");
}

bool ModelRun::settle() {
  if (failed_) return false;
  for (auto& host : hosts_) {
    at_ = &host;
    const auto done = host.host->sync();
    if (!expect(done.has_value(), "sync: " + (done ? "" : done.error().to_string()))) return false;
  }
  Host reader(cluster_);
  if (writers_ == Writers::kAnother) {
    for (const auto& path : shared_) expect(!reader.catalog->find(path), "left its host: " + path);
  }
  for (auto& host : hosts_) {
    at_ = &host;
    for (const auto& path : shared_) {
      const bool agrees = eventually([&] {
        const auto theirs = reader.read(path);
        if (host.own.contains(path)) return true;
        const auto ours = host.host->read(path);
        // What was deleted here while the entry lay under it stays away too.
        if (!ours && !host.dead[path].empty()) return true;
        return theirs ? ours && *ours == *theirs : !ours;
      });
      if (!expect(agrees, "the cluster and the host differ for good about " + path)) return false;
    }
    if (!verify_all()) return false;
  }
  return true;
}

}  // namespace inductorfs::testing
