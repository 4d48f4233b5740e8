// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "fingerprint/processes/opened_process.h"
#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/process_start.h"
#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {
namespace {

constexpr size_t kStatLimit = 4096;
constexpr size_t kLinkLimit = 4096;
// Fields of /proc/PID/stat after the name, counted from the state as 0 (proc_pid_stat(5) counts from 1 with the pid).
constexpr size_t kParentField = 1;
constexpr size_t kFlagsField = 6;
constexpr size_t kStartField = 19;
constexpr size_t kSizeField = 20;
constexpr size_t kCodeField = 23;
constexpr size_t kStackField = 25;
constexpr size_t kFields = 26;

/// PF_FORKNOEXEC of the kernel's include/linux/sched.h.
constexpr uint64_t kForkedFlag = 0x40;
/// A program that executes others without end is not looked at.
constexpr int kMostPrograms = 4;

std::string read_link(const std::string& path) {
  std::array<char, kLinkLimit> target;
  const ssize_t size = readlink(path.c_str(), target.data(), target.size());
  return size > 0 && static_cast<size_t>(size) < target.size() ? std::string(target.data(), static_cast<size_t>(size))
                                                               : std::string();
}

/// Reads a small file of /proc with one call: its content is made when it is read.
std::string_view read_once(const std::string& path, std::array<char, kStatLimit>& buffer,
                           struct stat* status = nullptr) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || (status != nullptr && fstat(fd.get(), status) != 0)) return {};
  const ssize_t size = read(fd.get(), buffer.data(), buffer.size());
  return size > 0 ? std::string_view(buffer.data(), static_cast<size_t>(size)) : std::string_view();
}

}  // namespace

ProcReader::ProcReader(std::string proc) : proc_(std::move(proc)) {}

std::string ProcReader::path(pid_t pid, std::string_view name) const {
  std::string result = proc_;
  result.append("/").append(std::to_string(pid)).append("/").append(name);
  return result;
}

/// Says whether its user namespace has the users and groups of ours, each as itself.
bool ProcReader::has_our_numbers(pid_t pid) const {
  return std::ranges::all_of(std::array{"uid_map", "gid_map"}, [&](const char* name) {
    std::array<char, kStatLimit> theirs;
    std::array<char, kStatLimit> ours;
    const std::string_view map = read_once(path(pid, name), theirs);
    return !map.empty() && map == read_once(std::string("/proc/self/") + name, ours);
  });
}

std::optional<FileUser> ProcReader::user_of(pid_t pid) const {
  std::array<char, kStatLimit> buffer;
  const std::string_view text = read_once(path(pid, "status"), buffer);
  constexpr int kHex = 16;
  FileUser found;
  const auto number = [](std::string_view words, auto& out) {
    return parse_number(words.substr(0, words.find_first_of("\t ")), out);
  };
  if (!number(line_in_status(text, "Uid"), found.user) || !number(line_in_status(text, "Gid"), found.group)) {
    return std::nullopt;
  }
  std::string_view groups = line_in_status(text, "Groups");
  // Of very many groups the last one may be cut in the middle of its number.
  if (groups.data() + groups.size() == text.data() + text.size()) groups = groups.substr(0, groups.rfind(' ') + 1);
  for (const std::string_view one : parts_of(groups, ' ')) {
    if (const auto group = number_in<gid_t>(one)) found.groups.push_back(*group);
  }
  // In a user namespace of its own a capability counts for that namespace's files alone.
  uint64_t capabilities = 0;
  const bool is_ours = read_link(path(pid, "ns/user")) == read_link("/proc/self/ns/user") || has_our_numbers(pid);
  if (is_ours && parse_number(line_in_status(text, "CapEff"), capabilities, kHex)) {
    found.reads_all = (capabilities & (uint64_t{1} << CAP_DAC_OVERRIDE | uint64_t{1} << CAP_DAC_READ_SEARCH)) != 0;
  }
  return found;
}

std::optional<ProcessStat> ProcReader::stat_of(pid_t pid) const {
  std::array<char, kStatLimit> buffer;
  struct stat status {};
  std::string_view text = read_once(path(pid, "stat"), buffer, &status);
  const bool is_ended = is_ended_in_stat(text);
  // The name stands in parentheses and may itself hold parentheses and blanks.
  const size_t close = text.rfind(')');
  if (close == std::string_view::npos) return std::nullopt;
  text.remove_prefix(std::min(close + 2, text.size()));
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::array<std::string_view, kFields> fields;
  for (std::string_view& field : fields) field = take_part(text, ' ');
  ProcessStat result;
  uint64_t flags = 0;
  result.is_ended = is_ended;
  // Of a process that hides itself (PR_SET_DUMPABLE) the directory is root's.
  result.owner = status.st_uid;
  if (status.st_uid == 0) {
    const auto user = user_of(pid);
    if (!user) return std::nullopt;
    result.owner = user->user;
  }
  if (!parse_number(fields[kParentField], result.parent) || !parse_number(fields[kStartField], result.identity.start) ||
      !parse_number(fields[kCodeField], result.identity.code) ||
      !parse_number(fields[kStackField], result.identity.stack) || !parse_number(fields[kSizeField], result.size) ||
      !parse_number(fields[kFlagsField], flags)) {
    return std::nullopt;
  }
  result.is_forked = (flags & kForkedFlag) != 0;
  return result;
}

