// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "fingerprint/processes/writers_process.h"
#include "inductorfs/fingerprint/writers.h"

namespace inductorfs::fingerprint {

/// Returns the torch, triton, engine or libc facet of a process's environment, or what the files mean that its
/// variables name (the environment facet); empty when it is not known yet.
using FactOf = std::function<std::optional<Fact>(Facet facet, const Process& process)>;

/// Judges a writer. A facet that differs decides before one that is unknown, and that before one that is not known yet.
[[nodiscard]] Judgement judge_writer(const Writer* writer, std::span<const Facet> facets, const ExpectedFacts& mount,
                                     const FactOf& fact_of);

}  // namespace inductorfs::fingerprint
