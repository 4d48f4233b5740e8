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
#include "inductorfs/vfs/file_system.h"

namespace inductorfs::host {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kFileLimit = uint64_t{1} << 20;
constexpr std::string_view kSuffix = ".json";

std::string id_of(const fingerprint::Fingerprint& facts) {
  std::string text;
  for (const fingerprint::Facet facet : fingerprint::kAllFacets) {
    if (!facts.has(facet)) continue;
    const fingerprint::Fact& fact = facts.get(facet);
    text.append(to_string(facet)).append(fact.known ? "=" : "?").append(fact.value).append("\n");
  }
  return codec::digest_of(text).to_hex().substr(0, vfs::kEnvironmentIdLength);
}

/// The names of the directory's files and when they were written, the oldest first.
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
    state_.with([&](State& state) { state.environments[id] = {std::move(*facts), ++state.last}; });
  }
}

std::string LearnedEnvironments::take(const fingerprint::Fingerprint& facts) {
  std::string id = id_of(facts);
  std::string gone;
  const bool is_new = state_.with([&](State& state) {
    const auto [known, added] = state.environments.try_emplace(id, Known{facts, state.last + 1});
    if (!added) return false;
    ++state.last;
    if (state.environments.size() > kMost) {
      const auto first =
          std::ranges::min_element(state.environments, {}, [](const auto& one) { return one.second.number; });
      gone = first->first;
      state.environments.erase(first);
    }
    return true;
  });
  if (!gone.empty()) (void)::unlink((directory_ + "/" + gone + std::string(kSuffix)).c_str());
  if (is_new) write(id, facts);
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
  const std::string path = directory_ + "/" + id + std::string(kSuffix);
  const std::string fresh = path + ".new";
  const std::string text = facts.to_json();
  const Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool written = file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (written && ::rename(fresh.c_str(), path.c_str()) == 0) return;
  log::write_limited(log::Level::kWarning, "host.environment_not_kept",
                     {{"why", error_from_errno(errno, "write", path).what()}});
}

}  // namespace inductorfs::host
