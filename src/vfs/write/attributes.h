// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "vfs/origin/origin.h"
#include "vfs/read/root_scopes.h"
#include "vfs/tree/context.h"
#include "vfs/write/data.h"

namespace inductorfs::vfs {

/// Attributes and extended attributes. Blocks on the local disk only.
/// Safe for concurrent use.
class FileAttributes final : public AttributeOperations, Context {
 public:
  explicit FileAttributes(const Context& context) : Context(context) {}

  Result<Attributes> get_attributes(NodeId node) override;
  Result<Attributes> set_attributes(NodeId node, const AttributeChange& change, const Caller& caller) override;
  Result<std::string> get_xattr(NodeId node, const std::string& name) override;
  Result<std::vector<std::string>> list_xattrs(NodeId node) override;
  Result<void> set_xattr(NodeId node, const std::string& name, std::string_view value, int flags) override;
  Result<void> remove_xattr(NodeId node, const std::string& name) override;
  Result<struct statvfs> statistics() override;

 private:
  [[nodiscard]] Result<void> make_local_directory(const NodePtr& node);
  [[nodiscard]] Result<Attributes> apply_change(const NodePtr& node, const AttributeChange& change);
  [[nodiscard]] Result<void> note_open(const Node& node, Content& content, const std::string& place,
                                       const AttributeChange& change);
  [[nodiscard]] Result<std::string> own_xattr(const NodePtr& node, const std::string& name);
  [[nodiscard]] Result<void> change_xattr(NodeId id, const std::string& name,
                                          const std::function<Result<void>(const std::string&)>& change);
};

}  // namespace inductorfs::vfs
