// SPDX-License-Identifier: Apache-2.0
#include "fuzz_target.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/layout/scope.h"
#include "report.h"

namespace daemon_ = inductorfs::daemon;
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
  check_showable(daemon_::fingerprint_text(daemon_::fingerprint_report(*facts)));
  check_showable(daemon_::families_text(daemon_::families_report(*facts)));
  check_showable(daemon_::comparison_text(daemon_::comparison_report(ours, *facts)));
  check_showable(daemon_::comparison_text(daemon_::comparison_report(*facts, ours)));
  return 0;
}
