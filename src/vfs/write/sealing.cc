// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/sealing.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/host_error.h"
#include "inductorfs/base/log.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/view_files.h"

/// Sealing: a private file under its final name becomes an immutable blob with an entry, on its way to the cluster.
namespace inductorfs::vfs {
namespace {

constexpr size_t kMostWaitingForRoom = 1000;

catalog::Publish::Kind kind_of(layout::Contest contest) {
  switch (contest) {
    case layout::Contest::kNone:
      return catalog::Publish::Kind::kPlain;
    case layout::Contest::kFirst:
      return catalog::Publish::Kind::kFirst;
    case layout::Contest::kCandidates:
      return catalog::Publish::Kind::kCandidate;
    case layout::Contest::kMerge:
      return catalog::Publish::Kind::kMerge;
    case layout::Contest::kFirstOfPath:
      return catalog::Publish::Kind::kFirstOfPath;
  }
  return catalog::Publish::Kind::kPlain;
}

Result<void> copy_to_store(store::BlobStore& store, int file, uint64_t size, const codec::Digest& digest) {
  if (store.find(digest)) return {};
  INDUCTORFS_TRY_ASSIGN(auto writer, store.create(size));
  INDUCTORFS_TRY(stream_bytes(bytes_of(file), size, [&](std::string_view bytes) { return writer->append(bytes); }));
  auto committed = writer->commit(digest);
  fail_point("seal.copied");
  // Written to while it was copied: no artefact yet.
  if (!committed && committed.error().code() == ErrorCode::kCorrupt) return fail(ErrorCode::kBusy);
  return committed;
}

/// Of a file, or a set, that may not be sealed now.
SealOutcome outcome_of(Standing standing) {
  if (standing == Standing::kUnjudged) return SealOutcome::kUnjudged;
  return standing == Standing::kChanged ? SealOutcome::kLater : SealOutcome::kDone;
}

}  // namespace

void Sealing::seal_if_final(const NodePtr& node, const std::string& path) {
  if (!node->is_regular()) return;
  const auto classified = layout::classify(path);
  const auto& rule = layout::rule_of(classified.family);
  if (!rule.shared) return;  // a rename is a sign of completeness in every family (layout::SealSign)
  if (classified.family == layout::Family::kTritonKernel) {
    // A set that somebody copies in by names and renames (rsync) is whole when its group file says so. That comes last
    // by Triton's hand, and among the first where files are copied by name.
    const NodePtr directory = nodes_.walk(parent_path(path)).node;
    if (!directory || !directory->key) return;
    const bool is_group = layout::is_group_file(path.substr(path.rfind('/') + 1));
    const bool in_any_order = marks_.everyone_fits() || marks_.is_in_no_environment(path);
    if (is_group || (in_any_order && local_set_is_whole(disk_, parent_path(path)).value_or(true))) {
      seal_queue_.add({directory, parent_path(path), true});
    }
    return;
  }
  seal_queue_.add({node, path, false});
}

void Sealing::seal_after_build(const std::string& directory_path, const Caller& builder) {
  const std::string above = parent_path(directory_path);
  for (const auto& path : layout::sealed_by_removal_of(directory_path)) {
    if (parent_path(path) != above) continue;
    auto node = lookup_.pin_path(path);
    if (!node) continue;
    // torch, which ran the compiler: a better witness than the linker, and of every byte.
    // Whoever says that it is complete has made it.
    const auto noted = moves_.read([&](const Moves&) { return origin_.note_namer(LocalTree::view(path), builder); });
    if (noted) {
      origin_.saw_writer(*node, path, builder.pid, true);
      in_place_.is_complete(*node);
      seal_queue_.add({*node, path, false});
    }
    tree_.unpin(*node);
    return;
  }
}

/// The paths of the cluster (triton/@) are not on the disk, so that nobody is known as the owner.
void Sealing::refuse(const std::string& path, const std::string& why) {
  const auto found = disk_.stat(LocalTree::view(path));
  refusals_.add(path, why, found && *found ? std::optional((*found)->st_uid) : std::nullopt);
}

std::optional<Error> Sealing::last_failure() const {
  return last_failure_.with([](const std::optional<Error>& last) { return last; });
}

SealOutcome Sealing::not_sealed(const std::string& path, const Error& error) {
  if (error.code() == ErrorCode::kBusy) return SealOutcome::kLater;
  if (is_of_host(error.code())) {
    counters_.get("seal.no_room").add();
    log::write_limited(log::Level::kWarning, "seal.no_room", {{"path", shown_path(path)}, {"why", error.to_string()}});
    last_failure_.with([&](std::optional<Error>& last) { last = error; });
    // What waits holds a node each, and its bytes are read again for each try.
    if (seal_queue_.waiting() < kMostWaitingForRoom) return SealOutcome::kNoRoom;
    refuse(path, error.to_string() + "; more than " + std::to_string(kMostWaitingForRoom) +
                     " files wait for the disk, so the next mount publishes this one");
    return SealOutcome::kDone;
  }
  refuse(path, error.to_string());
  return SealOutcome::kDone;
}

SealOutcome Sealing::seal(const SealItem& item) {
  // A request of an earlier worker may have written a part of its bytes, and nobody counts that as an active write.
  if (phase_.with([](Resuming resuming) { return resuming == Resuming::kRequests; })) return SealOutcome::kLater;
  if (item.group) return seal_group(item);
  // The name may have gone, or be another file's by now.
  if (nodes_.find(item.path) != item.node) return SealOutcome::kDone;
  const auto classified = layout::classify(item.path);
  const auto& rule = layout::rule_of(classified.family);
  if (!rule.shared || rule.seal == layout::SealSign::kNever) return SealOutcome::kDone;
  if (item.has_no_sign) return tell_of_no_sign(item);
  const bool settling = scopes_.is_settling(item.path);  // before the scope: the name may come in between
  const auto scope = scopes_.scope_of(item.path, classified.family);
  if (scope.id.empty() && settling) return SealOutcome::kUnjudged;
  if (scope.id.empty()) {
    marks_.has_no_scope(item.path, 1);
    origin_.cannot_judge(item.node, item.path, scope.why_private);
    return SealOutcome::kDone;
  }
  if (in_place_.is_unfinished(item.node)) {
    in_place_.add(item.node, item.path);  // it may have another name than it waits under
    return SealOutcome::kDone;
  }
  const bool busy = item.node->content.with([](const Content& content) { return content.active_writes > 0; });
  if (busy) return SealOutcome::kLater;
  const auto known = origin_.standing(item.node, item.path, scope.id);
  if (!known) return not_sealed(item.path, known.error());
  if (*known != Standing::kMatches) return outcome_of(*known);

  auto sealed =
      rule.form == layout::Form::kFile ? seal_file(item.node, item.path) : seal_parcel(item.node, item.path, scope.id);
  if (!sealed) {
    if (sealed.error().code() != ErrorCode::kNotFound) return not_sealed(item.path, sealed.error());
    return SealOutcome::kDone;
  }
  // A foreign write that came and went before the file was hashed has left its mark; a later one has a copy.
  if (!origin_.provenance_of(item.path).is_settled_for(scope.id)) return SealOutcome::kDone;
  catalog::Publish publish;
  publish.kind = kind_of(rule.contest);
  publish.scope = scope.id;
  publish.contest = classified.key_directory;
  publish.root = classified.root;
  publish.is_again = item.is_again;
  if (rule.contest == layout::Contest::kCandidates) {
    if (const NodePtr directory = nodes_.find(parent_path(item.path))) publish.seen = nodes_.shown(directory);
  }
  const auto queued = enqueue(std::move(publish), {&*sealed, 1});
  if (!queued) return not_sealed(item.path, queued.error());
  if (!*queued) return SealOutcome::kDone;
  // Published before it had its mark? Then what the cluster has merged was not adopted: this file was in the way.
  if (const auto state = catalog_.publish_state(classified.canonical); state && state->merged)
    adopt_merged(*state->merged);
  return SealOutcome::kDone;
}

/// Tells of a file, or of the directory of a parcel, that was made under its final name. Its writer may be the reason
/// why it stays here; then that is told, if it was not told when the writer was seen.
SealOutcome Sealing::tell_of_no_sign(const SealItem& item) {
  const bool is_directory = item.node->is_directory();
  const bool got_a_sign = is_directory ? mark_of(disk_, LocalTree::view(item.path), kScopeMark).has_value()
                                       : !seal_on_disk(disk_, item.path).empty() || in_place_.is_unfinished(item.node);
  if (got_a_sign) return SealOutcome::kDone;
  if (seals_after_build(item.path)) {
    const auto siblings = disk_.list(LocalTree::view(parent_path(item.path)));
    if (!siblings || is_being_built(parent_path(item.path), last_component(item.path), *siblings)) {
      return SealOutcome::kDone;  // the end of its build is the sign
    }
  }
  const bool settling = scopes_.is_settling(item.path);  // as in seal()
  const auto scope = scopes_.scope_of(item.path, layout::classify(item.path).family, marks_.architecture_of(item.path));
  if (scope.id.empty() && settling) return SealOutcome::kUnjudged;
  if (scope.id.empty()) {
    marks_.has_no_scope(item.path, 1);
    return SealOutcome::kDone;
  }
  if (!is_directory) {
    const auto known = origin_.standing(item.node, item.path, scope.id);
    if (!known) return not_sealed(item.path, known.error());
    if (*known == Standing::kUnjudged || *known == Standing::kChanged) return outcome_of(*known);
    if (origin_.provenance_of(item.path).is_private()) return SealOutcome::kDone;
  }
  marks_.stays_here(item.path, std::string(is_directory ? Marks::kDirectoryNoSign : Marks::kNoSign), 1);
  return SealOutcome::kDone;
}

/// Queues and marks what belongs together. Returns false if any was deleted or replaced while it was hashed: whoever
/// did that found nothing in the queue to hide.
Result<bool> Sealing::enqueue(catalog::Publish publish, std::span<const Sealed> members) {
  for (const auto& member : members) publish.entries.push_back(member.entry);
  auto queued = removal_.queueing().with([&](const Queueing&) -> Result<bool> {
    for (const auto& member : members) {
      INDUCTORFS_TRY_ASSIGN(const bool is_here, has_name(member));
      if (!is_here) return false;
    }
    INDUCTORFS_TRY(catalog_.enqueue(publish));
    return true;
  });
  fail_point("seal.queued");
  if (!queued.value_or(false)) return queued;
  for (const auto& member : members) mark_sealed(member);
  return queued;
}

/// An error of the disk is no absence: the seal is tried again.
Result<bool> Sealing::has_name(const Sealed& sealed) const {
  struct stat hashed {};
  INDUCTORFS_TRY_ASSIGN(const auto named, disk_.stat(LocalTree::view(sealed.path)));
  if (!named) return false;
  if (::fstat(sealed.file.get(), &hashed) != 0) return fail_errno("stat", sealed.path);
  // Whoever has written to it, or named it, before it was read is noted by now.
  INDUCTORFS_TRY_ASSIGN(const auto why, marks_.why_not_shared(sealed.path));
  return hashed.st_ino == named->st_ino && why.empty();
}

Result<Sealed> Sealing::seal_file(const NodePtr& node, const std::string& path) {
  const auto classified = layout::classify(path);
  bool shares_inode = false;
  bool is_new = false;
  // The descriptor is taken in the same step as the mark: from here on a writer gets an inode of its own, and whatever
  // is renamed over the path meanwhile, what is hashed is what is stored.
  auto file = moves_.read([&](const Moves&) {
    return node->content.with([&](Content& content) -> Result<Fd> {
      if (content.backing != Backing::kLocal) return fail(ErrorCode::kNotFound);
      INDUCTORFS_TRY_ASSIGN(auto where, tree_.location(*node, content));
      INDUCTORFS_TRY_ASSIGN(auto opened, disk_.open_file(where, false));
      INDUCTORFS_TRY_ASSIGN(const bool has_seal, is_stores(opened.get()));
      is_new = !has_seal;
      if (content.active_writes > 0 || (content.unfinished && is_new)) return fail(ErrorCode::kBusy);
      struct stat status {};
      if (::fstat(opened.get(), &status) != 0) return fail_errno("stat", path);
      // A file with further names keeps its inode for them, so the store gets a copy; so it does of what takes no seal.
      shares_inode = (status.st_nlink == 1 || !is_new) && tree_.seal(*node, opened.get());
      return Result<Fd>(std::move(opened));
    });
  });
  if (!file) return fail(std::move(file).error());
  auto entry = store_file(*file, path, classified, shares_inode);
  const bool written_to = node->content.with([&](Content& content) {
    // What the store had before it keeps, under whatever name the file is refused now.
    if (!entry && shares_inode && is_new) remove_seal(file->get());
    content.attributes_valid = false;
    return !shares_inode && content.unfinished;
  });
  if (entry && written_to) return fail(ErrorCode::kBusy);
  if (!entry) return fail(std::move(entry).error());
  return Sealed{path, std::move(*entry), std::move(*file), shares_inode};
}

Result<codec::Entry> Sealing::store_file(const Fd& file, const std::string& path,
                                         const layout::Classification& classified, bool shares_inode) {
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(file.get()));
  // Of the file that is read: another one may have got the name since it was judged.
  INDUCTORFS_TRY_ASSIGN(const auto makers, makers_of(file.get()));
  if (const auto why = scopes_.why_not_shared(path, makers); !why.empty()) {
    return fail(ErrorCode::kNotPermitted, why);
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size > options_.artefact_limit) {
    return fail(ErrorCode::kTooLarge, std::to_string(size) + " bytes, over the limit of one artefact");
  }
  INDUCTORFS_TRY_ASSIGN(const auto digest, codec::digest_of_file(file.get()));
  // Nobody writes to what is sealed: the disk gives other bytes than it did.
  INDUCTORFS_TRY_ASSIGN(const auto seal, seal_of(file.get()));
  if (seal && *seal != digest.to_hex()) {
    if (*seal != kDamagedSeal) store_.note_damage();
    damage_.note(codec::Digest::from_hex(*seal).value_or(digest), file.get());
    return fail(ErrorCode::kNotFound, "damaged on the disk");
  }
  std::string head(std::min(size, layout::bytes_to_check(classified, size)), '\0');
  INDUCTORFS_TRY_ASSIGN(const auto got, pread_full(file.get(), head.data(), head.size(), 0));
  head.resize(got);
  // Its maker runs it. Whoever is shown it is asked then (Fit).
  INDUCTORFS_TRY(host_.check(classified, head, size, {}));

