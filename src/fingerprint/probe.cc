// SPDX-License-Identifier: Apache-2.0
#include <thread>
#include <utility>

#include "fingerprint/children/host_reader.h"
#include "fingerprint/facts/facts.h"
#include "fingerprint/facts/named_files.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/fingerprint/variables.h"

namespace inductorfs::fingerprint {

Fact known_fact(std::string value, std::string source) { return {true, std::move(value), std::move(source), {}, {}}; }

Fact unknown_fact(std::string problem, std::string source) {
  return {false, {}, std::move(source), std::move(problem), {}};
}

namespace {

Fingerprint packages_of(const ProbeOptions& options) {
  if (!options.packages_of_jobs) return read_host(options, HostPart::kPackages);
  Fingerprint none;
  for (const Facet facet : {Facet::kPython, Facet::kTorch, Facet::kTriton, Facet::kCuda, Facet::kEngine}) {
    none.set(facet, unknown_fact("each job has its own, which this mount learns from it", "the mount"));
  }
  return none;
}

/// The packages of serving engines that the interpreter would import.
Fact engine_of(const ProbeOptions& options, const Fingerprint& packages) {
  if (packages.has(Facet::kEngine)) return packages.get(Facet::kEngine);
  const Fact& python = packages.get(Facet::kPython);
  if (!python.known) return unknown_fact("it is not known where packages are installed: " + python.problem);
  return read_engine(options, values_of(python.details, kSiteKey));
}

}  // namespace

Fact environment_fact(const ProbeOptions& options, const Fingerprint& facts) {
  constexpr std::string_view kSource = "declared for the mount";
  const auto folder = [&facts](Facet facet) {
    const Fact& fact = facts.get(facet);
    return fact.known && !fact.is_none() && fact.source.starts_with('/') ? fact.source : std::string();
  };
  auto values = environment_values(options.environment);
  ProbeOptions named = options;
  // A content is declared as such for a mount on a host that does not have the file.
  std::erase_if(named.environment, [](const auto& one) { return is_content_value(one.second); });
  const auto files = named_files(named.environment, {});
  if (files.empty()) return known_fact(environment_text(values), std::string(kSource));
  const Fact meaning = read_declared(named, folder(Facet::kTorch), folder(Facet::kTriton));
  if (!meaning.known) return meaning;
  std::string details;
  for (const NamedFile& file : files) {
    add_line(details, kNamedFileKey, file.path);
    std::string value = named_value(meaning, file.variable);
    if (value.empty()) {
      values.erase(file.variable);
    } else {
      values[file.variable] = std::move(value);
    }
  }
  Fact fact = known_fact(environment_text(values), std::string(kSource));
  fact.details = std::move(details);
  return fact;
}

Fingerprint probe(const ProbeOptions& options) {
  // The driver takes a second to start, longer than all the rest once the keys are remembered.
  GpuAnswer gpu;
  std::jthread asking = start_thread("gpu-probe", [&gpu, &options](const std::stop_token&) { gpu = ask_gpu(options); });

  Fingerprint result;
  const Fingerprint packages = packages_of(options);
  for (const Facet facet : {Facet::kPython, Facet::kTorch, Facet::kTriton}) result.set(facet, packages.get(facet));
  // A digest that has to be made anew takes seconds, as the compiler's answers do.
  Fact engine;
  std::jthread looking =
      start_thread("engine-probe", [&](const std::stop_token&) { engine = engine_of(options, packages); });
  result.set(Facet::kCompiler, read_host(options, HostPart::kCompiler).get(Facet::kCompiler));
  auto [cpu, isa] = cpu_facts();
  result.set(Facet::kCpu, std::move(cpu));
  result.set(Facet::kCpuIsa, with_thread_count(std::move(isa), packages.get(Facet::kTorch)));
  result.set(Facet::kLibc, libc_fact());
  result.set(Facet::kEnvironment, environment_fact(options, result));

  looking.join();
  result.set(Facet::kEngine, std::move(engine));
  asking.join();
  result.set(Facet::kGpu, gpu_fact(gpu));
  result.set(Facet::kGpuArch, gpu_arch_fact(gpu));
  result.set(Facet::kCuda, cuda_fact(packages.get(Facet::kCuda), gpu));
  if (!options.packages_of_jobs) doubt_for_torch(result);  // for jobs with_job() does it
  return result;
}

}  // namespace inductorfs::fingerprint
