// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/fail_point.h"
#include "vfs/tree/parcel_files.h"
#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/paths.h"
#include "vfs/write/sealing.h"

/// Sealing parcels (layout::Form): a directory, or an index with what it names, becomes one blob. The files stay as
/// their program made them.
namespace inductorfs::vfs {
namespace {

/// The directory, or the index: what has the parcel's name.
Result<Fd> open_itself(const LocalTree& tree, const std::string& path) {
  const bool directory = form_of(path) == layout::Form::kDirectory;
  return directory ? tree.open_directory(LocalTree::view(path)) : tree.open_file(LocalTree::view(path), false);
}

}  // namespace

Result<Sealed> Sealing::seal_parcel(const NodePtr& node, const std::string& path, const std::string& scope) {
  // A file where a directory is expected, or the reverse: no program of the family's has made it.
  if (node->is_directory() != (form_of(path) == layout::Form::kDirectory)) {
    return fail(ErrorCode::kNotSupported, node->is_directory() ? "it is a directory" : "it is no directory");
  }
  Fd itself;
  std::optional<ParcelMark> mark;
  // In one step: from here on all goes by descriptor, whatever gets the path.
  INDUCTORFS_TRY_ASSIGN(const auto files, moves_.read([&](const Moves&) -> Result<ParcelFiles> {
    if (nodes_.find(path) != node) return fail(ErrorCode::kNotFound);
    if (is_changed_parcel(disk_, LocalTree::view(path))) {
      return fail(ErrorCode::kNotSupported, "a file of it was changed after it was complete");
    }
    mark = parcel_mark_of(disk_, LocalTree::view(path));
    INDUCTORFS_TRY_ASSIGN(itself, open_itself(disk_, path));
    return parcel_files(disk_, path);
  }));
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(itself.get()));
  INDUCTORFS_TRY(judge_makers(files, path));
  INDUCTORFS_TRY(judge_members(files, path, scope));
  if (files.size() > options_.artefact_limit) {
    return fail(ErrorCode::kTooLarge, std::to_string(files.size()) + " bytes, over the limit of one artefact");
  }
  INDUCTORFS_TRY_ASSIGN(const auto digest, store_parcel(files, path));
  if (mark && mark->digest != digest && parcel_mark_of(disk_, LocalTree::view(path)) == mark) {
    store_.note_damage();  // as in store_file
    damage_.note_parcel(path);
    pins_.with([&](Pins& pins) { pins.sealed_paths.erase(digest); });
    store_.drop(digest);
    return fail(ErrorCode::kNotFound, "damaged on the disk");
  }
  INDUCTORFS_TRY(judge_makers(files, path));  // of what was read
  struct stat now {};
  if (::fstat(itself.get(), &now) != 0 || modified_ns(now) != modified_ns(status)) return fail(ErrorCode::kBusy);
  return Sealed{path, entry_of(path, status, digest, files.size()), std::move(itself), false, true};
}

/// The users who have made the files of a parcel.
Result<void> Sealing::judge_makers(const ParcelFiles& files, const std::string& path) {
  const std::string above = form_of(path) == layout::Form::kDirectory ? path : parent_path(path);
  for (const auto& item : files.items) {
    const auto makers =
        moves_.read([&](const Moves&) { return makers_of(disk_, LocalTree::view(join(above, item.path))); });
    if (!makers) return fail(makers.error());
    const auto why = scopes_.why_not_shared(path, *makers);
    if (!why.empty()) return fail(ErrorCode::kNotPermitted, item.path + ": " + why);
  }
  return {};
}

/// The writers of the files that an index names. Those of a directory are whoever gave it its name.
Result<void> Sealing::judge_members(const ParcelFiles& files, const std::string& path, const std::string& scope) {
  if (form_of(path) != layout::Form::kIndex) return {};
  for (const auto& item : files.items) {
    if (item.path == files.index_name) continue;
    const std::string member = join(parent_path(path), item.path);
    INDUCTORFS_TRY_ASSIGN(const auto node, lookup_.pin_path(member));
    const auto found = origin_.standing(node, member, scope);
    const Provenance known = origin_.provenance_of(member);
    tree_.unpin(node);
    if (!found) return fail(found.error());
    if (*found == Standing::kUnjudged || *found == Standing::kChanged) return fail(ErrorCode::kBusy);
    if (*found == Standing::kMatches) continue;
    return fail(ErrorCode::kNotPermitted,
                item.path + ": " + (known.is_private() ? known.why_private : "its writer has another environment"));
  }
  return {};
}

/// The bytes are checked as they are in the store: the files may change meanwhile.
Result<codec::Digest> Sealing::store_parcel(const ParcelFiles& files, const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(auto writer, store_.create(files.size()));
  INDUCTORFS_TRY_ASSIGN(const auto digest, pack(files, [&](std::string_view bytes) { return writer->append(bytes); }));
  // Before the blob is there, so that no eviction takes it while nothing is queued yet.
  pins_.with([&](Pins& pins) { pins.sealed_paths[digest] = path; });
  INDUCTORFS_TRY(writer->commit(digest));
  fail_point("parcel.stored");
  INDUCTORFS_TRY_ASSIGN(const auto blob, store_.open_blob(digest));
  const auto classified = layout::classify(path);
  std::string head(std::min(files.size(), layout::bytes_to_check(classified, files.size())), '\0');
  INDUCTORFS_TRY_ASSIGN(const auto got, blob.read(head.data(), head.size(), 0));
  head.resize(got);
  INDUCTORFS_TRY(host_.check(classified, head, files.size(), {}));
  return digest;
}

void Sealing::mark_parcel(const Sealed& sealed) {
  const std::string& path = sealed.path;
  const bool is_marked = moves_.read([&](const Moves&) {
    // While it was sealed.
    if (!has_name(sealed).value_or(false) || is_changed_parcel(disk_, LocalTree::view(path))) return false;
    set_parcel_mark(disk_, LocalTree::view(path), {sealed.entry.digest, false});
    return true;
  });
  if (!is_marked) return;
  const auto walked = nodes_.walk(path);
  if (!walked.missing.empty()) return;
  // A write by whoever wrote last ends the mark too (Origin::saw_writer_in_place).
  for (const auto& [name, child] : nodes_.children(walked.node->is_directory() ? walked.node : walked.parent)) {
    child->content.with([](Content& content) { content.last_writer = 0; });
  }
}

}  // namespace inductorfs::vfs
