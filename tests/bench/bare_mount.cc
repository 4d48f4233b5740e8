// SPDX-License-Identifier: Apache-2.0
// The least that a FUSE file system can cost on this kernel: a directory as it is, in another place. The kernel keeps
// names, absences, attributes and pages for ever, as it keeps ours, and OPEN, OPENDIR and FLUSH are answered ENOSYS. No
// store, no catalog, no check, one thread.
//   bare_mount DIRECTORY MOUNTPOINT     ends when it is unmounted
#define FUSE_USE_VERSION 314
#include <dirent.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr double kForever = 1e9;

/// A file that the kernel knows. `path` is an O_PATH descriptor, so that a renamed file is still found; `data` is
/// opened when bytes are asked for first. Nobody says when a file is closed, so both stay until the kernel forgets the
/// node.
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

Node root;
std::map<std::pair<dev_t, ino_t>, std::unique_ptr<Node>> nodes;

Node& node_of(fuse_ino_t id) {
  return id == FUSE_ROOT_ID ? root : *reinterpret_cast<Node*>(id);  // NOLINT(performance-no-int-to-ptr)
}
std::string magic_link(const Node& node) { return "/proc/self/fd/" + std::to_string(node.path); }

int data_of(Node& node) {
  if (node.data < 0) node.data = ::open(magic_link(node).c_str(), O_RDWR | O_CLOEXEC);
  if (node.data < 0) node.data = ::open(magic_link(node).c_str(), O_RDONLY | O_CLOEXEC);
  return node.data;
}

void answer(fuse_req_t request, int result) { (void)fuse_reply_err(request, result == 0 ? 0 : errno); }

/// What is under this name; inode 0 says that nothing is, which the kernel keeps. An errno otherwise.
int find(Node& parent, const char* name, fuse_entry_param& entry) {
  entry = {};
  entry.attr_timeout = entry.entry_timeout = kForever;
  const int path = ::openat(parent.path, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
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

void answer_entry(fuse_req_t request, fuse_ino_t parent, const char* name, int result) {
  fuse_entry_param entry;
  const int wrong = result != 0 ? errno : find(node_of(parent), name, entry);
  (void)(wrong != 0 ? fuse_reply_err(request, wrong) : fuse_reply_entry(request, &entry));
}

void init(void*, fuse_conn_info* connection) {
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_ATOMIC_O_TRUNC);
  connection->want |= connection->capable & static_cast<unsigned>(FUSE_CAP_EXPLICIT_INVAL_DATA);
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) { answer_entry(request, parent, name, 0); }

void forget(fuse_req_t request, fuse_ino_t id, uint64_t count) {
  if (id != FUSE_ROOT_ID) {
    Node& node = node_of(id);
    node.lookups -= count;
    if (node.lookups == 0) nodes.erase(std::pair(node.key));
  }
  fuse_reply_none(request);
}

void get_attributes(fuse_req_t request, fuse_ino_t id, fuse_file_info*) {
  struct stat attributes {};
  if (::fstat(node_of(id).path, &attributes) != 0) return answer(request, -1);
  (void)fuse_reply_attr(request, &attributes, kForever);
}

void set_attributes(fuse_req_t request, fuse_ino_t id, struct stat* wanted, int which, fuse_file_info*) {
  const std::string path = magic_link(node_of(id));
  const auto asked = [&](int bits) { return (which & bits) != 0; };
  const auto time = [&](int bit, int now, const timespec& value) {
    return asked(now) ? timespec{0, UTIME_NOW} : asked(bit) ? value : timespec{0, UTIME_OMIT};
  };
  if (asked(FUSE_SET_ATTR_MODE) && ::chmod(path.c_str(), wanted->st_mode) != 0) return answer(request, -1);
  if (asked(FUSE_SET_ATTR_SIZE) && ::truncate(path.c_str(), wanted->st_size) != 0) return answer(request, -1);
  const timespec times[] = {time(FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, wanted->st_atim),
                            time(FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, wanted->st_mtim)};
  if (::utimensat(AT_FDCWD, path.c_str(), times, 0) != 0) return answer(request, -1);
  get_attributes(request, id, nullptr);
}

void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* file) {
  const int flags = O_CREAT | O_RDWR | O_CLOEXEC | (file->flags & (O_EXCL | O_TRUNC));
  const int data = ::openat(node_of(parent).path, name, flags, mode);
  if (data < 0) return answer(request, -1);
  fuse_entry_param entry;
  if (const int wrong = find(node_of(parent), name, entry); wrong != 0 || entry.ino == 0) {
    ::close(data);
    return static_cast<void>(fuse_reply_err(request, wrong != 0 ? wrong : ENOENT));
  }
  if (const int older = std::exchange(node_of(entry.ino).data, data); older >= 0) ::close(older);
  file->keep_cache = 1;
  (void)fuse_reply_create(request, &entry, file);
}