std::optional<pid_t> ProcReader::process_of(pid_t tid) const {
  std::array<char, kStatLimit> buffer;
  const std::string_view text = read_once(path(tid, "status"), buffer);
  const auto pid = number_in_status(text, "Tgid");
  return pid && *pid > 0 ? std::optional(static_cast<pid_t>(*pid)) : std::nullopt;
}

std::string ProcReader::space_of(pid_t pid) const { return read_link(path(pid, "ns/mnt")); }
std::string ProcReader::root_of(pid_t pid) const { return path(pid, "root"); }

bool ProcReader::has_our_root(pid_t pid) const {
  const std::string space = space_of(pid);
  return !space.empty() && space == read_link("/proc/self/ns/mnt") && read_link("/proc/self/root") == "/" &&
         read_link(path(pid, "root")) == "/";
}

bool ProcReader::maps_our_paths(pid_t pid) const {
  const std::string space = space_of(pid);
  return !space.empty() && space == read_link("/proc/self/ns/mnt") && read_link("/proc/self/root") == "/";
}

/// False when there is no way to its root.
bool ProcReader::find_root(OpenedProcess& opened) const {
  const pid_t pid = opened.process.pid;
  opened.space = space_of(pid);
  opened.root_link = read_link(root_of(pid));
  opened.maps_our_paths = maps_our_paths(pid);
  if (opened.maps_our_paths) return true;
  auto root = InRoot::open(root_of(pid));
  if (!root) return false;
  opened.root = std::move(*root);
  opened.root_path = root_of(pid);
  const bool same = !opened.space.empty() && opened.space == read_link("/proc/self/ns/mnt");
  if (!same) opened.mounts = open_part(pid, "mountinfo");
  return true;
}

/// The kernel makes addresses random unless the host (`sysctl`) or the process (`setarch -R`, a debugger) has turned it
/// off.
bool ProcReader::has_random_addresses(pid_t pid) const {
  std::array<char, kStatLimit> buffer;
  if (read_once(proc_ + "/sys/kernel/randomize_va_space", buffer).starts_with('0')) return false;
  std::string_view text = read_once(path(pid, "personality"), buffer);
  if (text.ends_with('\n')) text.remove_suffix(1);
  uint64_t flags = 0;
  return !parse_number(text, flags, 16) || (flags & ADDR_NO_RANDOMIZE) == 0;
}

std::shared_ptr<const Held> ProcReader::hold(const Process& process) const {
  auto held = std::make_shared<Held>();
  held->root = Fd(::open(process.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  held->space = Fd(::open(path(process.pid, "ns/mnt").c_str(), O_RDONLY | O_CLOEXEC));
  const bool lacks_space = !held->space && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
  // Afterwards: another process may have had the number by then.
  const auto stat = stat_of(process.pid);
  return held->root && stat && stat->identity == process.identity && !lacks_space ? held : nullptr;
}

bool is_in_use(const Fd& pagemap) {
  // fs/proc/task_mmu.c, pagemap_read(): nothing of memory that nobody has any more, and before it looks at the size,
  // which is to be one of whole entries of eight bytes.
  char byte = 0;
  return pread(pagemap.get(), &byte, 1, 0) < 0 && errno == EINVAL;
}

Fd ProcReader::open_part(pid_t pid, std::string_view name, int flags) const {
  return Fd(::open(path(pid, name).c_str(), flags | O_CLOEXEC));
}

std::optional<OpenedProcess> ProcReader::open(pid_t pid, const ProcessIdentity& identity, Opening what) const {
  for (int turn = 0; turn < kMostPrograms; ++turn) {
    const auto stat = stat_of(pid);
    if (!stat || !identity.may_be(stat->identity)) return std::nullopt;  // another process has the number by now
    auto opened = open_once(pid, *stat, what);
    const auto after = stat_of(pid);
    if (!after) return std::nullopt;
    if (after->identity == stat->identity && after->is_forked == stat->is_forked) return opened;
  }
  return std::nullopt;
}

std::optional<OpenedProcess> ProcReader::open_once(pid_t pid, const ProcessStat& stat, Opening what) const {
  auto user = user_of(pid);
  if (!user) return std::nullopt;
  OpenedProcess opened;
  Process& process = opened.process;
  process.pid = pid;
  process.identity = stat.identity;
  process.owner = stat.owner;
  process.user = std::move(*user);
  process.is_forked = stat.is_forked;
  process.shows_exec = has_random_addresses(pid);
  opened.has_memory = stat.size > 0;
  opened.maps = open_part(pid, "maps");
  if (Fd memory = open_part(pid, "pagemap")) process.memory = std::make_shared<const Fd>(std::move(memory));
  opened.executable_path = read_link(path(pid, "exe"));
  opened.executable = open_part(pid, "exe", O_PATH);
  if (what != Opening::kMaps) {
    opened.memory = open_part(pid, "mem");
    opened.first_environment = open_part(pid, "environ");
  }
  return find_root(opened) ? std::optional(std::move(opened)) : std::nullopt;
}

}  // namespace inductorfs::fingerprint
