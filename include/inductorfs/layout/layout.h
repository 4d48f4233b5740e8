// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/fingerprint/fingerprint.h"

/// What torch, Triton and serving engines keep in their cache directories, as pure functions from path and bytes to
/// family, rule, group and checks. Every habit of theirs that this project relies on is recorded here, with its source.
/// Everything in this header is pure and safe for concurrent use; paths are relative to the mount, without a leading
/// slash.
namespace inductorfs::layout {

enum class Family {
  kFxGraph,             ///< fxgraph/<k[1:3]>/<key>/<content hash>
  kAotAutograd,         ///< aotautograd/<key>/<content hash>
  kAotAutogradEntry,    ///< aotautograd/<key>/entry, up to torch 2.7
  kGeneratedCode,       ///< <xx>/<c+51>.py
  kBestConfig,          ///< <xx>/<64 hex>.best_config
  kKernelPerf,          ///< <xx>/<c+51>.(kernel_perf|picked_kernel)
  kCppSource,           ///< <xx>/<c+51>[.main|.optimized].(cpp|h)
  kCppBinary,           ///< <xx>/<c+51>[.main|.optimized].(so|o), and the vec-ISA probe's
  kVecIsaMarker,        ///< <xx>/<c+51>.so.load_ok
  kPrecompiledHeader,   ///< precompiled_headers/<c+51>.h[.gch]
  kSystemAutotune,      ///< cache/<64 hex>
  kPgoState,            ///< dynamo/code_state_<job>_<rank>_<tag>.pkl
  kOnDiskCache,         ///< cache/<cache of torch>/<32 hex>
  kTritonKernel,        ///< triton/<device>/<KEY>/: IR, binary, metadata, __grp__
  kTritonLauncher,      ///< triton/<device>/<KEY>/*.so: launchers, cuda_utils
  kTritonAutotune,      ///< triton/<device>/<KEY>/*.autotune.json
  kStartList,           ///< .starts/<64 hex>: what the mounts note of starts of jobs; no file of a program is one
  kVllmModel,           ///< torch_compile_cache/torch_aot_compile/<64 hex>/rank_<r>_<dp>/model
  kVllmIndex,           ///< torch_compile_cache/<10 hex>/rank_<r>_<dp>/<tag>/vllm_compile_cache.py
  kVllmModelInfo,       ///< modelinfos/<module>-<class>.json
  kVllmFactors,         ///< torch_compile_cache/<10 hex>/rank_<r>_<dp>/<tag>/cache_key_factors.json
  kFlashInferAutotune,  ///< tunings of FlashInfer, its own and those of vLLM
  kFlashInferCubin,     ///< flashinfer/cubins/<40 hex>/**
  kDeepGemm,            ///< [deep_gemm/]cache/kernel.<name>.<hash>/
  kTileLang,            ///< <version>/<os-arch>/kernels/<64 hex>/, <version>/cuda-binaries/<64 hex>/
  kSglangJit,           ///< sglang/jit/<target>/<module>/build-<key>/deps-<key>/
  kDynamo,              ///< dynamo/, but kPgoState
  kObjectCache,         ///< cutedsl, quack, flydsl
  kCutlass,             ///< .cu, configs_*.json, torch_cutlass/
  kHalide,
  kAotInductor,    ///< .wrapper.*, cubins beside code, aoti_eager/
  kGenericCache,   ///< caches that others make with torch's classes, memoizer_cache.json
  kParcelMember,   ///< what a parcel holds (Form): it has no entry of its own
  kEnginePrivate,  ///< what serving engines write beside their caches
  kLock,
  kTemporary,  ///< every temporary name of all protocols, and build directories
  kTool,       ///< gcc/, bisect/, autoheuristic/, debug output
  kOther,      ///< all paths that no other family claims
};

/// The sign by which a file that stands under its final name shows that it is complete. A rename onto the final name
/// shows it in every family (a source that is written with a compiled header, a best_config of torch >= 2.8); the other
/// signs are for files that are written in place.
enum class SealSign {
  kRename,          ///< the file came there by a rename of itself or of its directory
  kBuildDirectory,  ///< the rmdir of `<stem>_CxxBuild`, which torch does when the compiler has exited 0
  kQuiet,           ///< nothing was written to the file for some time
  kNever,           ///< no file of a program is one: the mounts make such entries themselves
};

/// In which form the cluster has the artefacts of a family. A parcel is one blob with several files
/// (codec/parcel.h), which a host shows together or not at all.
enum class Form {
  kFile,       ///< a file is a blob
  kDirectory,  ///< a directory, with all below it, is a parcel; its rename onto its name shows that it is complete
  kIndex,      ///< a file that names others beside it: a parcel of it and them (index_members)
};

/// The rule by which the cluster keeps one artefact or several when several hosts make one.
enum class Contest {
  kNone,         ///< each path on its own; the latest publish wins
  kFirst,        ///< the first complete group of a key wins
  kCandidates,   ///< several per key directory, but none whose writer was not shown the others
  kMerge,        ///< merged as JSON with what the cluster has
  kFirstOfPath,  ///< the first writer of a path: the bytes differ from writer to writer and mean the same
};

struct Rule {
  Family family;
  std::string_view name;  ///< as explain, xattr and documents show it, e.g. "fxgraph"
  bool shared = false;    ///< false: the file works as on a local disk and never leaves the host
  SealSign seal = SealSign::kRename;
  Contest contest = Contest::kNone;
  Form form = Form::kFile;
  bool is_listed = false;     ///< programs list the directory around an artefact, and do not look for its name
  bool is_alone = false;      ///< nobody makes the directory around an artefact before there is one
  bool holds_graphs = false;  ///< of torch, which say how long they took to compile (compile_time_of)
  std::span<const fingerprint::Facet> facets = {};  ///< the facets that the family's artefacts depend on
  std::string_view why;                             ///< why the family is shared in this way, or is not shared
  std::string_view source;                          ///< where torch, Triton or the engine does it: file and function
  std::string_view pattern;                         ///< which paths belong to the family, for people
};

[[nodiscard]] const Rule& rule_of(Family family);
[[nodiscard]] std::span<const Rule> all_rules();
[[nodiscard]] std::string_view to_string(SealSign sign);
[[nodiscard]] std::string_view to_string(Contest contest);
[[nodiscard]] std::string_view to_string(Form form);

// ---- Cache roots
//
// A root is a directory below which the layout of torch's, Triton's or a serving engine's cache directory appears: the
// mountpoint itself (the empty path), and each directory, at most kRootDepth deep, in which a name of that layout
// stands. An engine's root may have roots of torch and Triton in it.
// TRITON_CACHE_DIR may name one too; the keys in it are those of `triton/<device>/`. The shapes of the names decide, so
// that a path has its root before anything exists. A path that could be read in two ways is of the root nearest to the
// mountpoint: in `ab/cd/<file>` the root is `ab` if <file> has the shape of a file of `cd`, and the mountpoint if `cd`
// has that of a file of `ab`. A name of two letters that stands alone is a directory of generated code in the root
// around it, and nothing below a directory that tempfile has named is shared (torch's fresh_cache).

inline constexpr size_t kRootDepth = 12;

/// What stands behind a path: the name of an entry in the cluster, and the root that shows it.
struct Name {
  Name() = default;
  Name(std::string canonical, std::string shown_by) : path(std::move(canonical)), root(std::move(shown_by)) {}
  /// The name that the mountpoint shows.
  template <typename Text>
  requires std::convertible_to<Text, std::string_view> Name(
      const Text& canonical)  // NOLINT(google-explicit-constructor): a canonical path is such a name
      : path(std::string_view(canonical)) {}

