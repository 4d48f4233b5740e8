// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <linux/fs.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "pending_request.h"
#include "serve.h"
#include "wire.h"

/// Names: lookup, making and removing them, listing.
namespace inductorfs::fuse {
namespace {

using vfs::NodeId;
using vfs::Operations;

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  serve(request, Operation::kLookup, [&](const Operations& files, KernelReply& reply) {
    const vfs::Caller caller = caller_of(request);
    auto pending = std::make_shared<PendingRequest>(std::move(reply), Operation::kLookup);
    // From here on the request may be answered, and gone, at any time; `name` lies in this thread's buffer.
    files.names.lookup(NodeId{parent}, name, caller,
                       [pending](const vfs::LookupAnswer& answer) { pending->answer(answer); });
    if (!pending->is_detached()) pending->wait();
  });
}

/// False when an earlier worker was killed in this part of the request, or after it: references that were given back
/// twice would let a node go that the kernel still knows. One that was not given back at all costs memory only.
bool begin_part(uint64_t part) noexcept {
  takeover::Slot* slot = takeover::serving_slot();
  if (slot == nullptr) return true;
  if (slot->progress.load(std::memory_order_relaxed) > part) return false;
  slot->progress.store(part + 1, std::memory_order_release);
  return true;
}

void forget(fuse_req_t request, fuse_ino_t node, uint64_t count) noexcept {
  serve(request, Operation::kForget, [&](const Operations& files, KernelReply& reply) {
    if (begin_part(0)) files.names.forget(NodeId{node}, count);
    reply.nothing();
  });
}

void forget_many(fuse_req_t request, size_t count, fuse_forget_data* nodes) noexcept {
  serve(request, Operation::kForget, [&](const Operations& files, KernelReply& reply) {
    for (size_t i = 0; i < count; ++i) {
      if (begin_part(i)) files.names.forget(NodeId{nodes[i].ino}, nodes[i].nlookup);
    }
    reply.nothing();
  });
}

void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info*) noexcept {
  serve(request, Operation::kCreate, [&](const Operations& files, KernelReply& reply) {
    reply.created(files.names.create(NodeId{parent}, name, mode, caller_of(request)));
  });
}

void make_node(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) noexcept {
  serve(request, Operation::kMknod, [&](const Operations& files, KernelReply& reply) {
    reply.entry(files.names.make_node(NodeId{parent}, name, mode, device, caller_of(request)));
  });
}

void make_directory(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) noexcept {
  serve(request, Operation::kMkdir, [&](const Operations& files, KernelReply& reply) {
    reply.entry(files.names.make_directory(NodeId{parent}, name, mode, caller_of(request)));
  });
}

void make_symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) noexcept {
  serve(request, Operation::kSymlink, [&](const Operations& files, KernelReply& reply) {
    reply.entry(files.names.make_symlink(NodeId{parent}, name, target, caller_of(request)));
  });
}

void make_link(fuse_req_t request, fuse_ino_t node, fuse_ino_t parent, const char* name) noexcept {
  serve(request, Operation::kLink, [&](const Operations& files, KernelReply& reply) {
    reply.entry(files.names.link(NodeId{node}, NodeId{parent}, name, caller_of(request)));
  });
}

void remove_file(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  serve(request, Operation::kUnlink, [&](const Operations& files, KernelReply& reply) {
    reply.done(files.names.unlink(NodeId{parent}, name, caller_of(request)));
  });
}

void remove_directory(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  serve(request, Operation::kRmdir, [&](const Operations& files, KernelReply& reply) {
    reply.done(files.names.remove_directory(NodeId{parent}, name, caller_of(request)));
  });
}

void rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent, const char* new_name,
            unsigned flags) noexcept {
  serve(request, Operation::kRename, [&](const Operations& files, KernelReply& reply) {
    vfs::RenameMode mode = vfs::RenameMode::kReplace;
    if (flags == RENAME_NOREPLACE) {
      mode = vfs::RenameMode::kNoReplace;
    } else if (flags == RENAME_EXCHANGE) {
      mode = vfs::RenameMode::kExchange;
    } else if (flags != 0) {
      return reply.errno_value(EINVAL);
    }
    reply.done(files.names.rename(NodeId{parent}, name, NodeId{new_parent}, new_name, mode, caller_of(request)));
  });
}

void read_link(fuse_req_t request, fuse_ino_t node) noexcept {
  serve(request, Operation::kReadlink, [&](const Operations& files, KernelReply& reply) {
    reply.link(files.names.read_link(NodeId{node}, caller_of(request)));
  });
}

/// A kernel that remembers ENOSYS opens directories by itself from then on, and keeps their listings.
void open_directory(fuse_req_t request, fuse_ino_t directory, fuse_file_info*) noexcept {
  const bool waits = channel_of(request).operations().names.waits_at_directories();
  if (!waits && offers_no_opendir(channel_of(request).offered)) return refuse(request, Operation::kOpendir, ENOSYS);
  serve(request, Operation::kOpendir, [&](const Operations& files, KernelReply& reply) {
    if (!waits) return reply.opened_directory(true);
    const vfs::Caller caller = caller_of(request);
    auto pending = std::make_shared<PendingRequest>(std::move(reply), Operation::kOpendir);
    // No thread waits with it, and the kernel tells of a signal once: it may have done so before.
    if (!pending->is_detached() || pending->was_interrupted()) return pending->opened();
    files.names.open_directory(NodeId{directory}, caller, [pending] { pending->opened(); });
  });
}

void read_directory(fuse_req_t request, fuse_ino_t directory, size_t size, off_t cookie, fuse_file_info*) noexcept {
  serve(request, Operation::kReaddir, [&](const Operations& files, KernelReply& reply) {
    thread_local std::vector<char> items;
    items.resize(std::max(items.size(), size));
    size_t used = 0;
    std::string name;
    const auto result = files.names.read_directory(
        NodeId{directory}, static_cast<uint64_t>(cookie), caller_of(request), [&](const vfs::DirectoryItem& item) {
          name.assign(item.name);  // libfuse wants it to end with a NUL
          struct stat attributes {};
          attributes.st_ino = item.inode_number;
          attributes.st_mode = item.type;
          const size_t needed = fuse_add_direntry(request, items.data() + used, size - used, name.c_str(), &attributes,
                                                  static_cast<off_t>(item.next_cookie));
          if (needed > size - used) return false;
          used += needed;
          return true;
        });
    if (!result) return reply.fail(result.error());
    reply.bytes({items.data(), used});
  });
}

void release_directory(fuse_req_t request, fuse_ino_t, fuse_file_info*) noexcept {
  refuse(request, Operation::kReleasedir, 0);
}

void sync_directory(fuse_req_t request, fuse_ino_t node, int data_only, fuse_file_info*) noexcept {
  serve(request, Operation::kFsyncdir, [&](const Operations& files, KernelReply& reply) {
    reply.done(files.data.sync_file(NodeId{node}, data_only != 0));
  });
}

}  // namespace

void add_name_operations(fuse_lowlevel_ops& table) noexcept {
  table.lookup = lookup;
  table.forget = forget;
  table.forget_multi = forget_many;
  table.create = create;
  table.mknod = make_node;
  table.mkdir = make_directory;
  table.symlink = make_symlink;
  table.link = make_link;
  table.unlink = remove_file;
  table.rmdir = remove_directory;
  table.rename = rename;
  table.readlink = read_link;
  table.opendir = open_directory;
  table.readdir = read_directory;
  table.releasedir = release_directory;
  table.fsyncdir = sync_directory;
}

}  // namespace inductorfs::fuse
