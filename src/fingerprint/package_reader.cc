// SPDX-License-Identifier: Apache-2.0
#include "package_reader.h"

#include <sys/stat.h>
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

/// What binaries may require of the C++ library that the process has loaded. In the details, because no artefact
/// depends on it by itself.
void add_libstdcxx(Fact& fact, const PackageRequest& request) {
  if (request.root.empty() || request.process.libstdcxx.path.empty()) return;
  const auto root = InRoot::open(request.root);
  const auto bytes = root ? root->read_regular(request.process.libstdcxx.path, kLibraryLimit) : fail(root.error());
  if (!bytes) return;
  for (const auto& [key, prefix] : {std::pair{kGlibcxxKey, kGlibcxxPrefix}, std::pair{kCxxabiKey, kCxxabiPrefix}}) {
    if (const std::string newest = newest_version(*bytes, prefix); !newest.empty()) add_line(fact.details, key, newest);
  }
}

Fact libc_of(const PackageRequest& request) {
  const Process& process = request.process;
  const Package& libc = process.libc;
  const std::string file = process.root + libc.path;
  struct stat status {};
  std::string version;
  if (stat(file.c_str(), &status) == 0 && identity_of(status) == libc.identity) version = libc_version(file);
  if (version.empty()) return unknown_fact(libc.path + " is no glibc, or cannot be read", libc.path);
  Fact fact = known_fact(canonical({{"name", "glibc"}, {"version", version}}), libc.path);
  add_libstdcxx(fact, request);
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
  Json files = Json::array();
  for (const NamedFile& file : process.files) files.push_back({{"variable", file.variable}, {"path", file.path}});
  const Json json = {{"files", std::move(files)},
                     {"facet", to_string(request.facet)},
                     {"root", process.root},
                     {"torch", process.torch.path},
                     {"torch_root", request.root},
                     {"torch_in_root", request.torch_in_root},
                     {"triton", process.triton.path},
                     {"libc", process.libc.path},
                     {"libstdcxx", process.libstdcxx.path},
                     {"compiler", to_json(process.compiler)},
                     {"host_compiler", to_json(request.host)},
                     {"libc_identity", process.libc.identity},
                     {"soabi", process.soabi},
                     {"cache", request.cache_file},
                     {"owner", process.root.empty() && !request.held ? std::string() : std::to_string(process.owner)}};
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

Result<PackageRequest> from_text(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(ErrorCode::kInvalid, "the request is no JSON object");
  PackageRequest request;
  std::string facet;
  std::string owner;
  const std::pair<const char*, std::string*> texts[] = {{"facet", &facet},
                                                        {"root", &request.process.root},
                                                        {"torch", &request.process.torch.path},
                                                        {"torch_root", &request.root},
                                                        {"torch_in_root", &request.torch_in_root},
                                                        {"triton", &request.process.triton.path},
                                                        {"libc", &request.process.libc.path},
                                                        {"libstdcxx", &request.process.libstdcxx.path},
                                                        {"libc_identity", &request.process.libc.identity},
                                                        {"soabi", &request.process.soabi},
                                                        {"cache", &request.cache_file},
                                                        {"owner", &owner}};
  for (const auto& [name, out] : texts) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) return fail(ErrorCode::kInvalid, std::string(name) + " is missing");
    *out = found->get<std::string>();
  }
  INDUCTORFS_TRY_ASSIGN(const auto known, facet_from_string(facet));
  INDUCTORFS_TRY_ASSIGN(request.process.files, files_from(json));
  INDUCTORFS_TRY_ASSIGN(request.process.compiler, compiler_from(json, "compiler"));
  INDUCTORFS_TRY_ASSIGN(request.host, compiler_from(json, "host_compiler"));
  request.facet = known;
  request.owner = owner;
  return request;
}

/// Paths of descriptors, and what the process itself calls these places.
using Replacements = std::vector<std::pair<std::string, std::string>>;