  auto entry = entry_of(path, status, digest, size);
  if (!shares_inode) {
    // Without a seal on the inode a later life could not tell that the blob shares it.
    INDUCTORFS_TRY(copy_to_store(store_, file.get(), size, digest));
    return entry;
  }
  // Before the blob is there, so that no eviction takes it while nothing is queued yet.
  pins_.with([&](Pins& pins) { pins.sealed_paths[digest] = path; });
  // By a name of its own: the path may be another file's by now.
  const std::string name = LocalTree::in_folder(LocalTree::kOrphanFolder, "seal-" + std::to_string(status.st_ino));
  INDUCTORFS_TRY(disk_.unlink(name));  // left by a seal that failed
  INDUCTORFS_TRY(disk_.link(file, name));
  fail_point("seal.linked");
  INDUCTORFS_TRY_ASSIGN(const auto at, disk_.held(name));
  auto adopted = store_.adopt(at.fd(), at.name(), digest);
  fail_point("seal.adopted");
  (void)disk_.unlink(name);  // what stays is removed at the next start
  fail_point("seal.unlinked");
  if (!adopted) return fail(std::move(adopted).error());
  const auto blob = store_.open_blob(digest);  // of another file with the same bytes, where the store had these
  disk_.charges().sealed(file.get(), blob ? blob->file() : -1);
  return entry;
}

