// SPDX-License-Identifier: Apache-2.0
#include "engine_families.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string_view>

#include "inductorfs/layout/index_name.h"
#include "name_shapes.h"

/// One table of the paths that engines make. Read: vLLM 0.13 to 0.33, SGLang 0.5.23, FlashInfer 0.7.2, TileLang 0.1.15,
/// DeepGEMM from 2026-04 on.
namespace inductorfs::layout {
namespace {

/// What a component of a path may be.
enum class Shape : uint8_t {
  kEnd,       ///< no component: a path is shorter than the table's widest
  kText,      ///< exactly this text
  kPlain,     ///< letters, digits and `_.+-`, not a dot first
  kAny,       ///< any name but that of a cache root of torch's or Triton's
  kTag,       ///< of a part of a model: an identifier, and no cache root of torch's or Triton's
  kHex,       ///< a number of hexadecimal digits
  kHexAfter,  ///< a text and a number of hexadecimal digits
  kHexJson,   ///< a number of hexadecimal digits and `.json`
  kRank,      ///< rank_<rank>_<data parallel rank>, in some releases with _dev<device index>
  kArtifact,  ///< artifact_compile_range_<begin>_<end>_subgraph_<n>
  kJson,
  kTempfile,  ///< tmp<8>
  kKernel,    ///< kernel.<name>.<32 hex>
  kEntry,     ///< <name>.<32 hex>
  kPlatform,  ///< sys.platform and platform.machine() of Linux
  kSm,        ///< sm<compute capability>
};

struct Step {
  Shape shape = Shape::kEnd;
  std::string_view text;
  size_t length = 0;
};

constexpr Step is(std::string_view text) { return {Shape::kText, text, 0}; }
constexpr Step hex(size_t length) { return {Shape::kHex, {}, length}; }
constexpr Step hex_after(std::string_view text, size_t length) { return {Shape::kHexAfter, text, length}; }
constexpr Step a(Shape shape) { return {shape, {}, 0}; }

/// What lies below a path of the table.
enum class Below : uint8_t {
  kNothing,  ///< a file
  kSame,     ///< a directory, and all below it is of the family
  kMembers,  ///< a directory that is one artefact
};

/// The name of the directory in which a path of the table begins, where the path's first name is an ordinary one.
enum class In : uint8_t { kAnything, kSglang, kFlashInfer, kVersion };

constexpr size_t kMostSteps = 6;
struct Place {
  Family family;
  Below below;
  In in;
  std::array<Step, kMostSteps> steps;
};

constexpr Step kRank = a(Shape::kRank);
constexpr Step kTag = a(Shape::kTag);
constexpr Step kPlain = a(Shape::kPlain);
constexpr Step kAny = a(Shape::kAny);
constexpr Step kTempfile = a(Shape::kTempfile);
constexpr Step kSha256 = hex(kSha256HexLength);
constexpr Step kShort = hex(10);
constexpr Step kCompile = is("torch_compile_cache");
constexpr Step kAot = is("torch_aot_compile");
constexpr Step kBuild = hex_after("build-", 16);

/// The first that fits counts. Temporary names and locks of torch's forms come before (families.cc).
constexpr Place kPlaces[] = {
    // vllm/compilation/decorators.py, backends.py. The temporary name beside `model` is torch's, of a file that is
    // renamed to model.<pid>.tmp and then to model.
    {Family::kVllmModel, Below::kNothing, In::kAnything, {kCompile, kAot, kSha256, kRank, is("model")}},
    {Family::kTemporary, Below::kNothing, In::kAnything, {kCompile, kAot, kSha256, kRank, kTempfile}},
    {Family::kEnginePrivate, Below::kNothing, In::kAnything, {kCompile, kAot, kSha256, kRank, kAny}},
    {Family::kVllmIndex, Below::kNothing, In::kAnything, {kCompile, kShort, kRank, kTag, is(kVllmIndexName)}},
    {Family::kParcelMember, Below::kNothing, In::kAnything, {kCompile, kShort, kRank, kTag, a(Shape::kArtifact)}},
    {Family::kVllmFactors,
     Below::kNothing,
     In::kAnything,
     {kCompile, kShort, kRank, kTag, is("cache_key_factors.json")}},
    // The dumps beside it, SGLang's index, and unpacked artefacts.
    {Family::kEnginePrivate, Below::kSame, In::kAnything, {kCompile, kShort, kRank, kTag, kAny}},
    // As above, before vLLM 0.19.
    {Family::kVllmModel, Below::kNothing, In::kAnything, {kAot, kSha256, kRank, is("model")}},
    {Family::kTemporary, Below::kNothing, In::kAnything, {kAot, kSha256, kRank, kTempfile}},
    {Family::kEnginePrivate, Below::kNothing, In::kAnything, {kAot, kSha256, kRank, kAny}},
    // vllm/model_executor/models/registry.py: _LazyRegisteredModel
    {Family::kTemporary, Below::kNothing, In::kAnything, {is("modelinfos"), kTempfile}},
    {Family::kVllmModelInfo, Below::kNothing, In::kAnything, {is("modelinfos"), a(Shape::kJson)}},
    {Family::kEnginePrivate, Below::kNothing, In::kAnything, {is("modelinfos"), kAny}},
    // vllm/model_executor/warmup/flashinfer_autotune_cache.py
    {Family::kFlashInferAutotune,
     Below::kNothing,
     In::kAnything,
     {is("flashinfer_autotune_cache"), kPlain, kPlain, kSha256, a(Shape::kJson)}},
    {Family::kEnginePrivate,
     Below::kNothing,
     In::kAnything,
     {is("flashinfer_autotune_cache"), kPlain, kPlain, kSha256, kAny}},
    // flashinfer/autotune_cache.py: ManagedAutotuneCache; the manifest is for people
    {Family::kFlashInferAutotune,
     Below::kNothing,
     In::kFlashInfer,
     {is("autotune"), is("v2"), hex(16), is("entries"), {Shape::kHexJson, {}, 24}}},
    {Family::kEnginePrivate,
     Below::kNothing,
     In::kFlashInfer,
     {is("autotune"), is("v2"), hex(16), is("entries"), kAny}},
    {Family::kEnginePrivate, Below::kNothing, In::kFlashInfer, {is("autotune"), is("v2"), hex(16), kAny}},
    // sglang/srt/model_executor/runner/flashinfer_autotune.py: a file of each rank, which all have to be of one run
    {Family::kEnginePrivate, Below::kSame, In::kFlashInfer, {is("autotune"), kPlain, kPlain, hex(16), kAny}},
    // flashinfer/artifacts.py, jit/cubin_loader.py
    {Family::kFlashInferCubin, Below::kSame, In::kFlashInfer, {is("cubins"), hex(40)}},
    // DeepGEMM csrc/jit/compiler.hpp. Engines give it deep_gemm/ (vllm/utils/deep_gemm.py, sglang/srt/environ.py); a
    // directory of another name is known by its kernels.
    {Family::kDeepGemm, Below::kMembers, In::kAnything, {is("deep_gemm"), is("cache"), a(Shape::kKernel)}},
    // deepseek-ai/DeepJIT include/deep_jit/cache/disk.hpp, the cache of later releases
    {Family::kDeepGemm, Below::kMembers, In::kAnything, {is("deep_gemm"), is("cache"), a(Shape::kEntry)}},
    {Family::kTemporary, Below::kSame, In::kAnything, {is("deep_gemm"), is("tmp")}},
    {Family::kLock, Below::kSame, In::kAnything, {is("deep_gemm"), is("locks")}},
    {Family::kDeepGemm, Below::kMembers, In::kAnything, {is("cache"), a(Shape::kKernel)}},
    // tilelang/cache/kernel_cache.py, binary_cache.py, autotuner/param.py. The version above is in the key too.
    {Family::kTileLang, Below::kMembers, In::kVersion, {a(Shape::kPlatform), is("kernels"), kSha256}},
    {Family::kTemporary, Below::kSame, In::kVersion, {a(Shape::kPlatform), is(".staging")}},
    {Family::kEnginePrivate, Below::kSame, In::kVersion, {a(Shape::kPlatform), is("autotuner")}},
    {Family::kTileLang, Below::kMembers, In::kVersion, {is("cuda-binaries"), kSha256}},
    {Family::kTemporary, Below::kSame, In::kVersion, {is(".staging"), is("cuda-binaries")}},
    // sglang/kernels/jit/utils/compile/cache.py, loader.py
    {Family::kSglangJit,
     Below::kMembers,
     In::kSglang,
     {is("jit"), a(Shape::kSm), kPlain, kBuild, hex_after("deps-", 16)}},
    {Family::kTemporary,
     Below::kSame,
     In::kSglang,
     {is("jit"), a(Shape::kSm), kPlain, kBuild, hex_after(".staging-", 32)}},
    {Family::kEnginePrivate, Below::kNothing, In::kSglang, {is("jit"), a(Shape::kSm), kPlain, kBuild, kAny}},
};

constexpr size_t steps_of(const Place& place) {
  size_t count = 0;
  while (count < kMostSteps && place.steps[count].shape != Shape::kEnd) ++count;
  return count;
}

/// The places with one first name, which stand together in the table. classify() asks at each component of a path
/// whether a root ends there, and nearly always the first name says no.
struct Run {
  Step first;
  std::span<const Place> places;
};

constexpr bool are_equal(const Step& one, const Step& other) {
  return one.shape == other.shape && one.text == other.text && one.length == other.length;
}

constexpr size_t count_runs() {
  size_t count = 1;
  for (size_t i = 1; i < std::size(kPlaces); ++i) {
    if (!are_equal(kPlaces[i - 1].steps[0], kPlaces[i].steps[0])) ++count;
  }
  return count;
}

constexpr std::array<Run, count_runs()> make_runs() {
  std::array<Run, count_runs()> runs{};
  size_t begin = 0;
  for (Run& run : runs) {
    size_t end = begin + 1;
    while (end < std::size(kPlaces) && are_equal(kPlaces[begin].steps[0], kPlaces[end].steps[0])) ++end;
    run = {kPlaces[begin].steps[0], std::span<const Place>(kPlaces).subspan(begin, end - begin)};
    begin = end;
  }
  return runs;
}
constexpr std::array<Run, count_runs()> kRuns = make_runs();

constexpr bool names_begin_one_run_each() {
  for (size_t i = 0; i < kRuns.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (are_equal(kRuns[i].first, kRuns[k].first)) return false;
    }
  }
  return true;
}
static_assert(names_begin_one_run_each(), "the places with one first name stand together");

/// Says whether the path of the table is a directory that holds what is of the family, and is nothing of it itself.
bool holds_names(const Place& place) {
  const Step& last = place.steps[steps_of(place) - 1];
  return place.below == Below::kSame && (last.shape == Shape::kText || place.family == Family::kFlashInferCubin);
}

bool is_plain(std::string_view name) {
  return name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_in(c, kBase64Url) || c == '.' || c == '+'; });
}

