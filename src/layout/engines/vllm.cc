// SPDX-License-Identifier: Apache-2.0
// vLLM 0.13 to 0.33: compiled models, what it knows of model classes, and the index of its artefacts.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/base/number.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/codec/parcel.h"
#include "layout/engines/engine.h"
#include "layout/name_shapes.h"
#include "layout/python_literal.h"

namespace inductorfs::layout {
namespace {

using fingerprint::Facet;

// ---- Paths

/// The index that vLLM keeps of its artifacts (vllm/compilation/backends.py: CompilerManager).
constexpr std::string_view kIndexName = "vllm_compile_cache.py";

/// Takes the digits with which a text begins from its front.
std::string_view take_digits(std::string_view& text) {
  const std::string_view digits = text.substr(0, text.find_first_not_of("0123456789"));
  text.remove_prefix(digits.size());
  return digits;
}

/// Says whether a text is these words with a number after each.
bool is_numbered(std::string_view name, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (!name.starts_with(word)) return false;
    name.remove_prefix(word.size());
    if (take_digits(name).empty()) return false;
  }
  return name.empty();
}

/// rank_<rank>_<data parallel rank>, in some releases with _dev<device index>
bool is_rank(std::string_view name) {
  return is_numbered(name, {"rank_", "_"}) || is_numbered(name, {"rank_", "_", "_dev"});
}

bool is_artifact(std::string_view name) { return is_numbered(name, {"artifact_compile_range_", "_", "_subgraph_"}); }

/// A part of a model.
bool is_tag(std::string_view name) { return is_identifier(name) && is_no_inner_root(name); }

constexpr Component kHash = hex(kSha256HexLength);
constexpr Component kShort = hex(10);
constexpr Component kRank = a(is_rank);
constexpr Component kTag = a(is_tag);
constexpr Component kTempfile = a(is_tempfile_name);
constexpr Component kAny = a(is_no_inner_root);
constexpr Component kAot = is("torch_aot_compile");

/// vllm/compilation/decorators.py, backends.py. The temporary name beside `model` is torch's, of a file that is renamed
/// to model.<pid>.tmp and then to model.
constexpr EnginePlace kCompiled[] = {
    {Family::kVllmModel, Below::kNothing, {kAot, kHash, kRank, is("model")}},
    {Family::kTemporary, Below::kNothing, {kAot, kHash, kRank, kTempfile}},
    {Family::kEnginePrivate, Below::kNothing, {kAot, kHash, kRank, kAny}},
    {Family::kVllmIndex, Below::kNothing, {kShort, kRank, kTag, is(kIndexName)}},
    {Family::kParcelMember, Below::kNothing, {kShort, kRank, kTag, a(is_artifact)}},
    {Family::kVllmFactors, Below::kNothing, {kShort, kRank, kTag, is("cache_key_factors.json")}},
    // The dumps for people beside it, unpacked artefacts, which are removed and written again file by file, and
    // SGLang's index, which has one name for all ranks and models (sglang/srt/compilation/backend.py:
    // SGLangBackend.__call__).
    {Family::kEnginePrivate, Below::kSame, {kShort, kRank, kTag, kAny}},
};

/// As above, before vLLM 0.19.
constexpr EnginePlace kOldCompiled[] = {
    {Family::kVllmModel, Below::kNothing, {kHash, kRank, is("model")}},
    {Family::kTemporary, Below::kNothing, {kHash, kRank, kTempfile}},
    {Family::kEnginePrivate, Below::kNothing, {kHash, kRank, kAny}},
};

/// vllm/model_executor/models/registry.py: _LazyRegisteredModel
constexpr EnginePlace kModelInfos[] = {
    {Family::kTemporary, Below::kNothing, {kTempfile}},
    {Family::kVllmModelInfo, Below::kNothing, {a(is_json_name)}},
    {Family::kEnginePrivate, Below::kNothing, {kAny}},
};

constexpr EngineTree kTrees[] = {
    {is("torch_compile_cache"), kCompiled},
    {kAot, kOldCompiled},
    {is("modelinfos"), kModelInfos},
};

// ---- The index

using Kind = PythonValue::Kind;

/// A name and a path take some 300 bytes each.
constexpr PythonLimits kIndexLimits{.bytes = size_t{8} << 20U, .depth = 6, .values = size_t{1} << 17U};
/// The index itself is an item of its parcel too.
constexpr size_t kMemberLimit = codec::kParcelItemLimit - 1;

struct Named {
  std::vector<std::string> names;
  std::string directory;
};

tl::unexpected<Error> corrupt_index(std::string_view why) {
  return fail(ErrorCode::kCorrupt, std::string(kIndexName) + ": " + std::string(why));
}
tl::unexpected<Error> unfit_index(std::string_view why) {
  return fail(ErrorCode::kNotSupported, std::string(kIndexName) + ": " + std::string(why));
}

/// (range or shape, number or hash of the graph, name of the compiler): backends.py, CompilerManager.cache.
bool is_of_standalone_compiler(const PythonValue& key) {
  constexpr size_t kParts = 3;
  return key.is(Kind::kTuple) && key.values.size() == kParts && key.values.back().is(Kind::kString) &&
         key.values.back().text == "inductor_standalone";
}

/// (name, absolute path), in a dictionary with the cache's key of the graph since vLLM 0.19.
const PythonValue* handle_of(const PythonValue& value) {
  const PythonValue* handle = value.is(Kind::kDictionary) ? value.find("graph_handle") : &value;
  const bool fits = handle != nullptr && handle->is(Kind::kTuple) && handle->values.size() == 2 &&
                    handle->values[0].is(Kind::kString) && handle->values[1].is(Kind::kString);
  return fits ? handle : nullptr;
}

/// Which of the two vLLM opens depends on its release, so that both have to be the same file.
Result<void> enter(const PythonValue& handle, Named& named) {
  const std::string& name = handle.values[0].text;
  const std::string_view path = handle.values[1].text;
  if (!is_artifact(name)) return unfit_index("names something that is no artefact beside it");
  if (!path.starts_with('/') || !codec::is_clean_path(path.substr(1))) return unfit_index("names no absolute path");
  const size_t slash = path.rfind('/');
  if (path.substr(slash + 1) != name) return unfit_index("names a file by two names");
  if (slash == 0) return unfit_index("names a file of the root directory");
  const std::string_view directory = path.substr(0, slash);
  if (!named.names.empty() && directory != named.directory) return unfit_index("names files in several directories");
  named.directory = directory;
  named.names.push_back(name);
  return {};
}

Result<Named> read_index(std::string_view index) {
  const auto cache = parse_python(index, kIndexLimits);
  if (!cache) {
    const bool is_damaged = cache.error().code() == ErrorCode::kCorrupt;
    return is_damaged ? corrupt_index(cache.error().what()) : unfit_index(cache.error().what());
  }
  if (!cache->is(Kind::kDictionary)) return corrupt_index("no dictionary");
  if (cache->values.size() > 2 * kMemberLimit) return unfit_index("names more files than a parcel holds");
  Named named;
  for (size_t i = 0; i + 1 < cache->values.size(); i += 2) {
    if (!is_of_standalone_compiler(cache->values[i]))
      return unfit_index("is of a compiler that stores its graphs elsewhere");
    const PythonValue* handle = handle_of(cache->values[i + 1]);
    if (handle == nullptr) return unfit_index("does not say where a graph is");
    INDUCTORFS_TRY(enter(*handle, named));
  }
  if (named.names.empty()) return unfit_index("names nothing");
  // Graphs that are equal have one artefact.
  std::sort(named.names.begin(), named.names.end());
  named.names.erase(std::unique(named.names.begin(), named.names.end()), named.names.end());
  return named;
}

// ---- Devices

/// The rank in a path of a process without others of its rank: no data parallel rank, and no device in the name.
std::optional<uint32_t> lone_rank_in(std::string_view canonical) {
  constexpr std::string_view kBefore = "/rank_";
  const size_t at = canonical.find(kBefore);
  if (at == std::string_view::npos) return std::nullopt;
  canonical.remove_prefix(at + kBefore.size());
  const auto rank = number_in<uint32_t>(take_digits(canonical));
  return canonical.starts_with("_0/") ? rank : std::nullopt;
}

/// The highest device index in generated code; nothing when there is none.
std::optional<uint32_t> highest_device(std::string_view bytes) {
  constexpr std::string_view kCall = "get_raw_stream(";
  std::optional<uint32_t> highest;
  for (size_t at = bytes.find(kCall); at != std::string_view::npos; at = bytes.find(kCall)) {
    bytes.remove_prefix(at + kCall.size());
    const auto index = number_in<uint32_t>(take_digits(bytes));
    if (index && bytes.starts_with(')')) highest = std::max(highest.value_or(0), *index);
  }
  return highest;
}

/// Checks for which devices the code in an artefact is. `canonical` is its path, in which the rank is.
///
/// Inductor writes the device's index into what it generates (codegen/wrapper.py: write_get_raw_stream), and neither
/// the path nor a key has it: the launch on another device is the driver's "invalid argument", which ends the engine.
/// Which device a reader has is not known. A process of rank r has a device with an index up to r, wherever it is: so
/// code for a higher one is of a process that was placed otherwise, and stays on its host (kNotSupported).
Result<void> check_devices(std::string_view canonical, const Artefact& artefact) {
  const auto rank = lone_rank_in(canonical);
  const auto device = rank ? highest_device(artefact.bytes) : std::nullopt;
  if (!device || *device <= *rank) return {};
  return foreign(artefact, "is of device " + std::to_string(*device) + ", and processes of rank " +
                               std::to_string(*rank) +
                               " have a lower one elsewhere: let each engine see its own devices only "
                               "(CUDA_VISIBLE_DEVICES)");
}

// ---- Checks

/// The whole of a model: torch/_dynamo/aot_compile.py, AOTCompiledFunction.save_compiled_function, one pickle.dumps.
Result<void> check_model(const Classification& classified, const Artefact& artefact) {
  if (auto whole = check_pickle_frame(artefact.bytes); !whole) return corrupt(artefact, whole.error().what());
  return check_devices(classified.canonical, artefact);
}

/// An engine that finds an artefact missing ends; one that the index does not name would never be removed.
Result<void> check_index(const EngineArtefact& parcel) {
  INDUCTORFS_TRY_ASSIGN(const auto* index, required(parcel, kIndexName));
  INDUCTORFS_TRY_ASSIGN(const auto named, read_index(index->bytes));
  const std::string& canonical = parcel.classified.canonical;
  if (!named.directory.ends_with("/" + canonical.substr(0, canonical.rfind('/')))) {
    return foreign(*index, "names the files of another directory");
  }
  for (const std::string& name : named.names) {
    INDUCTORFS_TRY_ASSIGN(const auto* artifact, required(parcel, name));
    INDUCTORFS_TRY(check_compiled_artifact(*artifact));
    INDUCTORFS_TRY(check_devices(canonical, *artifact));
  }
  if (parcel.members.size() == named.names.size() + 1) return {};
  return corrupt(parcel.artefact, "has a file that its index does not name");
}

/// What _load_modelinfo_from_cache reads; another class's members are an exception there, which is a miss.
Result<void> check_model_info(const Artefact& artefact) {
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_object(artefact));
  const JsonValue* hash = document.find("hash");
  const JsonValue* info = document.find("modelinfo");
  if (hash == nullptr || !hash->is_string() || !consists_of(hash->text, kHex)) {
    return corrupt(artefact, "has no hash");
  }
  if (info == nullptr || !info->is_object() || info->names.empty()) return corrupt(artefact, "has no modelinfo");
  return {};
}

