// SPDX-License-Identifier: Apache-2.0
#include "libraries.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/text.h"

namespace inductorfs::host {
namespace {

constexpr uint64_t kCacheFileLimit = 64ULL << 20;
constexpr uint64_t kLibraryLimit = 64ULL << 20;
constexpr size_t kAnswerLimit = 4096;
constexpr size_t kDirectoryLimit = 256;

// glibc, sysdeps/generic/dl-cache.h: struct cache_file_new and file_entry_new.
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr size_t kHeaderSize = 48;
constexpr size_t kEntrySize = 24;
constexpr uint32_t kKindMask = 0xff00;
#if defined(__x86_64__)
constexpr uint32_t kKind = 0x0300;  // FLAG_X8664_LIB64: not the 32-bit libraries beside them
#elif defined(__aarch64__)
constexpr uint32_t kKind = 0x0a00;  // FLAG_AARCH64_LIB64
#endif

constexpr const char* kStandardDirectories[] = {
#if defined(__x86_64__)
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
#endif
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib"};

uint32_t number_at(std::string_view bytes, size_t offset) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// The NUL-terminated text at an offset that the file names; empty when it lies outside.
std::string_view string_at(std::string_view bytes, uint32_t offset) {
  if (offset >= bytes.size()) return {};
  const std::string_view rest = bytes.substr(offset);
  const size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

bool is_file(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string real_path(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) == nullptr ? std::string() : std::string(resolved);
}

void add(std::vector<std::string>& directories, const std::string& directory) {
  const bool absolute = directory.starts_with('/');
  const bool known = std::find(directories.begin(), directories.end(), directory) != directories.end();
  if (absolute && !known && directories.size() < kDirectoryLimit) directories.push_back(directory);
}

/// Every directory `<root>/*/lib`: pip's packages of NVIDIA's libraries.
void add_package_libraries(std::vector<std::string>& directories, const std::string& root) {
  std::error_code ignored;  // not there, or not to be read: nothing to add
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator at(root, ignored), end; !ignored && at != end; at.increment(ignored)) {
    found.push_back(at->path().string() + "/lib");
  }
  std::sort(found.begin(), found.end());
  for (const std::string& directory : found) {
    if (is_file(directory)) add(directories, directory);
  }
}

}  // namespace

std::map<std::string, std::string, std::less<>> parse_loader_cache(std::string_view bytes) {
  std::map<std::string, std::string, std::less<>> found;
  const size_t start = bytes.find(kMagic);  // before glibc 2.32 an older form goes before it
  if (start == std::string_view::npos) return found;
  bytes.remove_prefix(start);
  if (bytes.size() < kHeaderSize) return found;
  const uint32_t count = number_at(bytes, kMagic.size());
  if (count > (bytes.size() - kHeaderSize) / kEntrySize) return found;
  for (uint32_t i = 0; i < count; ++i) {
    const size_t entry = kHeaderSize + i * kEntrySize;
#if defined(__x86_64__) || defined(__aarch64__)
    if ((number_at(bytes, entry) & kKindMask) != kKind) continue;
#endif
    const std::string_view soname = string_at(bytes, number_at(bytes, entry + 4));
    const std::string_view path = string_at(bytes, number_at(bytes, entry + 8));
    // The first of several is the one that the loader prefers.
    if (!soname.empty() && path.starts_with('/')) found.emplace(soname, path);
  }
  return found;
}

std::vector<std::string> library_directories(const std::string& torch, const std::string& python) {
  std::vector<std::string> directories;
  if (const char* search = std::getenv("LD_LIBRARY_PATH"); search != nullptr) {
    std::string_view rest = search;
    while (!rest.empty()) add(directories, std::string(take_part(rest, ':')));
  }
  // A virtual environment's interpreter is a link; libpython, and conda's libstdc++, are beside what it means.
  for (const std::string& program : {python, python.empty() ? python : real_path(python)}) {
    if (!program.empty()) add(directories, parent_of(parent_of(program)) + "/lib");
  }
  if (!torch.empty()) {
    const std::string site = parent_of(torch);
    add(directories, torch + "/lib");
    add(directories, site + "/torch.libs");
    add(directories, parent_of(parent_of(site)));  // <prefix>/lib/python3.N/site-packages
    add_package_libraries(directories, site + "/nvidia");
  }
  return directories;
}

Libraries::Libraries(std::vector<std::string> directories, std::string cache_file, Milliseconds look_again)
    : directories_(std::move(directories)), cache_file_(std::move(cache_file)), look_again_(look_again) {
  for (const char* directory : kStandardDirectories) directories_.emplace_back(directory);
}

std::shared_ptr<const Libraries::Cache> Libraries::current_cache() const {
  struct stat now {};
  const bool there = ::stat(cache_file_.c_str(), &now) == 0;
  auto held = state_.with([&](State& state) {
    const bool same = now.st_mtim.tv_sec == state.cache_time.tv_sec && now.st_mtim.tv_nsec == state.cache_time.tv_nsec;
    return there && !same ? nullptr : state.cache;
  });
  if (held) return held;
  const Result<std::string> bytes = read_file(AT_FDCWD, cache_file_, kCacheFileLimit);
  auto fresh = std::make_shared<const Cache>(bytes ? parse_loader_cache(*bytes) : Cache());
  state_.with([&](State& state) {
    state.cache = fresh;
    state.cache_time = now.st_mtim;
  });
  return fresh;
}

std::string Libraries::search(const std::string& soname) const {
  // A path comes from an artefact of the cluster: whoever wrote that chose which file system is asked.
  if (soname.find('/') != std::string::npos) {
    if (elsewhere_) return elsewhere_(soname);
    return is_file(soname) ? soname : std::string();
  }
  for (const std::string& directory : directories_) {
    std::string path = directory + "/" + soname;
    if (is_file(path)) return path;
  }
  const std::shared_ptr<const Cache> cache = current_cache();
  const auto cached = cache->find(soname);
  if (cached != cache->end() && is_file(cached->second)) return cached->second;
  return elsewhere_ ? elsewhere_(soname) : std::string();
}

std::string Libraries::find(std::string_view soname) const {
  const std::string name(soname);
  if (name.empty()) return {};
  const SteadyTime now = std::chrono::steady_clock::now();
  const auto known = state_.with([&](const State& state) -> std::optional<std::string> {
    const auto at = state.answers.find(name);
    if (at == state.answers.end() || (at->second.path.empty() && now >= at->second.again)) return std::nullopt;
    return at->second.path;
  });
  if (known) return *known;
  std::string path = search(name);
  state_.with([&](State& state) {
    if (state.answers.size() >= kAnswerLimit) state.answers.clear();
    state.answers.insert_or_assign(name, Answer{path, now + look_again_});
  });
  return path;
}

bool Libraries::resolves(std::string_view soname) const {
  constexpr std::string_view kDriver[] = {"libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"};
  return std::find(std::begin(kDriver), std::end(kDriver), soname) != std::end(kDriver) || !find(soname).empty();
}

std::string Libraries::newest_of_libstdcxx(std::string_view prefix) const {
  const std::string path = find("libstdc++.so.6");
  const Result<std::string> bytes =
      path.empty() ? fail(ErrorCode::kNotFound) : read_file(AT_FDCWD, path, kLibraryLimit);
  return bytes ? newest_version(*bytes, prefix) : std::string();
}

}  // namespace inductorfs::host
