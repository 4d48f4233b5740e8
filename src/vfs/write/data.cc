// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/data.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/own_user.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kCopyPiece = 1 << 20;
/// Most that one request copies: the caller asks again for the rest. With coreutils' 2 GiB in one request, a slow disk
/// would keep a thread busy for minutes, and the request could not be told from one that is stuck.
constexpr size_t kCopyMost = 8 << 20;
constexpr off_t kSyncPiece = 8 << 20;
constexpr uint64_t kAllocatePiece = 1ULL << 30;
/// How often a request that waits for a fetch reports progress.
constexpr std::chrono::seconds kFetchStep{1};

/// Writes a file's bytes to the disk in pieces, and says that it makes progress: an fsync(2) of much on a slow disk
/// does not. What is left for that call is little.
Result<void> write_back(int file) {
  constexpr unsigned kWriteAndWait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  struct stat status {};
  if (::fstat(file, &status) != 0) return fail_errno("stat");
  if (status.st_size <= kSyncPiece) return {};
  for (off_t at = 0; at < status.st_size; at += kSyncPiece) {
    at = ::lseek(file, at, SEEK_DATA);
    if (at < 0) return {};  // only a hole is left
    if (::sync_file_range(file, at, kSyncPiece, kWriteAndWait) != 0) {
      // Who asks here takes the error of an earlier write, so that fsync(2) would not tell it again.
      return errno == EINVAL || errno == ENOSYS || errno == ESPIPE ? Result<void>() : fail_errno("fsync");
    }
    takeover::note_progress();
  }
  return {};
}

/// How many bytes a file has from there on.
uint64_t bytes_from(int file, uint64_t offset) {
  struct stat status {};
  const uint64_t size = ::fstat(file, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
  return size - std::min(size, offset);
}

/// As copy_bytes() takes it.
codec::ReadAt bytes_of(const DescriptorCache::Descriptor& file) {
  return [&file](char* out, size_t size, uint64_t at) { return file.read(out, size, at); };
}

}  // namespace

bool Data::fetch_again(const codec::Entry& entry) {
  // A blob that a known inode shows is never evicted; it can only have been damaged on the disk.
  counters_.get("read.fetched_again").add();
  const auto settled = std::make_shared<std::promise<FetchOutcome>>();
  fetcher_.fetch({entry}, [settled](const std::vector<FetchOutcome>& got) { settled->set_value(got.front()); });
  std::future<FetchOutcome> outcome = settled->get_future();
  // A fetch has a deadline of its own, which may be later than --hang-timeout.
  while (outcome.wait_for(kFetchStep) != std::future_status::ready) takeover::note_progress();
  return outcome.get() == FetchOutcome::kHere;
}

/// What a node is read from: its rendered bytes, or a descriptor. Fetches a damaged blob once more, with no lock held.
Result<DescriptorCache::Pointer> Data::reading(const NodePtr& node, std::shared_ptr<const std::string>& rendered) {
  for (bool again = false;; again = true) {
    std::optional<codec::Entry> lost;
    auto file = moves_.read([&](const Moves&) {
      return node->content.with([&](Content& content) -> Result<DescriptorCache::Pointer> {
        if (content.backing == Backing::kShared) store_.mark_read(content.entry.digest);
        rendered = content.rendered;
        if (rendered) return DescriptorCache::Pointer{};
        auto open = tree_.descriptor(*node, content, false);
        if (!open && content.backing == Backing::kShared) lost = content.entry;
        return open;
      });
    });
    if (file || !lost) return file;
    if (again || !fetch_again(*lost)) {
      return fail(ErrorCode::kInternal, "blob " + lost->digest.to_hex() + " vanished from the store");
    }
  }
}

Result<size_t> Data::read(NodeId id, char* out, size_t size, uint64_t offset) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  if (node->is_directory()) return fail(ErrorCode::kIsDirectory);
  std::shared_ptr<const std::string> rendered;
  INDUCTORFS_TRY_ASSIGN(auto file, reading(node, rendered));
  if (!rendered) return file->read(out, size, offset);
  if (offset >= rendered->size()) return size_t{0};
  const size_t count = std::min<size_t>(size, rendered->size() - static_cast<size_t>(offset));
  std::copy_n(rendered->data() + offset, count, out);
  return count;
}

