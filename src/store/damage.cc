// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "inductorfs/base/number.h"
#include "local_store.h"

/// Blobs whose bytes are not those that were written.
namespace inductorfs::store {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kNoteLimit = 64;

}  // namespace

void LocalStore::read_damage() {
  const std::string text = read_file(folder(), kDamageFile, kNoteLimit).value_or("");
  const size_t space = text.find(' ');
  if (space == std::string::npos) return;
  damage_.with([&](Damage& damage) {
    damage = {leading_number<uint64_t>(text), leading_number<int64_t>(std::string_view(text).substr(space + 1))};
  });
}

void LocalStore::note_damage() {
  damage_.with([&](Damage& damage) {
    damage = {damage.times + 1, clock_.wall_now() / kSecond};
    const std::string text = std::to_string(damage.times) + " " + std::to_string(damage.last) + "\n";
    (void)write_file_atomically(folder(), kDamageFile, text);  // without it the next process does not know
  });
}

void LocalStore::set_damage_listener(DamageListener listener) {
  auto shared = std::make_shared<const DamageListener>(std::move(listener));
  listener_.with([&](std::shared_ptr<const DamageListener>& current) { current = std::move(shared); });
}

void LocalStore::set_left_listener(LeftListener listener) {
  auto shared = std::make_shared<const LeftListener>(std::move(listener));
  left_listener_.with([&](std::shared_ptr<const LeftListener>& current) { current = std::move(shared); });
}

/// Before the blob goes, so that whoever is killed in between leaves the blob, or the listener's mark on its inode.
void LocalStore::tell_damage(const codec::Digest& digest, const Located& blob, const BlobFile& file) {
  if (!blob.suspect) note_damage();  // a crash of the host loses bytes of sound disks
  const auto listener = listener_.with([](const std::shared_ptr<const DamageListener>& current) { return current; });
  if (listener && *listener) (*listener)(digest, blob.packed ? -1 : file.file());
}

void LocalStore::discard(const codec::Digest& digest) {
  const auto blob = index_.with([&](Index& index) -> std::optional<Located> {
    const IndexedBlob* known = index.closed ? nullptr : index.find(digest);
    return known == nullptr ? std::nullopt
                            : std::optional(Located{known->size, known->packed, known->modified, known->suspect});
  });
  if (!blob) return;
  corrupt_.add();
  if (const auto file = open_located(digest, *blob)) tell_damage(digest, *blob, *file);
  drop(digest);
}

void LocalStore::drop(const codec::Digest& digest) {
  Retired retired;
  index_.with([&](Index& index) {
    if (!index.closed && index.find(digest) != nullptr) retired = retire(index, digest);
  });
  free_retired(std::move(retired));
}

}  // namespace inductorfs::store
