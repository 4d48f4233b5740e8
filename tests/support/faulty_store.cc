// SPDX-License-Identifier: Apache-2.0
// A directory in another place, of whose calls one fails when it is told to. Every call that programs make arrives here
// as it was made: the kernel keeps names and attributes, but no bytes (direct_io) of any file that SQLite does not map.
//   faulty_store DIRECTORY MOUNTPOINT [--no-attributes]     ends when it is unmounted
// It is spoken to by extended attributes of its root, which are not counted:
//   setxattr user.order = "KIND NUMBER HOW"       the NUMBER-th call of this kind since the start fails, once.
//                                                 HOW is an errno, or "short": half of the bytes are read or written
//                         "KIND NUMBER HOW END"   the NUMBER-th from now on of those whose path ends so
//   getxattr user.counts                          "KIND COUNT" a line
//   getxattr user.hit                             what has failed: "KIND NUMBER HOW PATH"; empty before
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "support/passthrough.h"

namespace inductorfs::testing::passthrough {
namespace {

struct Order {
  std::string kind;  ///< empty: no call fails
  uint64_t number = 0;
  std::string how;
  std::string end;
  uint64_t passed = 0;  ///< calls whose path ends so
};

// One thread serves all requests.
std::map<std::string, uint64_t> counts;
Order order;
std::string hit;
bool is_short;  ///< the call that is being answered

int descriptor_of(const fuse_file_info* file) { return static_cast<int>(file->fh); }

std::string place_of(fuse_ino_t id, const char* name) {
  char target[4096];
  const ssize_t size = ::readlink(magic_link(id).c_str(), target, sizeof target);
  const std::string place(target, size > 0 ? static_cast<size_t>(size) : 0);
  return name != nullptr ? place + "/" + name : place;
}

/// Counts the call. True: it has been answered with the error that was ordered.
bool fails(fuse_req_t request, const std::string& kind, fuse_ino_t id, const char* name = nullptr) {
  is_short = false;
  uint64_t number = ++counts[kind];
  if (kind != order.kind) return false;
  if (!order.end.empty()) number = order.passed += place_of(id, name).ends_with(order.end) ? 1 : 0;
  if (number != order.number) return false;
  hit = kind + " " + std::to_string(number) + " " + order.how + " " + place_of(id, name);
  order.kind.clear();
  is_short = order.how == "short";
  if (!is_short) (void)fuse_reply_err(request, std::stoi(order.how));
  return !is_short;
}

/// The name that a call has beside its directory.
template <typename... Rest>
const char* name_among(Rest...) {
  return nullptr;
}
template <typename... Rest>
const char* name_among(const char* name, Rest...) {
  return name;
}
const char* name_among(const char*, size_t, off_t, fuse_file_info*) { return nullptr; }  // what is written

template <size_t kSize>
struct Kind {
  char text[kSize];
  constexpr Kind(const char (&given)[kSize]) { std::copy_n(given, kSize, text); }  // NOLINT(*-explicit-constructor)
};

/// The same call, which is counted and may fail.
template <Kind kKind, auto kCall>
struct Counted;
template <Kind kKind, typename... Rest, void (*kCall)(fuse_req_t, fuse_ino_t, Rest...)>
struct Counted<kKind, kCall> {
  static void call(fuse_req_t request, fuse_ino_t id, Rest... rest) {
    if (!fails(request, kKind.text, id, name_among(rest...))) kCall(request, id, rest...);
  }
};

void set_counted(fuse_req_t request, fuse_ino_t id, struct stat* wanted, int which, fuse_file_info* file) {
  const char* const kind = (which & FUSE_SET_ATTR_SIZE) != 0                        ? "truncate"
                           : (which & FUSE_SET_ATTR_MODE) != 0                      ? "chmod"
                           : (which & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) != 0 ? "chown"
                                                                                    : "utimens";
  if (!fails(request, kind, id)) set_attributes(request, id, wanted, which, file);
}

/// SQLite maps its index of a log, which a file of direct_io refuses.
void set_use(fuse_ino_t id, const char* name, fuse_file_info* file) {
  file->direct_io = place_of(id, name).ends_with("-shm") ? 0 : 1;
}

void open_file(fuse_req_t request, fuse_ino_t id, fuse_file_info* file) {
  const int flags = file->flags & (O_ACCMODE | O_SYNC | O_DSYNC);
  const int opened = ::open(magic_link(id).c_str(), flags | O_CLOEXEC);
  if (opened < 0) return answer(request, -1);
  file->fh = static_cast<uint64_t>(opened);
  set_use(id, nullptr, file);
  (void)fuse_reply_open(request, file);
}

void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* file) {
  const int flags = O_CREAT | O_CLOEXEC | (file->flags & (O_ACCMODE | O_EXCL | O_TRUNC));
  const int made = ::openat(node_of(parent).path, name, flags, mode);
  if (made < 0 || give_to_caller(request, parent, name) != 0) return answer(request, -1);
  fuse_entry_param entry;
  if (const int wrong = find(parent, name, entry); wrong != 0 || entry.ino == 0) {
    ::close(made);
    return static_cast<void>(fuse_reply_err(request, wrong != 0 ? wrong : ENOENT));
  }
  file->fh = static_cast<uint64_t>(made);
  set_use(parent, name, file);
  (void)fuse_reply_create(request, &entry, file);
}

void flush(fuse_req_t request, fuse_ino_t, fuse_file_info*) { answer(request, 0); }
void release(fuse_req_t request, fuse_ino_t, fuse_file_info* file) { answer(request, ::close(descriptor_of(file))); }

void symlink_counted(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) {
  if (!fails(request, "symlink", parent, name)) make_symlink(request, target, parent, name);
}
void read(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info* file) {
  std::vector<char> buffer(size);
  ssize_t got = ::pread(descriptor_of(file), buffer.data(), size, offset);
  if (got < 0) return answer(request, -1);
  if (is_short && got > 1) got /= 2;
  (void)fuse_reply_buf(request, buffer.data(), static_cast<size_t>(got));
}

void write(fuse_req_t request, fuse_ino_t, const char* bytes, size_t size, off_t offset, fuse_file_info* file) {
  const ssize_t put = ::pwrite(descriptor_of(file), bytes, is_short && size > 1 ? size / 2 : size, offset);
  if (put < 0) return answer(request, -1);
  (void)fuse_reply_write(request, static_cast<size_t>(put));
}

void allocate(fuse_req_t request, fuse_ino_t, int mode, off_t offset, off_t size, fuse_file_info* file) {
  answer(request, ::fallocate(descriptor_of(file), mode, offset, size));
}

void sync(fuse_req_t request, fuse_ino_t, int only_data, fuse_file_info* file) {
  answer(request, only_data != 0 ? ::fdatasync(descriptor_of(file)) : ::fsync(descriptor_of(file)));
}

DIR* directory_of(const fuse_file_info* file) {
  return reinterpret_cast<DIR*>(file->fh);
}  // NOLINT(performance-no-int-to-ptr)

void open_directory(fuse_req_t request, fuse_ino_t id, fuse_file_info* file) {
  DIR* const directory = open_to_list(id);
  if (directory == nullptr) return answer(request, -1);
  file->fh = reinterpret_cast<uint64_t>(directory);
  (void)fuse_reply_open(request, file);
}
void release_directory(fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
  answer(request, ::closedir(directory_of(file)));
}
void sync_directory(fuse_req_t request, fuse_ino_t, int, fuse_file_info* file) {
  answer(request, ::fsync(::dirfd(directory_of(file))));
}

void list_opened(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info* file) {
  list(request, directory_of(file), size, offset);
}

void state_of_disk(fuse_req_t request, fuse_ino_t id) {
  struct statvfs state {};
  if (::fstatvfs(node_of(id).path, &state) != 0) return answer(request, -1);
  (void)fuse_reply_statfs(request, &state);
}

void answer_value(fuse_req_t request, const char* value, ssize_t length, size_t room) {
  if (length < 0) return answer(request, -1);
  if (room == 0) return static_cast<void>(fuse_reply_xattr(request, static_cast<size_t>(length)));
  if (static_cast<size_t>(length) > room) return static_cast<void>(fuse_reply_err(request, ERANGE));
  (void)fuse_reply_buf(request, value, static_cast<size_t>(length));
}

void get_value(fuse_req_t request, fuse_ino_t id, const char* name, size_t room) {
  if (id == FUSE_ROOT_ID && (std::string_view(name) == "user.counts" || std::string_view(name) == "user.hit")) {
    std::string told = hit;
    if (std::string_view(name) == "user.counts") {
      told.clear();
      for (const auto& [kind, count] : counts) told += kind + " " + std::to_string(count) + "\n";
    }
    return answer_value(request, told.data(), static_cast<ssize_t>(told.size()), room);
  }
  // The kernel itself asks for those of its own, at each write.
  if (std::string_view(name).starts_with("user.") && fails(request, "getxattr", id)) return;
  std::vector<char> value(room);
  answer_value(request, value.data(), ::getxattr(magic_link(id).c_str(), name, value.data(), room), room);
}

void set_value(fuse_req_t request, fuse_ino_t id, const char* name, const char* value, size_t size, int flags) {
  if (id == FUSE_ROOT_ID && std::string_view(name) == "user.order") {
    std::istringstream text(std::string(value, size));
    order = {};
    text >> order.kind >> order.number >> order.how >> order.end;
    hit.clear();
    return answer(request, 0);
  }
  if (!fails(request, "setxattr", id)) answer(request, ::setxattr(magic_link(id).c_str(), name, value, size, flags));
}
void list_values(fuse_req_t request, fuse_ino_t id, size_t room) {
  std::vector<char> names(room);
  answer_value(request, names.data(), ::listxattr(magic_link(id).c_str(), names.data(), room), room);
}
void remove_value(fuse_req_t request, fuse_ino_t id, const char* name) {
  answer(request, ::removexattr(magic_link(id).c_str(), name));
}

fuse_lowlevel_ops counted_operations() {
  fuse_lowlevel_ops all = operations();
  all.lookup = Counted<"lookup", lookup>::call;
  all.getattr = Counted<"getattr", get_attributes>::call;
  all.readlink = Counted<"readlink", read_link>::call;
  all.mkdir = Counted<"mkdir", make_directory>::call;
  all.unlink = Counted<"unlink", remove_file>::call;
  all.rmdir = Counted<"rmdir", remove_directory>::call;
  all.rename = Counted<"rename", rename_entry>::call;
  all.link = Counted<"link", make_link>::call;
  all.open = Counted<"open", open_file>::call;
  all.read = Counted<"read", read>::call;
  all.write = Counted<"write", write>::call;
  all.flush = Counted<"close", flush>::call;
  all.fsync = Counted<"fsync", sync>::call;
  all.opendir = Counted<"opendir", open_directory>::call;
  all.readdir = Counted<"readdir", list_opened>::call;
  all.fsyncdir = Counted<"fsyncdir", sync_directory>::call;
  all.statfs = Counted<"statfs", state_of_disk>::call;
  all.listxattr = Counted<"listxattr", list_values>::call;
  all.removexattr = Counted<"removexattr", remove_value>::call;
  all.create = Counted<"create", create>::call;
  all.fallocate = Counted<"fallocate", allocate>::call;
  // Those that the kernel makes by itself, and those that count themselves.
  all.setattr = set_counted;
  all.symlink = symlink_counted;
  all.release = release;
  all.releasedir = release_directory;
  all.getxattr = get_value;
  all.setxattr = set_value;
  return all;
}

}  // namespace
}  // namespace inductorfs::testing::passthrough

int main(int count, char** arguments) {
  namespace disk = inductorfs::testing::passthrough;
  const bool keeps_none = count == 4 && std::string_view(arguments[3]) == "--no-attributes";
  if (count != 3 && !keeps_none) {
    (void)std::fputs("usage: faulty_store DIRECTORY MOUNTPOINT [--no-attributes]\n", stderr);
    return 2;
  }
  fuse_lowlevel_ops all = disk::counted_operations();
  // The kernel answers EOPNOTSUPP then, as for a disk without extended attributes.
  if (keeps_none) all.getxattr = nullptr, all.setxattr = nullptr, all.listxattr = nullptr, all.removexattr = nullptr;
  return disk::serve("faulty_store", arguments[1], arguments[2], all);
}
