// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/fit.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "inductorfs/base/log.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::vfs {
namespace {

constexpr Milliseconds kHiddenMost{3'600'000};

}  // namespace

void Fit::judge_again() {
  fitting_.forget();
  catalog_.forget_unfit();
}

void Fit::needs_newer_release(const codec::Entry& entry, const std::string& why) {
  hide(entry, why, fitting_.age());
  hidden_.with(
      [](Hidden& hidden) { hidden.until = std::min(hidden.until, std::chrono::steady_clock::now() + hidden.pause); });
}

void Fit::ask_again_if_due() {
  const bool is_due = hidden_.with([](Hidden& hidden) {
    if (std::chrono::steady_clock::now() < hidden.until) return false;
    hidden = {SteadyTime::max(), std::min(hidden.pause * 2, kHiddenMost)};
    return true;
  });
  if (is_due) catalog_.forget_unfit();
}

Result<void> Fit::check(const codec::Entry& entry, std::optional<std::string_view> verified) {
  const auto classified = layout::classify(entry.path);
  // Canonical group files are checked as a set (ClusterSets::take).
  if (layout::is_group_file(entry.path.substr(entry.path.rfind('/') + 1))) return {};
  // Another environment may use the scope by now.
  const uint64_t made = host_.environments_made();
  if (environments_made_.exchange(made) != made) judge_again();
  if (fitting_.fits(entry.path, entry.digest)) return {};
  const uint64_t age = fitting_.age();
  const uint64_t wanted = std::min(entry.size, layout::bytes_to_check(classified, entry.size));
  std::string stored;
  if (!verified) {
    INDUCTORFS_TRY_ASSIGN(const auto blob, store_.open_blob(entry.digest));
    stored.resize(wanted);
    INDUCTORFS_TRY_ASSIGN(const auto got, blob.read(stored.data(), stored.size(), 0));
    stored.resize(got);
  }
  const auto fits =
      host_.check(classified, verified ? verified->substr(0, wanted) : stored, entry.size, scopes_of(entry));
  if (fits) {
    fitting_.remember(entry.path, entry.digest, age);
    return fits;
  }
  const ErrorCode code = fits.error().code();
  if (code != ErrorCode::kCorrupt && code != ErrorCode::kNotSupported) return fits;
  if (!verified) INDUCTORFS_TRY(verify_stored(entry));
  hide(entry, fits.error().text(), age);
  return fits;
}

/// Damaged on this host's disk, perhaps: that is no fault of the entry's, and its bytes can come again.
Result<void> Fit::verify_stored(const codec::Entry& entry) {
  INDUCTORFS_TRY_ASSIGN(const auto blob, store_.open_blob(entry.digest));
  INDUCTORFS_TRY_ASSIGN(const auto digest, blob.digest());
  if (digest == entry.digest) return {};
  store_.discard(entry.digest);
  log::write_limited(log::Level::kError, "fetch.damaged", {{"path", entry.path}, {"digest", entry.digest.to_hex()}});
  return fail(ErrorCode::kUnavailable, "its bytes are damaged on this host's disk: " + entry.path);
}

/// The scopes in which this entry is shown in some root.
std::vector<remote::ScopeId> Fit::scopes_of(const codec::Entry& entry) const {
  std::vector<remote::ScopeId> scopes;
  if (!host_.learns()) return scopes;
  auto roots = known_roots_.paths();
  roots.insert(roots.begin(), std::string());
  for (const auto& root : roots) {
    auto shown = catalog_.find({entry.path, root});
    if (!shown || shown->entry.digest != entry.digest) continue;
    if (std::ranges::find(scopes, shown->scope) == scopes.end()) scopes.push_back(std::move(shown->scope));
  }
  return scopes;
}

/// The entries beside this one in a root that shows it.
std::vector<catalog::KnownEntry> Fit::set_of(const codec::Entry& entry) const {
  const std::string directory = entry.path.substr(0, entry.path.rfind('/'));
  auto roots = known_roots_.paths();
  roots.insert(roots.begin(), std::string());
  for (const auto& root : roots) {
    const auto shown = catalog_.find({entry.path, root});
    if (shown && shown->entry.digest == entry.digest) return catalog_.entries_in({directory, root});
  }
  return {};
}

/// What was published, and nothing for this host or this release: hidden from this mount, and nobody else is told.
void Fit::hide(const codec::Entry& entry, const std::string& why, uint64_t age) {
  std::vector<codec::Entry> entries{entry};
  if (layout::classify(entry.path).family == layout::Family::kTritonKernel) {
    // One child that cannot be used makes the set useless.
    for (auto& known : set_of(entry)) {
      const bool of_set = layout::classify(known.entry.path).family == layout::Family::kTritonKernel;
      if (of_set && known.entry.path != entry.path) entries.push_back(std::move(known.entry));
    }
  }
  for (const auto& unfit : entries) {
    fitting_.unless_changed(age, [&] { catalog_.set_unfit(unfit.path, unfit.digest, why); });
    for (const auto& local : known_roots_.local_paths_of(unfit.path)) {
      const NodePtr directory = nodes_.find(local.substr(0, local.rfind('/')));
      if (directory) notifier_.wish_content_forgotten(directory->id);
    }
  }
  log::write_limited(log::Level::kWarning, "fetch.not_for_this_host", {{"path", entry.path}, {"why", why}});
}

}  // namespace inductorfs::vfs
