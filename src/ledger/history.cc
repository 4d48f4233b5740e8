// SPDX-License-Identifier: Apache-2.0
#include "history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/host_files.h"
#include "inductorfs/base/log.h"
#include "records.h"

namespace inductorfs::ledger {
namespace {

constexpr uint64_t kTotalsLimit = uint64_t{64} << 20;
constexpr uint64_t kMostNumber = uint64_t{1} << 53;
constexpr mode_t kMode = 0600;
constexpr mode_t kDirectoryMode = 0700;
constexpr const char* kTotals = "totals";

/// 0 for a name that is no number, or one that no job of ours has.
uint64_t number_of(const std::string& name) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_one = error == std::errc() && end == name.data() + name.size() && std::to_string(number) == name;
  return is_one && number <= kMostNumber ? number : 0;
}

}  // namespace

void History::load_totals(Books& books) {
  const auto text = read_file(AT_FDCWD, directory_ + "/" + kTotals, kTotalsLimit);
  if (!text && text.error().code() == ErrorCode::kNotFound) return;
  auto kept = text ? totals_from(*text) : std::nullopt;
  if (!kept) {
    ++unreadable_;
    return;
  }
  same_boot_ = kept->boot == boot_id();
  numbered_ = kept->totals.last_number;
  books.restore(std::move(kept->totals));
}

void History::load_jobs(Guarded<Books>& books) {
  std::error_code failure;
  std::set<uint64_t> broken;
  for (std::filesystem::directory_iterator at(directory_, failure), end; !failure && at != end; at.increment(failure)) {
    const std::string name = at->path().filename();
    if (const uint64_t number = number_of(name); number > 0) {
      files_.insert(number);
    } else if (name != kTotals) {
      (void)::unlink(at->path().c_str());  // it was on its way when a worker ended
    }
  }
  for (const uint64_t number : files_) {
    const auto text = read_file(AT_FDCWD, path_of(number), 2 * kRecordLimit);
    auto job = text ? job_from(*text) : std::nullopt;
    if (!job || job->number != number) {
      broken.insert(number);
      continue;
    }
    if (!same_boot_ && job->ended == 0) {
      job->ended = std::max(job->last_use, job->started);
      job->living.clear();
    }
    books.with([&job](Books& all) { all.restore(std::move(*job)); });
  }
  if (!files_.empty()) books.with([last = *files_.rbegin()](Books& all) { all.use_no_number_to(last); });
  forget(broken);
  unreadable_ += broken.size();
  if (unreadable_ == 0) return;
  log::warning("ledger.history_lost", {{"directory", directory_}, {"files", uint64_t{unreadable_}}});
}

void History::forget(const std::set<uint64_t>& jobs) {
  for (const uint64_t number : jobs) {
    if (::unlink(path_of(number).c_str()) == 0 || errno == ENOENT) files_.erase(number);
  }
}

void History::save(Guarded<Books>& books) {
  const SteadyTime now = clock_.now();
  const uint64_t number = books.with([](const Books& all) { return all.totals().last_number; });
  const bool failed = !trouble().empty();
  if (now - tried_ < (failed ? kAfterFailure : kEvery) && (failed || number == numbered_)) return;
  save_now(books);
}

void History::save_now(Guarded<Books>& books) {
  tried_ = clock_.now();
  const bool failed = !trouble().empty();
  if (failed) books.with([](Books& all) { all.change_all(); });
  const Result<void> done = write(books);
  const std::string why = done ? std::string() : done.error().what();
  if (!done && !failed) log::warning("ledger.history_not_kept", {{"directory", directory_}, {"why", why}});
  trouble_.with([&why](std::string& trouble) { trouble = why; });
}

Result<void> History::write(Guarded<Books>& books) {
  std::set<uint64_t> gone = files_;
  const auto [totals, changed] = books.with([&gone](Books& all) {
    auto jobs = all.take_changed();
    for (const JobAccount* job : all.jobs()) gone.erase(job->number);
    return std::make_pair(all.totals(), std::move(jobs));
  });
  forget(gone);
  if (changed.empty()) return {};
  INDUCTORFS_TRY(make_directories(directory_, kDirectoryMode));
  INDUCTORFS_TRY_ASSIGN(const Fd directory, open_at(AT_FDCWD, directory_, O_RDONLY | O_DIRECTORY));
  INDUCTORFS_TRY(write_file_durably(directory.get(), kTotals, to_record({totals, boot_id()}), kMode));
  numbered_ = totals.last_number;
  for (const JobAccount& job : changed) {
    INDUCTORFS_TRY(write_file_atomically(AT_FDCWD, path_of(job.number), to_record(job), kMode));
    files_.insert(job.number);
  }
  return {};
}

}  // namespace inductorfs::ledger
