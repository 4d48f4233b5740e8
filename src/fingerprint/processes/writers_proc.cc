// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <utility>

#include "fingerprint/common/key_memory.h"
#include "fingerprint/processes/opened_process.h"
#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/process_start.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/base/text.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::fingerprint {
namespace {

constexpr size_t kStatLimit = 4096;
/// A job with torch has 1,000 to 5,000 mappings of 100 bytes; a process may have 65,530 with paths of 4 KiB.
constexpr size_t kMapsLimit = size_t{16} << 20;
constexpr size_t kMapsPiece = size_t{64} << 10;
constexpr size_t kLinkLimit = 4096;
/// What /proc/PID/maps puts behind the path of a file that has no name any more.
constexpr std::string_view kDeleted = " (deleted)";
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
constexpr uint64_t kSymbolFileLimit = uint64_t{4} << 30;
/// A program that executes others without end is not looked at.
constexpr int kMostPrograms = 4;

std::string_view take_word(std::string_view& rest) {
  const size_t start = std::min(rest.find_first_not_of(' '), rest.size());
  rest.remove_prefix(start);
  const size_t end = std::min(rest.find(' '), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end);
  return word;
}

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

/// Which files a package has: its directory, and the file that every installation writes anew.
std::string package_identity(const InRoot& root, const std::string& directory, std::string_view marker) {
  const auto folder = root.status(directory);
  const auto file = root.status(directory + "/" + std::string(marker));
  if (!folder || !file) return {};
  return std::to_string(folder->st_dev) + ":" + std::to_string(folder->st_ino) + " " + identity_of(*file);
}

/// "/x/torch" for "/x/torch/lib/libtorch_cpu.so" with folder "lib" and package "torch"; else empty.
std::string_view package_of(std::string_view path, std::string_view folder, std::string_view package) {
  for (const std::string_view name : {base_name_of(path), folder}) {
    if (!path.ends_with(name) || path.size() <= name.size()) return {};
    path.remove_suffix(name.size());
    if (!path.ends_with('/')) return {};
    path.remove_suffix(1);
  }
  return base_name_of(path) == package ? path : std::string_view();
}

/// The SOABI in "_ssl.cpython-311-x86_64-linux-gnu.so"; empty for other names.
std::string_view soabi_of(std::string_view name) {
  if (!name.ends_with(".so")) return {};
  name.remove_suffix(3);
  const std::string_view abi = name.substr(name.rfind('.') + 1);
  return abi.size() < name.size() && (abi.starts_with("cpython-") || abi.starts_with("pypy")) ? abi
                                                                                              : std::string_view();
}

bool is_libc(std::string_view name) {
  return name == "libc.so.6" || (name.starts_with("libc-") && name.ends_with(".so")) || name.starts_with("ld-musl-") ||
         name.starts_with("libc.musl-");
}

/// One line of /proc/PID/maps that maps a file.
struct MappedFile {
  uint64_t start = 0;
  uint64_t offset = 0;
  std::string_view path;
};

std::optional<MappedFile> parse_line(std::string_view line) {
  const size_t slash = line.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  std::string_view rest = line.substr(0, slash);
  const std::string_view range = take_word(rest);
  (void)take_word(rest);  // permissions say nothing about which file it is
  const std::string_view offset = take_word(rest);
  MappedFile file;
  file.path = line.substr(slash);
  if (!parse_number(range.substr(0, range.find('-')), file.start, 16) || !parse_number(offset, file.offset, 16)) {
    return std::nullopt;
  }
  return file;
}

/// What is collected from the mapped files of a process.
struct Maps {
  Process process;
  std::string executable;
  uint64_t executable_start = 0;  ///< where its first byte is mapped; 0: it is not
  uint64_t libc_start = 0;
};

void take(Maps& maps, const MappedFile& file) {
  Process& process = maps.process;
  const std::string_view name = base_name_of(file.path);
  if (file.offset == 0 && maps.executable_start == 0 && file.path == maps.executable)
    maps.executable_start = file.start;
  if (name.find(".so") == std::string_view::npos && !is_libc(name)) return;
  const bool deleted = file.path.ends_with(kDeleted);
  if (file.offset == 0) note_engine_folders(file.path, deleted, process.engines);
  if (process.torch.path.empty() && name.starts_with("libtorch")) {
    process.torch = {std::string(package_of(file.path, "lib", "torch")), deleted, {}};
  } else if (process.triton.path.empty() && name.starts_with("libtriton")) {
    process.triton = {std::string(package_of(file.path, "_C", "triton")), deleted, {}};
  } else if (process.libstdcxx.path.empty() && name.starts_with("libstdc++.so.6")) {
    process.libstdcxx = {std::string(file.path), deleted, {}};
  } else if (process.libc.path.empty() && file.offset == 0 && is_libc(name)) {
    process.libc = {std::string(file.path), deleted, {}};
    maps.libc_start = file.start;
  } else if (const std::string_view abi = soabi_of(name); !abi.empty()) {
    if (process.soabi.empty()) process.soabi = abi;
    // A distribution's torch has its libraries elsewhere, its extension module not.
    const std::string_view folder = file.path.substr(0, file.path.size() - name.size() - 1);
    const bool of_torch = name.starts_with("_C.") && base_name_of(folder) == "torch";
    if (of_torch && process.torch.path.empty()) process.torch = {std::string(folder), deleted, {}};
  }
}

/// Calls `use` for each whole line; false when the file has more than kMapsLimit, empty when it cannot be read.
std::optional<bool> read_lines(const Fd& fd, const std::function<void(std::string_view)>& use) {
  if (!fd) return std::nullopt;
  std::string buffer;
  size_t total = 0;
  for (;;) {
    const size_t have = buffer.size();
    buffer.resize(have + kMapsPiece);
    const ssize_t got = read(fd.get(), buffer.data() + have, kMapsPiece);
    if (got < 0 && errno == EINTR) {
      buffer.resize(have);
      continue;
    }
    buffer.resize(have + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0) return total > 0 ? std::optional<bool>(true) : std::nullopt;
    total += static_cast<size_t>(got);
    size_t start = 0;
    for (size_t end = buffer.find('\n'); end != std::string::npos; end = buffer.find('\n', start)) {
      use(std::string_view(buffer).substr(start, end - start));
      start = end + 1;
    }
    buffer.erase(0, start);
    if (total >= kMapsLimit) return false;
  }
}

/// Containers of one image differ by what is mounted below their roots.
std::string mounts_digest(const Fd& mountinfo) {
  codec::Hasher hasher;
  (void)read_lines(mountinfo, [&hasher](std::string_view line) {
    hasher.update(line);
    hasher.update("\n");
  });
  return hasher.finish().to_hex();
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
  for (std::string_view rest = groups; !rest.empty();) {
    gid_t group = 0;
    if (number(rest, group)) found.groups.push_back(group);
    rest.remove_prefix(std::min(rest.find(' '), rest.size() - 1) + 1);
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
  text.remove_prefix(close + 1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::array<std::string_view, kFields> fields;
  for (std::string_view& field : fields) field = take_word(text);
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

namespace {

/// Which files its packages are.
void identify(Process& process, const InRoot& root) {
  process.torch.identity = package_identity(root, process.torch.path, "version.py");
  if (process.triton.path.empty()) {
    // torch loads Triton when it compiles for it; which one that would be is known before.
    const std::string beside = process.torch.path.substr(0, process.torch.path.rfind('/')) + "/triton";
    if (root.status(beside)) process.triton.path = beside;
  }
  if (!process.torch.path.empty()) {
    process.site.path = directory_of(process.torch.path);
    const auto found = root.status(process.site.path + "/");
    if (found) process.site.identity = identity_of(*found);
  }
  keep_engines_elsewhere(process,
                         [&root](const std::string& folder) { return package_identity(root, folder, "__init__.py"); });
  if (!process.triton.path.empty()) {
    process.triton.identity = package_identity(root, process.triton.path, "__init__.py");
  }
  for (Package* const library : {&process.libc, &process.libstdcxx}) {
    const auto found = library->path.empty() ? std::nullopt : root.status(library->path);
    if (found) library->identity = identity_of(*found);
  }
}

/// A program that names `environ` itself has it in its own data (a copy relocation), and libc uses that one: of a
/// program that its user may run and not read nobody knows.
uint64_t environ_address_of(const OpenedProcess& opened, const Maps& maps) {
  const auto address_in = [](const Fd& file, uint64_t start) -> uint64_t {
    const auto place = find_environ(file);
    if (!place) return 0;
    return place->fixed ? place->offset : start + place->offset;
  };
  if (maps.executable_start != 0) {
    const auto program = reopen_regular(opened.executable, maps.executable, kSymbolFileLimit);
    const uint64_t address = program ? address_in(*program, maps.executable_start) : 0;
    if (!program || address != 0) return address;
  }
  const std::string& libc = maps.process.libc.path;
  const auto file =
      maps.libc_start == 0 ? fail(ErrorCode::kNotFound) : opened.root.open_regular(libc, kSymbolFileLimit);
  return file ? address_in(*file, maps.libc_start) : 0;
}

/// Makes the paths of what it has mapped paths within its root.
void enter_root(Process& process, const OpenedProcess& opened) {
  process.space = opened.space;
  process.other_root = !opened.maps_our_paths || opened.root_link != "/";
  if (opened.maps_our_paths) return;
  process.root = opened.root_path;
  if (opened.mounts) process.mounts = mounts_digest(opened.mounts);
  // After chroot(2) alone these paths begin with the root, counted from the root of the mount namespace.
  const std::string prefix = opened.root_link + "/";
  if (prefix == "//") return;
  const auto cut = [&prefix](Package& package) {
    if (package.path.starts_with(prefix)) package.path.erase(0, prefix.size() - 1);
  };
  for (Package* const package : {&process.torch, &process.triton, &process.libc, &process.libstdcxx}) cut(*package);
  std::ranges::for_each(process.engines, cut);
}

}  // namespace

bool look_at(OpenedProcess& opened) {
  Maps maps;
  maps.executable = opened.executable_path;
  maps.process = std::move(opened.process);
  Process& process = maps.process;
  const auto whole = read_lines(opened.maps, [&maps](std::string_view line) {
    if (const auto file = parse_line(line)) take(maps, *file);
  });
  process.whole = whole.value_or(false);
  if (whole && process.has_package()) {
    enter_root(process, opened);
    identify(process, opened.root);
    process.environ_address = environ_address_of(opened, maps);
  }
  opened.process = std::move(process);
  return whole.has_value();
}

std::vector<NamedFile> files_of(const OpenedProcess& opened, const LiveEnvironment& environment) {
  std::vector<NamedFile> files = named_files(environment.values, opened.process.torch.path);
  for (NamedFile& file : files) {
    if (!file.path.starts_with('/')) continue;
    const auto status = opened.root.status(file.path);
    if (status) file.identity = identity_of(*status);
  }
  return files;
}

}  // namespace inductorfs::fingerprint