void make_directory(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  answer_entry(request, parent, name, ::mkdirat(node_of(parent).path, name, mode));
}
void make_symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) {
  answer_entry(request, parent, name, ::symlinkat(target, node_of(parent).path, name));
}
void make_link(fuse_req_t request, fuse_ino_t id, fuse_ino_t parent, const char* name) {
  const std::string from = magic_link(node_of(id));
  answer_entry(request, parent, name, ::linkat(AT_FDCWD, from.c_str(), node_of(parent).path, name, AT_SYMLINK_FOLLOW));
}
void remove_file(fuse_req_t request, fuse_ino_t parent, const char* name) {
  answer(request, ::unlinkat(node_of(parent).path, name, 0));
}
void remove_directory(fuse_req_t request, fuse_ino_t parent, const char* name) {
  answer(request, ::unlinkat(node_of(parent).path, name, AT_REMOVEDIR));
}
void rename_entry(fuse_req_t request, fuse_ino_t from, const char* name, fuse_ino_t to, const char* other,
                  unsigned flags) {
  answer(request, ::renameat2(node_of(from).path, name, node_of(to).path, other, flags));
}

void read_link(fuse_req_t request, fuse_ino_t id) {
  char target[4096];
  const ssize_t size = ::readlinkat(node_of(id).path, "", target, sizeof target - 1);
  if (size < 0) return answer(request, -1);
  target[size] = '\0';
  (void)fuse_reply_readlink(request, target);
}

void read(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, fuse_file_info*) {
  static std::vector<char> buffer;
  buffer.resize(size);
  const ssize_t got = ::pread(data_of(node_of(id)), buffer.data(), size, offset);
  if (got < 0) return answer(request, -1);
  (void)fuse_reply_buf(request, buffer.data(), static_cast<size_t>(got));
}

void write(fuse_req_t request, fuse_ino_t id, const char* bytes, size_t size, off_t offset, fuse_file_info*) {
  const ssize_t put = ::pwrite(data_of(node_of(id)), bytes, size, offset);
  if (put < 0) return answer(request, -1);
  (void)fuse_reply_write(request, static_cast<size_t>(put));
}

void sync(fuse_req_t request, fuse_ino_t id, int only_data, fuse_file_info*) {
  const int file = data_of(node_of(id));
  answer(request, only_data != 0 ? ::fdatasync(file) : ::fsync(file));
}

void list(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, fuse_file_info*) {
  DIR* const directory = ::fdopendir(::openat(node_of(id).path, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory == nullptr) return answer(request, -1);
  if (offset != 0) ::seekdir(directory, offset);
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
  ::closedir(directory);
  (void)fuse_reply_buf(request, buffer.data(), used);
}

void not_needed(fuse_req_t request, fuse_ino_t, fuse_file_info*) { (void)fuse_reply_err(request, ENOSYS); }
void no_control(fuse_req_t request, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned, const void*, size_t,
                size_t) {
  (void)fuse_reply_err(request, ENOTTY);
}

fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops all{};
  all.init = init;
  all.lookup = lookup;
  all.forget = forget;
  all.getattr = get_attributes;
  all.setattr = set_attributes;
  all.create = create;
  all.mkdir = make_directory;
  all.symlink = make_symlink;
  all.link = make_link;
  all.unlink = remove_file;
  all.rmdir = remove_directory;
  all.rename = rename_entry;
  all.readlink = read_link;
  all.open = not_needed;
  all.opendir = not_needed;
  all.flush = not_needed;
  all.read = read;
  all.write = write;
  all.fsync = sync;
  all.readdir = list;
  all.ioctl = no_control;
  return all;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    (void)std::fputs("usage: bare_mount DIRECTORY MOUNTPOINT\n", stderr);
    return 2;
  }
  ::umask(0);
  struct rlimit files {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  root.path = ::open(arguments[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root.path < 0) {
    std::perror(arguments[1]);
    return 1;
  }
  const fuse_lowlevel_ops all = operations();
  fuse_args options = FUSE_ARGS_INIT(0, nullptr);
  for (const char* option : {"bare_mount", "-oallow_other,default_permissions"})
    (void)fuse_opt_add_arg(&options, option);
  fuse_session* session = fuse_session_new(&options, &all, sizeof(all), nullptr);
  if (session == nullptr || fuse_session_mount(session, arguments[2]) != 0) return 1;
  const int ended = fuse_session_loop(session);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  fuse_opt_free_args(&options);
  return ended == 0 ? 0 : 1;
}
