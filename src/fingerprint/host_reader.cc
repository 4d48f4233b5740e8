// SPDX-License-Identifier: Apache-2.0
#include "host_reader.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "facts.h"
#include "key_memory.h"
#include "named_files.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

constexpr const char* kPackages = "packages";
constexpr const char* kCompiler = "compiler";
constexpr const char* kEnvironment = "environment";
constexpr const char* kEngine = "engine";

/// What the child reads. Immutable value.
struct HostRequest {
  ProbeOptions options;
  HostPart part = HostPart::kPackages;
  std::string torch;  ///< of kEnvironment: the packages' directories
  std::string triton;
  std::vector<std::string> sites{};  ///< of kEngine: where the interpreter looks for modules
};

const char* name_of(HostPart part) {
  if (part == HostPart::kEnvironment) return kEnvironment;
  if (part == HostPart::kEngine) return kEngine;
  return part == HostPart::kPackages ? kPackages : kCompiler;
}

Fingerprint read_here(const HostRequest& request) {
  const ProbeOptions& options = request.options;
  const HostPart part = request.part;
  Fingerprint result;
  KeyMemory memory(options.cache_file);
  // After each fact: what comes after it may take longer than there is time. An unwritable memory costs time at the
  // next start, nothing else.
  const auto learned = [&](Facet facet, Fact fact) {
    result.set(facet, std::move(fact));
    (void)memory.save();
  };
  if (part == HostPart::kPackages) {
    const auto python = learn_python(options, memory);
    learned(Facet::kPython, python_fact(python));
    learned(Facet::kTorch, torch_fact(InRoot::host(), python, memory));
    learned(Facet::kCuda, cuda_of_torch(python));
    learned(Facet::kTriton, triton_fact(InRoot::host(), python, memory));
  } else if (part == HostPart::kEngine) {
    learned(Facet::kEngine, engine_fact(InRoot::host(), request.sites, memory));
  } else if (part == HostPart::kEnvironment) {
    const auto files = named_files(options.environment, {});
    learned(Facet::kEnvironment, named_files_fact(files, InRoot::host(), {request.torch, request.triton}, memory));
  } else {
    learned(Facet::kCompiler, compiler_fact(options, cpu_facts().first, memory));
  }
  return result;
}

std::string to_text(const HostRequest& request) {
  const ProbeOptions& options = request.options;
  const Json json = {{"part", name_of(request.part)},
                     {"python", options.python},
                     {"compiler", options.compiler},
                     {"cache", options.cache_file},
                     {"torch", request.torch},
                     {"triton", request.triton},
                     {"sites", request.sites},
                     {"environment", options.environment},
                     {"deadline", options.deadline.count()}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Result<HostRequest> from_text(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(ErrorCode::kInvalid, "the request is no JSON object");
  HostRequest request;
  ProbeOptions& options = request.options;
  std::string part;
  const std::pair<const char*, std::string*> texts[] = {{"part", &part},
                                                        {"python", &options.python},
                                                        {"compiler", &options.compiler},
                                                        {"cache", &options.cache_file},
                                                        {"torch", &request.torch},
                                                        {"triton", &request.triton}};
  for (const auto& [name, out] : texts) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) return fail(ErrorCode::kInvalid, std::string(name) + " is missing");
    *out = found->get<std::string>();
  }
  const auto environment = json.find("environment");
  if (environment == json.end() || !environment->is_object()) {
    return fail(ErrorCode::kInvalid, "environment is missing");
  }
  for (const auto& [name, value] : environment->items()) {
    if (value.is_string()) options.environment[name] = value.get<std::string>();
  }
  const auto sites = json.find("sites");
  if (sites == json.end() || !sites->is_array()) return fail(ErrorCode::kInvalid, "sites is missing");
  for (const Json& site : *sites) {
    if (site.is_string()) request.sites.push_back(site.get<std::string>());
  }
  const auto deadline = json.find("deadline");
  if (deadline == json.end() || !deadline->is_number_integer()) return fail(ErrorCode::kInvalid, "deadline is missing");
  options.deadline = Milliseconds(deadline->get<int64_t>());
  for (const HostPart known : {HostPart::kPackages, HostPart::kCompiler, HostPart::kEnvironment, HostPart::kEngine}) {
    if (part != name_of(known)) continue;
    request.part = known;
    return request;
  }
  return fail(ErrorCode::kInvalid, "no such part: " + part);
}

Result<Fingerprint> read_by_child(const HostRequest& request) {
  INDUCTORFS_TRY_ASSIGN(const auto answer, ask_reader(request.options.reader, "host-facts", to_text(request)));
  return Fingerprint::from_json(answer);
}

Fingerprint not_read(const ProbeOptions& options, HostPart part, const Error& why) {
  const bool late = why.code() == ErrorCode::kTimedOut;
  const auto problem = [&](const std::string& what) {
    return what + " could not be read" +
           (late ? " within " + std::to_string(options.reader.deadline.count()) +
                       " ms; check the file system that its files lie on"
                 : ": " + why.what());
  };
  Fingerprint result;
  if (part == HostPart::kCompiler) {
    result.set(Facet::kCompiler, unknown_fact(problem("the C++ compiler")));
    return result;
  }
  if (part == HostPart::kEngine) {
    result.set(Facet::kEngine, unknown_fact(problem("the packages of serving engines")));
    return result;
  }
  if (part == HostPart::kEnvironment) {
    result.set(Facet::kEnvironment, unknown_fact(problem("a file that a declared variable names")));
    return result;
  }
  const std::string name = options.python.empty() ? std::string() : " " + options.python;
  const std::string text = problem("the interpreter" + name);
  for (const Facet facet : {Facet::kPython, Facet::kTorch, Facet::kTriton, Facet::kCuda}) {
    result.set(facet, unknown_fact(text));
  }
  return result;
}

}  // namespace

Fingerprint read_host(const ProbeOptions& options, HostPart part) {
  const HostRequest request{options, part, {}, {}};
  if (options.reader.program.empty()) return read_here(request);
  auto read = read_by_child(request);
  return read ? std::move(*read) : not_read(options, part, read.error());
}

Fact read_declared(const ProbeOptions& options, const std::string& torch, const std::string& triton) {
  const HostRequest request{options, HostPart::kEnvironment, torch, triton};
  if (options.reader.program.empty()) return read_here(request).get(Facet::kEnvironment);
  const auto read = read_by_child(request);
  return (read ? *read : not_read(options, request.part, read.error())).get(Facet::kEnvironment);
}

Fact read_engine(const ProbeOptions& options, const std::vector<std::string>& sites) {
  const HostRequest request{options, HostPart::kEngine, {}, {}, sites};
  if (options.reader.program.empty()) return read_here(request).get(Facet::kEngine);
  const auto read = read_by_child(request);
  return (read ? *read : not_read(options, request.part, read.error())).get(Facet::kEngine);
}

int run_host_reader() {
  const auto text = reader_request();
  const auto request = text ? from_text(*text) : Result<HostRequest>(fail(text.error()));
  if (!request) {
    (void)std::fprintf(stderr, "inductorfs: host-facts: %s\n", request.error().what().c_str());
    return 2;
  }
  const std::string json = read_here(*request).to_json();
  const bool written = std::fwrite(json.data(), 1, json.size(), stdout) == json.size() && std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

}  // namespace inductorfs::fingerprint
