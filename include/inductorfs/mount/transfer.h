// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/archive/archive.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/settings.h"

/// What `inductorfs export` and `inductorfs import` do: a cluster without a mount, and a file.
namespace inductorfs::mount {

/// Writes the excerpt into `file`, which appears whole or not at all; "-" is standard output. Blobs pass through a
/// temporary directory in TMPDIR. Blocks on the network and the disk.
[[nodiscard]] Result<archive::Report> export_cluster(const config::Settings& settings, const archive::Excerpt& excerpt,
                                                     const std::string& file, const archive::OnProgress& progress);

/// Publishes what `file` has and the cluster lacks; "-" is standard input. All blobs of the file lie in a temporary
/// directory in TMPDIR meanwhile.
[[nodiscard]] Result<archive::Report> import_cluster(const config::Settings& settings, const std::string& file,
                                                     const archive::Audience& audience,
                                                     const archive::OnProgress& progress);

}  // namespace inductorfs::mount
