// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/variables.h"

#include <algorithm>
#include <optional>

namespace inductorfs::fingerprint {
namespace {

/// Everything that Triton makes, and what torch makes with Triton.
constexpr Facet kMadeByTriton[] = {Facet::kTriton};
/// Inductor's own entries: their keys hold Triton's version, but none of its variables.
constexpr Facet kMadeByInductor[] = {Facet::kTorch, Facet::kTriton};
/// Entries with C++ code for the vector ISA that torch picks.
constexpr Facet kShapedByIsa[] = {Facet::kTorch, Facet::kCpuIsa};
/// What the C++ compiler makes: named by its source and command line, not by its environment. A library depends on the
/// CPU; on the compiler only what the compiler itself will read.
constexpr Facet kMadeByCompiler[] = {Facet::kCpu};

/// Kernels that an engine compiles by nvcc itself: they depend on CUDA, and not on Triton.
constexpr Facet kMadeByNvcc[] = {Facet::kCuda};
constexpr Facet kTritons[] = {Facet::kTriton};

constexpr std::string_view kNvccKey =
    "read by nvcc (its manual, NVCC_PREPEND_FLAGS and NVCC_APPEND_FLAGS); not in the keys of DeepGEMM "
    "(csrc/jit/compiler.hpp, Compiler::build), TileLang and SGLang, which have the command line only";
constexpr std::string_view kInductorKey =
    "in Triton's key (runtime/cache.py, get_cache_key: get_cache_invalidating_env_vars), in none of torch's "
    "(_inductor/codecache.py, FxGraphHashDetails)";
constexpr std::string_view kOptionKey =
    "in Triton's key as an option (backends/nvidia/compiler.py, CUDAOptions.hash), in none of torch's "
    "(_inductor/codecache.py, FxGraphHashDetails)";
constexpr std::string_view kAmdNoKey = "read by backends/amd/compiler.py while a kernel is lowered; in no key";
constexpr std::string_view kTracingKey =
    "aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, while AOTAutograd traces; not in its key, which is of the "
    "graph before (_functorch/_aot_autograd/autograd_cache.py, AOTAutogradCacheDetails)";
constexpr std::string_view kCompilerKey =
    "read by the compiler driver or the linker; a .so is named by its source and command line only "
    "(_inductor/codecache.py, CppCodeCache.load_async)";

constexpr std::string_view kElf =
    "\x7f"
    "ELF";
/// The raw form of LLVM's bitcode (llvm/BitcodeReader: "BC" 0xC0DE).
constexpr std::string_view kBitcode = "BC\xc0\xde";
/// torch sets TRITON_PTXAS_PATH in every job when its wheel has a ptxas (_inductor/runtime/compile_tasks.py,
/// _set_triton_ptxas_path). Triton takes its own without the variable (knobs.py, env_nvidia_tool).
constexpr FileKind kPtxas = {"ELF program", kElf, "bin/ptxas", "backends/nvidia/bin/ptxas"};
constexpr FileKind kPtxasBlackwell = {"ELF program", kElf, {}, "backends/nvidia/bin/ptxas-blackwell"};
/// backends/nvidia/compiler.py, CUDAOptions.__post_init__.
constexpr FileKind kLibdevice = {"LLVM bitcode", kBitcode, {}, "backends/nvidia/lib/libdevice.10.bc"};

constexpr Variable kVariables[] = {
    {"ALLOW_LHS_TMEM_LAYOUT_CONVERSION", "layout of an operand in tensor memory", kInductorKey, Reading::kOff,
     kMadeByInductor},
    {"AMDGCN_ANALYZE_SMALL_TENSOR_RANGE", "which loads become buffer operations", kAmdNoKey, Reading::kOff,
     kMadeByTriton},
    {"AMDGCN_SCALARIZE_PACKED_FOPS", "packed float instructions are taken apart", kAmdNoKey, Reading::kOff,
     kMadeByTriton},
    {"AMDGCN_USE_*", "buffer loads and buffer atomics", kInductorKey, Reading::kSwitch, kMadeByInductor},
    {"ATEN_CPU_CAPABILITY", "another vector ISA shapes the C++ code of a graph",
     "_inductor/cpu_vec_isa.py, pick_vec_isa; FxGraphHashDetails holds cpp.simdlen, not the ISA that is picked",
     Reading::kCapability, kShapedByIsa},
    {"CCC_OVERRIDE_OPTIONS", "adds or removes arguments of every clang command", kCompilerKey, Reading::kText,
     kMadeByCompiler},
    {"COMPILER_PATH", "gcc takes its compiler, assembler and linker from there", kCompilerKey, Reading::kText,
     kMadeByCompiler},
    {"CPATH", "headers from there hide the system's", kCompilerKey, Reading::kText, kMadeByCompiler},
    {"CPLUS_INCLUDE_PATH", "headers from there hide the system's", kCompilerKey, Reading::kText, kMadeByCompiler},
    {"DISABLE_LLVM_OPT", "LLVM leaves out all or some of its passes", kInductorKey, Reading::kPasses, kMadeByInductor},
    {"DISABLE_MMA_V3", "other tensor core instructions", kInductorKey, Reading::kOff, kMadeByInductor},
    {"DISABLE_MMA_V5", "other tensor core instructions", kInductorKey, Reading::kOff, kMadeByInductor},
    {"DISABLE_PTXAS_OPT", "ptxas does not optimise", kInductorKey, Reading::kOff, kMadeByInductor},
    {"GCC_EXEC_PREFIX", "gcc takes its compiler, assembler and linker from there", kCompilerKey, Reading::kText,
     kMadeByCompiler},
    {"LD_RUN_PATH", "the linker writes it into the library as its run path", kCompilerKey, Reading::kText,
     kMadeByCompiler},
    {"LLVM_EXTRACT_DI_LOCAL_VARIABLES", "ptxas gets debug code, which it does not optimise", kInductorKey,
     Reading::kOff, kMadeByInductor},
    {"LLVM_PASS_PLUGIN_PATH", "LLVM runs passes of a plugin", kInductorKey, Reading::kText, kMadeByInductor},
    {"NVCC_APPEND_FLAGS", "further arguments of nvcc", kNvccKey, Reading::kText, kMadeByNvcc, nullptr, kTritons},
    {"NVCC_PREPEND_FLAGS", "further arguments of nvcc", kNvccKey, Reading::kText, kMadeByNvcc, nullptr, kTritons},
    {"PTXAS_OPTIONS", "further arguments of ptxas", kOptionKey, Reading::kText, kMadeByInductor},
    {"TORCHINDUCTOR_XPU_KERNEL_FORMAT", "the kind of binary for Intel GPUs",
     "_inductor/utils.py, XPU_KERNEL_FORMAT: a module's constant, not in config, hence not in FxGraphHashDetails",
     Reading::kText, kMadeByInductor},
    {"TORCH_CUDNN_SDPA_DEPRIORITIZED", "another attention operator in the graph that AOTAutograd makes", kTracingKey,
     Reading::kTorchOff, kMadeByInductor},
    {"TORCH_CUDNN_SDPA_PREFERRED", "as TORCH_CUDNN_SDPA_DEPRIORITIZED, in torch 2.9", kTracingKey,
     Reading::kTorchSwitch, kMadeByInductor},
    {"TORCH_LINEAR_FLATTEN_3D", "another form of a linear layer in the graph that AOTAutograd makes",
     "aten/src/ATen/native/Linear.cpp, linear, while AOTAutograd traces; not in its key, which is of the graph before "
     "(_functorch/_aot_autograd/autograd_cache.py, AOTAutogradCacheDetails)",
     Reading::kTorchOff, kMadeByInductor},
    {"TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", "values of plain globals are compiled into a kernel",
     "compiler/code_generator.py, _define_name_lookup; runtime/jit.py, cache_key holds the values of constexpr globals "
     "only",
     Reading::kOff, kMadeByTriton},
    {"TRITON_CONSAN_INIT_ALLOCATIONS", "instrumented kernels fill what they allocate", kInductorKey, Reading::kOff,
     kMadeByInductor},
    {"TRITON_DEFAULT_BACKEND", "another backend compiles", "runtime/driver.py, _create_driver; in none of torch's keys",
     Reading::kText, kMadeByInductor},
    {"TRITON_DEFAULT_FP_FUSION", "multiplications and additions are fused, or not: results differ in the last bits",
     kInductorKey, Reading::kOn, kMadeByInductor},
    {"TRITON_DISABLE_LINE_INFO", "no line information in kernels", kInductorKey, Reading::kOff, kMadeByInductor},
    {"TRITON_ENABLE_ASAN", "kernels are instrumented", kInductorKey, Reading::kOff, kMadeByInductor},
    {"TRITON_ENABLE_EXPERIMENTAL_CONSAN", "kernels are instrumented",
     "backends/nvidia/compiler.py of Triton 3.5, make_llir: in no key; 3.9 has it in Triton's, none in torch's",
     Reading::kOff, kMadeByTriton},
    {"TRITON_F32_DEFAULT", "precision of a dot product of floats", kInductorKey, Reading::kText, kMadeByInductor},
    {"TRITON_FORCE_DISABLE_FP_FUSION", "multiplications and additions are not fused", kInductorKey, Reading::kOff,
     kMadeByInductor},
    {"TRITON_HIP_*", "scheduling and prefetching on AMD GPUs", kInductorKey, Reading::kSwitch, kMadeByInductor},
    {"TRITON_HIP_GLOBAL_PREFETCH", "prefetching on AMD GPUs, in Triton 3.5", kInductorKey, Reading::kNumber,
     kMadeByInductor},
    {"TRITON_HIP_LOCAL_PREFETCH", "prefetching on AMD GPUs, in Triton 3.5", kInductorKey, Reading::kNumber,
     kMadeByInductor},
    {"TRITON_INTERPRET", "kernels are interpreted: timings of tunings are those of the interpreter",
     "runtime/jit.py, jit; in no key", Reading::kOff, kMadeByTriton},
    {"TRITON_KERNEL_OVERRIDE", "code from a directory is stored in place of what was compiled",
     "compiler/compiler.py, compile (fn_override_manager); in no key", Reading::kOff, kMadeByTriton},
    {"TRITON_LIBDEVICE_PATH", "another library of device functions is linked in", kOptionKey, Reading::kFile,
     kMadeByInductor, &kLibdevice},
    {"TRITON_MOCK_PTX_VERSION", "stands in the key for the version of ptxas",
     "backends/nvidia/compiler.py, get_ptxas_version; in none of torch's keys", Reading::kText, kMadeByInductor},
    {"TRITON_OVERRIDE_ARCH", "kernels are for another architecture", kInductorKey, Reading::kText, kMadeByInductor},
    {"TRITON_PLUGIN_PATHS", "Triton runs passes of a plugin", kInductorKey, Reading::kText, kMadeByInductor},
    {"TRITON_PTXAS_BLACKWELL_PATH", "another ptxas assembles",
     "backends/nvidia/compiler.py, get_ptxas; in Triton's key by its version, in none of torch's", Reading::kFile,
     kMadeByInductor, &kPtxasBlackwell},
    {"TRITON_PTXAS_PATH", "another ptxas assembles",
     "backends/nvidia/compiler.py, get_ptxas; in Triton's key by its version, in none of torch's", Reading::kFile,
     kMadeByInductor, &kPtxas},
    {"TRITON_STORE_BINARY_ONLY", "key directories and bundles without ttir, ttgir, llir and ptx",
     "compiler/compiler.py, compile; in no key", Reading::kOff, kMadeByTriton},
    {"TRITON_SWAP_MIR*", "machine code from a directory takes the place of what was compiled", kAmdNoKey,
     Reading::kText, kMadeByTriton},
    {"USE_IR_LOC", "line information of an intermediate form", kInductorKey, Reading::kText, kMadeByInductor},
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

/// The words that Triton's knobs take (tried with 3.5.1 and 3.9.0; its C++ side knows no "yes").
std::optional<bool> switch_of(std::string_view value) {
  const std::string text = lower(value);
  if (text == "on" || text == "true" || text == "1" || text == "yes" || text == "y") return true;
  if (text == "off" || text == "false" || text == "0") return false;
  return std::nullopt;
}

std::string_view number(bool on) { return on ? "1" : "0"; }

/// A whole number as Python's int() reads it (knobs.py, env_int), without needless zeros; empty for another text.
std::string whole_number(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  const size_t start = std::min(text.find_first_not_of(kBlanks), text.size());
  text = text.substr(start, text.find_last_not_of(kBlanks) + 1 - start);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const bool digits = std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (text.empty() || !digits) return {};
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size() - 1));
  return (negative && text != "0" ? "-" : "") + std::string(text);
}

/// The words of get_isa_from_cpu_capability (_inductor/cpu_vec_isa.py).
bool is_capability(std::string_view value) {
  constexpr std::string_view kWords[] = {"default", "zvector", "vsx", "avx2", "avx512"};
  return std::find(std::begin(kWords), std::end(kWords), value) != std::end(kWords);
}

/// The canonical value; empty when it is the same as unset.
std::string canonical_value(Reading reading, std::string_view value) {
  const std::optional<bool> on = switch_of(value);
  switch (reading) {
    case Reading::kOff:
      return on.value_or(false) ? "1" : "";
    case Reading::kOn:
      return on.value_or(false) ? "" : "0";
    case Reading::kSwitch:
      // Triton takes an empty value for off, which is not the default of each (tried: AMDGCN_USE_BUFFER_OPS).
      return value.empty() ? "0" : std::string(on ? number(*on) : value);
    case Reading::kTorchOff:
      return value == "1" ? "1" : "";
    case Reading::kTorchSwitch:
      // c10/util/env.cpp, check_env: any other text is ignored with a warning (tried with "true", "01" and " 1").
      return value == "1" || value == "0" ? std::string(value) : "";
    case Reading::kNumber: {
      const std::string whole = whole_number(value);
      return whole.empty() ? std::string(value) : whole == "0" ? "" : whole;
    }
    case Reading::kPasses:
      if (on) return *on ? "1" : "";
      return std::string(value);
    case Reading::kCapability:
      return is_capability(value) ? std::string(value) : "";
    case Reading::kFile:
    case Reading::kText:
      break;
  }
  return std::string(value);
}

/// A name with a line break would be more than one line of the text; torch and Triton have none.
bool is_plain(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

constexpr std::string_view kContent = "sha256:";
constexpr std::string_view kNotKnown = "not known: ";

}  // namespace

std::span<const Variable> variables() { return kVariables; }

const Variable* find_variable(std::string_view name) {
  const Variable* begun = nullptr;
  for (const Variable& variable : kVariables) {
    if (variable.name == name) return &variable;
    const bool prefix = variable.name.ends_with('*');
    const std::string_view stem = variable.name.substr(0, variable.name.size() - (prefix ? 1 : 0));
    if (prefix && name.starts_with(stem) && is_plain(name)) begun = &variable;
  }
  return begun;
}

bool matters(const Variable& variable, std::span<const Facet> facets) {
  const auto has = [facets](Facet one) { return std::find(facets.begin(), facets.end(), one) != facets.end(); };
  return std::all_of(variable.with.begin(), variable.with.end(), has) &&
         std::none_of(variable.without.begin(), variable.without.end(), has);
}

std::map<std::string, std::string> environment_values(const std::map<std::string, std::string>& environment) {
  std::map<std::string, std::string> result;
  for (const auto& [name, value] : environment) {
    const Variable* const variable = find_variable(name);
    std::string canonical = variable == nullptr ? std::string() : canonical_value(variable->reading, value);
    // A value is one line of the text, as in every facet (facet_text.h).
    std::replace(canonical.begin(), canonical.end(), '\n', ' ');
    if (!canonical.empty()) result.emplace(name, std::move(canonical));
  }
  return result;
}

std::string environment_text(const std::map<std::string, std::string>& environment) {
  std::string text;
  for (const auto& [name, value] : environment_values(environment)) {
    add_line(text, name, value);
  }
  return text.empty() ? std::string(kNone) : text;
}

std::map<std::string, std::string> environment_from_text(std::string_view text) {
  std::map<std::string, std::string> result;
  for (const std::string_view line : lines_of(text)) {
    if (const auto parts = split_line(line)) result.emplace(parts->first, parts->second);
  }
  return result;
}

std::string content_value(const codec::Digest& digest) { return std::string(kContent) + digest.to_hex(); }

bool is_content_value(std::string_view value) {
  return value.starts_with(kContent) && codec::Digest::from_hex(value.substr(kContent.size())).has_value();
}

std::string not_known_value(std::string_view why) { return std::string(kNotKnown) + std::string(why); }

std::string_view why_not_known(std::string_view value) {
  return value.starts_with(kNotKnown) ? value.substr(kNotKnown.size()) : std::string_view();
}

std::string unknown_file_in(std::string_view text) {
  for (const auto& [name, value] : environment_from_text(text)) {
    const Variable* const variable = find_variable(name);
    if (variable == nullptr || variable->file == nullptr || why_not_known(value).empty()) continue;
    return name + ": " + std::string(why_not_known(value));
  }
  return {};
}

}  // namespace inductorfs::fingerprint
