// SPDX-License-Identifier: Apache-2.0
#include "package_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "child.h"
#include "facts.h"
#include "inductorfs/fingerprint/writers.h"
#include "key_memory.h"
#include "package_keys.h"
#include "writers_packages.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

constexpr size_t kErrorLimit = 500;

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

Fact libc_of(const Process& process) {
  const Package& libc = process.libc;
  const std::string file = process.root + libc.path;
  struct stat status {};
  std::string version;
  if (stat(file.c_str(), &status) == 0 && identity_of(status) == libc.identity) version = libc_version(file);
  if (version.empty()) return unknown_fact(libc.path + " is no glibc, or cannot be read", libc.path);
  return known_fact(canonical({{"name", "glibc"}, {"version", version}}), libc.path);
}

std::string to_text(const PackageRequest& request) {
  const Process& process = request.process;
  const Json json = {{"facet", to_string(request.facet)},
                     {"root", process.root},
                     {"torch", process.torch.path},
                     {"triton", process.triton.path},
                     {"libc", process.libc.path},
                     {"libc_identity", process.libc.identity},
                     {"soabi", process.soabi},
                     {"cache", request.cache_file}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Result<PackageRequest> from_text(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(ErrorCode::kInvalid, "the request is no JSON object");
  PackageRequest request;
  std::string facet;
  const std::pair<const char*, std::string*> texts[] = {{"facet", &facet},
                                                        {"root", &request.process.root},
                                                        {"torch", &request.process.torch.path},
                                                        {"triton", &request.process.triton.path},
                                                        {"libc", &request.process.libc.path},
                                                        {"libc_identity", &request.process.libc.identity},
                                                        {"soabi", &request.process.soabi},
                                                        {"cache", &request.cache_file}};
  for (const auto& [name, out] : texts) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) return fail(ErrorCode::kInvalid, std::string(name) + " is missing");
    *out = found->get<std::string>();
  }
  const auto known = facet_from_string(facet);
  if (!known) return fail(known.error());
  request.facet = *known;
  return request;
}

}  // namespace

Fact read_package_here(const PackageRequest& request) {
  const Process& process = request.process;
  if (request.facet == Facet::kLibc) return libc_of(process);
  PythonFacts python;
  python.soabi = process.soabi;
  python.extensions = suffixes_of(process.soabi);
  python.torch = process.root + process.torch.path;
  python.triton = process.root + process.triton.path;
  // Paths that lead through a process are of no use to the next one: they would only push others out of the memory.
  KeyMemory memory(process.root.empty() ? request.cache_file : std::string());
  Fact fact = request.facet == Facet::kTorch ? torch_fact(python, memory) : triton_fact(python, memory);
  (void)memory.save();  // an unwritable memory costs time at the next start, nothing else
  return fact;
}

Fact package_not_in_time(const std::string& path, Milliseconds deadline) {
  return unknown_fact(path + " could not be read within " + std::to_string(deadline.count()) +
                          " ms; check the file system that it lies on",
                      path);
}

Fact read_package(const PackageRequest& request) {
  const std::string path = package_for(request.facet, request.process).path;
  if (std::getenv(kPackageRequest) != nullptr) return unknown_fact("this process is itself a reader of packages", path);
  const std::string program = request.program.empty() ? "/proc/self/exe" : request.program;
  const ChildOptions options{{std::string(kPackageRequest) + "=" + to_text(request)}, true, std::nullopt};
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
