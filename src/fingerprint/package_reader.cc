// SPDX-License-Identifier: Apache-2.0
#include "package_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "child.h"
#include "compiler_files.h"
#include "facts.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/fingerprint/libstdcxx.h"
#include "inductorfs/fingerprint/writers.h"
#include "key_memory.h"
#include "package_keys.h"
#include "read_request.h"
#include "writers_packages.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

constexpr size_t kErrorLimit = 500;
/// Of an answer.
constexpr const char* kFactsKey = "facts";
constexpr const char* kLearnedKey = "learned";
/// Another user chose the files. Eight readers run at once (Packages), so that all have 512 MiB together.
constexpr uint64_t kReaderMemory = uint64_t{64} << 20;
/// What a reader has computed; one that somebody has taken over says what he likes. An environment has some ten, and
/// each is a digest or a few.
constexpr size_t kLearnedLimit = 64;
constexpr size_t kLearnedBytes = 4096;
/// libstdc++ of gcc 12 has 2 MB.
constexpr uint64_t kLibraryLimit = uint64_t{16} << 20;

/// The suffixes of extension modules that an interpreter has (CPython, Python/dynload_shlib.c). Without a GIL there is
/// no stable ABI.
std::vector<std::string> suffixes_of(const std::string& soabi) {
  std::vector<std::string> suffixes;
  if (!soabi.empty()) suffixes.push_back("." + soabi + ".so");
  const size_t version = soabi.find('-') + 1;
  const size_t end = soabi.find('-', version);
  if (version == 0 || soabi.substr(version, end - version).find('t') == std::string::npos) {
    suffixes.emplace_back(".abi3.so");
  }
  suffixes.emplace_back(".so");
  return suffixes;
}

/// A request as the child has it. Immutable value.
struct ChildRequest {
  Facet facet = Facet::kTorch;
  Process process;
  std::vector<std::string> sites;  ///< sites_of() the process
  std::string cache_file;
  CompilerCall host;  ///< of the daemon itself
  std::string root;   ///< a path that leads to the root directory of the process; empty: it has the daemon's
};

/// What binaries may require of the C++ library that the process has loaded. In the details, because no artefact
/// depends on it by itself.
void add_libstdcxx(Fact& fact, const InRoot& root, const Process& process) {
  if (root.is_host() || process.libstdcxx.path.empty()) return;
  const auto bytes = root.read_regular(process.libstdcxx.path, kLibraryLimit);
  if (!bytes) return;
  for (const auto& [key, prefix] : {std::pair{kGlibcxxKey, kGlibcxxPrefix}, std::pair{kCxxabiKey, kCxxabiPrefix}}) {
    if (const std::string newest = newest_version(*bytes, prefix); !newest.empty()) add_line(fact.details, key, newest);
  }
}

Fact libc_of(const InRoot& root, const Process& process) {
  const Package& libc = process.libc;
  const auto status = root.status(libc.path);
  std::string version;
  if (status && identity_of(*status) == libc.identity) version = libc_version(root, libc.path);
  if (version.empty()) return unknown_fact(libc.path + " is no glibc, or cannot be read", libc.path);
  Fact fact = known_fact(canonical({{"name", "glibc"}, {"version", version}}), libc.path);
  add_libstdcxx(fact, root, process);
  return fact;
}

Json to_json(const CompilerCall& call) {
  return {{"command", call.command}, {"search", call.search}, {"unfollowed", call.unfollowed}};
}

CompilerCall compiler_from(const Json& json) {
  return {json.at("command").get<std::string>(), json.at("search").get<std::string>(),
          json.at("unfollowed").get<std::vector<std::string>>()};
}

