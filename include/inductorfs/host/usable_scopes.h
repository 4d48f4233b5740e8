// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/layout/layout.h"
#include "inductorfs/remote/index.h"

/// Says which scopes of a cluster the jobs of this host may come to use. Pure; safe for concurrent use.
namespace inductorfs::host {

/// What the facts of this host leave open.
struct OpenFacts {
  bool jobs =
      false;  ///< each job brings torch, Triton, Python, a compiler, an engine and its variables (`--writers learned`)
  bool trust = false;  ///< cache roots are parted by users, who may come at any time (`--trust`)
};

/// Returns the families that would have this scope on this host, if a job (or user) with the facts of the scope's text
/// came; empty if none can: the scope belongs to hosts with another GPU, driver, C library or CPU. A text that says
/// anything else than facets gives none.
[[nodiscard]] std::vector<layout::Family> families_here(const fingerprint::Fingerprint& host, OpenFacts open,
                                                        const remote::ScopeInformation& scope);

/// Names the facets of the scope that no job on this host can have, as "gpu, libc".
[[nodiscard]] std::string foreign_facets(const fingerprint::Fingerprint& host, OpenFacts open,
                                         const remote::ScopeInformation& scope);

}  // namespace inductorfs::host
