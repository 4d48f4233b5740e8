// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/parcel_mark.h"

#include <sys/stat.h>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/host_error.h"
#include "vfs/tree/parcel_files.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

constexpr const char* kParcelName = "user.inductorfs.parcel";
constexpr const char* kChanged = "changed";
constexpr const char* kMember = "member";

/// What ends a mark when it changes: of an index its time, of a directory the names in it. Times and modes may be set
/// by whoever uses the files (SGLang: find_prebuilt); a write ends the mark by itself (Origin::member_changed).
std::string state_of(const LocalTree& tree, const std::string& place, const struct stat& status) {
  if (!S_ISDIR(status.st_mode)) return std::to_string(modified_ns(status));
  auto directory = tree.open_directory(place);
  const auto files = directory ? files_of_directory(std::move(*directory)) : fail(directory.error());
  if (!files) return "unknown";
  std::string names;
  for (const auto& item : files->items) names += item.path + '\0';
  return codec::digest_of(names).to_hex();
}

/// "fetched 1700000000000000000": where it comes from, and its state when it was marked.
std::optional<std::string> origin_and_state(const LocalTree& tree, const std::string& place, bool fetched) {
  const auto status = tree.stat(place);
  if (!status || !*status) return std::nullopt;
  return std::string(fetched ? "fetched " : "made ") + state_of(tree, place, **status);
}

}  // namespace

std::optional<ParcelMark> parcel_mark_of(const LocalTree& tree, const std::string& place) {
  const auto text = mark_of(tree, place, kParcelName);
  constexpr size_t kHexSize = codec::Digest::kSize * 2;
  if (!text || text->size() <= kHexSize || (*text)[kHexSize] != ' ') return std::nullopt;
  const auto digest = codec::Digest::from_hex(text->substr(0, kHexSize));
  if (!digest) return std::nullopt;
  const std::string rest = text->substr(kHexSize + 1);
  const bool fetched = rest.starts_with("fetched ");
  if (origin_and_state(tree, place, fetched) != rest) return std::nullopt;
  return ParcelMark{*digest, fetched};
}

void set_parcel_mark(const LocalTree& tree, const std::string& place, const ParcelMark& mark) {
  if (const auto rest = origin_and_state(tree, place, mark.fetched)) {
    set_mark(tree, place, kParcelName, mark.digest.to_hex() + " " + *rest);
  }
}

bool is_changed_parcel(const LocalTree& tree, const std::string& place) {
  const auto mark = read_mark(tree, place, kParcelName);
  return (mark ? mark->has_value() : is_of_host(mark.error().code())) && !parcel_mark_of(tree, place);
}

void end_parcel_mark(const LocalTree& tree, const std::string& place) {
  if (mark_of(tree, place, kParcelName) || mark_of(tree, place, kScopeMark)) {
    set_mark(tree, place, kParcelName, kChanged);
  }
}

void forget_parcel_mark(const LocalTree& tree, const std::string& place) { remove_mark(tree, place, kParcelName); }

void mark_member(const LocalTree& tree, const std::string& place) { set_mark(tree, place, kParcelName, kMember); }

bool is_left_member(const LocalTree& tree, const std::string& place) {
  return mark_of(tree, place, kParcelName) == kMember;
}

void remove_parcel(const LocalTree& tree, const std::string& place) { (void)tree.remove_tree(place); }

void remove_from_view(const LocalTree& tree, const std::string& path) {
  if (form_of(path) == layout::Form::kIndex) {
    const auto files = parcel_files(tree, path);
    for (const auto& item : files ? files->items : std::vector<codec::ParcelItem>{}) {
      remove_parcel(tree, LocalTree::view(join(parent_path(path), item.path)));
    }
  }
  remove_parcel(tree, LocalTree::view(path));
}

}  // namespace inductorfs::vfs
