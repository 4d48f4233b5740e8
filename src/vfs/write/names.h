// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "vfs/origin/origin.h"
#include "vfs/origin/refusals.h"
#include "vfs/read/branches.h"
#include "vfs/read/compile_leases.h"
#include "vfs/read/lookup.h"
#include "vfs/tree/context.h"
#include "vfs/write/data.h"
#include "vfs/write/in_place.h"
#include "vfs/write/removal.h"
#include "vfs/write/sealing.h"

namespace inductorfs::vfs {

/// What programs ask for by name. Each program is answered for its own environment (Branches). An operation that comes
/// again after its worker was killed finds its own effect and answers success (takeover::begun_effect). Blocks on the
/// local disk only. Safe for concurrent use.
class Names final : public NameOperations, Context {
 public:
  explicit Names(const Context& context) : Context(context) {}

  void lookup(NodeId parent, std::string_view name, const Caller& caller, LookupDone done) override;
  void forget(NodeId node, uint64_t count) override { tree_.forget(node, count); }
  Result<Found> create(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) override;
  Result<Found> make_node(NodeId parent, std::string_view name, mode_t mode, dev_t device,
                          const Caller& caller) override;
  Result<Found> make_directory(NodeId parent, std::string_view name, mode_t mode, const Caller& caller) override;
  Result<Found> make_symlink(NodeId parent, std::string_view name, const std::string& target,
                             const Caller& caller) override;
  Result<Found> link(NodeId node, NodeId new_parent, std::string_view new_name, const Caller& caller) override;
  Result<void> unlink(NodeId parent, std::string_view name, const Caller& caller) override;
  /// The removal of a compiler's directory is the sign that what it built is complete, and `caller` its witness.
  Result<void> remove_directory(NodeId parent, std::string_view name, const Caller& caller) override;
  Result<void> rename(NodeId parent, std::string_view name, NodeId new_parent, std::string_view new_name,
                      RenameMode mode, const Caller& caller) override;
  Result<std::string> read_link(NodeId node, const Caller& caller) override;
  bool waits_at_directories() const override { return leases_.is_on(); }
  void open_directory(NodeId directory, const Caller& caller, std::function<void()> done) override {
    lookup_.open_directory(directory, caller, std::move(done));
  }
  Result<void> read_directory(NodeId directory, uint64_t cookie, const Caller& caller,
                              const std::function<bool(const DirectoryItem&)>& take) override;

  /// Removes the name of a file. Without a caller for the daemon itself.
  [[nodiscard]] Result<void> take_file_away(NodeId parent, std::string_view name, const Caller& caller = {});
  /// Removes a directory as a step of something else that no program has asked for: no sign of anything. What it shows
  /// of the cluster goes with it.
  [[nodiscard]] Result<void> take_directory_away(NodeId parent, std::string_view name);

 private:
  /// A name as a program asks for it.
  struct Asked {
    NodeId parent{};
    std::string name;
    Caller caller;
  };
  void show_listed(const Asked& asked, NodeId parent, LookupAnswer& answer);
  void left_listing(NodeId parent, std::string_view name);
  [[nodiscard]] bool went_with_its_set(NodeId lister, NodeId directory, std::string_view name);
  void removed(NodeId parent, std::string_view name, const Branches::Route& route, const Caller& caller);
  [[nodiscard]] Result<void> take_directory_away(NodeId parent, std::string_view name, bool shown_goes_too,
                                                 Site& where);
  [[nodiscard]] bool may_follow(const NodePtr& node, uid_t owner, const Caller& caller) const;
  [[nodiscard]] Result<FileOwner> owner_of_new(const Site& site, mode_t mode, const Caller& caller) const;
  [[nodiscard]] Result<Found> make_special(NodeId parent, std::string_view name, mode_t mode, std::string_view target,
                                           const Caller& caller);
  [[nodiscard]] Result<Found> made(const Site& site, std::optional<Fd> file);
  [[nodiscard]] Result<Found> show_made(const Site& site, std::optional<Fd> file);
  [[nodiscard]] tl::unexpected<Error> not_made(const std::string& view_path, const Error& why) const;
  [[nodiscard]] Result<Found> make_name(NodeId parent, std::string_view name, const Caller& caller, Site& where,
                                        const std::function<Result<Found>()>& make);
  [[nodiscard]] Result<UserCharges::NewFile> place_of(bool is_made, uid_t owner) const;
  [[nodiscard]] Result<NodePtr> link_file(const NodePtr& node, Content& content, const Site& to, EarlyCopy& early,
                                          const Caller& caller);
};

}  // namespace inductorfs::vfs