/// vllm/compilation/backends.py: VllmBackend.__call__
Result<void> check_factors(const Artefact& artefact) {
  if (artefact.bytes.size() > kVllmFactorsLimit) return corrupt(artefact, "larger than any that vLLM writes");
  INDUCTORFS_TRY_ASSIGN(const auto factors, whole_object(artefact));
  const JsonValue* variables = factors.find("env");
  if (variables == nullptr || !variables->is_object()) return corrupt(artefact, "has no variables (\"env\")");
  return {};
}

Result<void> check_artefact(const EngineArtefact& artefact) {
  if (artefact.classified.family == Family::kVllmIndex) return check_index(artefact);
  if (artefact.classified.family == Family::kVllmModelInfo) return check_model_info(artefact.artefact);
  if (artefact.classified.family == Family::kVllmFactors) return check_factors(artefact.artefact);
  return check_model(artefact.classified, artefact.artefact);
}

// ---- Families

/// A graph that is loaded without a look at what is in it, with calls of the engine's own operators.
constexpr Facet kServedGraph[] = {Facet::kTorch, Facet::kTriton, Facet::kPython, Facet::kCuda,
                                  Facet::kGpu,   Facet::kCpuIsa, Facet::kEngine, Facet::kEnvironment};
constexpr Facet kEngineSource[] = {Facet::kEngine};