/// A cache root of torch's or Triton's own in the tree of an engine (vllm/compilation/compiler_interface.py).
bool is_inner_root(std::string_view name) { return name == "inductor_cache" || name == "triton_cache"; }

bool is_identifier(std::string_view name) {
  const auto in_identifier = [](char c) { return is_in(c, kBase64Url) && c != '-'; };
  return !name.empty() && !is_in(name.front(), kDigit) && std::all_of(name.begin(), name.end(), in_identifier);
}

/// Says whether a text is these words with a number after each.
bool is_numbered(std::string_view name, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (!name.starts_with(word)) return false;
    name.remove_prefix(word.size());
    const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits == 0) return false;
    name.remove_prefix(digits);
  }
  return name.empty();
}

/// <name>.<32 hex>
bool is_cache_entry(std::string_view name) {
  constexpr size_t kHashLength = 32;
  const size_t dot = name.find('.');
  return dot != std::string_view::npos && is_identifier(name.substr(0, dot)) &&
         is_text_of(name.substr(dot + 1), kHashLength, kHex);
}

bool is_kernel(std::string_view name) {
  constexpr std::string_view kFirst = "kernel.";
  return name.starts_with(kFirst) && is_cache_entry(name.substr(kFirst.size()));
}

bool is_capability(std::string_view name) {
  if (!name.starts_with("sm")) return false;
  name.remove_prefix(2);
  if (name.ends_with('a') || name.ends_with('f')) name.remove_suffix(1);
  return (name.size() == 2 || name.size() == 3) && consists_of(name, kDigit);
}

