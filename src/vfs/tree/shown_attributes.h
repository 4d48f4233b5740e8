// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>

#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// What the kernel is shown of a node: the file's own attributes, widened for what torch and Triton share
/// (vfs/tree/common_access.h). Blocks on the local disk only. Safe for concurrent use.
class ShownAttributes : Context {
 public:
  explicit ShownAttributes(const Context& context) : Context(context) {}

  /// The times of a directory are those of its names, the cluster's too: who keeps a listing (importlib's FileFinder)
  /// looks at them.
  [[nodiscard]] Result<Attributes> of(const Node& node, Content& content);
  /// Remembers, after a chmod of an artefact or its directory, that the mode was chosen and is not the umask's: it is
  /// shown as it is.
  void keep_mode(const Node& node, Content& content);
  void set_of_entry(const Node& node, Content& content, const layout::Name& entry) const;
  void set_of_virtual(const Node& node, Content& content, const layout::Name& entry) const;

 private:
  [[nodiscard]] Result<Attributes> own_attributes(const Node& node, Content& content);
  void show_change(const Node& node, Content& content, const std::string& path, Attributes& shown) const;
  [[nodiscard]] bool mode_is_chosen(const Node& node, const Content& content) const;
};

[[nodiscard]] Attributes attributes_of(const struct stat& status);

}  // namespace inductorfs::vfs