constexpr Rule kRules[] = {
    {.family = Family::kVllmModel,
     .name = "vllm_model",
     .shared = true,
     .is_alone = true,
     .holds_graphs = true,
     .facets = kServedGraph,
     .why =
         "a model's compiled graphs, in one pickle. Its key has the engine's variables, the configuration and the name "
         "of the model's source, the GPU's name and torch only in mega mode, and never the GPU's memory, the CPU, the "
         "engine's binaries or Triton's variables: kernels of one architecture on another, a restart loop. A model "
         "that cannot be loaded is compiled and written again, so the latest counts. Up to vLLM 0.18 it is written in "
         "place, and stays on the host",
     .source = "vllm/compilation/decorators.py: save_aot_compiled_function, _try_load_aot_compiled_fn; caching.py: "
               "aot_compile_hash_factors; torch/_dynamo/aot_compile.py: AOTCompiledFunction.save_compiled_function",
     .pattern = "[torch_compile_cache/]torch_aot_compile/<64 hex>/rank_<r>_<dp>[_dev<n>]/model"},
    {.family = Family::kVllmIndex,
     .name = "vllm_index",
     .shared = true,
     .seal = SealSign::kQuiet,
     .form = Form::kIndex,
     .holds_graphs = true,
     .facets = kServedGraph,
     .why = "names a model's compiled artefacts. vLLM opens each without asking whether it is there, and reads the "
            "index without a way out, so that it dies of one that is missing or of an index that is cut off. It is "
            "written in place; a part of a Python dictionary does not parse, so that a quiet one that parses is "
            "whole. It is written again when a model has more shapes, so the latest counts. Up to vLLM 0.30 the "
            "absolute paths in it are opened as they stand there",
     .source = "vllm/compilation/backends.py: CompilerManager.initialize_cache, save_to_file, load; "
               "compiler_interface.py: InductorStandaloneAdaptor; torch/_inductor/standalone_compile.py: "
               "CompiledArtifact.save, load",
     .pattern = "torch_compile_cache/<10 hex>/rank_<r>_<dp>[_dev<n>]/<tag>/vllm_compile_cache.py"},
    {.family = Family::kVllmModelInfo,
     .name = "vllm_modelinfo",
     .shared = true,
     .facets = kEngineSource,
     .why = "what a model's class can do, which takes a process that imports it to find out. It has the hash of the "
            "class's module; another hash is a miss, but the modules that this one imports are in no hash",
     .source = "vllm/model_executor/models/registry.py: _LazyRegisteredModel._load_modelinfo_from_cache; "
               "model_loader/weight_utils.py: atomic_writer",
     .pattern = "modelinfos/<module>-<class>.json"},
    {.family = Family::kVllmFactors,
     .name = "vllm_factors",
     .shared = true,
     .seal = SealSign::kQuiet,
     .contest = Contest::kFirstOfPath,
     .facets = kServedGraph,
     .why = "what a hash of vLLM is made of, for people: vLLM never reads it. Shared, because it alone says which "
            "variable gives another pod another hash (`inductorfs why-miss`). vLLM leaves secrets out of it",
     .source = "vllm/compilation/backends.py: VllmBackend.__call__; vllm/envs.py: compile_factors",
     .pattern = "torch_compile_cache/<10 hex>/rank_<r>_<dp>/<tag>/cache_key_factors.json"},
};

