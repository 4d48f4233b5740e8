// SPDX-License-Identifier: Apache-2.0
// What the files that a process has mapped tell of it.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <utility>

#include "fingerprint/common/key_memory.h"
#include "fingerprint/processes/opened_process.h"
#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/base/text.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::fingerprint {
namespace {

/// A job with torch has 1,000 to 5,000 mappings of 100 bytes; a process may have 65,530 with paths of 4 KiB.
constexpr size_t kMapsLimit = size_t{16} << 20;
constexpr size_t kMapsPiece = size_t{64} << 10;
/// What /proc/PID/maps puts behind the path of a file that has no name any more.
constexpr std::string_view kDeleted = " (deleted)";
constexpr uint64_t kSymbolFileLimit = uint64_t{4} << 30;

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
  const std::string_view range = take_part(rest, ' ');
  (void)take_part(rest, ' ');  // permissions say nothing about which file it is
  const std::string_view offset = take_part(rest, ' ');
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
