// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/jobs/job_records.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "inductorfs/base/host_files.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/regular_file.h"

namespace inductorfs::fingerprint {
namespace {

constexpr std::string_view kHead = "inductorfs-processes 1 ";
constexpr std::string_view kNotKnown = "unknown";
constexpr size_t kNameLimit = 64;
constexpr size_t kWords = 5;
/// A record has at most 10 + 3 * 20 digits, a name and five separators.
constexpr size_t kLineLimit = 160;
constexpr uint64_t kBootLimit = 128;

bool is_name(std::string_view word) {
  return !word.empty() && word.size() <= kNameLimit &&
         std::ranges::all_of(word, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'); });
}

std::optional<JobRecord> parse_record(std::string_view line) {
  std::array<std::string_view, kWords> words;
  for (size_t i = 0; i < kWords; ++i) {
    const size_t space = line.find(' ');
    if ((space == std::string_view::npos) != (i + 1 == kWords)) return std::nullopt;
    words.at(i) = line.substr(0, space);
    line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
  }
  const auto pid = number_in<pid_t>(words[0]);
  const auto start = number_in<uint64_t>(words[1]);
  const auto stack = number_in<uint64_t>(words[2]);
  const auto code = number_in<uint64_t>(words[3]);
  if (!pid || *pid <= 0 || !start || !stack || !code || !is_name(words[4])) return std::nullopt;
  return JobRecord{*pid, {*start, *stack, *code}, words[4] == kNotKnown ? std::string() : std::string(words[4])};
}

std::string line_of(const JobRecord& record) {
  std::string line;
  for (const uint64_t number :
       {static_cast<uint64_t>(record.pid), record.identity.start, record.identity.stack, record.identity.code}) {
    line.append(std::to_string(number)).append(" ");
  }
  return line.append(record.environment.empty() ? kNotKnown : record.environment).append("\n");
}

/// Empty where the kernel does not tell: then nothing can be kept for the next worker.
std::string boot_of(const std::string& proc) {
  constexpr std::string_view kFile = "/sys/kernel/random/boot_id";
  std::string boot =
      proc == "/proc" ? boot_id() : read_file(AT_FDCWD, proc + std::string(kFile), kBootLimit).value_or("");
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  const bool is_plain = std::ranges::all_of(boot, [](char c) { return c > ' ' && c < '\x7f'; });
  return is_plain ? boot : std::string();
}

}  // namespace

std::vector<JobRecord> parse_job_records(std::string_view text, std::string_view boot) {
  std::vector<JobRecord> records;
  bool is_first = true;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (std::exchange(is_first, false)) {
      if (!line.starts_with(kHead) || line.substr(kHead.size()) != boot || boot.empty()) return {};
      continue;
    }
    if (auto record = parse_record(line)) records.push_back(std::move(*record));
  }
  return records;
}

JobRecords::JobRecords(std::string file, const std::string& proc, size_t limit)
    : path_(std::move(file)), reader_(proc), boot_(path_.empty() ? std::string() : boot_of(proc)), limit_(limit) {
  if (boot_.empty()) return;
  const auto text = read_regular(path_, kLineLimit * (kLinesOfOne * limit_ + 1));
  state_.with([&](State& state) {
    for (const JobRecord& record : parse_job_records(text.value_or(""), boot_)) take(state, record);
    drop_ended(state);
    if (const auto written = write_anew(state); !written) {
      log::warning("fingerprint.answers_not_kept", {{"why", written.error().to_string()}});
    }
  });
}

std::vector<JobRecord> JobRecords::in_order(const State& state) {
  std::vector<const Kept*> kept;
  for (const auto& [pid, one] : state.records) kept.push_back(&one);
  std::ranges::sort(kept, {}, &Kept::number);
  std::vector<JobRecord> records;
  records.reserve(kept.size());
  for (const Kept* const one : kept) records.push_back(one->record);
  return records;
}

std::vector<JobRecord> JobRecords::earlier() const {
  return state_.with([](const State& state) { return in_order(state); });
}

void JobRecords::add(const JobRecord& record) {
  if (boot_.empty()) return;
  const auto written = state_.with([&](State& state) -> Result<void> {
    const auto known = state.records.find(record.pid);
    if (known != state.records.end() && known->second.record == record && state.file) return {};
    take(state, record);
    if (state.file && state.lines < kLinesOfOne * limit_) return append(state, record);
    drop_ended(state);
    return write_anew(state);
  });
  if (written) return;
  log::write_limited(log::Level::kWarning, "fingerprint.answers_not_kept", {{"why", written.error().to_string()}});
}

void JobRecords::take(State& state, const JobRecord& record) const {
  state.records[record.pid] = {record, ++state.last};
  if (state.records.size() <= limit_) return;
  state.records.erase(std::min_element(state.records.begin(), state.records.end(),
                                       [](const auto& a, const auto& b) { return a.second.number < b.second.number; }));
}

void JobRecords::drop_ended(State& state) const {
  std::erase_if(state.records, [this](const auto& one) {
    const auto stat = reader_.stat_of(one.first);
    return !stat || stat->identity.start != one.second.record.identity.start;
  });
}

/// Whole or not at all. Without success the file is written anew at the next record.
Result<void> JobRecords::write_anew(State& state) const {
  state.file = Fd();
  std::string text = std::string(kHead) + boot_ + "\n";
  for (const JobRecord& record : in_order(state)) text += line_of(record);
  INDUCTORFS_TRY(write_file_atomically(AT_FDCWD, path_, text, 0600));
  INDUCTORFS_TRY_ASSIGN(state.file, open_at(AT_FDCWD, path_, O_WRONLY | O_APPEND | O_NOFOLLOW));
  state.lines = state.records.size();
  return {};
}

Result<void> JobRecords::append(State& state, const JobRecord& record) const {
  auto written = write_full(state.file.get(), line_of(record));
  ++state.lines;
  if (!written) state.file = Fd();  // part of the line may be there
  return written;
}

}  // namespace inductorfs::fingerprint
