// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/processes/package_reader.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "fingerprint/common/child.h"
#include "fingerprint/common/key_memory.h"
#include "fingerprint/common/read_request.h"
#include "fingerprint/facts/compiler_files.h"
#include "fingerprint/facts/facts.h"
#include "fingerprint/packages/package_keys.h"
#include "fingerprint/processes/look_messages.h"
#include "fingerprint/processes/writers_packages.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/fingerprint/libstdcxx.h"
#include "inductorfs/fingerprint/writers.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

constexpr size_t kErrorLimit = 500;
/// Of a request: between what this host's own processes say, what was told of the process, and what of its files.
constexpr char kParts = '\n';
/// Of an answer: behind each part of what was learned, which may be a path of any bytes.
constexpr char kEnd = '\0';
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

/// A request as the child has it: what no user has chosen, and what is to be parsed by the user. Immutable value.
struct ChildRequest {
  Facet facet = Facet::kTorch;
  FileUser user;
  CompilerCall host;  ///< of the daemon itself
  std::string root;   ///< a path that leads to the root directory of the process; empty: it has the daemon's
  std::string told;   ///< as Process::told
  std::string named;
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
  const Json json = {
      {"facet", to_string(request.facet)},
      {"root", root},
      {"host_compiler", to_json(request.facet == Facet::kCompiler ? own_compiler_call() : CompilerCall())},
      {"user", process.user.user},
      {"group", process.user.group},
      {"groups", process.user.groups},
      {"reads_all", process.user.reads_all}};
  const bool is_told = !process.told.text.empty();
  return json.dump(-1, ' ', true, Json::error_handler_t::replace)
      .append(1, kParts)
      .append(is_told ? process.told.text : to_text(process))
      .append(1, kParts)
      .append(is_told ? process.named.text : named_text(process.files, process.compiler));
}

/// The text up to the next part, which it leaves.
std::string_view take_to(std::string_view& text, char end) {
  const std::string_view part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(part.size() + 1, text.size()));
  return part;
}

Result<ChildRequest> from_text(std::string_view text) {
  const std::string own(take_to(text, kParts));
  auto request = read_request<ChildRequest>(own, [](const Json& json, ChildRequest& out) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(out.facet, facet_from_string(json.at("facet").get<std::string>()));
    json.at("root").get_to(out.root);
    json.at("user").get_to(out.user.user);
    json.at("group").get_to(out.user.group);
    json.at("groups").get_to(out.user.groups);
    json.at("reads_all").get_to(out.user.reads_all);
    out.host = compiler_from(json.at("host_compiler"));
    return {};
  });
  if (!request) return request;
  request->told = take_to(text, kParts);
  request->named = text;
  return request;
}

Result<Process> process_of(const ChildRequest& request) {
  auto process = process_from(request.told);
  if (!process || (!request.named.empty() && !take_named(request.named, *process))) {
    return fail(ErrorCode::kInvalid, "what was told of the process cannot be read");
  }
  process->user = request.user;
  return std::move(*process);
}

Fact package_fact(Facet facet, const Process& process, const InRoot& root, KeyMemory& memory) {
  PythonFacts python;
  python.soabi = process.soabi;
  python.extensions = suffixes_of(process.soabi);
  python.torch = process.torch.path;
  python.triton = process.triton.path;
  return facet == Facet::kTorch ? torch_fact(root, python, memory) : triton_fact(root, python, memory);
}

/// Reads without a deadline.
Fact read_here(const ChildRequest& request, const Process& process, const InRoot& root, const Fact& cpu,
               KeyMemory& memory) {
  if (request.facet == Facet::kLibc) return libc_of(root, process);
  if (request.facet == Facet::kEnvironment) {
    return named_files_fact(process.files, root, {process.torch.path, process.triton.path}, memory);
  }
  if (request.facet == Facet::kEngine) return engine_fact(root, sites_of(process), memory);
  if (request.facet == Facet::kCompiler) {
    return compiler_fact({process.compiler, root, request.host}, cpu, memory);
  }
  return package_fact(request.facet, process, root, memory);
}

/// What the child was handed; nothing where nothing is remembered.
std::string handed_memory() {
  const Fd file(kChildDescriptor);
  return read_whole(file, "the memory of digests").value_or("");
}

