// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/facet_text.h"
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
  kEngine,       ///< the compiled libraries of serving engines: vLLM's, FlashInfer's, SGLang's
  kEnvironment,  ///< declared values of the variables that change generated code but are in no key (variables.h)
  kTrust,        ///< who uses what is made in a cache root (trust.h): no fact of a host, and none of kAllFacets
};
inline constexpr Facet kAllFacets[] = {Facet::kTorch,   Facet::kTriton,   Facet::kCuda,   Facet::kGpu,
                                       Facet::kGpuArch, Facet::kPython,   Facet::kLibc,   Facet::kCpu,
                                       Facet::kCpuIsa,  Facet::kCompiler, Facet::kEngine, Facet::kEnvironment};
[[nodiscard]] std::string_view to_string(Facet facet);
[[nodiscard]] Result<Facet> facet_from_string(std::string_view name);

/// A facet's value, or the reason why there is none. A facet that is not known makes every family that needs it
/// private.
struct Fact {
  bool known = false;
  std::string value;    ///< canonical text (facet_text.h); "none" where the thing is certainly absent (no GPU)
  std::string source;   ///< where the value was read: a file, a command, CPUID
  std::string problem;  ///< why the value is not known, and what to do
  /// For people: further lines of key=value about the same thing that no artefact depends on (a UUID, a driver's patch
  /// level, a git revision). Never part of a scope.
  std::string details;

  /// Says whether the thing is known to be absent.
  [[nodiscard]] bool is_none() const { return known && value == kNone; }
  [[nodiscard]] codec::Digest digest() const { return codec::digest_of(value); }
};

/// The facts of one host, by facet. Needs external synchronisation.
class Fingerprint {
 public:
  void set(Facet facet, Fact fact) { facts_[facet] = std::move(fact); }
  [[nodiscard]] bool has(Facet facet) const { return facts_.contains(facet); }
  /// Returns an unknown fact when the facet was never set.
  [[nodiscard]] const Fact& get(Facet facet) const;
  /// Writes {"facets": {"torch": {"known": true, "value": "...", "source": "..."}, ...}}. from_json() is the inverse,
  /// and answers kInvalid for anything else.
  [[nodiscard]] std::string to_json() const;
  [[nodiscard]] static Result<Fingerprint> from_json(std::string_view text);

 private:
  std::map<Facet, Fact> facts_;
};

struct ProbeOptions {
  std::string python;  ///< interpreter; empty: VIRTUAL_ENV, else python3 in PATH
  /// No interpreter is read: each job brings its own along (Writers::job_of), and python, torch and triton are
  /// unknown.
  bool packages_of_jobs = false;
  std::string cache_file;        ///< remembers digests of large files by identity; empty: they are not remembered
  std::string gpu_probe;         ///< program that prints the GPU facts as JSON; empty: this program's own probe
  Milliseconds deadline{20000};  ///< for the GPU probe
  /// How to run the child process that reads the interpreter with its packages, and the compiler. It is run as
  /// `program host-facts` and calls run_host_reader().
  ReaderOptions reader;
  /// The values that the mount declares for variables of the environment facet; a variable that is not here is unset.
  std::map<std::string, std::string> environment;
};

/// Learns all facts. It never fails as a whole: a fact that cannot be learned is unknown, with the reason. It runs
/// short-lived children (readers, the GPU probe) and reads files, and blocks meanwhile: for
/// seconds the first time (libtriton.so alone has 500 MB), for milliseconds with the cache file.
[[nodiscard]] Fingerprint probe(const ProbeOptions& options);

/// Returns the environment facet for the declared values of `options`. It reads the files that variables such as
/// TRITON_PTXAS_PATH name, as probe() reads packages; `facts` say where torch and Triton are. Its details have a line
/// kNamedFileKey for each of these files.
[[nodiscard]] Fact environment_fact(const ProbeOptions& options, const Fingerprint& facts);
inline constexpr std::string_view kNamedFileKey = "file";

/// The lines of the engine fact's details that name the folders of the packages of serving engines.
inline constexpr std::string_view kEngineFolderKey = "folder";
/// Says whether an entry of a folder of packages may have to do with a serving engine: its package, or a .dist-info.
[[nodiscard]] bool names_engine(std::string_view entry);

/// Runs the body of the short-lived process that asks the CUDA driver: prints one JSON object and returns the exit
/// code. It is a process of its own so that the daemon never holds a CUDA context and a hung driver cannot hang it.
[[nodiscard]] int run_gpu_probe();

/// Runs the body of the short-lived process that reads a part of the facts for probe() and prints it.
[[nodiscard]] int run_host_reader();

}  // namespace inductorfs::fingerprint
