// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 314
#include "convert.h"

#include <fuse_lowlevel.h>

namespace inductorfs::fuse {
namespace {

/// What glibc's stdio takes as its buffer, BUFSIZ at most (libio/filedoalloc.c): g++ writes a precompiled header of
/// 150 MB in pieces of it, each a request.
constexpr blksize_t kBlockSize = 8192;
constexpr mode_t kModeBits = 07777;

timespec to_timespec(const vfs::Timestamp& time) noexcept { return {time.seconds, time.nanoseconds}; }
vfs::Timestamp to_timestamp(const timespec& time) noexcept { return {time.tv_sec, time.tv_nsec}; }

}  // namespace

struct stat to_stat(const vfs::Attributes& attributes) noexcept {
  struct stat out {};
  out.st_ino = attributes.inode_number;
  out.st_mode = attributes.mode;
  out.st_nlink = attributes.links;
  out.st_uid = attributes.uid;
  out.st_gid = attributes.gid;
  out.st_rdev = attributes.device;
  out.st_size = static_cast<off_t>(attributes.size);
  out.st_blocks = static_cast<blkcnt_t>(attributes.blocks);
  out.st_blksize = kBlockSize;
  out.st_atim = to_timespec(attributes.accessed);
  out.st_mtim = to_timespec(attributes.modified);
  out.st_ctim = to_timespec(attributes.changed);
  return out;
}

vfs::AttributeChange to_change(const struct stat& attributes, int valid) noexcept {
  vfs::AttributeChange change;
  if ((valid & FUSE_SET_ATTR_MODE) != 0) change.mode = attributes.st_mode & kModeBits;
  if ((valid & FUSE_SET_ATTR_UID) != 0) change.uid = attributes.st_uid;
  if ((valid & FUSE_SET_ATTR_GID) != 0) change.gid = attributes.st_gid;
  if ((valid & FUSE_SET_ATTR_SIZE) != 0) change.size = static_cast<uint64_t>(attributes.st_size);
  // The NOW bits come together with the plain ones, and win.
  change.accessed_now = (valid & FUSE_SET_ATTR_ATIME_NOW) != 0;
  change.modified_now = (valid & FUSE_SET_ATTR_MTIME_NOW) != 0;
  if ((valid & FUSE_SET_ATTR_ATIME) != 0 && !change.accessed_now) change.accessed = to_timestamp(attributes.st_atim);
  if ((valid & FUSE_SET_ATTR_MTIME) != 0 && !change.modified_now) change.modified = to_timestamp(attributes.st_mtim);
  return change;
}

mode_t without_privileges(mode_t mode) noexcept {
  mode &= ~static_cast<mode_t>(S_ISUID);
  if ((mode & S_IXGRP) != 0) mode &= ~static_cast<mode_t>(S_ISGID);
  return mode;
}

}  // namespace inductorfs::fuse