Fact package_fact(const PackageRequest& request, KeyMemory& memory) {
  const Process& process = request.process;
  PythonFacts python;
  python.soabi = process.soabi;
  python.extensions = suffixes_of(process.soabi);
  python.torch = process.root + process.torch.path;
  python.triton = process.root + process.triton.path;
  python.root = request.root;
  python.torch_in_root = request.torch_in_root;
  return request.facet == Facet::kTorch ? torch_fact(python, memory) : triton_fact(python, memory);
}

}  // namespace

Fact read_package_here(const PackageRequest& request) {
  const Process& process = request.process;
  if (request.facet == Facet::kLibc) return libc_of(request);
  KeyMemory memory = request.owner.empty() ? KeyMemory(request.cache_file)
                                           : KeyMemory::of_containers(request.cache_file, request.owner);
  Fact fact;
  if (request.facet == Facet::kEnvironment) {
    fact = named_files_fact(process.files, {process.root, process.torch.path, process.triton.path}, memory);
  } else if (request.facet == Facet::kCompiler) {
    fact = compiler_files_fact({process.compiler, request.root, request.host}, cpu_facts().first, memory);
  } else {
    fact = package_fact(request, memory);
  }
  (void)memory.save();  // an unwritable memory costs time at the next start, nothing else
  return fact;
}

namespace {

/// The request with paths that lead through this process's descriptors.
PackageRequest through_descriptors(const PackageRequest& request, Replacements& replaced) {
  PackageRequest result = request;
  Process& process = result.process;
  const auto place_of = [](const Fd& fd) {
    return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd.get());
  };
  if (request.facet == Facet::kEnvironment) {
    process.root = place_of(request.held->root);
    return result;
  }
  process.root.clear();
  result.root = place_of(request.held->root);
  result.torch_in_root = process.torch.path;
  replaced.emplace_back(result.root, "");
  const auto lead = [&](const Fd& fd, std::string& path, bool is_file) {
    if (path.empty()) return;
    const std::string place = place_of(fd);
    const size_t slash = is_file ? path.size() : path.rfind('/');
    replaced.emplace_back(place, path.substr(0, slash));
    path = place + path.substr(slash);
  };
  lead(request.held->torch, process.torch.path, false);
  lead(request.held->triton, process.triton.path, false);
  lead(request.held->libc, process.libc.path, true);
  // Longest first: the path of descriptor 1 begins those of 10 to 19.
  std::sort(replaced.begin(), replaced.end(),
            [](const auto& one, const auto& other) { return one.first.size() > other.first.size(); });
  return result;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
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
  Replacements replaced;
  PackageRequest led = request.held ? through_descriptors(request, replaced) : request;
  if (!request.held) {
    led.root = request.process.root;
    led.torch_in_root = request.process.torch.path;
  }
  if (request.facet == Facet::kCompiler) led.host = own_compiler_call();
  const std::string text = to_text(led);
  ChildOptions options;
  options.environment = {std::string(kPackageRequest) + "=" + text};
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
  if (!answer) return unknown_fact(path + ": " + answer.error().what(), path);
  Fact fact = answer->get(request.facet);
  for (const auto& [place, name] : replaced) {
    replace_all(fact.problem, place, name);
    replace_all(fact.source, place, name);
  }
  return fact;
}

int run_package_reader() {
  const char* const text = std::getenv(kPackageRequest);
  const auto request =
      text == nullptr ? Result<PackageRequest>(fail(ErrorCode::kInvalid, "there is no request")) : from_text(text);
  if (!request) {
    (void)std::fprintf(stderr, "inductorfs: package-facts: %s\n", request.error().what().c_str());
    return 2;
  }
  Fingerprint answer;
  answer.set(request->facet, read_package_here(*request));
  const std::string json = answer.to_json();
  const bool written = std::fwrite(json.data(), 1, json.size(), stdout) == json.size() && std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

}  // namespace inductorfs::fingerprint