  /// The path below the root, with `triton/<device index>/` as `triton/@/`, because a Triton key does not depend on the
  /// device's index. The whole path if it is in no root's layout.
  std::string path;
  std::string root;  ///< relative to the mount; empty: the mountpoint

  bool operator==(const Name&) const = default;
};
[[nodiscard]] Name name_of(std::string_view path);
/// Says whether only torch makes names like this one in a root: a root where somebody has asked for it is torch's.
[[nodiscard]] bool proves_root(const Name& name);
/// Says whether the name is one of a directory that other programs have too: two letters, `cache`, `triton`, ...
[[nodiscard]] bool is_ambiguous(const Name& name);
/// Returns the directory whose name keeps a path from being in a root, because it has the form of the names that
/// Python's tempfile makes, for instance tmp_compile; empty when there is none. What tempfile makes is for one use, and
/// must be private; by its mode (0700) it can be told from what a user has named so.
[[nodiscard]] std::string hidden_root(std::string_view path);
/// Says whether the path, of a file or a directory, is in the layout of some root. The root's own path is not.
[[nodiscard]] bool is_in_a_root(std::string_view path);

/// The family that a path belongs to, and its names in the cluster.
struct Classification {
  Family family = Family::kOther;
  std::string canonical;  ///< Name::path
  std::string root;       ///< Name::root
  /// The canonical path of the key directory, for families whose files belong together or compete (fxgraph,
  /// aotautograd, triton); else empty.
  std::string key_directory;
};
/// Classifies the path of a file, or of a directory that is one artefact (Form::kDirectory); canonical paths too. Any
/// other directory is kOther, whatever the family of its files. A path
/// with an empty, "." or ".." component, a NUL, or more than codec::kPathLimit bytes is kOther.
[[nodiscard]] Classification classify(std::string_view path);

/// Returns Name::path, of files and of directories.
[[nodiscard]] std::string canonical_path(std::string_view path);
/// Says whether `name` in the directory `triton` is a device's directory (its entries are those of `triton/@`).
[[nodiscard]] bool is_device_name(std::string_view name);
inline constexpr std::string_view kAnyDevice = "@";

/// Says whether the path is a Triton key directory: triton/<device>/<KEY>, with a KEY of any generation (64 hex, 43
/// base64url, 52 base32), or <KEY> in a directory that TRITON_CACHE_DIR names.
[[nodiscard]] bool is_triton_key_directory(std::string_view path);
/// Says whether the path is a Triton key directory, or may become one by a rename: triton/<device>/<any name>.
[[nodiscard]] bool may_hold_triton_set(std::string_view path);
/// Says whether the path is a key directory of fxgraph or aotautograd, whose files are candidates for one key.
[[nodiscard]] bool is_candidate_directory(std::string_view path);
/// Returns the final files that the removal of this directory shows to be complete, in order of preference
/// (`ab/cX.main_CxxBuild` -> `ab/cX.main.so`, `precompiled_headers/cX.h_CxxBuild` -> `cX.h.gch`); empty when there are
/// none.
[[nodiscard]] std::vector<std::string> sealed_by_removal_of(std::string_view directory);

// ---- What a compile asks for

/// An artefact of a shared family, as programs look for it.
struct AskedKey {
  Family family = Family::kOther;
  std::string key;  ///< canonical path of the key directory, or of the file where it has none
};
/// Returns the artefact of which the lookup of this path tells whether a program has to make it itself: a key directory
/// of fxgraph or aotautograd, the group file of a Triton key, the directory of a build of SGLang, which it lists, a
/// file or directory of another shared family. Empty for other paths: private families, and files that are opened after
/// their key was found.
[[nodiscard]] std::optional<AskedKey> key_asked_by(std::string_view path);
/// Returns how long the compile took, as the process that compiled wrote it into the artefact, of all graphs in it.
/// Empty where it is not found, and for families that hold no graphs.
[[nodiscard]] std::optional<std::chrono::nanoseconds> compile_time_of(Family family, std::string_view bytes);

// ---- Users of one cache directory

/// What the jobs of other users do with a file that one user's job made, so that they fail when its mode does not let
/// them.
enum class CommonUse {
  kNone,   ///< nothing: a name of one process, a tool's output, a path of no family
  kRead,   ///< they open it to read, and replace it by a rename
  kWrite,  ///< they open it to write: a lock, or a temporary name that all processes of a job's name have in common
};
/// Says what other users' jobs do with a file of this path.
[[nodiscard]] CommonUse common_use_of(std::string_view path);
/// Says whether the jobs of all users make names in a directory of this path, whoever made the directory.
[[nodiscard]] bool is_common_directory(std::string_view path);

// ---- Triton groups (triton/runtime/cache.py: put_group, get_group)

/// Says whether this is the name of a group file: `__grp__<name>.json`.
[[nodiscard]] bool is_group_file(std::string_view file_name);
/// Returns the names of the children that a group file lists. kCorrupt when it is no such JSON, or names a child that
/// is not directly in `key` (the key directory's last component): each child is an absolute path whose last two
/// components are <key>/<name>, with a plain <name>.
[[nodiscard]] Result<std::vector<std::string>> group_children(std::string_view group_json, std::string_view key);
/// Returns the directory of the children that a group file lists, as the writer saw it. kCorrupt as above, and when the
/// children are in several.
[[nodiscard]] Result<std::string> group_directory(std::string_view group_json, std::string_view key);
/// Returns the group file as the cluster stores it: each child path is `[INDUCTORFS]/<name>`, without the writer's own
/// directory.
[[nodiscard]] Result<std::string> canonical_group(std::string_view group_json, std::string_view key);
/// Returns the group file for one reader, whose child paths are below `key_directory`, an absolute path: the inverse of
/// canonical_group().
[[nodiscard]] Result<std::string> render_group(std::string_view canonical_json, std::string_view key_directory);

/// The bytes of a file of kVllmFactors, at most; vLLM 0.32 writes 11 KiB.
inline constexpr size_t kVllmFactorsLimit = size_t{256} << 10;

// ---- Indexes (Form::kIndex)

/// Returns the path of the index that may name the file of this path; nothing where an engine keeps none.
[[nodiscard]] std::optional<std::string> index_beside(std::string_view path);
/// Returns the names of the files that an index names, all of them in its own directory; several equal names once.
/// kCorrupt when the bytes are no index, kNotSupported when it names something elsewhere, or nothing.
[[nodiscard]] Result<std::vector<std::string>> index_members(Family family, std::string_view index);
/// Says whether these bytes are what a writer leaves that was killed, or whose host lost power: nothing, zeros, or a
/// dictionary in which a bracket or a string is open at the end, or that has zeros in it. A program that reads one ends
/// with an error. False for all other content, whether it is an index or not.
[[nodiscard]] bool is_cut_index(Family family, std::string_view index);
/// Returns the directory that an index has in the absolute paths of what it names, as its writer saw it; with the
/// errors of index_members(). A program that opens those paths (vLLM up to 0.30) reads elsewhere, or dies, where the
/// index is shown in another directory.
[[nodiscard]] Result<std::string> index_directory(Family family, std::string_view index);
/// Returns the index as its writer would have written it in this directory, an absolute path; with the errors of
/// index_members(). kNotSupported too for a directory that Python would not print as it is.
[[nodiscard]] Result<std::string> index_in_directory(Family family, std::string_view index, std::string_view directory);
/// Returns the directory that the cluster's copy of an index names, whoever wrote it: no host has it.
[[nodiscard]] std::string index_directory_of(std::string_view canonical_path);

// ---- cache/<system hash> (torch/_inductor/codecache.py: PersistentCache)

/// Merges the timings of two caches into one file of torch's own form (indent 4; NaN and Infinity as Python writes
/// them). If both have a timing of one choice, the one in `ours` stays. kCorrupt when one of them is not of this form,
/// or their "system" differs.
[[nodiscard]] Result<std::string> merge_system_autotune(std::string_view ours, std::string_view theirs);

// ---- Checks before anything is published, and before anything that was fetched is shown

/// Says whether the checks of this family need all bytes.
[[nodiscard]] bool needs_whole(Family family);

/// What a binary may require of this host. An empty member is not checked.
struct HostLimits {
  std::vector<int> cuda_architectures;  ///< 90 for 9.0; empty on a host without a GPU
  std::string glibc;                    ///< "2.36"
  std::string glibcxx;                  ///< newest GLIBCXX_ version of this host's libstdc++, "3.4.30"
  std::string cxxabi;                   ///< newest CXXABI_ version of it, "1.3.13"
  unsigned x86_isa_level = 0;           ///< 1..4, x86-64-v1 to v4; 0: not checked
  /// Says whether the loader of this host's jobs would find this soname. It is not asked for an object with a search
  /// path of its own (DT_RUNPATH), which only the loader follows.
  std::function<bool(std::string_view soname)> resolves;
};
/// Returns how many of an artefact's first bytes the checks want: all of them for families that are checked whole.
[[nodiscard]] uint64_t bytes_to_check(const Classification& classified, uint64_t size);
/// Checks an artefact against its name. kCorrupt, with the reason, when the bytes contradict the name or are damaged:
/// an fxgraph entry or a generated source whose name is not the hash of its content, a best_config that lacks what
/// torch reads in it, a `.so` that is no ELF, a pickle that is cut off, ... kNotSupported for machine code of another
/// kind of CPU. `bytes` are the first bytes_to_check() of `size`; kInvalid when they are fewer and the check needs
/// them. Nothing is ever executed. What the artefact needs is compared with `host`: kNotSupported, with the reason,
/// when the host does not have it (a cubin of another architecture, a `.so` that needs a newer glibc).
[[nodiscard]] Result<void> check_content(const Classification& classified, std::string_view bytes, uint64_t size,
                                         const HostLimits& host = {});
/// Returns the compute capability that the metadata of a Triton kernel names, as the gpu-arch facet writes it ("9.0");
/// empty when it names none, or the backend is not CUDA. `metadata` is the content of the key directory's
/// `<kernel>.json`.
[[nodiscard]] std::string triton_architecture(std::string_view metadata);

}  // namespace inductorfs::layout
