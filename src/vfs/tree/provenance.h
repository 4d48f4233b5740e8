// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/fingerprint/writers.h"

namespace inductorfs::vfs {

/// What was found of a process that wrote a file, or gave it its name.
struct Verdict {
  std::string scope;  ///< of the file's family on this host now; empty: it is shared with nobody, and nothing is marked
  fingerprint::Judgement judgement;
  std::shared_ptr<const fingerprint::Writer> writer;  ///< kLater: to be judged on the sealing thread
  std::string other_device{};  ///< why it is private: made for a device that this host does not have
};

/// What is known of all who wrote a file that stands under a final name of a shared family. On the disk it is two
/// extended attributes of the inode (Marks); what waits to be judged is in memory only, so that a crash leaves a file
/// without a mark, which is private.
/// Needs external synchronisation.
struct Provenance {
  std::string scopes;       ///< ids separated by a space: of the families under whose names it was made
  std::string why_private;  ///< a writer has another environment: the file never leaves the host
  std::vector<std::shared_ptr<const fingerprint::Writer>> unjudged;

  [[nodiscard]] bool is_private() const { return !why_private.empty(); }
  [[nodiscard]] bool is_known() const { return is_private() || !scopes.empty(); }
  [[nodiscard]] bool is_for(std::string_view scope) const;
  [[nodiscard]] bool is_settled_for(std::string_view scope) const { return unjudged.empty() && is_for(scope); }
  /// One more writer. What is private stays so.
  void add(const Verdict& verdict);
  void make_private(std::string_view why);
  void add_scope(const std::string& scope);
  bool operator==(const Provenance&) const = default;
};

}  // namespace inductorfs::vfs
