// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "vfs/disk/makers.h"
#include "vfs/nodes/provenance.h"
#include "vfs/read/root_scopes.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Knows who wrote which file: it asks for the writers of files, keeps the answers as marks on the local files, and
/// counts the files that stay on this host. Safe for concurrent use.
class Marks : Context {
 public:
  explicit Marks(const Context& context) : Context(context) {}

  /// Judges the writer of an artefact at this path of the mount by what is known already, because a job's own thread
  /// waits for it.
  [[nodiscard]] WriterVerdict glance(const std::string& path, layout::Family family, std::string_view architecture,
                                     pid_t process) const;
  /// Returns why one of these writers does not match; an empty text when all do. Empty optional while that is not known
  /// yet: the missing facts are read in the background, and a later call tells.
  [[nodiscard]] std::optional<std::string> judge(
      const std::string& path, layout::Family family,
      std::span<const std::shared_ptr<const fingerprint::Writer>> writers) const;
  /// Says whether everybody's files may be shared; otherwise a file without a known writer cannot be.
  [[nodiscard]] bool everyone_fits() const { return host_.writers() == nullptr; }

  /// Reads the marks of a file, by its path below the file system's directory.
  [[nodiscard]] Provenance read(const std::string& place) const;
  void write(const std::string& place, const Provenance& before, const Provenance& now) const;

  /// Returns why a local file is not to be shared because of who has made it, or has named a directory above it in its
  /// root; empty when it may be. An error where the disk does not tell.
  [[nodiscard]] Result<std::string> why_not_shared(const std::string& path) const;
  /// Says whether a local file was made for the facts of this host, with whomever it was to be shared.
  [[nodiscard]] bool is_for_these_facts(const std::string& path, const Provenance& found) const;

  /// Returns the architecture that the metadata of a Triton set name; `directory` is below the file system's directory.
  [[nodiscard]] std::string architecture_of_set(const std::string& directory) const;
  /// Returns the architecture of the set that a file of the view belongs to; empty when it belongs to none.
  [[nodiscard]] std::string architecture_of(const std::string& path) const;
  /// Returns the ids of the scopes that a file of this path may have been made for, if it fits this host.
  [[nodiscard]] std::vector<std::string> scopes_now(const std::string& path) const;

  /// Says whether what is at this path stays here because no environment is known for it.
  [[nodiscard]] bool is_in_no_environment(const std::string& path) const;
  /// Counts `files` that stay here because their path has no scope, and reports them as far as the reason is another
  /// one than that of their whole family.
  void has_no_scope(const std::string& path, uint64_t files);
  /// Counts `files` that stay here, and reports them in the log and in the status.
  void stays_here(const std::string& path, const std::string& why, uint64_t files);
  /// Counts a file that an earlier mount kept here.
  void still_here(const std::string& path, const std::string& why);
  [[nodiscard]] uint64_t foreign() const;
  /// Returns the reasons of the most recent files. If there are too many, the user with the most of them loses one.
  [[nodiscard]] std::vector<std::string> reasons() const;

  static constexpr std::string_view kNoGroup =
      "its process has put no group file (as for a dump), or ended before it did, so nothing shows which files belong "
      "together; Triton compiles a kernel without a group file again";
  static constexpr std::string_view kWriterLost = "its writer is not known any more; let it be made again to share it";
  static constexpr std::string_view kNoEnvironment =
      "a program that has neither torch nor Triton loaded made it, so that it is known for no environment; to share "
      "copied files, mount with --python and --writers all";
  static constexpr std::string_view kNoSign =
      "written in place under its final name, so nothing shows when it is complete; copy it with rsync -a, which "
      "renames each file, or mount with --writers all";
  static constexpr std::string_view kDirectoryNoSign =
      "made under its final name, so nothing shows when it is complete; a directory of this family is published when "
      "it gets its name by a rename: make it beside, then rename it";
  static constexpr std::string_view kWriterElsewhere =
      "its writer is in another PID namespace than the daemon, which cannot look at it there; mount with "
      "--writers pod if all processes that use this mount have its environment, or run the daemon in the PID namespace "
      "of the host (hostPID)";

 private:
  struct Reason {
    std::string text;
    std::optional<uid_t> owner;  ///< of the file
    bool operator==(const Reason&) const = default;
  };
  struct Foreign {
    uint64_t files = 0;
    std::vector<Reason> reasons;
  };
  void remember(const std::string& path, const std::string& why, uint64_t files);

  Guarded<Foreign> foreign_;
};

}  // namespace inductorfs::vfs
