// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fingerprint/common/compiler_call.h"
#include "fingerprint/common/look_seal.h"
#include "fingerprint/common/read_as.h"
#include "fingerprint/facts/named_files.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// Reads what /proc tells of a process. Its content is another user's: every size has a limit, and it is trusted for
/// nothing but whether an artefact is published.
namespace inductorfs::fingerprint {

/// Distinguishes a process from a later one with the same id, and from itself before an exec. Immutable value.
struct ProcessIdentity {
  uint64_t start = 0;  ///< clock ticks since boot
  /// Bottom of the stack and start of the code, random for each exec unless the process or the host has turned that off
  /// (Process::shows_exec); 0 and 1 if this process may not know them.
  uint64_t stack = 0;
  uint64_t code = 0;
  bool operator==(const ProcessIdentity&) const = default;
  [[nodiscard]] bool shows_program() const { return stack != 0 || code > 1; }
  /// Says whether this may be `known`: where this does not show its program, another program of the process is one too.
  [[nodiscard]] bool may_be(const ProcessIdentity& known) const {
    return shows_program() ? *this == known : start == known.start;
  }
};
struct ProcessStat {
  ProcessIdentity identity;
  pid_t parent = 0;
  uid_t owner = 0;
  uint64_t size = 0;       ///< of what it has mapped, in bytes: no library can be loaded without a change of it
  bool is_ended = false;   ///< only its parent has not looked yet
  bool is_forked = false;  ///< it has run no program of its own yet, and may share its parent's memory (vfork(2))
  bool operator==(const ProcessStat&) const = default;
};

/// A package, found by one of its libraries that a process has mapped. Immutable value.
struct Package {
  std::string path;       ///< within the process's root: the package's directory, or the C library; empty: not mapped
  bool replaced = false;  ///< the mapped file was deleted: the file at the path now is another one
  /// The identity of these files (identity_of) while the process lived; empty when they are no longer there.
  std::string identity;
};

/// A process's files, by descriptor: they can be read after the process has ended. Immutable after construction.
struct Held {
  Fd root;   ///< the process's root directory
  Fd space;  ///< its mount namespace, which keeps what is mounted below the root
  /// Where another process holds them, for as long as `line` is open: by which number.
  uint64_t number = 0;
  Fd line{};
};

/// What the mapped files of a process tell about it. Immutable after construction.
struct Process {
  pid_t pid = 0;
  ProcessIdentity identity;
  uid_t owner = 0;    ///< the user of the process; the cost of examining processes is counted for each user
  std::string space;  ///< the name of its mount namespace; empty if that cannot be seen
  /// A digest of what is mounted in a mount namespace that is not ours, whose name the kernel gives out again. It
  /// changes while the process lives, so that it tells what is read of a process, and not which one it is.
  std::string mounts;
  /// The prefix by which its paths are reached from here: empty when it has our root, else PROC/PID/root.
  std::string root;
  bool other_root = false;  ///< it may have another root directory than this process: a container, or chroot(2)
  Package torch;
  Package triton;
  Package libc;
  Package libstdcxx;
  Package site;  ///< the folder that its torch lies in, with the packages beside it
  /// The packages of serving engines that it has mapped from elsewhere, or that were replaced after it mapped them.
  std::vector<Package> engines{};
  std::string soabi;             ///< "cpython-311-x86_64-linux-gnu", from the names of mapped extension modules
  uint64_t environ_address = 0;  ///< address of the variable `environ`; 0: not found
  std::vector<NamedFile> files;  ///< those that its variables name (files_of()); empty before these were read
  CompilerCall compiler;         ///< as `files`
  Told told{};                   ///< by the examiner's child that has looked; empty where this process has
  Told named{};                  ///< the same of `files` and `compiler`
  FileUser user;                 ///< with whose rights its files are read
  bool whole = true;             ///< false: it has more mapped files than are examined
  /// false: its addresses are the same after each exec, so that its identity does not show one.
  bool shows_exec = true;
  bool is_forked = false;  ///< as ProcessStat
  /// Its /proc/PID/pagemap, which tells without any right whether it still runs the same program (is_in_use());
  /// nullptr where the kernel has none.
  std::shared_ptr<const Fd> memory{};
  [[nodiscard]] bool has_package() const { return !torch.path.empty() || !triton.path.empty(); }
};

/// Says whether a process still has the memory of which `pagemap` was opened: a program gets other memory with each
/// execve(2). Does not block.
[[nodiscard]] bool is_in_use(const Fd& pagemap);

/// Why nothing that depends on the variables of such a process is shared (LiveEnvironment::live).
inline constexpr const char* kMemoryNotRead =
    "the memory of the process cannot be read (kernel.yama.ptrace_scope, or a container without CAP_SYS_PTRACE), so "
    "what it has set of its variables since its start is not known; let root mount, or set kernel.yama.ptrace_scope=0, "
    "or mount with --python and --writers pod if all programs have the environment of the mount";

/// Says whether the variable names the job that a process belongs to, or the number of its threads. These tell people
/// what belongs together; nothing that is shared depends on them.
[[nodiscard]] bool names_job(std::string_view name);

/// The variables that matter (variables.h), those that name the compiler (names_compiler()), and those of names_job(),
/// with their current values. Immutable value.
struct LiveEnvironment {
  std::map<std::string, std::string> values;
  bool live = false;  ///< false: the values at the process's start, because its memory may not be read
};

/// Adds the folders on the path of a mapped library that have the name of a serving engine's package.
void note_engine_folders(std::string_view library, bool deleted, std::vector<Package>& folders);
/// Leaves of Process::engines, which has all folders that were noted, what that member is for. `identity_of_package`
/// is empty for a folder that is no package.
void keep_engines_elsewhere(Process& process,
                            const std::function<std::string(const std::string&)>& identity_of_package);
/// Returns the folders in which the process's packages of serving engines are looked for, in order.
[[nodiscard]] std::vector<std::string> sites_of(const Process& process);

class Look;

/// What was observed of a writing process, or the examination that is still to tell. Immutable after construction.
class Writer {
 public:
  /// Makes a writer that has not been examined yet, because something keeps the kernel from telling.
  explicit Writer(std::shared_ptr<const Look> look) : look_(std::move(look)) {}
  Writer(std::shared_ptr<const Process> process, LiveEnvironment environment)
      : process_(std::move(process)), environment_(std::move(environment)) {}
  /// Returns the examination; only of a writer that has not been examined yet.
  [[nodiscard]] const std::shared_ptr<const Look>& look() const { return look_; }
  /// Returns the process; only of a writer that was examined.
  [[nodiscard]] const Process& process() const {
    INDUCTORFS_CHECK(process_ != nullptr);
    return *process_;
  }
  [[nodiscard]] const LiveEnvironment& environment() const { return environment_; }

