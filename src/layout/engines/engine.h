// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "inductorfs/layout/layout.h"
#include "inductorfs/layout/user_caches.h"
#include "layout/content_checks.h"
#include "layout/families.h"

/// All that the project knows of serving engines and their kernel libraries: one `Engine` for each, in a source of its
/// own, and a row in kEngines. Everything is immutable and pure; safe for concurrent use.
namespace inductorfs::layout {

// ---- The paths that an engine makes

/// What a component of a path may be: a text, or one with hexadecimal digits in it, or any name of a shape.
struct Component {
  std::string_view text;
  size_t digits = 0;
  std::string_view ending;
  bool (*shape)(std::string_view name) = nullptr;

  /// No component: a path is shorter than the longest one of the tables.
  [[nodiscard]] constexpr bool is_end() const { return text.empty() && digits == 0 && shape == nullptr; }
};
constexpr Component is(std::string_view text) { return {text, 0, {}, nullptr}; }
constexpr Component hex(size_t digits) { return {{}, digits, {}, nullptr}; }
constexpr Component hex_after(std::string_view text, size_t digits) { return {text, digits, {}, nullptr}; }
constexpr Component a(bool (*shape)(std::string_view name)) { return {{}, 0, {}, shape}; }

/// Letters, digits and `_.+-`, not a dot first.
[[nodiscard]] bool is_plain_name(std::string_view name);
/// As above, with `.json` at its end.
[[nodiscard]] bool is_json_name(std::string_view name);
[[nodiscard]] bool is_identifier(std::string_view name);
/// Any name but that of a cache root of torch's or Triton's in the tree of an engine
/// (vllm/compilation/compiler_interface.py).
[[nodiscard]] bool is_no_inner_root(std::string_view name);

/// What lies below a path of the table.
enum class Below : uint8_t {
  kNothing,  ///< a file
  kSame,     ///< a directory, and all below it is of the family
  kNames,    ///< the same, and all users' programs make names in it and in each directory below
  kMembers,  ///< a directory that is one artefact
};

struct EnginePlace {
  Family family;
  Below below;
  std::array<Component, 5> components;
  /// Which names below it are of the family, if not all; others stay on the host.
  bool (*is_shared)(std::string_view name) = nullptr;
};

/// The places with one first name. The first place that fits counts. Temporary names and locks of torch's forms come
/// before (families.cc).
struct EngineTree {
  Component first;  ///< of all trees' first names one alone fits a name
  std::span<const EnginePlace> places;
  /// The name of the directory around it, where the first name is an ordinary one. The mountpoint may have any name.
  Component around = {};
};

// ---- Checks

/// The members of a parcel by name. All engines have theirs in one directory without another in it.
using ParcelMembers = std::map<std::string, Artefact, std::less<>>;

/// What the check of an engine's artefact is given.
struct EngineArtefact {
  const Classification& classified;
  const Artefact& artefact;
  const HostLimits& host;
  const ParcelMembers& members;  ///< of a parcel; of a file none
};

/// Returns a member that must be there and have bytes.
[[nodiscard]] Result<const Artefact*> required(const EngineArtefact& parcel, std::string_view name);
/// Checks a shared object of an engine. Libraries that it needs are not asked for: the engine has loaded its own
/// (tvm-ffi, CUDA's runtime) from its packages before, where the loader alone would not find them.
[[nodiscard]] Result<void> check_engine_library(const Artefact& artefact, const HostLimits& host);

// ---- Engines

/// The facets of host libraries with code for GPUs in them.
inline constexpr fingerprint::Facet kHostAndDeviceCode[] = {
    fingerprint::Facet::kTorch, fingerprint::Facet::kPython, fingerprint::Facet::kLibc,       fingerprint::Facet::kCuda,
    fingerprint::Facet::kGpu,   fingerprint::Facet::kEngine, fingerprint::Facet::kEnvironment};

struct Engine {
  std::span<const Rule> rules;  ///< in the order of Family
  std::span<const EngineTree> trees;
  std::span<const UserCache> caches;
  Result<void> (*check)(const EngineArtefact& artefact);
  /// Beginnings of names of files that stay on the host, in whatever directory.
  std::span<const std::string_view> private_files = {};
  /// The name of the file that names others beside it (Form::kIndex); empty for none.
  std::string_view index = {};
};

extern const Engine kVllm;
extern const Engine kFlashInfer;
extern const Engine kDeepGemm;
extern const Engine kTileLang;
extern const Engine kSglang;
/// All engines, in the order of their families in Family.
inline constexpr const Engine* kEngines[] = {&kVllm, &kFlashInfer, &kDeepGemm, &kTileLang, &kSglang};

/// Returns the engine that makes a family; nullptr when none does.
[[nodiscard]] const Engine* engine_of(Family family);

/// Says whether the components from `begin` on may be a path that an engine makes in its cache directory, or lead to
/// one. Not what leads to a cache root of torch or Triton inside: that root is the inner one.
[[nodiscard]] bool is_of_an_engine(const PathParts& parts, size_t begin);
/// Returns the family of a path below a root; kOther when no engine makes it.
[[nodiscard]] Family engine_family_of(const PathParts& parts);
/// Says whether the engines of all users make names in the directory of this path below a root; false for one that is
/// an artefact, or lies in one; nothing for what is of no engine.
[[nodiscard]] std::optional<bool> is_common_to_engines(const PathParts& parts);
/// Returns the artefact for which an engine looks by this canonical path of the directory around it.
[[nodiscard]] std::optional<AskedKey> asked_by_directory(const std::string& canonical);

/// Checks an artefact of an engine's family. Of a parcel all members are checked.
[[nodiscard]] Result<void> check_engine_artefact(const Engine& engine, const Classification& classified,
                                                 const Artefact& artefact, const HostLimits& host);

}  // namespace inductorfs::layout
