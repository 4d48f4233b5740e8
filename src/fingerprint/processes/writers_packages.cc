// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/processes/writers_packages.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <tuple>
#include <utility>

#include "fingerprint/common/key_memory.h"
#include "fingerprint/facts/facts.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/fingerprint/variables.h"

namespace inductorfs::fingerprint {
namespace {

/// A host has a handful of environments, and each user has facts of his own; past that the oldest is read again.
constexpr size_t kFactLimit = 1024;
/// A package changed at its place keeps the identity that its processes were seen with, so it is looked at again: after
/// this time, and for each process that began after the last look.
constexpr Milliseconds kLookAgain{60'000};
constexpr uint64_t kLibcLimit = uint64_t{16} << 20;

}  // namespace

const Package& package_for(Facet facet, const Process& process) {
  if (facet == Facet::kTorch) return process.torch;
  return facet == Facet::kTriton ? process.triton : process.libc;
}

std::string path_for(Facet facet, const Process& process) {
  if (facet == Facet::kCompiler) return process.compiler.command;
  if (facet == Facet::kEngine) return process.site.path;
  if (facet != Facet::kEnvironment) return package_for(facet, process).path;
  return process.files.empty() ? std::string() : process.files.front().path;
}

std::string own_libc() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&gnu_get_libc_version), &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

std::string libc_version(const InRoot& root, const std::string& file) {
  const auto bytes = root.read_regular(file, kLibcLimit);
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

namespace {

/// What a libc facet says of the C++ library, it says of processes with another root: for the others this host's own
/// libraries are looked at (host::limits_of).
bool says_libstdcxx(Facet facet, const Process& process) {
  return facet == Facet::kLibc && process.other_root && !process.libstdcxx.path.empty();
}

/// What the files mean depends on the packages, too: they hold what is used without the variables.
std::string files_name(const Process& process) {
  std::string name(to_string(Facet::kEnvironment));
  name.append("\n").append(process.space).append(process.mounts).append("\n").append(process.torch.path);
  name.append("\n").append(process.triton.identity).append("\n").append(process.triton.path);
  for (const NamedFile& file : process.files) {
    name.append("\n").append(file.variable).append("\n").append(file.identity).append("\n").append(file.path);
  }
  return name;
}

/// Which files these are is found out when they are read. The packages stand for the container: another one may have
/// the same name of a mount namespace later, or be another root in the same namespace.
std::string compiler_name(const Process& process) {
  std::string name(to_string(Facet::kCompiler));
  for (const std::string& part :
       {process.space + process.mounts, process.other_root ? process.torch.identity + process.libc.identity : "",
        process.compiler.command, process.compiler.search}) {
    name.append("\n").append(part);
  }
  for (const std::string& variable : process.compiler.unfollowed) name.append("\n").append(variable);
  return name;
}

/// Which packages of engines there are is found out when they are read: one that comes or goes changes the folder.
std::string engines_name(const Process& process) {
  std::string name(to_string(Facet::kEngine));
  name.append("\n").append(process.space).append(process.mounts).append("\n").append(process.torch.identity);
  name.append("\n").append(process.site.identity).append("\n").append(process.site.path);
  for (const Package& engine : process.engines) {
    name.append("\n").append(engine.identity).append("\n").append(engine.path);
  }
  return name;
}

/// With whose rights it is read: what one user may read is no answer for another.
std::string rights_of(const FileUser& user) {
  if (user.user == 0 && user.reads_all) return "\nall";
  std::string text = "\n" + std::to_string(user.user) + " " + std::to_string(user.group);
  for (const gid_t group : user.groups) text += " " + std::to_string(group);
  return text;
}

std::string fact_name(Facet facet, const Process& process) {
  if (facet == Facet::kEnvironment) return files_name(process) + rights_of(process.user);
  if (facet == Facet::kCompiler) return compiler_name(process) + rights_of(process.user);
  if (facet == Facet::kEngine) return engines_name(process) + rights_of(process.user);
  const Package& package = package_for(facet, process);
  std::string name(to_string(facet));
  // The path is part of it: equal identities on two devices of containers that came one after the other are possible.
  name.append("\n").append(process.space).append(process.mounts);
  name.append("\n").append(package.identity).append("\n").append(package.path);
  if (facet != Facet::kLibc) name.append("\n").append(process.soabi);
  if (says_libstdcxx(facet, process)) name.append("\n").append(process.libstdcxx.identity);
  return name + rights_of(process.user);
}

/// The libc facet of a process that has this process's own C library: known without reading it.
std::optional<Fact> own_libc_fact(Facet facet, const Process& process) {
  static const std::string identity = [] {
    struct stat status {};
    const std::string own = own_libc();
    return !own.empty() && stat(own.c_str(), &status) == 0 ? identity_of(status) : std::string();
  }();
  if (facet != Facet::kLibc || identity.empty() || identity != process.libc.identity) return std::nullopt;
  if (says_libstdcxx(facet, process)) return std::nullopt;
  return known_fact(canonical({{"name", "glibc"}, {"version", gnu_get_libc_version()}}), process.libc.path);
}

}  // namespace

namespace {

/// The clock of ProcessIdentity::start, in nanoseconds.
uint64_t since_boot() {
  constexpr uint64_t kSecond = 1'000'000'000;
  timespec now{};
  (void)clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecond + static_cast<uint64_t>(now.tv_nsec);
}

/// Says whether what was read then is what this process has loaded, or will load.
bool counts_for(uint64_t begun, const Process& process) {
  static const uint64_t tick = 1'000'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return begun >= (process.identity.start + 1) * tick;
}

}  // namespace

const Packages::CachedFact* Packages::usable(const CachedFacts& facts, const std::string& name,
                                             const Process& process) {
  const auto found = facts.find(name);
  if (found == facts.end() || found->second.reading) return nullptr;
  const CachedFact& cached = found->second;
  const bool recent = system_clock().now() - cached.at < kLookAgain && counts_for(cached.last.begun, process);
  return cached.lasts || recent ? &cached : nullptr;
}

std::optional<Fact> Packages::kept(const std::string& name, const Process& process) const {
  return facts_->with([&](const CachedFacts& facts) -> std::optional<Fact> {
    const CachedFact* const cached = usable(facts, name, process);
    return cached == nullptr ? std::nullopt : std::optional<Fact>(cached->last.fact);
  });
}

std::optional<Fact> Packages::known(Facet facet, const Process& process) const {
  if (auto own = own_libc_fact(facet, process)) return own;
  return kept(fact_name(facet, process), process);
}

void Packages::begin(const Process& process) {
  std::shared_ptr<const Held> held;
  // What takes longest comes first, Triton's library alone has 500 MB. An engine mostly takes no time, but a program
  // that goes on without a known one does so for as long as it lives.
  for (const Facet facet :
       {Facet::kTriton, Facet::kEngine, Facet::kTorch, Facet::kLibc, Facet::kEnvironment, Facet::kCompiler}) {
    if (!path_for(facet, process).empty()) (void)ask(facet, process, held);
  }
}

std::optional<Fact> Packages::ask(Facet facet, const Process& process, std::shared_ptr<const Held>& held) {
  if (auto own = own_libc_fact(facet, process)) return own;
  const std::string name = fact_name(facet, process);
  const std::string path = path_for(facet, process);
  bool begins = false;
  const uint64_t begun = since_boot();
  auto answer = facts_->with([&](CachedFacts& facts) -> std::optional<Fact> {
    if (const CachedFact* const cached = usable(facts, name, process)) return cached->last.fact;
    CachedFact& cached = facts[name];
    begins = !cached.reading;
    if (begins) {
      auto earlier = cached.last.fact.known ? std::optional<Reading>(std::move(cached.last)) : std::nullopt;
      cached = {true, {{}, begun}, system_clock().now(), false, process.owner, std::move(earlier)};
    }
    if (system_clock().now() - cached.at < deadline_) return std::nullopt;
    return package_not_in_time(path, deadline_);
  });
  if (!begins) return answer;
  if (!process.root.empty()) {
    if (!held) {
      auto looked = looker_->hold(process);
      if (looked.is_late) {
        not_read(*facts_, name, std::nullopt);
        return kept(name, process);
      }
      held = looked.found.value_or(nullptr);
    }
    if (!held) {
      const Fact ended = unknown_fact(path + ": its process ended before it was read", path);
      not_read(*facts_, name, ended);
      return kept(name, process).value_or(ended);
    }
  }
  ++reads_;
  const PackageRequest request{facet, process, held, deadline_};
  // Behind packages that do not answer nothing is read that nobody waits for any more, and no namespace held for it.
  const SteadyTime late = system_clock().now() + deadline_;
  const bool taken = readers_.run(process.owner, [request, name, path, late, begun, facts = facts_, looker = looker_] {
    if (system_clock().now() > late) {
      not_read(*facts, name, package_not_in_time(path, request.deadline));
    } else {
      auto fact = looker->read_package(request);
      fact ? keep(*facts, name, request, {std::move(*fact), begun}) : not_read(*facts, name, std::nullopt);
    }
  });
  if (taken) return std::nullopt;
  not_read(*facts_, name, std::nullopt);
  return kept(name, process);
}

/// What was known before still counts for the processes that it counted for, since nobody can look again, or has had
/// the time to. Without a fact nothing is kept: whoever asks next has it read.
void Packages::not_read(Guarded<CachedFacts>& facts, const std::string& name, std::optional<Fact> fact) {
  facts.notify_with([&](CachedFacts& all) {
    const auto found = all.find(name);
    if (found == all.end()) return;
    CachedFact& cached = found->second;
    if (!cached.earlier && !fact) {
      all.erase(found);
      return;
    }
    if (cached.earlier) {
      cached.last = *std::exchange(cached.earlier, std::nullopt);
    } else {
      cached.last.fact = std::move(*fact);
    }
    cached.reading = false;
  });
}

std::optional<Fact> Packages::await(Facet facet, const Process& process, SteadyTime until) {
  const std::string name = fact_name(facet, process);
  // What is neither kept nor being read any more was forgotten for the sake of another package.
  const auto is_over = [&name](const CachedFacts& facts) {
    const auto found = facts.find(name);
    return found == facts.end() || !found->second.reading;
  };
  // A reading that was under way may have begun before the process did; the next one counts.
  for (int reading = 0; reading < 2; ++reading) {
    if (auto fact = ask(facet, process)) return fact;
    auto fact = facts_->wait_until(until, is_over, [&](const CachedFacts& facts) -> std::optional<Fact> {
      const auto found = facts.find(name);
      const bool counts =
          found != facts.end() && !found->second.reading && counts_for(found->second.last.begun, process);
      return counts ? std::optional<Fact>(found->second.last.fact) : std::nullopt;
    });
    if (fact) return fact;
  }
  return std::nullopt;
}

/// The oldest of the user who has the most: one who has many has no other's read again.
void Packages::forget_one(CachedFacts& facts) {
  std::map<uid_t, size_t> counts;
  for (const auto& [name, cached] : facts) ++counts[cached.user];
  facts.erase(std::min_element(facts.begin(), facts.end(), [&](const auto& one, const auto& other) {
    const CachedFact& a = one.second;
    const CachedFact& b = other.second;
    return std::tuple(counts[b.user], a.reading, a.at) < std::tuple(counts[a.user], b.reading, b.at);
  }));
}

void Packages::keep(Guarded<CachedFacts>& facts, const std::string& name, const PackageRequest& request,
                    Reading reading) {
  // The identity in its name is the file's, but for that of an image; a package may change behind the files that name
  // it.
  const bool lasts = reading.fact.known && request.facet == Facet::kLibc && !request.process.other_root;
  facts.notify_with([&](CachedFacts& all) {
    all[name] = {false, std::move(reading), system_clock().now(), lasts, request.process.owner, {}};
    if (all.size() > kFactLimit) forget_one(all);
  });
}

}  // namespace inductorfs::fingerprint