/// A fact, and what the next reader need not compute: this one writes nothing.
Result<std::string> answer_to(const ChildRequest& request) {
  const auto root = request.root.empty() ? Result<InRoot>(InRoot::host()) : InRoot::open(request.root);
  const Fact cpu = request.facet == Facet::kCompiler ? cpu_facts().first : Fact();  // of this host's files
  const auto filter = filter_of_reading();
  (void)codec::digest_of("");  // what OpenSSL loads at its first use it may not load under a filter
  INDUCTORFS_TRY(confine(request.user, root ? root->descriptor() : -1, filter && *filter ? &**filter : nullptr));
  INDUCTORFS_TRY_ASSIGN(const auto process, process_of(request));
  if (!root) {
    return to_text(request.facet,
                   unknown_fact("the root directory of the process cannot be opened: " + root.error().what(),
                                path_for(request.facet, process))) +
           "\n";
  }
  KeyMemory memory = KeyMemory::handed(handed_memory(), request.user.user, !root->is_host());
  std::string answer = to_text(request.facet, read_here(request, process, *root, cpu, memory)) + "\n";
  for (const auto& one : memory.learned()) {
    for (const std::string& part : {one.name, one.manifest, one.value}) answer.append(part).append(1, kEnd);
  }
  return answer;
}

KeyMemory memory_of(const PackageRequest& request) {
  const bool has_our_root = !request.held && request.process.root.empty();
  const uid_t user = request.process.user.user;
  return has_our_root ? KeyMemory(request.cache_file, user) : KeyMemory::of_containers(request.cache_file, user);
}

/// A file of what the reader may know of the memory; none: it knows nothing, which costs time.
Fd file_for_reader(const KeyMemory& memory) {
  Fd file(::memfd_create("inductorfs-digests", MFD_CLOEXEC));
  const bool is_whole = file && write_full(file.get(), memory.text()).has_value();
  return is_whole ? std::move(file) : Fd();
}

/// In the process that had the package read, for the next one. Nobody but its user is told what this one says.
void remember(KeyMemory& memory, std::string_view learned) {
  for (size_t left = kLearnedLimit; left > 0 && !learned.empty(); --left) {
    const std::string_view name = take_to(learned, kEnd);
    const std::string_view manifest = take_to(learned, kEnd);
    const std::string_view value = take_to(learned, kEnd);
    if (name.size() + manifest.size() + value.size() > kLearnedBytes) continue;
    memory.keep(std::string(name), manifest, value);
  }
  (void)memory.save();  // an unwritable memory costs time at the next start, nothing else
}

}  // namespace

Fact package_not_in_time(const std::string& path, Milliseconds deadline) {
  return unknown_fact(path + " could not be read within " + std::to_string(deadline.count()) +
                          " ms; check the file system that it lies on",
                      path);
}

std::string have_package_read(const PackageRequest& request) {
  const auto unknown = [&request](const std::string& problem) {
    return to_text(request.facet, unknown_fact(request.path + problem, request.path));
  };
  if (std::getenv(kPackageRequest) != nullptr) return unknown(": this process is itself a reader of packages");
  const std::string program = request.program.empty() ? "/proc/self/exe" : request.program;
  KeyMemory memory = memory_of(request);
  const Fd file = file_for_reader(memory);
  ChildOptions options;
  options.environment = {std::string(kPackageRequest) + "=" + to_text(request)};
  options.bare = true;
  options.memory = kReaderMemory;
  options.descriptor = file.get();
  const auto child = run_child({program, "package-facts"}, request.deadline, options);
  if (!child && child.error().code() == ErrorCode::kTimedOut) {
    return to_text(request.facet, package_not_in_time(request.path, request.deadline));
  }
  if (!child) return unknown(" could not be read: " + child.error().what());
  if (child->exit_code != 0) {
    return unknown(" could not be read: the reader ended with code " + std::to_string(child->exit_code) + ": " +
                   child->err.substr(0, kErrorLimit));
  }
  std::string_view learned = child->out;
  const std::string_view line = take_to(learned, '\n');
  if (!request.cache_file.empty()) remember(memory, learned);
  return std::string(line);
}

int run_package_reader() {
  const char* const text = std::getenv(kPackageRequest);
  const auto request =
      text == nullptr ? Result<ChildRequest>(fail(ErrorCode::kInvalid, "there is no request")) : from_text(text);
  return end_reader("package-facts", request ? answer_to(*request) : fail(request.error()));
}

}  // namespace inductorfs::fingerprint
