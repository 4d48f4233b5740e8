// SPDX-License-Identifier: Apache-2.0
#include "writers_packages.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "facts.h"
#include "inductorfs/base/fd.h"
#include "key_memory.h"

namespace inductorfs::fingerprint {
namespace {

/// A host has a handful of environments; past that the oldest is read again.
constexpr size_t kEntryLimit = 64;
/// A package changed at its place keeps the identity that its processes were seen with, so it is looked at again.
constexpr Milliseconds kLookAgain{60'000};
/// For a package that another thread is reading; libtriton.so alone has 500 MB.
constexpr Milliseconds kReadWait{120'000};
constexpr uint64_t kLibcLimit = uint64_t{32} << 20;

/// The suffixes of extension modules that an interpreter has (CPython, Python/dynload_shlib.c). Without a GIL there is
/// no stable ABI.
std::vector<std::string> suffixes_of(const std::string& soabi) {
  std::vector<std::string> suffixes;
  if (!soabi.empty()) suffixes.push_back("." + soabi + ".so");
  const size_t version = soabi.find('-') + 1;
  const size_t end = soabi.find('-', version);
  if (version == 0 || soabi.substr(version, end - version).find('t') == std::string::npos) {
    suffixes.emplace_back(".abi3.so");
  }
  suffixes.emplace_back(".so");
  return suffixes;
}

Fact libc_of(const Process& process) {
  const Package& libc = process.libc;
  const std::string file = process.root + libc.path;
  const auto theirs = [&file] {
    struct stat status {};
    return stat(file.c_str(), &status) == 0 ? identity_of(status) : std::string();
  };
  struct stat ours {};
  const std::string own = own_libc();
  std::string version;
  if (!own.empty() && stat(own.c_str(), &ours) == 0 && identity_of(ours) == libc.identity) {
    version = gnu_get_libc_version();
  } else if (theirs() == libc.identity) {
    version = libc_version(file);
  }
  if (version.empty()) return unknown_fact(libc.path + " is no glibc, or cannot be read", libc.path);
  return known_fact(canonical({{"name", "glibc"}, {"version", version}}), libc.path);
}

}  // namespace

std::string line_value(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.starts_with(key) && line.substr(key.size()).starts_with('=')) {
      return std::string(line.substr(key.size() + 1));
    }
  }
  return {};
}

const Package& package_for(Facet facet, const Process& process) {
  if (facet == Facet::kTorch) return process.torch;
  return facet == Facet::kTriton ? process.triton : process.libc;
}

std::string own_libc() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&gnu_get_libc_version), &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

std::string libc_version(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const auto bytes = read_file(AT_FDCWD, file, kLibcLimit);
  if (!bytes) return {};
  // What `ldd --version` and running the library print (glibc, csu/version.c: banner).
  constexpr std::string_view kBanner = "GNU C Library";
  constexpr std::string_view kVersion = "release version ";
  constexpr size_t kBannerLimit = 256;
  const size_t start = bytes->find(kBanner);
  if (start == std::string::npos) return {};
  const std::string_view banner = std::string_view(*bytes).substr(start, kBannerLimit);
  const size_t at = banner.find(kVersion);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = banner.substr(at + kVersion.size());
  const size_t end = std::min(rest.find_first_not_of("0123456789."), rest.size());
  std::string_view version = rest.substr(0, end);
  while (version.ends_with('.')) version.remove_suffix(1);
  return std::string(version);
}

Packages::Packages(std::string cache_file, Counters& counters)
    : cache_file_(std::move(cache_file)), reads_(counters.get("writers.package_reads")) {}

namespace {

std::string entry_name(Facet facet, const Process& process) {
  const Package& package = package_for(facet, process);
  std::string name(to_string(facet));
  // The path is part of it: equal identities on two devices of containers that came one after the other are possible.
  name.append("\n").append(package.identity).append("\n").append(package.path);
  if (facet != Facet::kLibc) name.append("\n").append(process.soabi);
  return name;
}

}  // namespace

const Packages::Entry* Packages::usable(const Entries& entries, const std::string& name) {
  const auto found = entries.find(name);
  if (found == entries.end() || found->second.reading) return nullptr;
  const Entry& entry = found->second;
  return entry.lasts || system_clock().now() - entry.at < kLookAgain ? &entry : nullptr;
}

std::optional<Fact> Packages::known(Facet facet, const Process& process) const {
  const std::string name = entry_name(facet, process);
  return entries_.with([&name](const Entries& entries) -> std::optional<Fact> {
    const Entry* const entry = usable(entries, name);
    return entry == nullptr ? std::nullopt : std::optional<Fact>(entry->fact);
  });
}

Fact Packages::read(Facet facet, const Process& process) {
  const std::string name = entry_name(facet, process);
  const auto not_reading = [&name](const Entries& entries) {
    const auto found = entries.find(name);
    return found == entries.end() || !found->second.reading;
  };
  std::optional<Fact> known = entries_.wait_until(system_clock().now() + kReadWait, not_reading,
                                                  [&name](Entries& entries) -> std::optional<Fact> {
                                                    if (const Entry* const entry = usable(entries, name))
                                                      return entry->fact;
                                                    entries[name].reading = true;
                                                    return std::nullopt;
                                                  });
  if (known) return std::move(*known);

  reads_.add();
  Fact fact = compute(facet, process);
  const std::string place = process.root + package_for(facet, process).path;
  struct stat status {};
  const bool is_there = stat(place.c_str(), &status) == 0;
  entries_.notify_with([&](Entries& entries) {
    // A container that is gone took its packages along: the next one with equal files can be read.
    if (!fact.known && !is_there) {
      entries.erase(name);
      return;
    }
    const bool lasts = fact.known && (facet == Facet::kLibc || !process.root.empty());
    entries[name] = {false, fact, system_clock().now(), lasts};
    if (entries.size() <= kEntryLimit) return;
    const auto oldest = std::min_element(entries.begin(), entries.end(), [](const auto& one, const auto& other) {
      return std::pair(one.second.reading, one.second.at) < std::pair(other.second.reading, other.second.at);
    });
    entries.erase(oldest);
  });
  return fact;
}

Fact Packages::compute(Facet facet, const Process& process) const {
  if (facet == Facet::kLibc) return libc_of(process);
  PythonFacts python;
  python.soabi = process.soabi;
  python.extensions = suffixes_of(process.soabi);
  python.torch = process.root + process.torch.path;
  python.triton = process.root + process.triton.path;
  // Paths that lead through a process are of no use to the next one: they would only push others out of the memory.
  KeyMemory memory(process.root.empty() ? cache_file_ : std::string());
  Fact fact = facet == Facet::kTorch ? torch_fact(python, memory) : triton_fact(python, memory);
  (void)memory.save();  // an unwritable memory costs time at the next start, nothing else
  return fact;
}

}  // namespace inductorfs::fingerprint
