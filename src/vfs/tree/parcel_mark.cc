// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/parcel_mark.h"

#include <sys/stat.h>

#include "inductorfs/base/fd.h"

namespace inductorfs::vfs {
namespace {

constexpr const char* kParcelName = "user.inductorfs.parcel";
constexpr int64_t kSecond = 1'000'000'000;

/// "fetched 1700000000000000000": where it comes from, and its modification time when it was marked.
std::optional<std::string> origin_and_time(const LocalTree& tree, const std::string& place, bool fetched) {
  const auto status = tree.stat(place);
  if (!status || !*status) return std::nullopt;
  const int64_t time = (*status)->st_mtim.tv_sec * kSecond + (*status)->st_mtim.tv_nsec;
  return std::string(fetched ? "fetched " : "made ") + std::to_string(time);
}

}  // namespace

layout::Form form_of(const std::string& path) { return layout::rule_of(layout::classify(path).family).form; }

std::optional<ParcelMark> parcel_mark_of(const LocalTree& tree, const std::string& place) {
  const auto text = tree.mark_of(place, kParcelName);
  constexpr size_t kHexSize = codec::Digest::kSize * 2;
  if (!text || text->size() <= kHexSize || (*text)[kHexSize] != ' ') return std::nullopt;
  const auto digest = codec::Digest::from_hex(text->substr(0, kHexSize));
  if (!digest) return std::nullopt;
  const std::string rest = text->substr(kHexSize + 1);
  const bool fetched = rest.starts_with("fetched ");
  if (origin_and_time(tree, place, fetched) != rest) return std::nullopt;
  return ParcelMark{*digest, fetched};
}

void set_parcel_mark(const LocalTree& tree, const std::string& place, const ParcelMark& mark) {
  if (const auto rest = origin_and_time(tree, place, mark.fetched)) {
    tree.set_mark(place, kParcelName, mark.digest.to_hex() + " " + *rest);
  }
}

void remove_parcel(const std::string& directory, const std::string& place) {
  (void)remove_tree(directory + "/" + place);
}

}  // namespace inductorfs::vfs