/// Read in vLLM 0.32: envs.py, compilation/decorators.py, compilation/compiler_interface.py, utils/deep_gemm.py.
constexpr UserCache kCaches[] = {
    {"vLLM", "VLLM_CACHE_ROOT", "vllm", "~/.cache/vllm", true, "", true, true,
     "vLLM: compiled models, their artifacts, what it knows of model classes, tunings of FlashInfer and kernels of "
     "DeepGEMM are shared. Unpacked artifacts, the topology of a host and its startup plan stay private. vLLM sets "
     "TORCHINDUCTOR_CACHE_DIR to a directory below this one, whatever it was before"},
    {"vLLM's media", "VLLM_ASSETS_CACHE", nullptr, "", false, "", false, false,
     "downloads for tests and media below VLLM_CACHE_ROOT: they are no compile results"},
};

/// A host's topology (all_reduce_utils.py: gpu_p2p_access_check) and a plan for its free memory
/// (v1/worker/startup_plan.py).
constexpr std::string_view kPrivateFiles[] = {"gpu_p2p_access_cache_for_", "startup_plan_"};

Result<Named> read_index(Family family, std::string_view index) {
  if (family == Family::kVllmIndex) return read_index(index);
  return fail(ErrorCode::kNotSupported, std::string(rule_of(family).name) + ": has no index");
}

}  // namespace

