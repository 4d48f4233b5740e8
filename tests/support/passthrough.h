// SPDX-License-Identifier: Apache-2.0
#pragma once

#define FUSE_USE_VERSION 314
#include <dirent.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// A directory as it is, in another place: what the programs have in common that serve one to the kernel. Bytes are
/// theirs to read and write. For programs of one thread: the nodes are global, and nothing is locked. Each call answers
/// its request, with the errno of the disk when that refuses.
namespace inductorfs::testing::passthrough {

inline constexpr double kForever = 1e9;  // seconds

/// A file that the kernel knows. `path` is an O_PATH descriptor, so that a renamed file is still found; `data` is for
/// who keeps one to read and write by. Both stay until the kernel forgets the node.
struct Node {
  int path = -1;
  int data = -1;
  uint64_t lookups = 0;
  std::pair<dev_t, ino_t> key;

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() {
    if (path >= 0) ::close(path);
    if (data >= 0) ::close(data);
  }
};

inline Node root;
inline std::map<std::pair<dev_t, ino_t>, std::unique_ptr<Node>> nodes;

inline Node& node_of(fuse_ino_t id) {
  return id == FUSE_ROOT_ID ? root : *reinterpret_cast<Node*>(id);  // NOLINT(performance-no-int-to-ptr)
}
inline std::string magic_link(fuse_ino_t id) { return "/proc/self/fd/" + std::to_string(node_of(id).path); }

inline void answer(fuse_req_t request, int64_t result) { (void)fuse_reply_err(request, result >= 0 ? 0 : errno); }

/// What is under this name; inode 0 says that nothing is, which the kernel keeps. An errno otherwise.
inline int find(fuse_ino_t parent, const char* name, fuse_entry_param& entry) {
  entry = {};
  entry.attr_timeout = entry.entry_timeout = kForever;
  const int path = ::openat(node_of(parent).path, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (path < 0) return errno == ENOENT ? 0 : errno;
  if (::fstat(path, &entry.attr) != 0) return errno;
  auto& node = nodes[{entry.attr.st_dev, entry.attr.st_ino}];
  if (node) {
    ::close(path);
  } else {
    node = std::make_unique<Node>();
    node->path = path;
    node->key = {entry.attr.st_dev, entry.attr.st_ino};
  }
  ++node->lookups;
  entry.ino = reinterpret_cast<fuse_ino_t>(node.get());
  return 0;
}

/// Answers with the name, after a call that made it had this result.
inline void answer_entry(fuse_req_t request, fuse_ino_t parent, const char* name, int result) {
  fuse_entry_param entry;
  const int wrong = result != 0 ? errno : find(parent, name, entry);
  (void)(wrong != 0 ? fuse_reply_err(request, wrong) : fuse_reply_entry(request, &entry));
}

inline void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) { answer_entry(request, parent, name, 0); }

inline void forget(fuse_req_t request, fuse_ino_t id, uint64_t count) {
  if (id != FUSE_ROOT_ID) {
    Node& node = node_of(id);
    node.lookups -= count;
    if (node.lookups == 0) nodes.erase(std::pair(node.key));
  }
  fuse_reply_none(request);
}

inline void get_attributes(fuse_req_t request, fuse_ino_t id, fuse_file_info*) {
  struct stat attributes {};
  if (::fstat(node_of(id).path, &attributes) != 0) return answer(request, -1);
  (void)fuse_reply_attr(request, &attributes, kForever);
}

inline void set_attributes(fuse_req_t request, fuse_ino_t id, struct stat* wanted, int which, fuse_file_info*) {
  const int path = node_of(id).path;
  const std::string link = magic_link(id);
  const auto asked = [&](int bits) { return (which & bits) != 0; };
  const auto time = [&](int bit, int now, const timespec& value) {
    return asked(now) ? timespec{0, UTIME_NOW} : asked(bit) ? value : timespec{0, UTIME_OMIT};
  };
  const uid_t owner = asked(FUSE_SET_ATTR_UID) ? wanted->st_uid : static_cast<uid_t>(-1);
  const gid_t group = asked(FUSE_SET_ATTR_GID) ? wanted->st_gid : static_cast<gid_t>(-1);
  const timespec times[] = {time(FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, wanted->st_atim),
                            time(FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, wanted->st_mtim)};
  const bool refused =
      (asked(FUSE_SET_ATTR_MODE) && ::chmod(link.c_str(), wanted->st_mode) != 0) ||
      (asked(FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID) && ::fchownat(path, "", owner, group, AT_EMPTY_PATH) != 0) ||
      (asked(FUSE_SET_ATTR_SIZE) && ::truncate(link.c_str(), wanted->st_size) != 0) ||
      ::utimensat(path, "", times, AT_EMPTY_PATH) != 0;
  if (refused) return answer(request, -1);
  get_attributes(request, id, nullptr);
}

/// What somebody makes is his, as on a disk.
inline int give_to_caller(fuse_req_t request, fuse_ino_t parent, const char* name) {
  const fuse_ctx* const caller = fuse_req_ctx(request);
  return ::fchownat(node_of(parent).path, name, caller->uid, caller->gid, AT_SYMLINK_NOFOLLOW);
}
inline void make_directory(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  const int made = ::mkdirat(node_of(parent).path, name, mode);
  answer_entry(request, parent, name, made == 0 ? give_to_caller(request, parent, name) : made);
}
inline void make_symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) {
  const int made = ::symlinkat(target, node_of(parent).path, name);
  answer_entry(request, parent, name, made == 0 ? give_to_caller(request, parent, name) : made);
}
inline void make_link(fuse_req_t request, fuse_ino_t id, fuse_ino_t parent, const char* name) {
  const std::string from = magic_link(id);
  answer_entry(request, parent, name, ::linkat(AT_FDCWD, from.c_str(), node_of(parent).path, name, AT_SYMLINK_FOLLOW));
}
inline void remove_file(fuse_req_t request, fuse_ino_t parent, const char* name) {
  answer(request, ::unlinkat(node_of(parent).path, name, 0));
}
inline void remove_directory(fuse_req_t request, fuse_ino_t parent, const char* name) {
  answer(request, ::unlinkat(node_of(parent).path, name, AT_REMOVEDIR));
}
inline void rename_entry(fuse_req_t request, fuse_ino_t from, const char* name, fuse_ino_t to, const char* other,
                         unsigned flags) {
  answer(request, ::renameat2(node_of(from).path, name, node_of(to).path, other, flags));
}

