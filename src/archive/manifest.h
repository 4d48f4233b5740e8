// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/archive/archive.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/remote/index.h"

/// The first member of an archive: what it holds. Pure; safe for concurrent use.
namespace inductorfs::archive {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::string_view kBlobFolder = "blobs/";
/// Larger artefacts are neither written nor read: no mount publishes them by default (`--artefact-limit`).
inline constexpr uint64_t kArtefactLimit = defaults::kLargestArtefact;

/// A scope with its entries.
struct ArchivedScope {
  remote::ScopeInformation scope;
  std::vector<codec::Entry> entries;
};

[[nodiscard]] std::string manifest_text(const std::vector<ArchivedScope>& scopes);
/// Reads a manifest. What one scope or entry says wrongly is left out and counted in the report. kCorrupt: it is no
/// manifest. kNotSupported: of a newer version.
[[nodiscard]] Result<std::vector<ArchivedScope>> read_manifest(std::string_view text, const Audience& audience,
                                                               Report& report);

/// Says why an entry cannot be in this scope; empty if it can.
[[nodiscard]] std::string why_unfit(const codec::Entry& entry, const remote::ScopeInformation& scope);

}  // namespace inductorfs::archive
