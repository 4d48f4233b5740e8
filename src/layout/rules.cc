// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <vector>

#include "inductorfs/layout/layout.h"
#include "layout/engines/engine.h"
#include "rule_table.h"

namespace inductorfs::layout {
namespace {

using fingerprint::Facet;

// docs/families.md shows it, docs/semantics/facets.md has the reason for each facet. A change here moves entries to
// another scope: nothing breaks, the cluster just starts empty.
constexpr Facet kGraph[] = {Facet::kTorch, Facet::kTriton, Facet::kCuda,
                            Facet::kGpu,   Facet::kCpuIsa, Facet::kEnvironment};
constexpr Facet kPython[] = {Facet::kTorch, Facet::kTriton};
constexpr Facet kTuning[] = {Facet::kTorch, Facet::kTriton, Facet::kGpu, Facet::kEnvironment};
constexpr Facet kTimings[] = {Facet::kTorch, Facet::kTriton, Facet::kCuda, Facet::kGpu, Facet::kEnvironment};
constexpr Facet kSource[] = {Facet::kTorch};
constexpr Facet kNative[] = {Facet::kTorch, Facet::kPython, Facet::kLibc, Facet::kCpu, Facet::kEnvironment};
constexpr Facet kHeader[] = {Facet::kTorch, Facet::kPython,   Facet::kLibc,
                             Facet::kCpu,   Facet::kCompiler, Facet::kEnvironment};
constexpr Facet kKernel[] = {Facet::kTriton, Facet::kGpuArch, Facet::kEnvironment};
constexpr Facet kLauncher[] = {Facet::kTriton, Facet::kPython, Facet::kLibc, Facet::kCuda};
constexpr Facet kKernelTimings[] = {Facet::kTriton, Facet::kGpu, Facet::kEnvironment};
constexpr Facet kAllButCompiler[] = {Facet::kTorch, Facet::kTriton, Facet::kPython, Facet::kLibc,
                                     Facet::kCpu,   Facet::kCuda,   Facet::kGpu,    Facet::kEnvironment};
constexpr Facet kState[] = {Facet::kTorch, Facet::kPython, Facet::kEnvironment};

/// In the order of Family, without those of engines (layout/engines). What is not said of one is as in Rule: not
/// shared, sealed by a rename, one candidate, a file. The facets of a family that is not shared are those it would need
/// if an operator shared it.
constexpr Rule kRules[] = {
    {.family = Family::kFxGraph,
     .name = "fxgraph",
     .shared = true,
     .contest = Contest::kCandidates,
     .is_listed = true,
     .holds_graphs = true,
     .facets = kGraph,
     .why =
         "named by its content; the key has torch, Triton, CUDA and the GPU's name, but neither the CPU, while graphs "
         "with C++ code are shaped by the vector ISA, nor any of Triton's variables, while the kernels in it are made "
         "under them",
     .source = "torch/_inductor/codecache.py: FxGraphCache._write_to_local_cache, FxGraphHashDetails, write_atomic",
     .pattern = "fxgraph/<k[1:3]>/<f+51>/<51>"},
    {.family = Family::kAotAutograd,
     .name = "aotautograd",
     .shared = true,
     .contest = Contest::kCandidates,
     .is_listed = true,
     .facets = kGraph,
     .why = "as fxgraph, whose key its own key contains; torch >= 2.8",
     .source = "torch/_functorch/_aot_autograd/autograd_cache.py: AOTAutogradCache.save; write_atomic",
     .pattern = "aotautograd/<a+51>/<51>"},
    {.family = Family::kAotAutogradEntry,
     .name = "aotautograd_entry",
     .shared = true,
     .is_listed = true,
     .facets = kGraph,
     .why = "as aotautograd, up to torch 2.7: one name per key, overwritten, so that there is nothing to choose from",
     .source = "torch 2.6, 2.7: autograd_cache.py: AOTAutogradCache.save; write_atomic",
     .pattern = "aotautograd/<a+51>/entry"},
    {.family = Family::kGeneratedCode,
     .name = "generated_code",
     .shared = true,
     .contest = Contest::kFirstOfPath,
     .facets = kPython,
     .why = "source only, named by its content (the name of a candidate of max-autotune hashes more than its text)",
     .source = "torch/_inductor/codecache.py: PyCodeCache.write, write, write_atomic",
     .pattern = "<xx>/<c+51>.py"},
    {.family = Family::kBestConfig,
     .name = "best_config",
     .shared = true,
     .seal = SealSign::kQuiet,
     .contest = Contest::kFirstOfPath,
     .facets = kTuning,
     .why = "the name holds no device, so that an H100 and an H200 would swap tunings, and no setting under which the "
            "kernels were made. Up to torch 2.7 it is written in place "
            "without any sign; a part of a JSON object does not parse, so that a quiet file that parses is whole",
     .source = "torch/_inductor/runtime/autotune_cache.py: AutotuneCache; remote_cache.py: LocalCacheBackend",
     .pattern = "<xx>/<64 hex>.best_config"},
    {.family = Family::kKernelPerf,
     .name = "kernel_perf",
     .facets = kTuning,
     .why = "decisions compare these timings with ones taken here and now, so both must come from one machine; "
            "picked_kernel is an index whose list its name identifies only by the kernels' text, and a bad value is an "
            "assertion in the job",
     .source = "torch/_inductor/codegen/triton.py: benchmark_codegened_module; multi_kernel.py: load_cache",
     .pattern = "<xx>/<c+51>.(kernel_perf|picked_kernel)"},
    {.family = Family::kCppSource,
     .name = "cpp_source",
     .shared = true,
     .contest = Contest::kFirstOfPath,
     .facets = kSource,
     .why =
         "source only; its name hashes its text and the compiler's command line, with the vector ISA's flags, so that "
         "another CPU asks for another name",
     .source = "torch/_inductor/codecache.py: CppCodeCache.load_async, write; cpu_vec_isa.py: VecISA.check_build",
     .pattern = "<xx>/<c+51>[.main|.optimized].cpp, <xx>/<c+51>.h"},
    {.family = Family::kCppBinary,
     .name = "cpp_binary",
     .shared = true,
     .seal = SealSign::kBuildDirectory,
     .contest = Contest::kFirstOfPath,
     .facets = kNative,
     .why =
         "-march=native is in the name as text only, libc and torch's content not at all: elsewhere it is SIGILL or a "
         "broken ABI under the same name. Which compiler made it is no fact of its reader: what it needs of libraries "
         "it says itself. The vec-ISA probe's .so is this too. What has code for GPUs (CUTLASS, CK) has names of "
         "this form and stays private: see cutlass",
     .source = "torch/_inductor/cpp_builder.py: CppBuilder.build; codecache.py: _worker_compile_cpp",
     .pattern = "<xx>/<c+51>[.main|.optimized].(so|o)"},
    {.family = Family::kVecIsaMarker,
     .name = "vec_isa_marker",
     .shared = true,
     .seal = SealSign::kQuiet,
     .contest = Contest::kFirstOfPath,
     .facets = kNative,
     .why = "says that the probe's .so was loaded: true on each host of the same scope, wrong silently on any other. "
            "Empty by design, so that there is no partial one",
     .source = "torch/_inductor/cpu_vec_isa.py: VecISA.check_build (torch >= 2.14)",
     .pattern = "<xx>/<c+51>.so.load_ok"},
    {.family = Family::kPrecompiledHeader,
     .name = "precompiled_header",
     .shared = true,
     .seal = SealSign::kBuildDirectory,
     .contest = Contest::kFirstOfPath,
     .facets = kHeader,
     .why =
         "as cpp_binary, but only the compiler that made it can read it: g++ checks its own identity in it and falls "
         "back to the header, clang's .pch checks file times and fails the compile, so that .pch is not of this "
         "family",
     .source = "torch/_inductor/codecache.py: _precompile_header; cpp_builder.py: CppBuilder.build",
     .pattern = "precompiled_headers/<c+51>.h[.gch]"},
    {.family = Family::kSystemAutotune,
     .name = "system_autotune",
     .shared = true,
     .contest = Contest::kMerge,
     .facets = kTimings,
     .why = "timings of one GPU model; read, changed and written whole without a lock, so that nodes would lose each "
            "other's unless they are merged",
     .source = "torch/_inductor/codecache.py: CacheBase.update_local_cache, PersistentCache.lookup; write_atomic",
     .pattern = "cache/<64 hex>"},
    {.family = Family::kPgoState,
     .name = "pgo_state",
     .shared = true,
     .facets = kState,
     .why =
         "which sizes are dynamic, so that a job compiles for them at once. The user names the job "
         "(TORCH_COMPILE_JOB_ID) so that its runs share it, as over torch's own remote PGO; the latest state counts, "
         "and a process reads it once. Nothing is written where no job is named",
     .source = "torch/_dynamo/pgo.py: get_cache_key, code_state_path, get_local_code_state, write_local_impl",
     .pattern = "dynamo/code_state_*.pkl"},
    {.family = Family::kOnDiskCache,
     .name = "on_disk_cache",
     .shared = true,
     .seal = SealSign::kQuiet,
     .contest = Contest::kFirstOfPath,
     .facets = kAllButCompiler,
     .why =
         "a decision that a node measured (should_pad: whether a matrix product is faster padded), or what code of "
         "Inductor remembers. The name is the hash of what the caller gave, for should_pad shapes, types and the "
         "operation, and neither torch nor the GPU nor the CPU. Created under its final name and never written again; "
         "a part of a pickle is no pickle, so that a quiet file that parses is whole. torch >= 2.10; should_pad only "
         "with TORCHINDUCTOR_ENABLE_CACHING_MODULE=1",
     .source = "torch/_inductor/runtime/caching/implementations.py: _OnDiskCacheImpl.insert, get; interfaces.py: "
               "PersistentMemoizer, _make_key; encoders.py: should_pad_params_encoder; _inductor/cache.py: "
               "InductorOnDiskCache",
     .pattern = "cache/(should_pad|inductor_on_disk_cache)/<32 hex>"},
    {.family = Family::kTritonKernel,
     .name = "triton_kernel",
     .shared = true,
     .contest = Contest::kFirst,
     .facets = kKernel,
     .why =
         "a cubin is for one architecture; the key has Triton, ptxas, the options and most of Triton's variables, the "
         "rest are in the scope. Two writers of one key make different bytes, so that all files of a key come from "
         "one",
     .source = "triton/runtime/cache.py: FileCacheManager.put, put_group; torch triton_bundler.py: read_and_emit",
     .pattern = "triton/<device>/<KEY>/*"},
    {.family = Family::kTritonLauncher,
     .name = "triton_launcher",
     .shared = true,
     .contest = Contest::kFirst,
     .facets = kLauncher,
     .why = "ELF against a Python ABI, glibc and the libcuda of one CUDA level; up to Triton 3.3 neither name nor key "
            "says "
            "which Python",
     .source = "triton/runtime/build.py: _compile_so; FileCacheManager.put",
     .pattern = "triton/<device>/<KEY>/*.so"},
    {.family = Family::kTritonAutotune,
     .name = "triton_autotune",
     .shared = true,
     .contest = Contest::kFirstOfPath,
     .facets = kKernelTimings,
     .why =
         "timings of one GPU model, which the key does not hold; it has Triton and ptxas, and CUDA's version changes "
         "nothing in the kernels",
     .source = "triton/runtime/autotuner.py: Autotuner.check_disk_cache; FileCacheManager.put",
     .pattern = "triton/<device>/<KEY>/*.autotune.json"},
    {.family = Family::kStartList,
     .name = "start_list",
     .shared = true,
     .seal = SealSign::kNever,
     .facets = kGraph,
     .why = "names what a job asked for when it started, so that a mount which sees the same start fetches it at once; "
            "it is shown to no program, and what a program puts under such a name stays on its host",
     .source = "docs/formats.md: start lists",
     .pattern = ".starts/<64 hex>"},
    {.family = Family::kDynamo,
     .name = "dynamo",
     .facets = kState,
     .why = "compiled functions whose name hashes the function's qualified name and line, and neither its text nor "
            "torch: two programs meet under one name",
     .source = "torch/_dynamo/package.py: DiskDynamoStore, CompilePackage.source_id_from_fn",
     .pattern = "dynamo/** but code_state_*.pkl"},
    {.family = Family::kObjectCache,
     .name = "object_cache",
     .why = "rewritten in place (cutedsl), keys with absolute paths or without the GPU (quack), or a protocol that is "
            "not known (flydsl)",
     .source = "torch/_inductor/runtime/cutedsl_cache.py: disk_cache_get; vendored quack; flydsl",
     .pattern = "cutedsl_compile_cache/**, quack/**, flydsl_compile_cache/**"},
    {.family = Family::kCutlass,
     .name = "cutlass",
     .why =
         "the names of .o and .so (paths of cpp_binary) hold the path of nvcc and neither its version nor CUTLASS's "
         "headers: cutlass_key() hashes the Python modules of cutlass_dir, where a checkout of CUTLASS has none. Each "
         "program chooses both, so that no facet knows them either. nvcc writes final names, and only torch's lock "
         "shows when it is done; sources are appended to in place. torch_cutlass has links into this host's "
         "installation, .error files are negative results of this host, configs_*.json has cutlass_key() for a key",
     .source = "torch/_inductor/codecache.py: CUTLASSCodeCache.compile, CUDACodeCache._source_code_extra, cutlass_key, "
               "build_code_hash, ROCmCodeCache; codegen/cuda/compile_utils.py: _cuda_compiler; "
               "codegen/cutlass/cache.py: get_config_request_key",
     .pattern = "<xx>/<c+51>.(cu|so.error|o.error), configs_<8 hex>.json, torch_cutlass/**"},
    {.family = Family::kHalide,
     .name = "halide",
     .why = "target \"host\" is this CPU; several files written in place, `done` beside them",
     .source = "torch/_inductor/codecache.py: HalideCodeCache",
     .pattern = "<xx>/<c+51>.halide/**, halide-runtime-*/**"},
    {.family = Family::kAotInductor,
     .name = "aot_inductor",
     .why =
         "a product, not a cache: each compile builds it anew and asks for no file by its name, so that sharing "
         "would save nobody a build; the program deploys the package itself, with the weights of its model, which are "
         "appended after the build",
     .source = "torch/_inductor/codecache.py: AotCodeCompiler.compile, CudaKernelParamCache; aoti_eager.py",
     .pattern = "<xx>/<c+51>.(wrapper*|kernel*|weights.*|cubin|hsaco|fatbin|ptx|ll|spv), aoti_eager/**"},
    {.family = Family::kGenericCache,
     .name = "generic_cache",
     .why =
         "caches under names that torch does not use: what their keys leave out is known to their makers alone. "
         "memoizer_cache.json is a dump for people (TORCHINDUCTOR_DUMP_MEMOIZER_CACHE=1): one name for all programs, "
         "rewritten in place at the end of each, and read where its user says by a path of his own",
     .source = "torch/_inductor/runtime/caching/implementations.py: _OnDiskCacheImpl; interfaces.py: "
               "Memoizer._dump_to_disk, _maybe_prepopulate_from_dump",
     .pattern = "cache/** but <64 hex> and on_disk_cache, memoizer_cache.json"},
    {.family = Family::kParcelMember,
     .name = "parcel_member",
     .why = "comes to other hosts with the directory or the index that it belongs to, and never alone",
     .source = "see the families whose form is a directory or an index",
     .pattern = "the files in a directory that is one artefact, and those that an index names"},
    {.family = Family::kEnginePrivate,
     .name = "engine_private",
     .why = "dumps for people, and what is rewritten in place or is of one host, one rank or one GPU",
     .source = "docs/families.md: names that are never shared",
     .pattern = "what engines make beside the families above, but for cache roots in it"},
    {.family = Family::kLock,
     .name = "lock",
     .why = "a lock is between the processes of one host",
     .source = "torch/_inductor/codecache.py: get_lock_dir; filelock",
     .pattern = "locks/**, precompiled_headers/locks/**, *.lock, lock, and directories of engines for locks"},
    {.family = Family::kTemporary,
     .name = "temporary",
     .why = "process and thread ids repeat between hosts: a temporary name that two see, both write",
     .source = "codecache.py: write_atomic; triton cache.py: FileCacheManager.put; triton_bundler.py: read_and_emit; "
               "cpp_builder.py: CppBuilder.build",
     .pattern = ".<pid>.<tid>.tmp, tmp.pid_*/**, *.tmp.pid_*, triton/<device>/tmp.<uuid>/**, *_CxxBuild/**, *.tmp, "
                "*.tmp.<pid>, tmp<8>/**, tmp<8>.py, inductor_const_spill_*, .nfs*, .fuse_hidden*, and what engines "
                "rename into place"},
    {.family = Family::kTool,
     .name = "tool",
     .why = "debug output, tool chains and logs that are appended to",
     .source = "torch/_inductor/cpp_builder.py: install_gcc_via_conda; compiler_bisector.py; autoheuristic; debug.py",
     .pattern = "gcc/**, bisect/**, autoheuristic/**, unhashed_kernel_inputs/**, <xx>/*_run_<n>/**, <xx>/<c+51>.debug"},
    {.family = Family::kOther,
     .name = "other",
     .why = "nothing that is known: what is not understood is not shared",
     .source = "none",
     .pattern = "everything else"},
};

std::vector<Rule> make_rules() {
  std::vector<Rule> rules(std::begin(kRules), std::end(kRules));
  for (const Engine* const engine : kEngines) {
    for (const Rule& rule : engine->rules) rules.insert(rules.begin() + static_cast<ptrdiff_t>(rule.family), rule);
  }
  for (size_t i = 0; i < rules.size(); ++i) INDUCTORFS_CHECK(rules[i].family == static_cast<Family>(i));
  INDUCTORFS_CHECK(rules.size() == static_cast<size_t>(Family::kOther) + 1);
  return rules;
}

}  // namespace

std::span<const Rule> built_in_rules() {
  static const std::vector<Rule> rules = make_rules();
  return rules;
}

}  // namespace inductorfs::layout
