// SPDX-License-Identifier: Apache-2.0
// The least that a FUSE file system can cost on this kernel: one file of 16 KiB, <directory>/<file>, that the kernel
// asks for once and then keeps, as it keeps ours. No store, no catalog, no check.
//   bare_mount MOUNTPOINT DIRECTORY FILE     ends when it is unmounted
#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

constexpr double kForever = 1e9;
constexpr fuse_ino_t kDirectory = 2;
constexpr fuse_ino_t kFile = 3;
std::array<char, size_t{16} * 1024> bytes;
std::string directory_name;
std::string file_name;

struct stat attributes_of(fuse_ino_t node) {
  struct stat result {};
  result.st_ino = node;
  result.st_mode = node == kFile ? S_IFREG | 0644U : S_IFDIR | 0755U;
  result.st_nlink = 1;
  if (node == kFile) result.st_size = static_cast<off_t>(bytes.size());
  return result;
}

void init(void*, fuse_conn_info* connection) {
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_ATOMIC_O_TRUNC);
  connection->want |= connection->capable & static_cast<unsigned>(FUSE_CAP_EXPLICIT_INVAL_DATA);
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  fuse_entry_param entry{};
  entry.attr_timeout = entry.entry_timeout = kForever;
  if (parent == FUSE_ROOT_ID && name == directory_name) entry.ino = kDirectory;
  if (parent == kDirectory && name == file_name) entry.ino = kFile;
  if (entry.ino != 0) entry.attr = attributes_of(entry.ino);
  (void)fuse_reply_entry(request, &entry);  // inode 0: absent, and that is kept
}

void get_attributes(fuse_req_t request, fuse_ino_t node, fuse_file_info*) {
  const struct stat attributes = attributes_of(node);
  (void)fuse_reply_attr(request, &attributes, kForever);
}

void not_needed(fuse_req_t request, fuse_ino_t, fuse_file_info*) { (void)fuse_reply_err(request, ENOSYS); }

void read(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info*) {
  const size_t from = std::min(static_cast<size_t>(offset), bytes.size());
  (void)fuse_reply_buf(request, bytes.data() + from, std::min(size, bytes.size() - from));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    (void)std::fputs("usage: bare_mount MOUNTPOINT DIRECTORY FILE\n", stderr);
    return 2;
  }
  directory_name = arguments[2];
  file_name = arguments[3];
  fuse_lowlevel_ops operations{};
  operations.init = init;
  operations.lookup = lookup;
  operations.getattr = get_attributes;
  operations.open = not_needed;
  operations.flush = not_needed;
  operations.read = read;
  fuse_args options = FUSE_ARGS_INIT(0, nullptr);
  for (const char* option : {"bare_mount", "-oallow_other,default_permissions"})
    (void)fuse_opt_add_arg(&options, option);
  fuse_session* session = fuse_session_new(&options, &operations, sizeof(operations), nullptr);
  if (session == nullptr || fuse_session_mount(session, arguments[1]) != 0) return 1;
  const int ended = fuse_session_loop(session);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  fuse_opt_free_args(&options);
  return ended == 0 ? 0 : 1;
}
