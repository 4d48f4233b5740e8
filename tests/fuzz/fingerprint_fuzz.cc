// SPDX-License-Identifier: Apache-2.0
#include "fuzz_target.h"
#include "inductorfs/config/json.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/host/report.h"
#include "inductorfs/layout/scope.h"

namespace host = inductorfs::host;
namespace fuzz = inductorfs::fuzz;
namespace layout = inductorfs::layout;
using inductorfs::fingerprint::Fact;
using inductorfs::fingerprint::Fingerprint;

namespace {

Fingerprint this_host() {
  Fingerprint facts;
  for (const auto facet : inductorfs::fingerprint::kAllFacets) {
    Fact fact;
    fact.known = true;
    fact.value = facet == inductorfs::fingerprint::Facet::kGpuArch ? "cc=9.0" : "version=1";
    facts.set(facet, std::move(fact));
  }
  return facts;
}

/// It goes to an operator's terminal.
void check_showable(const std::string& text) {
  for (const char c : text) INDUCTORFS_CHECK((static_cast<unsigned char>(c) >= ' ' && c != 0x7f) || c == '\n');
}

}  // namespace

/// The file of `mount --fingerprint` and `fingerprint --compare`, which is another host's.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Fingerprint ours = this_host();
  const auto facts = Fingerprint::from_json(fuzz::view(data, size));
  if (!facts) {
    INDUCTORFS_CHECK(facts.error().code() == inductorfs::ErrorCode::kInvalid);
    return 0;
  }
  const std::string written = facts->to_json();
  const auto again = Fingerprint::from_json(written);
  INDUCTORFS_CHECK(again.has_value() && again->to_json() == written);
  for (const layout::Rule& rule : layout::all_rules()) {
    const auto scopes = layout::scopes_of(rule.family, *facts);
    INDUCTORFS_CHECK(!scopes.empty());
    for (const layout::Scope& scope : scopes) INDUCTORFS_CHECK(scope.id.empty() != scope.why_private.empty());
  }
  check_showable(host::fingerprint_text(host::fingerprint_report(*facts)));
  check_showable(host::families_text(host::families_report(*facts)));
  check_showable(host::comparison_text(host::comparison_report(ours, *facts)));
  check_showable(host::comparison_text(host::comparison_report(*facts, ours)));
  return 0;
}