void Sealing::mark_sealed(const Sealed& sealed) {
  // On the inode that was hashed, whatever has its path by now. Without it the next start publishes once more, which is
  // harmless.
  if (sealed.is_parcel) mark_parcel(sealed);
  // One that was found damaged by the publisher keeps that mark.
  const auto seal = seal_of(sealed.file.get());
  if (sealed.shares_inode && seal && *seal != kDamagedSeal)
    (void)set_seal(sealed.file.get(), sealed.entry.digest.to_hex());
  fail_point("seal.marked");
  pins_.with([&](Pins& pins) { pins.sealed_paths[sealed.entry.digest] = sealed.path; });
  counters_.get("seal.sealed").add();
}

SealOutcome Sealing::seal_group(const SealItem& item) {
  const auto path = nodes_.path_of(*item.node);
  if (!path) return SealOutcome::kDone;
  // An incomplete set (TritonBundler skips files that it cannot read) would win the key and serve nobody.
  const auto is_whole = local_set_is_whole(disk_, *path);
  if (!is_whole) return not_sealed(*path, is_whole.error());
  if (!*is_whole) {
    counters_.get("seal.incomplete_sets").add();
    return SealOutcome::kDone;
  }
  if (in_place_.set_is_unfinished(*path)) return SealOutcome::kDone;  // the last of its files comes with the set
  const bool settling = scopes_.is_settling(*path);                   // as in seal()
  const auto scope =
      scopes_.scope_of(*path, layout::Family::kTritonKernel, marks_.architecture_of_set(LocalTree::view(*path)));
  if (scope.id.empty() && settling) return SealOutcome::kUnjudged;
  if (scope.id.empty()) origin_.cannot_judge_set(item.node, *path, scope.why_private);
  const auto known = origin_.standing_of_set(item.node, *path, scope);
  if (!known) return not_sealed(*path, known.error());
  if (*known != Standing::kMatches) return outcome_of(*known);
  catalog::Publish publish;
  publish.kind = catalog::Publish::Kind::kFirst;
  publish.scope = scope.id;
  const auto key = layout::name_of(*path);
  publish.contest = key.path;
  publish.root = key.root;
  publish.is_again = item.is_again;
  const auto names = read_set(disk_, *path);
  if (!names) return not_sealed(*path, names.error());
  std::vector<Sealed> members;
  for (const auto& name : *names) {
    const std::string file_path = join(*path, name);
    auto member = seal_member(file_path, path->substr(path->rfind('/') + 1));
    if (!member && member.error().code() == ErrorCode::kNotFound) return SealOutcome::kDone;  // deleted, or damaged
    if (!member) return not_sealed(file_path, member.error());
    if (origin_.provenance_of(file_path).is_private()) return SealOutcome::kDone;  // as in seal()
    members.push_back(*std::move(member));
  }
  if (members.empty() || in_place_.set_is_unfinished(*path)) return SealOutcome::kDone;
  const auto queued = enqueue(std::move(publish), members);
  if (!queued) return not_sealed(*path, queued.error());
  if (!*queued) return SealOutcome::kDone;
  counters_.get("seal.groups").add();
  return SealOutcome::kDone;
}

