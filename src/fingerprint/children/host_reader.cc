// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/children/host_reader.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "fingerprint/common/key_memory.h"
#include "fingerprint/common/read_request.h"
#include "fingerprint/facts/compiler_files.h"
#include "fingerprint/facts/facts.h"
#include "fingerprint/facts/named_files.h"

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
    const auto python = learn_python(options);
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
    const InRoot root = InRoot::host();
    learned(Facet::kCompiler, compiler_fact({own_compiler_call(), root}, cpu_facts().first, memory));
  }
  return result;
}

std::string to_text(const HostRequest& request) {
  const ProbeOptions& options = request.options;
  const Json json = {{"part", name_of(request.part)},     {"python", options.python},
                     {"cache", options.cache_file},       {"torch", request.torch},
                     {"triton", request.triton},          {"sites", request.sites},
                     {"environment", options.environment}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Result<HostRequest> from_text(const std::string& text) {
  return read_request<HostRequest>(text, [](const Json& json, HostRequest& request) -> Result<void> {
    ProbeOptions& options = request.options;
    json.at("python").get_to(options.python);
    json.at("cache").get_to(options.cache_file);
    json.at("torch").get_to(request.torch);
    json.at("triton").get_to(request.triton);
    json.at("sites").get_to(request.sites);
    json.at("environment").get_to(options.environment);
    const auto part = json.at("part").get<std::string>();
    for (const HostPart known : {HostPart::kPackages, HostPart::kCompiler, HostPart::kEnvironment, HostPart::kEngine}) {
      if (part != name_of(known)) continue;
      request.part = known;
      return {};
    }
    return fail(ErrorCode::kInvalid, "no such part: " + part);
  });
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
  return end_reader("host-facts", request ? Result<std::string>(read_here(*request).to_json()) : fail(request.error()));
}

}  // namespace inductorfs::fingerprint
