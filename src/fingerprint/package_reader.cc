// SPDX-License-Identifier: Apache-2.0
#include "package_reader.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "child.h"
#include "compiler_files.h"
#include "facts.h"
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
/// Another user chose the files. Eight readers run at once (Packages), so that all have 512 MiB together.
constexpr uint64_t kReaderMemory = uint64_t{64} << 20;
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

/// Reads without a deadline.
Fact read_here(const ChildRequest& request) {
  const Process& process = request.process;
  const auto root = request.root.empty() ? Result<InRoot>(InRoot::host()) : InRoot::open(request.root);
  if (!root) {
    return unknown_fact("the root directory of the process cannot be opened: " + root.error().what(),
                        path_for(request.facet, process));
  }
  const uid_t user = process.user.user;
  KeyMemory memory =
      root->is_host() ? KeyMemory(request.cache_file, user) : KeyMemory::of_containers(request.cache_file, user);
  const pid_t parent = ::getppid();
  const ReadAs reader(process.user);
  // With the other user the kernel has forgotten it: whoever waits for this process may end.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(EXIT_FAILURE);
  if (request.facet == Facet::kLibc) return libc_of(*root, process);
  Fact fact;
  if (request.facet == Facet::kEnvironment) {
    fact = named_files_fact(process.files, *root, {process.torch.path, process.triton.path}, memory);
  } else if (request.facet == Facet::kEngine) {
    fact = engine_fact(*root, request.sites, memory);
  } else if (request.facet == Facet::kCompiler) {
    fact = compiler_files_fact({process.compiler, *root, request.host}, cpu_facts().first, memory);
  } else {
    fact = package_fact(request, *root, memory);
  }
  (void)memory.save();  // an unwritable memory costs time at the next start, nothing else
  return fact;
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
  const auto answer = Fingerprint::from_json(child->out);
  return answer ? answer->get(request.facet) : unknown_fact(path + ": " + answer.error().what(), path);
}

int run_package_reader() {
  const char* const text = std::getenv(kPackageRequest);
  const auto request =
      text == nullptr ? Result<ChildRequest>(fail(ErrorCode::kInvalid, "there is no request")) : from_text(text);
  if (!request) return end_reader("package-facts", fail(request.error()));
  Fingerprint answer;
  answer.set(request->facet, read_here(*request));
  return end_reader("package-facts", answer.to_json());
}

}  // namespace inductorfs::fingerprint