Result<Sealed> Sealing::seal_member(const std::string& path, const std::string& key) {
  INDUCTORFS_TRY_ASSIGN(auto node, lookup_.pin_path(path));
  auto sealed =
      layout::is_group_file(path.substr(path.rfind('/') + 1)) ? seal_group_file(path, key) : seal_file(node, path);
  tree_.unpin(node);
  return sealed;
}

/// The cluster's copy names no directory; the file itself stays as its writer made it. Its seal is the copy's digest.
Result<Sealed> Sealing::seal_group_file(const std::string& path, const std::string& key) {
  INDUCTORFS_TRY_ASSIGN(auto file, disk_.open_file(LocalTree::view(path), false));
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(file.get()));
  INDUCTORFS_TRY_ASSIGN(const auto makers, makers_of(file.get()));
  if (const auto why = scopes_.why_not_shared(path, makers); !why.empty()) {
    return fail(ErrorCode::kNotPermitted, why);
  }
  INDUCTORFS_TRY_ASSIGN(const auto text, read_file(AT_FDCWD, proc_path(file.get()), kGroupFileLimit));
  INDUCTORFS_TRY_ASSIGN(auto canonical, layout::canonical_group(text, key));
  INDUCTORFS_TRY_ASSIGN(auto digest, store_.put(canonical));
  fail_point("seal.group_put");
  return Sealed{path, entry_of(path, status, digest, canonical.size()), std::move(file), true};
}

