// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/learned_environments.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/facet_text.h"
#include "inductorfs/fingerprint/libstdcxx.h"
#include "inductorfs/vfs/file_system.h"

namespace inductorfs::host {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kFileLimit = uint64_t{1} << 20;
constexpr std::string_view kSuffix = ".json";
/// How exactly the disk tells which environment was used last, for the next worker.
constexpr Milliseconds kNoteAgain{60'000};

std::string id_of(const fingerprint::Fingerprint& facts) {
  std::string text;
  for (const fingerprint::Facet facet : fingerprint::kAllFacets) {
    if (!facts.has(facet)) continue;
    const fingerprint::Fact& fact = facts.get(facet);
    // Without a known engine nothing of engines is shared, and the environment is the one that it was before there was
    // this facet: it keeps its files, also where the engine was not read in time.
    if (facet == fingerprint::Facet::kEngine && (!fact.known || fact.is_none())) continue;
    text.append(to_string(facet)).append(fact.known ? "=" : "?").append(fact.value).append("\n");
  }
  // What the libstdc++ offers is in no scope, and decides which binaries a process can load.
  for (const std::string_view key : {fingerprint::kGlibcxxKey, fingerprint::kCxxabiKey}) {
    const auto newest = fingerprint::value_of(facts.get(fingerprint::Facet::kLibc).details, key);
    if (newest) text.append(key).append("=").append(*newest).append("\n");
  }
  return codec::digest_of(text).to_hex().substr(0, vfs::kEnvironmentIdLength);
}

/// The names of the directory's files and when these were used, the first one not for longest.
std::vector<std::pair<fs::file_time_type, std::string>> files_in(const std::string& directory) {
  std::vector<std::pair<fs::file_time_type, std::string>> files;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() != kSuffix || at->symlink_status(error).type() != fs::file_type::regular) continue;
    files.emplace_back(at->last_write_time(error), at->path().filename());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

LearnedEnvironments::LearnedEnvironments(std::string directory) : directory_(std::move(directory)) {
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) {
    log::warning("host.environments_not_kept", {{"why", error_from_errno(errno, "mkdir", directory_).what()}});
  }
  const auto files = files_in(directory_);
  size_t left = files.size();
  for (const auto& [time, name] : files) {
    const std::string path = directory_ + "/" + name;
    if (left-- > kMost) {
      (void)::unlink(path.c_str());
      continue;
    }
    const auto text = read_regular(path, kFileLimit);
    auto facts = text ? fingerprint::Fingerprint::from_json(*text) : fail(text.error());
    const std::string id = name.substr(0, name.size() - kSuffix.size());
    // One that this release reads in another way is learned again.
    if (!facts || id_of(*facts) != id) continue;
    state_.with([&](State& state) { state.environments[id] = {std::move(*facts), ++state.uses}; });
  }
}

std::string LearnedEnvironments::path_of(const std::string& id) const {
  return directory_ + "/" + id + std::string(kSuffix);
}

/// Says whether it is known, and notes the use.
bool LearnedEnvironments::use(const std::string& id) {
  const SteadyTime now = system_clock().now();
  bool is_due = false;
  const bool is_known = state_.with([&](State& state) {
    const auto known = state.environments.find(id);
    if (known == state.environments.end()) return false;
    known->second.used = ++state.uses;
    is_due = now - known->second.noted >= kNoteAgain;
    if (is_due) known->second.noted = now;
    return true;
  });
  if (is_due) (void)::utimensat(AT_FDCWD, path_of(id).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return is_known;
}

/// Empty: there is none that may go for this user.
std::string LearnedEnvironments::least_needed(const State& state, uid_t user, const InUse& in_use) {
  std::map<uid_t, size_t> counts;
  for (const auto& [name, users] : in_use) {
    if (!state.environments.contains(name)) continue;
    for (const uid_t one : users) ++counts[one];
  }
  const size_t own = counts[user];
  // By what may go first: nobody's, then that of users who all have more than this one.
  const auto rank = [&](const std::string& name) -> size_t {
    const auto used = in_use.find(name);
    if (used == in_use.end()) return kMost + 1;
    size_t least = kMost;
    for (const uid_t one : used->second) least = std::min(least, counts[one]);
    return least > own + 1 ? least : 0;
  };
  std::string found;
  std::pair<size_t, uint64_t> best{0, 0};
  for (const auto& [name, known] : state.environments) {
    const std::pair<size_t, uint64_t> now{rank(name), known.used};
    if (now.first == 0 || now.first < best.first || (now.first == best.first && now.second > best.second)) continue;
    best = now;
    found = name;
  }
  return found;
}

std::string LearnedEnvironments::take(const fingerprint::Fingerprint& facts, uid_t user,
                                      const std::function<InUse()>& in_use) {
  std::string id = id_of(facts);
  if (use(id)) return id;
  const bool is_full = state_.with([](const State& state) { return state.environments.size() >= kMost; });
  const InUse used = is_full ? in_use() : InUse();
  std::string gone;
  const bool has_room = state_.with([&](State& state) {
    if (state.environments.size() >= kMost && !state.environments.contains(id)) {
      gone = least_needed(state, user, used);
      if (gone.empty()) return false;
      state.environments.erase(gone);
    }
    state.environments.try_emplace(id, Known{facts, ++state.uses, system_clock().now()});
    return true;
  });
  if (!gone.empty()) (void)::unlink(path_of(gone).c_str());
  if (!has_room) return {};
  write(id, facts);
  return id;
}

std::optional<fingerprint::Fingerprint> LearnedEnvironments::find(std::string_view id) const {
  return state_.with([&](const State& state) -> std::optional<fingerprint::Fingerprint> {
    const auto known = state.environments.find(id);
    return known == state.environments.end() ? std::nullopt : std::optional(known->second.facts);
  });
}

/// Whole or not at all; what is not kept is learned again.
void LearnedEnvironments::write(const std::string& id, const fingerprint::Fingerprint& facts) const {
  const std::string path = path_of(id);
  const std::string fresh = path + ".new";
  const std::string text = facts.to_json();
  const Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool written = file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (written && ::rename(fresh.c_str(), path.c_str()) == 0) return;
  log::write_limited(log::Level::kWarning, "host.environment_not_kept",
                     {{"why", error_from_errno(errno, "write", path).what()}});
}

}  // namespace inductorfs::host