std::string to_text(const PackageRequest& request) {
  const Process& process = request.process;
  const std::string root = request.held
                               ? "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(request.held->root.get())
                               : process.root;
  Json files = Json::array();
  for (const NamedFile& file : process.files) files.push_back({{"variable", file.variable}, {"path", file.path}});
  const Json json = {
      {"files", std::move(files)},
      {"facet", to_string(request.facet)},
      {"root", root},
      {"torch", process.torch.path},
      {"triton", process.triton.path},
      {"sites", request.facet == Facet::kEngine ? sites_of(process) : std::vector<std::string>()},
      {"libc", process.libc.path},
      {"libstdcxx", process.libstdcxx.path},
      {"compiler", to_json(process.compiler)},
      {"host_compiler", to_json(request.facet == Facet::kCompiler ? own_compiler_call() : CompilerCall())},
      {"libc_identity", process.libc.identity},
      {"user", process.user.user},
      {"group", process.user.group},
      {"groups", process.user.groups},
      {"reads_all", process.user.reads_all},
      {"soabi", process.soabi},
      {"cache", request.cache_file}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Result<ChildRequest> from_text(const std::string& text) {
  return read_request<ChildRequest>(text, [](const Json& json, ChildRequest& request) -> Result<void> {
    Process& process = request.process;
    INDUCTORFS_TRY_ASSIGN(request.facet, facet_from_string(json.at("facet").get<std::string>()));
    json.at("root").get_to(request.root);
    json.at("torch").get_to(process.torch.path);
    json.at("triton").get_to(process.triton.path);
    json.at("sites").get_to(request.sites);
    json.at("libc").get_to(process.libc.path);
    json.at("libc_identity").get_to(process.libc.identity);
    json.at("libstdcxx").get_to(process.libstdcxx.path);
    json.at("user").get_to(process.user.user);
    json.at("group").get_to(process.user.group);
    json.at("groups").get_to(process.user.groups);
    json.at("reads_all").get_to(process.user.reads_all);
    json.at("soabi").get_to(process.soabi);
    json.at("cache").get_to(request.cache_file);
    process.compiler = compiler_from(json.at("compiler"));
    request.host = compiler_from(json.at("host_compiler"));
    for (const Json& one : json.at("files")) {
      process.files.push_back({one.at("variable").get<std::string>(), one.at("path").get<std::string>(), {}});
    }
    return {};
  });
}

Fact package_fact(const ChildRequest& request, const InRoot& root, KeyMemory& memory) {
  const Process& process = request.process;
  PythonFacts python;
  python.soabi = process.soabi;
  python.extensions = suffixes_of(process.soabi);
  python.torch = process.torch.path;
  python.triton = process.triton.path;
  return request.facet == Facet::kTorch ? torch_fact(root, python, memory) : triton_fact(root, python, memory);
}

KeyMemory memory_of(const std::string& cache_file, bool has_our_root, uid_t user) {
  return has_our_root ? KeyMemory(cache_file, user) : KeyMemory::of_containers(cache_file, user);
}

/// Reads without a deadline.
Fact read_here(const ChildRequest& request, const InRoot& root, const Fact& cpu, KeyMemory& memory) {
  const Process& process = request.process;
  if (request.facet == Facet::kLibc) return libc_of(root, process);
  if (request.facet == Facet::kEnvironment) {
    return named_files_fact(process.files, root, {process.torch.path, process.triton.path}, memory);
  }
  if (request.facet == Facet::kEngine) return engine_fact(root, request.sites, memory);
  if (request.facet == Facet::kCompiler) {
    return compiler_files_fact({process.compiler, root, request.host}, cpu, memory);
  }
  return package_fact(request, root, memory);
}

/// A fact, and what the next reader need not compute: this one writes nothing.
Result<std::string> answer_to(const ChildRequest& request) {
  const Process& process = request.process;
  const auto root = request.root.empty() ? Result<InRoot>(InRoot::host()) : InRoot::open(request.root);
  Fact fact;
  Json learned = Json::array();
  if (root) {
    KeyMemory memory = memory_of(request.cache_file, root->is_host(), process.user.user);
    const Fact cpu = request.facet == Facet::kCompiler ? cpu_facts().first : Fact();  // of this host's files
    const auto filter = filter_of_reading();
    (void)codec::digest_of("");  // what OpenSSL loads at its first use it may not load under a filter
    INDUCTORFS_TRY(confine(process.user, root->descriptor(), filter && *filter ? &**filter : nullptr));
    fact = read_here(request, *root, cpu, memory);
    for (const auto& one : memory.learned()) learned.push_back({one.name, one.manifest, one.value});
  } else {
    fact = unknown_fact("the root directory of the process cannot be opened: " + root.error().what(),
                        path_for(request.facet, process));
  }
  Fingerprint facts;
  facts.set(request.facet, std::move(fact));
  const Json json = {{kFactsKey, facts.to_json()}, {kLearnedKey, std::move(learned)}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

/// In the process that had the package read, for the next one. Nobody but its user is told what this one says.
void remember(const PackageRequest& request, const Json& learned) {
  if (request.cache_file.empty() || !learned.is_array() || learned.empty()) return;
  const bool has_our_root = !request.held && request.process.root.empty();
  KeyMemory memory = memory_of(request.cache_file, has_our_root, request.process.user.user);
  size_t left = kLearnedLimit;
  for (const Json& one : learned) {
    if (left-- == 0) break;
    const bool is_one = one.is_array() && one.size() == 3 && std::ranges::all_of(one, &Json::is_string);
    if (!is_one || one.dump().size() > kLearnedBytes) continue;
    memory.keep(one[0].get<std::string>(), one[1].get<std::string>(), one[2].get<std::string>());
  }
  (void)memory.save();  // an unwritable memory costs time at the next start, nothing else
}

Result<Fact> fact_from(const PackageRequest& request, const std::string& out) {
  const Json answer = Json::parse(out, nullptr, false);
  const auto facts = answer.is_object() ? answer.find(kFactsKey) : answer.end();
  if (!answer.is_object() || facts == answer.end() || !facts->is_string()) {
    return fail(ErrorCode::kInvalid, "the reader's answer is none");
  }
  INDUCTORFS_TRY_ASSIGN(const auto read, Fingerprint::from_json(facts->get_ref<const std::string&>()));
  remember(request, answer.value(kLearnedKey, Json()));
  return read.get(request.facet);
}

}  // namespace

Fact package_not_in_time(const std::string& path, Milliseconds deadline) {
  return unknown_fact(path + " could not be read within " + std::to_string(deadline.count()) +
                          " ms; check the file system that it lies on",
                      path);
}

Fact read_package(const PackageRequest& request) {
  const std::string path = path_for(request.facet, request.process);
  if (std::getenv(kPackageRequest) != nullptr) return unknown_fact("this process is itself a reader of packages", path);
  const std::string program = request.program.empty() ? "/proc/self/exe" : request.program;
  ChildOptions options;
  options.environment = {std::string(kPackageRequest) + "=" + to_text(request)};
  options.bare = true;
  options.memory = kReaderMemory;
  const auto child = run_child({program, "package-facts"}, request.deadline, options);
  if (!child && child.error().code() == ErrorCode::kTimedOut) {
    return package_not_in_time(path, request.deadline);
  }
  if (!child) return unknown_fact(path + " could not be read: " + child.error().what(), path);
  if (child->exit_code != 0) {
    return unknown_fact(path + " could not be read: the reader ended with code " + std::to_string(child->exit_code) +
                            ": " + child->err.substr(0, kErrorLimit),
                        path);
  }
  auto fact = fact_from(request, child->out);
  return fact ? std::move(*fact) : unknown_fact(path + ": " + fact.error().what(), path);
}

int run_package_reader() {
  const char* const text = std::getenv(kPackageRequest);
  const auto request =
      text == nullptr ? Result<ChildRequest>(fail(ErrorCode::kInvalid, "there is no request")) : from_text(text);
  return end_reader("package-facts", request ? answer_to(*request) : fail(request.error()));
}

}  // namespace inductorfs::fingerprint
