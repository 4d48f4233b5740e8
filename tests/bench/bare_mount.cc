// SPDX-License-Identifier: Apache-2.0
// The least that a FUSE file system can cost on this kernel: a directory as it is, in another place. The kernel keeps
// names, absences, attributes and pages for ever, as it keeps ours, and OPEN, OPENDIR and FLUSH are answered ENOSYS. No
// store, no catalog, no check, one thread.
//   bare_mount DIRECTORY MOUNTPOINT     ends when it is unmounted
#include "support/passthrough.h"

namespace inductorfs::testing::passthrough {
namespace {

/// Nobody says when a file is closed: what was opened for its bytes stays until the kernel forgets the node.
int data_of(fuse_ino_t id) {
  Node& node = node_of(id);
  if (node.data < 0) node.data = ::open(magic_link(id).c_str(), O_RDWR | O_CLOEXEC);
  if (node.data < 0) node.data = ::open(magic_link(id).c_str(), O_RDONLY | O_CLOEXEC);
  return node.data;
}

void init(void*, fuse_conn_info* connection) {
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_ATOMIC_O_TRUNC);
  connection->want |= connection->capable & static_cast<unsigned>(FUSE_CAP_EXPLICIT_INVAL_DATA);
}

void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* file) {
  const int flags = O_CREAT | O_RDWR | O_CLOEXEC | (file->flags & (O_EXCL | O_TRUNC));
  const int data = ::openat(node_of(parent).path, name, flags, mode);
  if (data < 0) return answer(request, -1);
  fuse_entry_param entry;
  if (const int wrong = find(parent, name, entry); wrong != 0 || entry.ino == 0) {
    ::close(data);
    return static_cast<void>(fuse_reply_err(request, wrong != 0 ? wrong : ENOENT));
  }
  if (const int older = std::exchange(node_of(entry.ino).data, data); older >= 0) ::close(older);
  file->keep_cache = 1;
  (void)fuse_reply_create(request, &entry, file);
}

void read(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, fuse_file_info*) {
  static std::vector<char> buffer;
  buffer.resize(size);
  const ssize_t got = ::pread(data_of(id), buffer.data(), size, offset);
  if (got < 0) return answer(request, -1);
  (void)fuse_reply_buf(request, buffer.data(), static_cast<size_t>(got));
}

void write(fuse_req_t request, fuse_ino_t id, const char* bytes, size_t size, off_t offset, fuse_file_info*) {
  const ssize_t put = ::pwrite(data_of(id), bytes, size, offset);
  if (put < 0) return answer(request, -1);
  (void)fuse_reply_write(request, static_cast<size_t>(put));
}

void sync(fuse_req_t request, fuse_ino_t id, int only_data, fuse_file_info*) {
  const int file = data_of(id);
  answer(request, only_data != 0 ? ::fdatasync(file) : ::fsync(file));
}

void list_once(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, fuse_file_info*) {
  DIR* const directory = open_to_list(id);
  if (directory == nullptr) return answer(request, -1);
  list(request, directory, size, offset);
  ::closedir(directory);
}

void not_needed(fuse_req_t request, fuse_ino_t, fuse_file_info*) { (void)fuse_reply_err(request, ENOSYS); }
void no_control(fuse_req_t request, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned, const void*, size_t,
                size_t) {
  (void)fuse_reply_err(request, ENOTTY);
}

fuse_lowlevel_ops bare_operations() {
  fuse_lowlevel_ops all = operations();
  all.init = init;
  all.create = create;
  all.open = not_needed;
  all.opendir = not_needed;
  all.flush = not_needed;
  all.read = read;
  all.write = write;
  all.fsync = sync;
  all.readdir = list_once;
  all.ioctl = no_control;
  return all;
}

}  // namespace
}  // namespace inductorfs::testing::passthrough

int main(int count, char** arguments) {
  namespace disk = inductorfs::testing::passthrough;
  if (count != 3) {
    (void)std::fputs("usage: bare_mount DIRECTORY MOUNTPOINT\n", stderr);
    return 2;
  }
  return disk::serve("bare_mount", arguments[1], arguments[2], disk::bare_operations());
}
