// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "inductorfs/fingerprint/fingerprint.h"

/// Facts for tests: every facet is known unless a test says otherwise.
namespace inductorfs::testing::facts {

inline fingerprint::Fact known(const std::string& value, const std::string& source = "test") {
  fingerprint::Fact fact;
  fact.known = true;
  fact.value = value;
  fact.source = source;
  return fact;
}

inline fingerprint::Fact unknown(const std::string& problem) {
  fingerprint::Fact fact;
  fact.problem = problem;
  return fact;
}

inline fingerprint::Fingerprint all_known(const std::map<fingerprint::Facet, std::string>& values = {}) {
  fingerprint::Fingerprint facts;
  for (const fingerprint::Facet facet : fingerprint::kAllFacets) {
    const auto given = values.find(facet);
    const std::string value = "v=" + std::string(fingerprint::to_string(facet));
    facts.set(facet, known(given == values.end() ? value : given->second));
  }
  return facts;
}

/// All known, but for this one.
inline fingerprint::Fingerprint all_known_but(fingerprint::Facet facet, const fingerprint::Fact& fact) {
  fingerprint::Fingerprint facts = all_known();
  facts.set(facet, fact);
  return facts;
}

}  // namespace inductorfs::testing::facts