constinit const Engine kVllm{kRules, kTrees, kCaches, check_artefact, kPrivateFiles, kIndexName};

Result<std::vector<std::string>> index_members(Family family, std::string_view index) {
  INDUCTORFS_TRY_ASSIGN(auto named, read_index(family, index));
  return std::move(named.names);
}

bool is_cut_index(Family family, std::string_view index) {
  if (family != Family::kVllmIndex) return false;
  const bool is_zeros = index.find_first_not_of('\0') == std::string_view::npos;  // or empty
  if (is_zeros) return true;
  return index.front() == '{' && (index.find('\0') != std::string_view::npos || is_unclosed(index));
}

Result<std::string> index_directory(Family family, std::string_view index) {
  INDUCTORFS_TRY_ASSIGN(auto named, read_index(family, index));
  return std::move(named.directory);
}

Result<std::string> index_in_directory(Family family, std::string_view index, std::string_view directory) {
  INDUCTORFS_TRY_ASSIGN(const auto written_in, index_directory(family, index));
  for (const std::string_view text : {std::string_view(written_in), directory}) {
    const bool plain = text.starts_with('/') && codec::is_clean_path(text.substr(1)) &&
                       std::all_of(text.begin(), text.end(),
                                   [](char c) { return c >= ' ' && c <= '~' && c != '\'' && c != '"' && c != '\\'; });
    if (!plain) return unfit_index("is in a directory whose name Python would not print as it is");
  }
  const std::string from = written_in + "/";
  const std::string to = std::string(directory) + "/";
  std::string text;
  for (size_t at = 0;;) {
    const size_t found = index.find(from, at);
    text.append(index.substr(at, found == std::string_view::npos ? found : found - at));
    if (found == std::string_view::npos) break;
    text.append(to);
    // Here, and not only when it is read below: an index of 8 MiB may have millions of places.
    if (text.size() > kIndexLimits.bytes) return unfit_index("would become larger than an index may be");
    at = found + from.size();
  }
  // Whatever else was in the text: it names the same files, there.
  INDUCTORFS_TRY_ASSIGN(const auto now_in, index_directory(family, text));
  return now_in == directory ? Result<std::string>(std::move(text)) : unfit_index("cannot be moved");
}

std::string index_directory_of(std::string_view canonical_path) {
  return "/[INDUCTORFS]/" + std::string(canonical_path.substr(0, canonical_path.rfind('/')));
}

}  // namespace inductorfs::layout