codec::Entry Sealing::entry_of(const std::string& path, const struct stat& status, const codec::Digest& digest,
                               uint64_t size) const {
  codec::Entry entry;
  entry.path = layout::classify(path).canonical;
  entry.digest = digest;
  entry.size = size;
  entry.mode = status.st_mode & 07777;
  entry.mtime_ns = modified_ns(status);
  entry.origin = options_.origin;
  return entry;
}

void Sealing::saw_writer_below(const std::string& path, pid_t writer) {
  if (path.size() > codec::kPathLimit) return;  // nothing there is of a shared family
  takeover::note_progress();
  const auto status = moves_.read([&](const Moves&) { return disk_.stat(LocalTree::view(path)); });
  if (!status || !*status) return;
  const bool regular = S_ISREG((*status)->st_mode);
  if (!regular && !S_ISDIR((*status)->st_mode)) return;
  if (regular && !layout::rule_of(layout::classify(path).family).shared) return;
  const bool is_set = !regular && layout::is_triton_key_directory(path) && !local_set(disk_, path).empty();
  const bool is_parcel = !regular && form_of(path) == layout::Form::kDirectory;
  if (regular || is_set || is_parcel) {
    auto node = lookup_.pin_path(path);
    if (!node) return;
    if (is_set) {
      origin_.saw_writer_of_set(*node, path, writer);
      seal_queue_.add({*node, path, true});
    } else {
      origin_.saw_writer(*node, path, writer);
      if (is_parcel) seal_queue_.add({*node, path, false});
      seal_if_final(*node, path);
    }
    tree_.unpin(*node);
  }
  if (regular || is_parcel) return;
  for (const auto& item : disk_.list(LocalTree::view(path)).value_or(std::vector<LocalTree::Item>{})) {
    const std::string child = path.empty() ? item.name : join(path, item.name);
    if (!is_set || layout::classify(child).family != layout::Family::kTritonKernel) saw_writer_below(child, writer);
  }
}

void Sealing::add_found(const std::string& path, bool is_again) {
  auto node = lookup_.pin_path(path);
  if (!node) return;
  seal_queue_.add({.node = *node, .path = path, .group = (*node)->key != nullptr, .is_again = is_again});
  tree_.unpin(*node);
}

}  // namespace inductorfs::vfs