bool is_json(std::string_view name) {
  constexpr std::string_view kSuffix = ".json";
  return name.size() > kSuffix.size() && name.ends_with(kSuffix) && is_plain(name);
}

bool fits(const Step& step, std::string_view name) {
  switch (step.shape) {
    case Shape::kEnd:
      return false;
    case Shape::kText:
      return name == step.text;
    case Shape::kPlain:
      return is_plain(name);
    case Shape::kAny:
      return !is_inner_root(name);
    case Shape::kTag:
      return is_identifier(name) && !is_inner_root(name);
    case Shape::kHex:
      return is_text_of(name, step.length, kHex);
    case Shape::kHexAfter:
      return name.starts_with(step.text) && is_text_of(name.substr(step.text.size()), step.length, kHex);
    case Shape::kHexJson:
      return is_json(name) && is_text_of(name.substr(0, name.rfind('.')), step.length, kHex);
    case Shape::kRank:
      return is_numbered(name, {"rank_", "_"}) || is_numbered(name, {"rank_", "_", "_dev"});
    case Shape::kArtifact:
      return is_numbered(name, {"artifact_compile_range_", "_", "_subgraph_"});
    case Shape::kJson:
      return is_json(name);
    case Shape::kTempfile:
      return is_tempfile_name(name);
    case Shape::kKernel:
      return is_kernel(name);
    case Shape::kEntry:
      return is_cache_entry(name);
    case Shape::kPlatform:
      return name == "linux-x86_64" || name == "linux-aarch64";
    case Shape::kSm:
      return is_capability(name);
  }
  return false;
}

