// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/reader.h"

/// The facts of this host that artefacts depend on.
namespace inductorfs::fingerprint {

/// One group of facts that some family depends on. The names are part of every scope's digest: never rename one.
enum class Facet {
  kTorch,
  kTriton,
  kCuda,
  kGpu,
  kGpuArch,
  kPython,
  kLibc,
  kCpu,
  kCpuIsa,
  kCompiler,
  kEnvironment,  ///< declared values of the variables that change generated code but are in no key (variables.h)
};
inline constexpr Facet kAllFacets[] = {Facet::kTorch,   Facet::kTriton,   Facet::kCuda,       Facet::kGpu,
                                       Facet::kGpuArch, Facet::kPython,   Facet::kLibc,       Facet::kCpu,
                                       Facet::kCpuIsa,  Facet::kCompiler, Facet::kEnvironment};
[[nodiscard]] std::string_view to_string(Facet facet);
[[nodiscard]] Result<Facet> facet_from_string(std::string_view name);

/// A facet's value, or why there is none. A facet that is not known makes every family that needs it private.
struct Fact {
  bool known = false;
  std::string value;    ///< canonical text, lines of key=value; "none" where the thing is certainly absent (no GPU)
  std::string source;   ///< where it was read: a file, a command, CPUID
  std::string problem;  ///< why it is not known, and what to do
  /// For people: further lines of key=value about the same thing that no artefact depends on (a UUID, a driver's patch
  /// level, a git revision). Never part of a scope.
  std::string details;

  [[nodiscard]] codec::Digest digest() const { return codec::digest_of(value); }
};

/// All facts. Needs external synchronisation.
class Fingerprint {
 public:
  void set(Facet facet, Fact fact) { facts_[facet] = std::move(fact); }
  /// An unknown fact when it was never set.
  [[nodiscard]] const Fact& get(Facet facet) const;
  /// {"facets": {"torch": {"known": true, "value": "...", "source": "..."}, ...}}; from_json is its inverse and
  /// kInvalid for anything else.
  [[nodiscard]] std::string to_json() const;
  [[nodiscard]] static Result<Fingerprint> from_json(std::string_view text);

 private:
  std::map<Facet, Fact> facts_;
};

struct ProbeOptions {
  std::string python;            ///< interpreter; empty: VIRTUAL_ENV, else python3 in PATH
  std::string compiler;          ///< empty: CXX, else g++ (what torch/_inductor/cpp_builder.py would take)
  std::string cache_file;        ///< remembers digests of large files by identity; empty: not remembered
  std::string gpu_probe;         ///< program that answers the GPU facts as JSON; empty: this program's own probe
  Milliseconds deadline{20000};  ///< for each outside command
  /// Who reads the interpreter with its packages, and the compiler. The program is run as `program host-facts` and
  /// calls run_host_reader().
  ReaderOptions reader;
  /// What the mount declares for variables of the environment facet; one that is not named here is unset.
  std::map<std::string, std::string> environment;
};

/// Learns all facts. Never fails as a whole: what cannot be learned is unknown, with the reason. Runs short-lived
/// children (the interpreter, the compiler, the GPU probe), reads files, and blocks meanwhile (seconds the first time:
/// libtriton.so alone has 500 MB; milliseconds with the cache file).
[[nodiscard]] Fingerprint probe(const ProbeOptions& options);

/// The body of the short-lived process that asks the CUDA driver: prints one JSON object and returns the exit code.
/// It is a process of its own so that the daemon never holds a CUDA context and a hung driver cannot hang it.
[[nodiscard]] int run_gpu_probe();

/// The body of the short-lived process that reads a part of the facts for probe(), and prints it.
[[nodiscard]] int run_host_reader();

/// torch._inductor.codecache.torch_key() of an installed package, 64 hex digits, without importing it.
/// `suffixes`: the interpreter's importlib.machinery EXTENSION_SUFFIXES, in order.
[[nodiscard]] Result<std::string> torch_key(const std::string& torch_directory,
                                            const std::vector<std::string>& suffixes);
/// torch._inductor.codecache.CacheBase.get_system()["hash"] on a host with these facts, 64 hex digits. kUnavailable
/// when a fact that it needs is not known.
[[nodiscard]] Result<std::string> torch_system_hash(const Fingerprint& facts);
/// triton's triton_key() of an installed package.
[[nodiscard]] Result<std::string> triton_key(const std::string& triton_directory,
                                             const std::vector<std::string>& suffixes, const std::string& cache_file);

}  // namespace inductorfs::fingerprint
