// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "catalog/parts.h"

namespace inductorfs::catalog {

/// Puts the small artefacts of a job's start into solid blocks of the cluster (remote::Blobs::gather), when this host
/// has published the start's list: what belongs together then takes less memory there, and a fresh node gets it with a
/// few values. Confined to the catalog-sweep thread.
class Gatherer {
 public:
  explicit Gatherer(Parts& parts) : parts_(parts), blobs_(parts.blobs.blobs_until([this] { return is_over(); })) {}

  /// A start list that was published.
  struct Start {
    std::string root;
    codec::Digest list;
  };
  /// Gathers what the list names and the root shows. Blocks on the cluster and on the local disk; best effort.
  void gather(const Start& start);

 private:
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] std::vector<codec::Digest> blobs_of(const Start& start) const;

  Parts& parts_;
  const std::shared_ptr<remote::Blobs> blobs_;
};

}  // namespace inductorfs::catalog