 private:
  std::shared_ptr<const Process> process_;
  LiveEnvironment environment_;
  std::shared_ptr<const Look> look_;
};

struct OpenedProcess;
enum class Opening { kMaps, kBoth };

/// Reads one /proc directory. Immutable after construction.
class ProcReader {
 public:
  explicit ProcReader(std::string proc);

  /// stat_of() and process_of() do not block: what they read is the kernel's own, and needs no lock of the process's
  /// memory.
  [[nodiscard]] std::optional<ProcessStat> stat_of(pid_t pid) const;
  /// Returns the process that a thread belongs to.
  [[nodiscard]] std::optional<pid_t> process_of(pid_t tid) const;
  /// Returns the real user of a process with its groups. Empty when the kernel does not tell.
  [[nodiscard]] std::optional<FileUser> user_of(pid_t pid) const;
  /// Returns its mount namespace, as the kernel names it. Does not block, nor do the next two.
  [[nodiscard]] std::string space_of(pid_t pid) const;
  /// Returns the directory that leads into its root.
  [[nodiscard]] std::string root_of(pid_t pid) const;
  /// Says whether paths of the process lead to the same files from here.
  [[nodiscard]] bool has_our_root(pid_t pid) const;
  /// Says whether those of its mapped files do: in our own mount namespace the kernel names these by paths that lead
  /// there from here, whatever the process's root is. Equal roots of different namespaces can have other file systems
  /// below them.
  [[nodiscard]] bool maps_our_paths(pid_t pid) const;
  /// Opens what is read of a process; of one whose `identity` does not show its program what it runs then. It may block
  /// for ever, as long as the process is about to run another program. Empty when the process has ended.
  [[nodiscard]] std::optional<OpenedProcess> open(pid_t pid, const ProcessIdentity& identity, Opening what) const;
  /// Opens the files of a process with another root; nullptr when it has ended. Does not block.
  [[nodiscard]] std::shared_ptr<const Held> hold(const Process& process) const;

 private:
  [[nodiscard]] bool has_our_numbers(pid_t pid) const;
  [[nodiscard]] std::string path(pid_t pid, std::string_view name) const;
  [[nodiscard]] Fd open_part(pid_t pid, std::string_view name, int flags = O_RDONLY) const;
  [[nodiscard]] std::optional<OpenedProcess> open_once(pid_t pid, const ProcessStat& stat, Opening what) const;
  [[nodiscard]] bool find_root(OpenedProcess& opened) const;
  [[nodiscard]] bool has_random_addresses(pid_t pid) const;

  std::string proc_;
};

/// The place of `environ` in a mapped ELF file of this machine's class, counted from the address at which the file's
/// first byte is mapped; for ET_EXEC the address itself.
struct SymbolPlace {
  bool fixed = false;
  uint64_t offset = 0;
};
/// Finds `environ` in an open file; empty when the file does not define it.
[[nodiscard]] std::optional<SymbolPlace> find_environ(const Fd& file);

}  // namespace inductorfs::fingerprint
