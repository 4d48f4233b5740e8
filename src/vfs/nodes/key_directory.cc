// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/key_directory.h"

#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/process_start.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::vfs {
namespace {

constexpr uint64_t kStatusLimit = uint64_t{16} * 1024;
constexpr uint64_t kStatLimit = 4096;

/// Sets of processes that are not known, in one key directory: a process chooses its temporary names, and may choose
/// many.
constexpr size_t kMostUnknownSets = 64;

/// The id in Triton's temporary names, tmp.pid_<id>_<random> (triton/runtime/cache.py: FileCacheManager.put): that of
/// the process in its own pid namespace. 0 when there is none.
uint64_t id_in_temporary(std::string_view path) {
  constexpr std::string_view kBegin = "tmp.pid_";
  const size_t at = path.rfind(kBegin);
  return at == std::string_view::npos ? 0 : leading_number<uint32_t>(path.substr(at + kBegin.size()));
}

std::optional<uint64_t> start_in(const Result<std::string>& stat) { return stat ? start_in_stat(*stat) : std::nullopt; }

}  // namespace

std::set<std::string> KeyState::WriterSet::names() const {
  std::set<std::string> result;
  for (const auto& [name, put] : files) result.insert(name);
  return result;
}

bool KeyState::WriterSet::is_of_one_thread() const {
  if (std::ranges::none_of(files, [](const auto& file) { return file.second.disputed; })) return true;
  const pid_t thread = files.begin()->second.thread;
  return thread != 0 && std::ranges::all_of(files, [&](const auto& file) { return file.second.thread == thread; });
}

SetOwner KeyState::owner_of_put(const SetOwner& caller, std::string_view temporary_path) const {
  if (caller.is_known()) return caller;
  const SetOwner owner{0, id_in_temporary(temporary_path)};
  const auto unknown = std::ranges::count_if(writers, [](const auto& item) { return !item.first.is_known(); });
  return writers.contains(owner) || static_cast<size_t>(unknown) < kMostUnknownSets ? owner : SetOwner{};
}

const KeyState::WriterSet* KeyState::shown_to(const SetOwner& caller, const std::string& name,
                                              bool is_committed) const {
  // Without the group file a reader takes the key for a miss. With it, children of another pending set could follow.
  if (!caller.is_known() && layout::is_group_file(name)) return nullptr;
  if (!caller.is_known() && committed != Committed::kNone && is_committed) return nullptr;
  const auto set = std::ranges::find_if(writers, [&](const auto& item) {
    const auto& [owner, its] = item;
    const bool own = caller.is_known() ? owner == caller : !owner.is_known();
    // Half a set beside the committed one would be a mixture, to another thread of the writer.
    return own && its.files.contains(name) && (its.complete || committed == Committed::kNone);
  });
  return set == writers.end() ? nullptr : &set->second;
}

const KeyState::WriterSet* KeyState::shown_to_all() const {
  if (committed != Committed::kNone || writers.empty()) return nullptr;
  return &std::ranges::max_element(writers, {}, [](const auto& item) { return item.second.last_change; })->second;
}

SetOwner set_owner_of(pid_t thread) {
  if (thread <= 0) return {};
  // A FUSE request carries the thread's id, not the process's (linux fs/fuse/dev.c: fuse_get_req). All that is read
  // through this descriptor is of one process, whoever has the number by then.
  const Fd directory(::open(("/proc/" + std::to_string(thread)).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return {};
  const auto status = read_file(directory.get(), "status", kStatusLimit);
  if (!status) return {};
  constexpr std::string_view kKey = "\nTgid:\t";
  const size_t at = status->find(kKey);
  if (at == std::string::npos) return {};
  const auto process = leading_number<pid_t>(std::string_view(*status).substr(at + kKey.size()));
  const auto start = start_in(read_file(directory.get(), "task/" + std::to_string(process) + "/stat", kStatLimit));
  return process > 0 && start ? SetOwner{process, *start} : SetOwner{};
}

bool is_gone(const SetOwner& owner) {
  if (::kill(owner.process, 0) != 0 && errno == ESRCH) return true;
  const auto stat = read_file(AT_FDCWD, "/proc/" + std::to_string(owner.process) + "/stat", kStatLimit);
  const auto start = start_in(stat);
  return start && (*start != owner.start || is_ended_in_stat(*stat));
}

}  // namespace inductorfs::vfs
