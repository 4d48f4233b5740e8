// SPDX-License-Identifier: Apache-2.0
#include "package_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
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
#include "writers_packages.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

constexpr size_t kErrorLimit = 500;
/// libstdc++ of gcc 12 has 2 MB.
constexpr uint64_t kLibraryLimit = uint64_t{64} << 20;

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

Result<CompilerCall> compiler_from(const Json& json, const char* name) {
  CompilerCall call;
  const auto found = json.find(name);
  const auto is_text = [&](const char* part) { return found->contains(part) && (*found)[part].is_string(); };
  if (found == json.end() || !found->is_object() || !is_text("command") || !is_text("search") ||
      !found->contains("unfollowed") || !(*found)["unfollowed"].is_array()) {
    return fail(ErrorCode::kInvalid, std::string(name) + " is missing");
  }
  call.command = (*found)["command"].get<std::string>();
  call.search = (*found)["search"].get<std::string>();
  for (const Json& one : (*found)["unfollowed"]) {
    if (one.is_string()) call.unfollowed.push_back(one.get<std::string>());
  }
  return call;
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

Result<std::vector<NamedFile>> files_from(const Json& json) {
  std::vector<NamedFile> files;
  const auto list = json.find("files");
  if (list == json.end() || !list->is_array()) return fail(ErrorCode::kInvalid, "files is missing");
  for (const Json& one : *list) {
    const bool whole = one.is_object() && one.contains("variable") && one["variable"].is_string() &&
                       one.contains("path") && one["path"].is_string();
    if (!whole) return fail(ErrorCode::kInvalid, "files has an entry without variable and path");
    files.push_back({one["variable"].get<std::string>(), one["path"].get<std::string>(), {}});
  }
  return files;
}

Result<std::vector<std::string>> sites_from(const Json& json) {
  std::vector<std::string> sites;
  const auto list = json.find("sites");
  if (list == json.end() || !list->is_array()) return fail(ErrorCode::kInvalid, "sites is missing");
  for (const Json& one : *list) {
    if (one.is_string()) sites.push_back(one.get<std::string>());
  }
  return sites;
}

Result<FileUser> user_from(const Json& json) {
  FileUser user;
  for (const auto& [name, out] : {std::pair<const char*, uint32_t*>{"user", &user.user}, {"group", &user.group}}) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_number_unsigned()) {
      return fail(ErrorCode::kInvalid, std::string(name) + " is missing");
    }
    *out = found->get<uint32_t>();
  }
  user.reads_all = json.value("reads_all", Json()) == true;
  const auto groups = json.find("groups");
  if (groups == json.end() || !groups->is_array()) return fail(ErrorCode::kInvalid, "groups is missing");
  for (const Json& group : *groups) {
    if (group.is_number_unsigned()) user.groups.push_back(group.get<gid_t>());
  }
  return user;
}

Result<ChildRequest> from_text(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(ErrorCode::kInvalid, "the request is no JSON object");
  ChildRequest request;
  std::string facet;
  const std::pair<const char*, std::string*> texts[] = {{"facet", &facet},
                                                        {"root", &request.root},
                                                        {"torch", &request.process.torch.path},
                                                        {"triton", &request.process.triton.path},
                                                        {"libc", &request.process.libc.path},
                                                        {"libstdcxx", &request.process.libstdcxx.path},
                                                        {"libc_identity", &request.process.libc.identity},
                                                        {"soabi", &request.process.soabi},
                                                        {"cache", &request.cache_file}};
  for (const auto& [name, out] : texts) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) return fail(ErrorCode::kInvalid, std::string(name) + " is missing");
    *out = found->get<std::string>();
  }
  INDUCTORFS_TRY_ASSIGN(request.facet, facet_from_string(facet));
  INDUCTORFS_TRY_ASSIGN(request.process.files, files_from(json));
  INDUCTORFS_TRY_ASSIGN(request.sites, sites_from(json));
  INDUCTORFS_TRY_ASSIGN(request.process.user, user_from(json));
  INDUCTORFS_TRY_ASSIGN(request.process.compiler, compiler_from(json, "compiler"));
  INDUCTORFS_TRY_ASSIGN(request.host, compiler_from(json, "host_compiler"));
  return request;
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
  KeyMemory memory = root->is_host() ? KeyMemory(request.cache_file)
                                     : KeyMemory::of_containers(request.cache_file, std::to_string(process.user.user));
  const ReadAs reader(process.user);
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
  if (!request) {
    (void)std::fprintf(stderr, "inductorfs: package-facts: %s\n", request.error().what().c_str());
    return 2;
  }
  Fingerprint answer;
  answer.set(request->facet, read_here(*request));
  const std::string json = answer.to_json();
  const bool written = std::fwrite(json.data(), 1, json.size(), stdout) == json.size() && std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

}  // namespace inductorfs::fingerprint