inline void read_link(fuse_req_t request, fuse_ino_t id) {
  char target[4096];
  const ssize_t size = ::readlinkat(node_of(id).path, "", target, sizeof target - 1);
  if (size < 0) return answer(request, -1);
  target[size] = '\0';
  (void)fuse_reply_readlink(request, target);
}

inline DIR* open_to_list(fuse_ino_t id) {
  return ::fdopendir(::openat(node_of(id).path, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/// Answers with what an open directory lists behind this offset.
inline void list(fuse_req_t request, DIR* directory, size_t size, off_t offset) {
  ::seekdir(directory, offset);
  std::vector<char> buffer(size);
  size_t used = 0;
  while (const dirent* const item = ::readdir(directory)) {
    struct stat attributes {};
    attributes.st_ino = item->d_ino;
    attributes.st_mode = static_cast<mode_t>(DTTOIF(item->d_type));
    const size_t needed =
        fuse_add_direntry(request, buffer.data() + used, size - used, item->d_name, &attributes, item->d_off);
    if (needed > size - used) break;
    used += needed;
  }
  (void)fuse_reply_buf(request, buffer.data(), used);
}

/// The calls above that neither open a file nor a directory.
inline fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops all{};
  all.lookup = lookup;
  all.forget = forget;
  all.getattr = get_attributes;
  all.setattr = set_attributes;
  all.mkdir = make_directory;
  all.symlink = make_symlink;
  all.link = make_link;
  all.unlink = remove_file;
  all.rmdir = remove_directory;
  all.rename = rename_entry;
  all.readlink = read_link;
  return all;
}

/// Serves the directory at the mountpoint until it is unmounted; the exit status of the program.
inline int serve(const char* program, const char* directory, const char* mountpoint, const fuse_lowlevel_ops& all) {
  ::umask(0);
  struct rlimit files {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  root.path = ::open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root.path < 0) {
    std::perror(directory);
    return 1;
  }
  fuse_args options = FUSE_ARGS_INIT(0, nullptr);
  for (const char* option : {program, "-oallow_other,default_permissions"}) (void)fuse_opt_add_arg(&options, option);
  fuse_session* session = fuse_session_new(&options, &all, sizeof(all), nullptr);
  if (session == nullptr || fuse_session_mount(session, mountpoint) != 0) return 1;
  const int ended = fuse_session_loop(session);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  fuse_opt_free_args(&options);
  return ended == 0 ? 0 : 1;
}

}  // namespace inductorfs::testing::passthrough
