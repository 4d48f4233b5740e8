// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "convert.h"
#include "serve.h"

/// What a file says of itself: stat, chmod, chown, truncate, utimens, extended attributes, statfs.
namespace inductorfs::fuse {
namespace {

using vfs::NodeId;
using vfs::Operations;

void get_attributes(fuse_req_t request, fuse_ino_t node, fuse_file_info*) noexcept {
  serve(request, Operation::kGetattr, [&](const Operations& files, KernelReply& reply) {
    reply.attributes(files.attributes.get_attributes(NodeId{node}));
  });
}

/// With HANDLE_KILLPRIV_V2 these are ours to clear: by a change of owner always, by truncation when the kernel says so.
bool clears_privileges(const vfs::AttributeChange& change) {
  if (change.mode) return false;
  return change.uid || change.gid || (change.size && kill_privileges_of_this_request());
}

void set_attributes(fuse_req_t request, fuse_ino_t node, struct stat* attributes, int valid, fuse_file_info*) noexcept {
  serve(request, Operation::kSetattr, [&](const Operations& files, KernelReply& reply) {
    vfs::AttributeChange change = to_change(*attributes, valid);
    if (clears_privileges(change)) {
      const auto before = files.attributes.get_attributes(NodeId{node});
      if (!before) return reply.fail(before.error());
      const mode_t kept = without_privileges(before->mode);
      if (S_ISREG(before->mode) && kept != before->mode) change.mode = kept & 07777;
    }
    reply.attributes(files.attributes.set_attributes(NodeId{node}, change, caller_of(request)));
  });
}

/// security.* (capabilities, labels) and system.* (ACLs) are not kept: the answer is known without the file system.
/// security.capability is asked for before the first write to each file, so it has to be quick.
int refused_attribute(std::string_view name, int for_security) noexcept {
  if (name.starts_with("security.")) return for_security;
  if (name.starts_with("system.")) return EOPNOTSUPP;
  return 0;
}

void get_xattr(fuse_req_t request, fuse_ino_t node, const char* name, size_t size) noexcept {
  if (const int refused = refused_attribute(name, ENODATA); refused != 0) {
    return refuse(request, Operation::kGetxattr, refused);
  }
  serve(request, Operation::kGetxattr, [&](const Operations& files, KernelReply& reply) {
    reply.sized(files.attributes.get_xattr(NodeId{node}, name), size);
  });
}

void list_xattrs(fuse_req_t request, fuse_ino_t node, size_t size) noexcept {
  serve(request, Operation::kListxattr, [&](const Operations& files, KernelReply& reply) {
    const auto names = files.attributes.list_xattrs(NodeId{node});
    if (!names) return reply.fail(names.error());
    std::string joined;
    for (const std::string& name : *names) joined.append(name).push_back('\0');
    reply.sized(joined, size);
  });
}

void set_xattr(fuse_req_t request, fuse_ino_t node, const char* name, const char* value, size_t size,
               int flags) noexcept {
  if (const int refused = refused_attribute(name, EOPNOTSUPP); refused != 0) {
    return refuse(request, Operation::kSetxattr, refused);
  }
  serve(request, Operation::kSetxattr, [&](const Operations& files, KernelReply& reply) {
    reply.done(files.attributes.set_xattr(NodeId{node}, name, std::string_view(value, size), flags));
  });
}

void remove_xattr(fuse_req_t request, fuse_ino_t node, const char* name) noexcept {
  if (const int refused = refused_attribute(name, ENODATA); refused != 0) {
    return refuse(request, Operation::kRemovexattr, refused);
  }
  serve(request, Operation::kRemovexattr, [&](const Operations& files, KernelReply& reply) {
    reply.done(files.attributes.remove_xattr(NodeId{node}, name));
  });
}

void get_statistics(fuse_req_t request, fuse_ino_t) noexcept {
  serve(request, Operation::kStatfs,
        [&](const Operations& files, KernelReply& reply) { reply.statistics(files.attributes.statistics()); });
}

}  // namespace

void add_attribute_operations(fuse_lowlevel_ops& table) noexcept {
  table.getattr = get_attributes;
  table.setattr = set_attributes;
  table.getxattr = get_xattr;
  table.listxattr = list_xattrs;
  table.setxattr = set_xattr;
  table.removexattr = remove_xattr;
  table.statfs = get_statistics;
}

}  // namespace inductorfs::fuse
