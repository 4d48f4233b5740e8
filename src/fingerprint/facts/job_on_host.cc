// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "fingerprint/facts/facts.h"
#include "inductorfs/fingerprint/facet_text.h"
#include "inductorfs/fingerprint/writers.h"

namespace inductorfs::fingerprint {
namespace {

/// The text without the lines of one key.
std::string without(const std::string& text, std::string_view key) {
  std::string rest;
  for (const std::string_view line : lines_of(text)) {
    const auto parts = split_line(line);
    if (parts && parts->first == key) continue;
    if (!rest.empty()) rest += "\n";
    rest += line;
  }
  return rest;
}

/// The driver is the host's, and the toolkit is the one that the job's torch was built with (cuda_fact()).
Fact cuda_of_job(const Fact& host, const Fact& torch) {
  const auto driver = value_of(host.known ? host.value : host.details, "driver");
  if (!driver) return host;
  if (!torch.known) return unknown_fact("the CUDA version of torch is not known, as torch is not", torch.source);
  Lines lines = {{"driver", *driver}};
  const auto cuda = value_of(torch.details, "cuda");
  lines.emplace_back("torch", cuda.value_or("").empty() ? std::string(kNone) : *cuda);
  const auto hip = value_of(torch.details, "hip");
  if (hip && !hip->empty()) lines.emplace_back("hip", *hip);
  Fact fact = known_fact(canonical(lines), torch.source);
  fact.details = host.details;
  return fact;
}

}  // namespace

Fingerprint with_job(const Fingerprint& host, const Fingerprint& job) {
  Fingerprint facts = host;
  for (const Facet facet : kAllFacets) {
    if (job.has(facet)) facts.set(facet, job.get(facet));
  }
  // The host's engines are not the job's.
  if (!job.has(Facet::kEngine)) {
    facts.set(Facet::kEngine, unknown_fact("no serving engine is known of these programs"));
  }
  const Fact& torch = facts.get(Facet::kTorch);
  Fact isa = host.get(Facet::kCpuIsa);
  isa.value = without(isa.value, "threads");
  facts.set(Facet::kCpuIsa, with_thread_count(std::move(isa), torch));
  facts.set(Facet::kCuda, cuda_of_job(host.get(Facet::kCuda), torch));
  doubt_for_torch(facts);
  return facts;
}

}  // namespace inductorfs::fingerprint
