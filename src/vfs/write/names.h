// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "vfs/origin/origin.h"
#include "vfs/read/context.h"
#include "vfs/write/data.h"
#include "vfs/write/in_place.h"
#include "vfs/write/refusals.h"
#include "vfs/write/removal.h"
#include "vfs/write/sealing.h"

namespace inductorfs::vfs {

/// Makes and removes names, with the functions of FileSystem. An operation that comes again after its worker was killed
/// finds its own effect and answers success (takeover::begun_effect). Blocks on the local disk only.
/// Safe for concurrent use.
class Names : Context {
 public:
  explicit Names(const Context& context) : Context(context) {}

  [[nodiscard]] Result<Found> create(NodeId parent, std::string_view name, mode_t mode, const Caller& caller);
  [[nodiscard]] Result<Found> make_node(NodeId parent, std::string_view name, mode_t mode, const Caller& caller);
  [[nodiscard]] Result<Found> make_directory(NodeId parent, std::string_view name, mode_t mode, const Caller& caller);
  [[nodiscard]] Result<Found> make_symlink(NodeId parent, std::string_view name, const std::string& target,
                                           const Caller& caller);
  [[nodiscard]] Result<Found> link(NodeId node, NodeId new_parent, std::string_view new_name, const Caller& caller);
  [[nodiscard]] Result<std::string> read_link(NodeId node, const Caller& caller);
  /// Without a caller for the daemon itself.
  [[nodiscard]] Result<void> unlink(NodeId parent, std::string_view name, const Caller& caller = {});
  /// The removal of a compiler's directory is the sign that what it built is complete, and `caller` its witness.
  [[nodiscard]] Result<void> remove_directory(NodeId parent, std::string_view name, const Caller& caller);
  /// The same as a step of something else that no program has asked for: no sign of anything. What it shows of the
  /// cluster goes with it.
  [[nodiscard]] Result<void> take_directory_away(NodeId parent, std::string_view name);

 private:
  [[nodiscard]] Result<void> take_directory_away(NodeId parent, std::string_view name, bool shown_goes_too,
                                                 Site& where);
  [[nodiscard]] bool may_follow(const NodePtr& node, uid_t owner, const Caller& caller) const;
  [[nodiscard]] Result<FileOwner> owner_of_new(const Site& site, mode_t mode, const Caller& caller) const;
  [[nodiscard]] Result<Found> make_special(NodeId parent, std::string_view name, mode_t mode, std::string_view target,
                                           const Caller& caller);
  [[nodiscard]] Result<Found> made(const Site& site, std::optional<Fd> file);
  [[nodiscard]] Result<Found> show_made(const Site& site, std::optional<Fd> file);
  [[nodiscard]] tl::unexpected<Error> not_made(const std::string& view_path, const Error& why) const;
  [[nodiscard]] Result<Found> make_name(NodeId parent, std::string_view name, Site& where,
                                        const std::function<Result<Found>()>& make);
  [[nodiscard]] Result<UserCharges::NewFile> place_of(bool is_made, uid_t owner) const;
  [[nodiscard]] Result<NodePtr> link_file(const NodePtr& node, Content& content, const Site& to, EarlyCopy& early,
                                          const Caller& caller);
};

}  // namespace inductorfs::vfs
