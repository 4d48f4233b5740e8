// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/vfs/operations.h"

namespace inductorfs::testing {

/// A file system in memory, whole enough to be mounted: the semantics of a local one, without quotas and permissions.
/// Beside that, what a test needs: names whose lookup waits, references, changes behind the kernel's back.
/// Safe for concurrent use.
class FakeFileSystem final : public vfs::NameOperations, public vfs::AttributeOperations, public vfs::DataOperations {
 public:
  FakeFileSystem();

  // ---- for tests
  /// Makes a file in the root as another host's publish would: the kernel is not told.
  vfs::NodeId add_file(const std::string& name, const std::string& bytes);
  void set_bytes(vfs::NodeId node, const std::string& bytes);
  [[nodiscard]] std::string bytes_of(vfs::NodeId node) const;
  [[nodiscard]] mode_t mode_of(vfs::NodeId node) const;
  void set_mode(vfs::NodeId node, mode_t mode);
  [[nodiscard]] vfs::NodeId node_of(const std::string& name) const;
  [[nodiscard]] uint64_t references(vfs::NodeId node) const;
  /// Absences may not be kept from now on.
  void forbid_kept_absences();
  /// Lookups of this name do not return until `release`.
  void block_lookup(const std::string& name);
  /// Lookups of this name return at once; they are answered by `release`, from its thread.
  void defer_lookup(const std::string& name);
  /// Lookups of this name are dropped without an answer.
  void drop_lookup(const std::string& name);
  /// Operations on this name throw.
  void throw_at(const std::string& name);
  void release(const std::string& name);
  /// How many lookups of the name wait now.
  [[nodiscard]] size_t waiting(const std::string& name) const;
  /// False: nobody waited for the name within the deadline.
  [[nodiscard]] bool wait_until_waiting(const std::string& name, size_t count);
  [[nodiscard]] vfs::Caller last_caller() const;
  /// How often the session said that what an earlier worker left is answered.
  [[nodiscard]] size_t finished() const { return finished_; }

  void requests_finished() { ++finished_; }

  operator vfs::Operations() { return {*this, *this, *this}; }
  void lookup(vfs::NodeId parent, std::string_view name, const vfs::Caller& caller, vfs::LookupDone done) override;
  void forget(vfs::NodeId node, uint64_t count) override;
  Result<vfs::Found> create(vfs::NodeId parent, std::string_view name, mode_t mode, const vfs::Caller&) override;
  Result<vfs::Found> make_node(vfs::NodeId parent, std::string_view name, mode_t mode, dev_t device,
                               const vfs::Caller&) override;
  Result<vfs::Found> make_directory(vfs::NodeId parent, std::string_view name, mode_t mode,
                                    const vfs::Caller&) override;
  Result<vfs::Found> make_symlink(vfs::NodeId parent, std::string_view name, const std::string& target,
                                  const vfs::Caller&) override;
  Result<vfs::Found> link(vfs::NodeId node, vfs::NodeId new_parent, std::string_view new_name,
                          const vfs::Caller&) override;
  Result<void> unlink(vfs::NodeId parent, std::string_view name, const vfs::Caller&) override;
  Result<void> remove_directory(vfs::NodeId parent, std::string_view name, const vfs::Caller&) override;
  Result<void> rename(vfs::NodeId parent, std::string_view name, vfs::NodeId new_parent, std::string_view new_name,
                      vfs::RenameMode mode, const vfs::Caller&) override;
  Result<std::string> read_link(vfs::NodeId node, const vfs::Caller& caller) override;
  bool waits_at_directories() const override { return false; }
  void open_directory(vfs::NodeId, const vfs::Caller&, std::function<void()> done) override { done(); }
  Result<void> read_directory(vfs::NodeId directory, uint64_t cookie, const vfs::Caller&,
                              const std::function<bool(const vfs::DirectoryItem&)>& take) override;
  Result<vfs::Attributes> get_attributes(vfs::NodeId node) override;
  Result<vfs::Attributes> set_attributes(vfs::NodeId node, const vfs::AttributeChange& change,
                                         const vfs::Caller&) override;
  Result<std::string> get_xattr(vfs::NodeId node, const std::string& name) override;
  Result<std::vector<std::string>> list_xattrs(vfs::NodeId node) override;
  Result<void> set_xattr(vfs::NodeId node, const std::string& name, std::string_view value, int flags) override;
  Result<void> remove_xattr(vfs::NodeId node, const std::string& name) override;
  Result<struct statvfs> statistics() override;
  Result<size_t> read(vfs::NodeId node, char* out, size_t size, uint64_t offset) override;
  Result<void> write(vfs::NodeId node, std::string_view bytes, uint64_t offset, const vfs::Caller&) override;
  Result<void> allocate(vfs::NodeId node, int mode, uint64_t offset, uint64_t length, const vfs::Caller&) override;
  Result<size_t> copy_range(vfs::NodeId from, uint64_t from_offset, vfs::NodeId to, uint64_t to_offset, size_t length,
                            const vfs::Caller&) override;
  Result<void> sync_file(vfs::NodeId node, bool data_only) override;

 private:
  enum class Wait { kBlock, kDefer, kDrop, kThrow };
  struct Node {
    vfs::Attributes attributes;
    std::string bytes;  ///< of a file; the target of a symbolic link
    uint64_t parent = 1;
    /// Children in the order of their making; a removed one leaves a hole, so that positions are cookies.
    std::vector<std::pair<std::string, uint64_t>> items;
    std::map<std::string, std::string> xattrs;
    uint64_t references = 0;
  };
  struct State {
    std::map<uint64_t, Node> nodes;
    uint64_t next = 2;
    bool keep_absences = true;
    std::map<std::string, Wait, std::less<>> waits;
    std::map<std::string, size_t, std::less<>> waiting;
    std::map<std::string, std::vector<std::function<void()>>, std::less<>> deferred;
    vfs::Caller caller;
  };

  static Node* node_at(State& state, vfs::NodeId node);
  static std::pair<std::string, uint64_t>* item_at(Node& directory, std::string_view name);
  static vfs::Found found(State& state, uint64_t id);
  static vfs::LookupAnswer look(State& state, uint64_t parent, std::string_view name);
  static Result<vfs::Found> add(State& state, vfs::NodeId parent, std::string_view name, mode_t mode,
                                const vfs::Caller& caller);
  static void touch(Node& node);

  mutable Guarded<State> state_;
  std::atomic<size_t> finished_{0};
};

}  // namespace inductorfs::testing