enum class Match : uint8_t {
  kNone,
  kLeads,  ///< a directory on the way
  kIs,
  kBelow,
};

/// Compares all components but the first, which is the run's.
Match match(const Place& place, const PathParts& parts, size_t begin) {
  const size_t count = parts.count - begin;
  for (size_t i = 1; i < count; ++i) {
    if (i == kMostSteps || place.steps[i].shape == Shape::kEnd) {
      return place.below == Below::kNothing ? Match::kNone : Match::kBelow;
    }
    if (!fits(place.steps[i], parts[begin + i])) return Match::kNone;
  }
  return count == kMostSteps || place.steps[count].shape == Shape::kEnd ? Match::kIs : Match::kLeads;
}

/// Returns the places that have the first name of the path; none when the path is of no engine.
std::span<const Place> places_of(const PathParts& parts, size_t begin) {
  for (const Run& run : kRuns) {
    if (fits(run.first, parts[begin])) return run.places;
  }
  return {};
}

/// Says whether the path begins in a directory of the name that its first name needs around it. The mountpoint may
/// have any name. Directories of this program (`.inductorfs-...`), which nobody sees, are no names.
bool begins_in(In in, const PathParts& parts, size_t begin) {
  while (begin > 0 && parts[begin - 1].starts_with(".inductorfs-")) --begin;
  if (in == In::kAnything || begin == 0) return true;
  const std::string_view name = parts[begin - 1];
  if (in == In::kVersion) return is_in(name.front(), kDigit) && name.find('.') != std::string_view::npos;
  return name == (in == In::kSglang ? "sglang" : "flashinfer");
}

/// What get_artifact() downloads; beside it are links.
bool is_artefact_of_flashinfer(std::string_view name) {
  return name.ends_with(".cubin") || name.ends_with(".so") || name.ends_with(".h") || name == "checksums.txt";
}

/// Files of the engines that no directory's name tells.
bool is_private_name(const PathParts& parts) {
  return parts.last.starts_with("gpu_p2p_access_cache_for_") || parts.last.starts_with("startup_plan_");
}

}  // namespace

bool is_of_an_engine(const PathParts& parts, size_t begin) {
  const auto places = places_of(parts, begin);
  if (places.empty() || !begins_in(places.front().in, parts, begin)) return false;
  return std::any_of(places.begin(), places.end(),
                     [&](const Place& place) { return match(place, parts, begin) != Match::kNone; });
}

Family engine_family_of(const PathParts& parts) {
  for (const Place& place : places_of(parts, 0)) {
    const Match found = match(place, parts, 0);
    if (found == Match::kNone || found == Match::kLeads) continue;
    if (found == Match::kIs && holds_names(place)) return Family::kOther;
    if (found == Match::kBelow && place.below == Below::kMembers) return Family::kParcelMember;
    if (place.family == Family::kFlashInferCubin && !is_artefact_of_flashinfer(parts.last)) {
      return Family::kEnginePrivate;
    }
    return place.family;
  }
  return is_private_name(parts) ? Family::kEnginePrivate : Family::kOther;
}

bool is_engine_directory(const PathParts& parts) {
  const auto places = places_of(parts, 0);
  return std::any_of(places.begin(), places.end(), [&](const Place& place) {
    const Match found = match(place, parts, 0);
    if (place.family == Family::kFlashInferCubin) return found != Match::kNone;
    return found == Match::kLeads || (found == Match::kIs && holds_names(place));
  });
}

bool is_directory_of_model(const PathParts& parts) {
  if (!parts.clean) return false;
  const auto places = places_of(parts, 0);
  return std::any_of(places.begin(), places.end(), [&](const Place& place) {
    return place.family == Family::kVllmModel && parts.count + 1 == steps_of(place) &&
           match(place, parts, 0) == Match::kLeads;
  });
}

bool is_listed_directory(const PathParts& parts) {
  if (!parts.clean) return false;
  const auto places = places_of(parts, 0);
  return std::any_of(places.begin(), places.end(), [&](const Place& place) {
    return place.family == Family::kSglangJit && parts.count + 1 == steps_of(place) &&
           match(place, parts, 0) == Match::kLeads;
  });
}

bool is_indexed_artefact(std::string_view name) { return fits(a(Shape::kArtifact), name); }

bool is_engine_artefact(const PathParts& parts) {
  const auto places = places_of(parts, 0);
  return std::any_of(places.begin(), places.end(), [&](const Place& place) {
    const Match found = match(place, parts, 0);
    return place.below == Below::kMembers && (found == Match::kIs || found == Match::kBelow);
  });
}

}  // namespace inductorfs::layout
