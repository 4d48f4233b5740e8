// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/fingerprint/writers.h"

namespace inductorfs::vfs {

/// The result of examining a process that wrote a file, or gave the file its name.
struct WriterVerdict {
  /// Of the file's family on this host now. Empty: the family is not shared, and nothing is marked, unless the
  /// judgement is kLater; then it is known when the file is judged.
  std::string scope;
  fingerprint::Judgement judgement;
  std::shared_ptr<const fingerprint::Writer> writer;  ///< kLater: the sealing thread is to judge it
  std::string other_device{};  ///< why the file is private: it was made for a device that this host does not have

  [[nodiscard]] bool says_nothing() const {
    return scope.empty() && other_device.empty() && judgement.match != fingerprint::Match::kLater;
  }
};

/// What is known of all writers of a file that stands under a final name of a shared family. On the disk it is two
/// extended attributes of the inode (Marks). Writers that wait to be judged are in memory only, so that a crash leaves
/// a file without a mark, which is private. Needs external synchronisation.
struct Provenance {
  std::string scopes;       ///< ids, separated by a space, of the scopes that the file's writers fitted
  std::string why_private;  ///< a writer has another environment: the file never leaves the host
  std::vector<std::shared_ptr<const fingerprint::Writer>> unjudged;

  [[nodiscard]] bool is_private() const { return !why_private.empty(); }
  [[nodiscard]] bool is_known() const { return is_private() || !scopes.empty(); }
  [[nodiscard]] bool is_for(std::string_view scope) const;
  [[nodiscard]] bool is_settled_for(std::string_view scope) const { return unjudged.empty() && is_for(scope); }
  /// Adds one more writer. A private file stays private.
  void add(const WriterVerdict& verdict);
  void make_private(std::string_view why);
  void add_scope(const std::string& scope);
  bool operator==(const Provenance&) const = default;
};

}  // namespace inductorfs::vfs