Result<EarlyCopy> Data::copy_early(const NodePtr& node, bool sealed_too, std::optional<uint64_t> keep) {
  EarlyCopy early(keep);
  const auto is_large = [&](const Content& content) {
    if (content.backing == Backing::kShared) return early.wanted(content.entry.size) > EarlyCopy::kLarge;
    return content.backing == Backing::kLocal && sealed_too && early.wanted(UINT64_MAX) > EarlyCopy::kLarge &&
           !descriptors_.find(node->id, true);
  };
  if (!node->is_regular() || !node->content.with(is_large)) return early;
  DescriptorCache::Pointer from;
  Result<void> refused;
  const auto begin = [&](Content& content) {
    if (content.copying || content.rendered || !is_large(content)) return;
    if (content.backing == Backing::kLocal && !tree_.is_sealed(*node, content)) return;
    const auto file = tree_.descriptor(*node, content, false);
    struct stat status {};
    if (!file || ::fstat((*file)->file(), &status) != 0) return;
    if (early.wanted(static_cast<uint64_t>(status.st_size)) <= EarlyCopy::kLarge) return;
    const bool is_entry = content.backing == Backing::kShared;
    const auto owner = is_entry ? std::optional<FileOwner>() : file_owner((*file)->file()).value_or(std::nullopt);
    refused = disk_.charges().may_copy(early.wanted(static_cast<uint64_t>(status.st_size)),
                                       owner ? owner->uid : content.attributes.uid, is_entry ? 0 : status.st_ino);
    if (!refused) return;
    from = *file;
    early.begin(disk_, node, content);
  };
  const auto is_free = [](const Content& content) { return !content.copying; };
  do {
    // The copying thread reports its progress; this request waits for it as for a lock.
    while (!node->content.wait_until(std::chrono::steady_clock::now() + kFetchStep, is_free, is_free)) continue;
    moves_.read([&](const Moves&) { node->content.with(begin); });
  } while (!from && refused && !node->content.with(is_free));
  INDUCTORFS_TRY(refused);
  if (!from) return early;
  auto filled = early.fill(from->file());
  if (!filled && filled.error().code() == ErrorCode::kNoSpace) {
    struct stat status {};
    const uint64_t size = ::fstat(from->file(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
    if (tree_.make_room(early.wanted(size))) filled = early.fill(from->file());
  }
  INDUCTORFS_TRY(filled);
  return early;
}

Result<void> Data::copy_entry_to_view(const NodePtr& node, Content& content, EarlyCopy& early) {
  const auto path = nodes_.path_of(*node);
  const uint64_t size = early.wanted(content.rendered ? content.rendered->size() : content.entry.size);
  std::string place = path ? LocalTree::view(*path) : LocalTree::orphan(node->id);
  if (path && path->find('/') != std::string::npos) {
    INDUCTORFS_TRY(tree_.make_view_directories(path->substr(0, path->rfind('/'))));
  }
  const bool has_file = !content.rendered && size > 0;
  INDUCTORFS_TRY_ASSIGN(const auto from,
                        has_file ? tree_.descriptor(*node, content, false) : DescriptorCache::Pointer{});
  auto made = has_file ? early.take(from->file()) : std::nullopt;
  const bool copied = made.has_value();
  const std::string copy = copied ? made->name : LocalTree::orphan(node->id) + ".copy";
  if (!copied) (void)disk_.unlink(copy);  // left by a copy that failed
  INDUCTORFS_TRY_ASSIGN(auto to, copied ? Result<Fd>(std::move(made->file)) : disk_.create_file(copy));
  const auto write_copy = [&]() -> Result<void> {
    if (content.rendered) INDUCTORFS_TRY(pwrite_full(to.get(), std::string_view(*content.rendered).substr(0, size), 0));
    if (has_file && !copied) INDUCTORFS_TRY(copy_bytes(bytes_of(*from), to.get(), size));
    mark_changed(to.get(), 0);
    const Attributes& attributes = content.attributes;
    INDUCTORFS_TRY(
        disk_.charges().give_copy(to.get(), {attributes.uid, attributes.gid, S_IFREG | (attributes.mode & 07777)}));
    const struct timespec times[2] = {{attributes.accessed.seconds, attributes.accessed.nanoseconds},
                                      {attributes.modified.seconds, attributes.modified.nanoseconds}};
    if (::futimens(to.get(), times) != 0) return fail_errno("utimens", copy);
    fail_point("copy.written");
    return disk_.rename(copy, place);
  };
  if (auto written = write_copy(); !written) {
    (void)disk_.unlink(copy);  // the error that is reported came first
    return written;
  }
  fail_point("copy.named");
  struct stat status {};
  if (::fstat(to.get(), &status) == 0) nodes_.remember_local(status.st_ino, node);
  // Made for the scope that it came in, whoever changes it from here on.
  if (const auto known = path ? catalog_.find(layout::name_of(*path)) : std::nullopt) {
    set_mark(disk_, place, kScopeMark, known->scope);
  }
  content.provenance.reset();
  if (!path) tree_.become_orphan(*node, content, std::move(place));
  return {};
}

Result<void> Data::may_name(const Content& content, const std::string& path, const Caller& caller) {
  const bool may = caller.uid == 0 || caller.uid == own_uid() || caller.uid == content.attributes.uid;
  if (content.backing != Backing::kShared || may) return {};
  return fail(ErrorCode::kCrossDevice, path + ": it is of the cluster, in another user's root; copy it");
}

Result<void> Data::make_private(const NodePtr& node, Content& content, EarlyCopy& early) {
  if (content.backing == Backing::kShared) {
    INDUCTORFS_TRY(copy_entry_to_view(node, content, early));
    pins_.with([&](Pins& pins) { pins.unshare(content.entry.digest, node->id); });
    tree_.become(node, content, Backing::kLocal, content.elsewhere);
    content.rendered.reset();
    counters_.get("view.copied_up").add();
  } else if (tree_.is_sealed(*node, content)) {
    INDUCTORFS_TRY_ASSIGN(auto path, tree_.location(*node, content));
    INDUCTORFS_TRY(early.unshare(disk_, path));
    if (const auto status = disk_.stat(path); status && *status) nodes_.remember_local((*status)->st_ino, node);
    set_mark(disk_, path, kChangedMark, "0");
    counters_.get("view.unsealed").add();
  } else {
    return {};
  }
  descriptors_.drop(node->id);
  content.attributes_valid = false;
  return {};
}

/// What a process writes into its view of an index (GroupViews) becomes the index, as if it had renamed a file onto the
/// name: whoever has the earlier one open reads it to the end. The caller holds moves().
Result<void> Data::take_name(const NodePtr& view) {
  const NodePtr named = view->content.with(
      [](const Content& content) { return content.backing == Backing::kShared ? content.view_of : nullptr; });
  const auto names = named ? nodes_.names_of(named) : std::vector<std::pair<NodeId, std::string>>();
  const NodePtr directory = names.empty() ? nullptr : nodes_.find(names.front().first);
  const auto path = directory ? nodes_.path_of(*named) : std::nullopt;
  if (!path || form_of(*path) != layout::Form::kIndex) return {};
  return with_contents(named, view, [&](Content& earlier, Content* content) -> Result<void> {
    const std::string orphan = LocalTree::orphan(named->id);
    INDUCTORFS_TRY(disk_.unlink(orphan));  // of a node with this number in an earlier life
    INDUCTORFS_TRY(disk_.link(LocalTree::view(*path), orphan));
    const auto give_name = [&](const NodePtr& node) {
      (void)nodes_.detach(directory, names.front().second);
      (void)nodes_.add(directory, names.front().second, node, 0);
    };
    give_name(view);
    EarlyCopy none(std::nullopt);
    if (auto done = make_private(view, *content, none); !done) {
      give_name(named);
      (void)disk_.unlink(orphan);  // the error that is reported came first
      return done;
    }
    tree_.become_orphan(*named, earlier, orphan);
    earlier.attributes_valid = false;
    return {};
  });
}

/// A lock is open to all users of its root, whoever has made it, and counts for him.
Result<void> Data::may_grow(const NodePtr& node, int file, uint64_t end, const Caller& caller) const {
  if (end <= kMostOfOthers || caller.uid == 0 || caller.uid == own_uid()) return {};
  INDUCTORFS_TRY_ASSIGN(const auto owner, file_owner(file));
  if (!owner || owner->uid == caller.uid || bytes_from(file, 0) >= end) return {};
  const auto path = nodes_.path_of(*node);
  if (!path || layout::common_use_of(*path) != layout::CommonUse::kWrite) return {};
  log::write_limited(log::Level::kWarning, "view.over_limit",
                     {{"user", caller.uid}, {"of", "another user's lock"}, {"limit", kMostOfOthers}});
  return fail(ErrorCode::kOverQuota, "write " + *path + ": it is another user's, and open to all as a lock is: " +
                                         std::to_string(kMostOfOthers) + " bytes at most");
}

Result<DescriptorCache::Pointer> Data::begin_write(const NodePtr& node, std::optional<uint64_t> keep_bytes,
                                                   uint64_t end, const Caller& caller) {
  if (node->is_directory()) return fail(ErrorCode::kIsDirectory);
  bool other_writer = false;
  const auto begin = [&]() -> Result<DescriptorCache::Pointer> {
    INDUCTORFS_TRY_ASSIGN(auto early, copy_early(node, true, keep_bytes));
    return moves_.read([&](const Moves&) -> Result<DescriptorCache::Pointer> {
      INDUCTORFS_TRY(take_name(node));
      return node->content.with([&](Content& content) -> Result<DescriptorCache::Pointer> {
        INDUCTORFS_TRY(make_private(node, content, early));
        auto file = tree_.descriptor(*node, content, true);
        if (!file) return file;
        INDUCTORFS_TRY(may_grow(node, (*file)->file(), end, caller));
        INDUCTORFS_TRY(disk_.charges().admit_size((*file)->file(), end));
        if (auto noted = origin_.note_writer(*node, content, (*file)->file(), caller); !noted) {
          disk_.charges().resize((*file)->file());
          return fail(noted.error());
        }
        ++content.active_writes;
        other_writer = content.last_writer != caller.pid;
        content.last_writer = caller.pid;
        return file;
      });
    });
  };
  auto file = tree_.with_room(begin);
  const bool fits_now = !file && file.error().code() == ErrorCode::kOverQuota && tree_.make_room(0);
  if (fits_now) file = tree_.with_room(begin);
  // Sealed under another name since it was looked at.
  if (!file && file.error().code() == ErrorCode::kBusy) file = tree_.with_room(begin);
  // Before the first byte: from here to the end of the write nothing is sealed.
  const bool anew = keep_bytes == uint64_t{0};
  if (file && (other_writer || anew)) origin_.saw_writer_in_place(node, caller.pid, anew);
  return file;
}

void Data::end_write(const NodePtr& node, const DescriptorCache::Pointer& file, bool changed) {
  disk_.charges().resize(file->file());
  // Before this write counts as over: nothing may take the file for finished in between.
  if (changed) in_place_.add_names(node);
  node->content.with([&](Content& content) {
    --content.active_writes;
    if (!changed) return;
    ++content.version;
    content.attributes_valid = false;
    content.last_change = std::chrono::steady_clock::now();
  });
  if (!changed || in_place_.is_on()) return;
  const auto path = nodes_.path_of(*node);
  if (!path) return;
  if (seals_when_quiet(*path) && !in_place_.add(node, *path)) seal_queue_.add_quiet({node, *path, false});
}

Result<void> Data::write(NodeId id, std::string_view bytes, uint64_t offset, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  INDUCTORFS_TRY_ASSIGN(auto file, begin_write(node, std::nullopt, offset + bytes.size(), caller));
  auto written = pwrite_full(file->file(), bytes, offset);
  if (!written && written.error().code() == ErrorCode::kNoSpace && tree_.make_room(bytes.size())) {
    written = pwrite_full(file->file(), bytes, offset);
  }
  fail_point("data.written");
  end_write(node, file, true);
  return written;
}

Result<void> Data::allocate(NodeId id, int mode, uint64_t offset, uint64_t length, const Caller& caller) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  const bool keeps_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
  INDUCTORFS_TRY_ASSIGN(auto file, begin_write(node, std::nullopt, keeps_size ? 0 : offset + length, caller));
  // What is reserved beyond the end nobody would count (UserCharges): it is not.
  if (keeps_size && (mode & FALLOC_FL_PUNCH_HOLE) == 0) length = std::min(length, bytes_from(file->file(), offset));
  // In pieces, which all modes that the kernel passes on can be done in (fs/fuse/file.c: fuse_file_fallocate).
  uint64_t done_bytes = 0;
  const auto allocated = [&] {
    for (; done_bytes < length; takeover::note_progress()) {
      const uint64_t piece = std::min(length - done_bytes, kAllocatePiece);
      const uint64_t from = offset + done_bytes;
      if (::fallocate(file->file(), mode, static_cast<off_t>(from), static_cast<off_t>(piece)) != 0) return false;
      done_bytes += piece;
    }
    return true;
  };
  bool done = allocated();
  int saved_errno = errno;
  if (!done && saved_errno == ENOSPC && tree_.make_room(length - done_bytes)) {
    done = allocated();
    saved_errno = errno;
  }
  end_write(node, file, done || done_bytes > 0);
  if (!done) return fail(error_from_errno(saved_errno, "fallocate"));
  return {};
}

Result<size_t> Data::copy_range(NodeId from, uint64_t from_offset, NodeId to, uint64_t to_offset, size_t length,
                                const Caller& caller) {
  INDUCTORFS_TRY(tree_.live(to));
  length = std::min(length, kCopyMost);
  std::string buffer(std::min(length, kCopyPiece), '\0');
  size_t copied = 0;
  while (copied < length) {
    auto got = read(from, buffer.data(), std::min(buffer.size(), length - copied), from_offset + copied);
    if (!got) return copied > 0 ? Result<size_t>(copied) : got;
    if (*got == 0) break;
    if (auto put = write(to, std::string_view(buffer.data(), *got), to_offset + copied, caller); !put) {
      return copied > 0 ? Result<size_t>(copied) : fail(std::move(put).error());
    }
    copied += *got;
    takeover::note_progress();
  }
  return copied;
}

/// The names that the view has there. Those of the cluster only are the cluster's, and what is put into a Triton set
/// has no name before the set is whole. A slow disk holds up nobody else's names.
Result<void> Data::sync_names(const Node& directory) {
  const auto names = moves_.read([&](const Moves&) -> Result<Fd> {
    const auto path = nodes_.path_of(directory);
    if (!path) return fail(ErrorCode::kNotFound);  // removed
    return disk_.open_directory(LocalTree::view(*path));
  });
  if (!names) return names.error().code() == ErrorCode::kNotFound ? Result<void>() : fail(names.error());
  if (fail_point_error("disk.sync") || ::fsync(names->get()) != 0) return fail_errno("fsync");
  return {};
}

Result<void> Data::sync_file(NodeId id, bool data_only) {
  INDUCTORFS_TRY_ASSIGN(auto node, tree_.live(id));
  if (node->is_directory()) return sync_names(*node);
  if (!node->is_regular()) return {};
  auto file = moves_.read([&](const Moves&) {
    return node->content.with([&](Content& content) -> Result<DescriptorCache::Pointer> {
      if (content.backing == Backing::kShared) return DescriptorCache::Pointer{};  // the cluster has it
      return tree_.descriptor(*node, content, false);
    });
  });
  if (!file) return fail(std::move(file).error());
  if (fail_point_error("disk.sync")) return fail_errno("fsync");
  if (*file) INDUCTORFS_TRY(write_back((*file)->file()));
  if (*file && (data_only ? ::fdatasync((*file)->file()) : ::fsync((*file)->file())) != 0) {
    return fail_errno("fsync");
  }
  return {};
}

}  // namespace inductorfs::vfs
