// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include "convert.h"
#include "serve.h"
#include "wire.h"

/// Bytes: open, read, write and what goes with them.
namespace inductorfs::fuse {
namespace {

using vfs::NodeId;
using vfs::Operations;

/// Form A: the kernel remembers the first ENOSYS, for ever and for all files, and opens by itself.
void open_file(fuse_req_t request, fuse_ino_t, fuse_file_info* file) noexcept {
  if (offers_no_open(channel_of(request).offered)) return refuse(request, Operation::kOpen, ENOSYS);
  channel_of(request).count(Operation::kOpen);
  file->keep_cache = 1;
  (void)fuse_reply_open(request, file);  // nothing is held for an open file
}

void flush_file(fuse_req_t request, fuse_ino_t, fuse_file_info*) noexcept {
  refuse(request, Operation::kFlush, ENOSYS);
}

void release_file(fuse_req_t request, fuse_ino_t, fuse_file_info*) noexcept { refuse(request, Operation::kRelease, 0); }

void read_bytes(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info*) noexcept {
  serve(request, Operation::kRead, [&](const Operations& files, KernelReply& reply) {
    thread_local std::vector<char> bytes;
    bytes.resize(std::max(bytes.size(), size));
    const auto got = files.data.read(NodeId{node}, bytes.data(), size, static_cast<uint64_t>(offset));
    if (!got) return reply.fail(got.error());
    reply.bytes({bytes.data(), *got});
  });
}

Result<void> clear_privileges(const Operations& files, NodeId node, const vfs::Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(const auto before, files.attributes.get_attributes(node));
  const mode_t kept = without_privileges(before.mode);
  if (kept == before.mode) return {};
  vfs::AttributeChange change;
  change.mode = kept & 07777;
  INDUCTORFS_TRY(files.attributes.set_attributes(node, change, caller));
  return {};
}

void write_bytes(fuse_req_t request, fuse_ino_t node, const char* data, size_t size, off_t offset,
                 fuse_file_info* info) noexcept {
  serve(request, Operation::kWrite, [&](const Operations& files, KernelReply& reply) {
    vfs::Caller caller = caller_of(request);
    if (info->writepage != 0) caller.pid = vfs::kWriteBack;
    if (kill_privileges_of_this_request()) {
      auto cleared = clear_privileges(files, NodeId{node}, caller);
      if (!cleared) return reply.fail(cleared.error());
    }
    const auto written =
        files.data.write(NodeId{node}, std::string_view(data, size), static_cast<uint64_t>(offset), caller);
    if (!written) return reply.fail(written.error());
    reply.written(size);
  });
}

void allocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t length, fuse_file_info*) noexcept {
  serve(request, Operation::kFallocate, [&](const Operations& files, KernelReply& reply) {
    reply.done(files.data.allocate(NodeId{node}, mode, static_cast<uint64_t>(offset), static_cast<uint64_t>(length),
                                   caller_of(request)));
  });
}

// NOLINTNEXTLINE(readability-function-size): the parameters are those of libfuse
void copy_range(fuse_req_t request, fuse_ino_t from, off_t from_offset, fuse_file_info*, fuse_ino_t to, off_t to_offset,
                fuse_file_info*, size_t length, int flags) noexcept {
  serve(request, Operation::kCopyFileRange, [&](const Operations& files, KernelReply& reply) {
    if (flags != 0) return reply.errno_value(EINVAL);
    const auto copied = files.data.copy_range(NodeId{from}, static_cast<uint64_t>(from_offset), NodeId{to},
                                              static_cast<uint64_t>(to_offset), length, caller_of(request));
    if (!copied) return reply.fail(copied.error());
    reply.written(*copied);
  });
}

void sync_file(fuse_req_t request, fuse_ino_t node, int data_only, fuse_file_info*) noexcept {
  serve(request, Operation::kFsync, [&](const Operations& files, KernelReply& reply) {
    reply.done(files.data.sync_file(NodeId{node}, data_only != 0));
  });
}

/// Python before 3.14 asks TCGETS of each file that it opens; the kernel cannot be told to stop asking.
// NOLINTNEXTLINE(readability-function-size): the parameters are those of libfuse
void control(fuse_req_t request, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned, const void*, size_t,
             size_t) noexcept {
  refuse(request, Operation::kIoctl, ENOTTY);
}

}  // namespace

void add_data_operations(fuse_lowlevel_ops& table) noexcept {
  table.open = open_file;
  table.flush = flush_file;
  table.release = release_file;
  table.read = read_bytes;
  table.write = write_bytes;
  table.fallocate = allocate;
  table.copy_file_range = copy_range;
  // No lseek: the kernel then answers SEEK_DATA and SEEK_HOLE itself, as for a file without holes. We would
  // take a round trip for each call, and call a hole what lies dirty in a shared mapping.
  table.fsync = sync_file;
  table.ioctl = control;
}

}  // namespace inductorfs::fuse
