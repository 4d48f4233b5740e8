// SPDX-License-Identifier: Apache-2.0
#include "host_reader.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "facts.h"
#include "key_memory.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

constexpr const char* kPackages = "packages";
constexpr const char* kCompiler = "compiler";

Fingerprint read_here(const ProbeOptions& options, HostPart part) {
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
    learned(Facet::kTorch, torch_fact(python, memory));
    learned(Facet::kCuda, cuda_of_torch(python));
    learned(Facet::kTriton, triton_fact(python, memory));
  } else {
    learned(Facet::kCompiler, compiler_fact(options, cpu_facts().first, memory));
  }
  return result;
}

std::string to_text(const ProbeOptions& options, HostPart part) {
  const Json json = {{"part", part == HostPart::kPackages ? kPackages : kCompiler},
                     {"python", options.python},
                     {"compiler", options.compiler},
                     {"cache", options.cache_file},
                     {"deadline", options.deadline.count()}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Result<std::pair<ProbeOptions, HostPart>> from_text(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(ErrorCode::kInvalid, "the request is no JSON object");
  ProbeOptions options;
  std::string part;
  const std::pair<const char*, std::string*> texts[] = {
      {"part", &part}, {"python", &options.python}, {"compiler", &options.compiler}, {"cache", &options.cache_file}};
  for (const auto& [name, out] : texts) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) return fail(ErrorCode::kInvalid, std::string(name) + " is missing");
    *out = found->get<std::string>();
  }
  const auto deadline = json.find("deadline");
  if (deadline == json.end() || !deadline->is_number_integer()) return fail(ErrorCode::kInvalid, "deadline is missing");
  options.deadline = Milliseconds(deadline->get<int64_t>());
  return std::pair(std::move(options), part == kPackages ? HostPart::kPackages : HostPart::kCompiler);
}

Result<Fingerprint> read_by_child(const ProbeOptions& options, HostPart part) {
  INDUCTORFS_TRY_ASSIGN(const auto answer, ask_reader(options.reader, "host-facts", to_text(options, part)));
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
  const std::string name = options.python.empty() ? std::string() : " " + options.python;
  const std::string text = problem("the interpreter" + name);
  for (const Facet facet : {Facet::kPython, Facet::kTorch, Facet::kTriton, Facet::kCuda}) {
    result.set(facet, unknown_fact(text));
  }
  return result;
}

}  // namespace

Fingerprint read_host(const ProbeOptions& options, HostPart part) {
  if (options.reader.program.empty()) return read_here(options, part);
  auto read = read_by_child(options, part);
  return read ? std::move(*read) : not_read(options, part, read.error());
}

int run_host_reader() {
  const auto text = reader_request();
  const auto request = text ? from_text(*text) : Result<std::pair<ProbeOptions, HostPart>>(fail(text.error()));
  if (!request) {
    (void)std::fprintf(stderr, "inductorfs: host-facts: %s\n", request.error().what().c_str());
    return 2;
  }
  const std::string json = read_here(request->first, request->second).to_json();
  const bool written = std::fwrite(json.data(), 1, json.size(), stdout) == json.size() && std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

}  // namespace inductorfs::fingerprint
