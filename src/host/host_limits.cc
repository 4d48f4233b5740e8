// SPDX-License-Identifier: Apache-2.0
// What binaries may require of a host.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <set>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/log.h"
#include "inductorfs/fingerprint/libstdcxx.h"
#include "inductorfs/host/host.h"
#include "libraries.h"

namespace inductorfs::host {
namespace {

using fingerprint::Facet;
using fingerprint::Fact;
using fingerprint::Fingerprint;

/// x86-64 psABI, "Microarchitecture levels", in the compilers' names of the flags.
constexpr std::string_view kLevel1[] = {"cmov", "cx8", "fxsr", "mmx", "sse", "sse2"};
constexpr std::string_view kLevel2[] = {"cx16", "popcnt", "sahf", "sse4.1", "sse4.2", "ssse3"};
constexpr std::string_view kLevel3[] = {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"};
constexpr std::string_view kLevel4[] = {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"};

/// 90 for "9.0"; 0 for what is no compute capability.
int architecture_number(std::string_view capability) {
  int major = 0;
  int minor = 0;
  const char* const end = capability.data() + capability.size();
  const auto [dot, error] = std::from_chars(capability.data(), end, major);
  if (error != std::errc() || dot == end || *dot != '.') return 0;
  const auto [rest, minor_error] = std::from_chars(dot + 1, end, minor);
  const bool whole = minor_error == std::errc() && rest == end && minor >= 0 && minor <= 9 && major > 0;
  return whole ? major * 10 + minor : 0;
}

const Fact* known(const Fingerprint& facts, Facet facet) {
  const Fact& fact = facts.get(facet);
  return fact.known ? &fact : nullptr;
}

/// Directories of the facts' environment. When a look at them was not answered, nobody looks for a while: each look
/// holds its caller until the reader's deadline. Safe for concurrent use.
class ElsewhereLibraries {
 public:
  ElsewhereLibraries(PlaceReader reader, std::vector<std::string> directories)
      : reader_(std::move(reader)), directories_(std::move(directories)) {}

  std::string find(const std::string& soname) {
    const SteadyTime now = system_clock().now();
    if (directories_.empty() || now.time_since_epoch().count() < rests_until_.load()) return {};
    const Result<std::string> path = reader_.find_library(directories_, soname);
    if (path) return *path;
    rests_until_ = (system_clock().now() + kRest).time_since_epoch().count();
    log::write_limited(log::Level::kWarning, "host.library_not_looked_for",
                       {{"soname", soname}, {"why", path.error().what()}});
    return {};
  }

 private:
  static constexpr Milliseconds kRest{60'000};
  const PlaceReader reader_;
  const std::vector<std::string> directories_;
  std::atomic<SteadyTime::rep> rests_until_{INT64_MIN};
};

}  // namespace

unsigned x86_level(std::string_view flags) {
  const std::vector<std::string_view> words = fingerprint::words_of(flags);
  const std::set<std::string_view> have(words.begin(), words.end());
  const auto has = [&have](const auto& wanted) {
    return std::all_of(std::begin(wanted), std::end(wanted), [&have](std::string_view f) { return have.contains(f); });
  };
  if (!has(kLevel1)) return 0;
  if (!has(kLevel2)) return 1;
  if (!has(kLevel3)) return 2;
  return has(kLevel4) ? 4 : 3;
}

layout::HostLimits limits_of(const Fingerprint& facts, const PlaceReader& reader) {
  layout::HostLimits limits;
  if (const Fact* const fact = known(facts, Facet::kGpuArch); fact != nullptr) {
    for (const std::string& capability : fingerprint::values_of(fact->value, fingerprint::kArchitectureKey)) {
      if (const int number = architecture_number(capability); number > 0) limits.cuda_architectures.push_back(number);
    }
  }
  if (const Fact* const fact = known(facts, Facet::kLibc); fact != nullptr) {
    const std::vector<std::string> version = fingerprint::values_of(fact->value, "version");
    const std::vector<std::string> name = fingerprint::values_of(fact->value, "name");
    if (version.size() == 1 && name == std::vector<std::string>{"glibc"}) limits.glibc = version.front();
  }
  if (const Fact* const fact = known(facts, Facet::kCpu); fact != nullptr) {
    const std::vector<std::string> flags = fingerprint::values_of(fact->value, "flags");
    if (flags.size() == 1) limits.x86_isa_level = x86_level(flags.front());
  }
  const Result<LibraryPlaces> places = reader.library_places(facts);
  const std::string& said = facts.get(Facet::kLibc).details;
  const auto newest = [&](std::string_view key, const std::string& here) {
    const std::vector<std::string> versions = fingerprint::values_of(said, key);
    return versions.size() == 1 ? versions.front() : here;
  };
  limits.glibcxx = newest(fingerprint::kGlibcxxKey, places ? places->glibcxx : std::string());
  limits.cxxabi = newest(fingerprint::kCxxabiKey, places ? places->cxxabi : std::string());
  // What cannot be looked at has no libraries: better unfit here than a job that cannot load it.
  if (places && places->torch.empty()) return limits;
  const auto elsewhere =
      std::make_shared<ElsewhereLibraries>(reader, places ? places->directories : std::vector<std::string>());
  // One place that does not answer must not hide the libraries of all others.
  const auto paths = std::make_shared<ElsewhereLibraries>(reader, std::vector<std::string>{"/"});
  const auto libraries =
      std::make_shared<Libraries>(std::vector<std::string>(), [elsewhere, paths](const std::string& soname) {
        return (soname.find('/') == std::string::npos ? elsewhere : paths)->find(soname);
      });
  limits.resolves = [libraries](std::string_view soname) { return libraries->resolves(soname); };
  return limits;
}

}  // namespace inductorfs::host
