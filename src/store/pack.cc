// SPDX-License-Identifier: Apache-2.0
#include "pack.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>
#include <utility>

#include "directory.h"
#include "inductorfs/base/encoding.h"
#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/log.h"

namespace inductorfs::store {
namespace {

/// The first record of an index, filled up with zeros.
constexpr std::string_view kHeader = "inductorfs-pack 1\n";
constexpr std::string_view kHeaderWord = "inductorfs-pack ";
constexpr std::string_view kSuffix = ".index";
constexpr uint64_t kIndexLimit = (uint64_t{kPackRecords} + 1) * kPackRecordSize;
/// What a pack may take of the disk beyond its blobs before an open looks for what was not freed.
constexpr uint64_t kSlack = 1ULL << 20;
constexpr uint64_t kBytesPerDiskBlock = 512;  // of stat(2)
constexpr mode_t kFileMode = 0600;
constexpr mode_t kFolderMode = 0700;

/// What a blob of this size takes; an empty one has a place of its own too.
uint64_t in_blocks(uint64_t size) { return std::max<uint64_t>(1, (size + kPackBlock - 1) / kPackBlock) * kPackBlock; }

uint64_t position_of(uint32_t record) { return (uint64_t{record} + 1) * kPackRecordSize; }

/// Says whether the pack reaches to the blob's end. An empty blob needs none of it: its place may lie behind the end.
bool is_whole(const PackRecord& record, const struct stat& pack) {
  return record.size == 0 || record.offset + record.size <= static_cast<uint64_t>(pack.st_size);
}

/// Overwrites a byte, which needs no space.
Result<void> mark_dropped(int index, uint32_t record) {
  const char state = PackRecord::kDropped;
  return pwrite_full(index, {&state, 1}, position_of(record) + PackRecord::kStateAt);
}

std::string header() {
  std::string text(kHeader);
  text.resize(kPackRecordSize, '\0');
  return text;
}

}  // namespace

std::string PackRecord::encode() const {
  std::string bytes(digest.raw());
  append_integer(bytes, offset);
  append_integer(bytes, static_cast<uint32_t>(size));
  const uint32_t check = crc32(bytes);
  append_integer(bytes, static_cast<uint32_t>(live ? kLive : kDropped));
  append_integer(bytes, static_cast<uint64_t>(used));
  append_integer(bytes, check);
  bytes.resize(kPackRecordSize, '\0');
  return bytes;
}

std::optional<PackRecord> PackRecord::decode(std::string_view bytes) {
  if (bytes.size() != kPackRecordSize) return std::nullopt;
  ByteReader reader(bytes);
  PackRecord record;
  record.digest = codec::Digest::from_raw(reader.bytes(codec::Digest::kSize)).value_or(codec::Digest{});
  record.offset = reader.integer<uint64_t>();
  record.size = reader.integer<uint32_t>();
  const auto state = reader.integer<uint32_t>();
  record.used = static_cast<WallNanoseconds>(reader.integer<uint64_t>());
  record.live = state == uint32_t{kLive};
  if (reader.integer<uint32_t>() != crc32(bytes.substr(0, kStateAt)) || reader.integer<uint32_t>() != 0) {
    return std::nullopt;
  }
  const bool possible = record.offset % kPackBlock == 0 && record.offset < kPackBytes && record.size <= kPackedMost;
  if (!possible || (!record.live && state != uint32_t{kDropped})) return std::nullopt;
  return record;
}

// --- the files of one pack ---------------------------------------------------------------------------------------

std::string Pack::bytes_path(uint64_t number) { return std::string(kPackFolder) + "/" + std::to_string(number); }

std::string Pack::index_path(uint64_t number) { return bytes_path(number) + std::string(kSuffix); }

Pack::Pack(std::shared_ptr<PackFolder> folder, uint64_t number, Files files)
    : folder_(std::move(folder)), number_(number), files_(std::move(files)) {}

Result<std::shared_ptr<Pack>> Pack::make(std::shared_ptr<PackFolder> folder, uint64_t number) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
  const int store = folder->store.get();
  INDUCTORFS_TRY_ASSIGN(auto bytes, open_at(store, bytes_path(number), kFlags, kFileMode));
  fail_point("pack.made");
  auto pack = [&]() -> Result<std::shared_ptr<Pack>> {
    if (fail_point_error("pack.make") ||
        ::fallocate(bytes.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPackBlock) != 0) {
      return fail_errno("free a part of", bytes_path(number));
    }
    INDUCTORFS_TRY_ASSIGN(auto index, open_at(store, index_path(number), kFlags, kFileMode));
    INDUCTORFS_TRY(pwrite_full(index.get(), header(), 0));
    INDUCTORFS_TRY_ASSIGN(auto reader, open_at(store, bytes_path(number), O_RDONLY | O_NOFOLLOW));
    return std::make_shared<Pack>(std::move(folder), number,
                                  Files{std::move(bytes), std::move(reader), std::move(index)});
  }();
  if (!pack) {
    (void)::unlinkat(store, index_path(number).c_str(), 0);
    (void)::unlinkat(store, bytes_path(number).c_str(), 0);
  }
  return pack;
}

Result<std::vector<std::pair<uint32_t, PackRecord>>> Pack::read_records(int store, uint64_t number) {
  INDUCTORFS_TRY_ASSIGN(const auto text, read_file(store, index_path(number), kIndexLimit));
  const std::string_view whole(text);
  std::vector<std::pair<uint32_t, PackRecord>> records;
  if (whole.size() < kPackRecordSize) return records;  // its maker was killed
  if (!whole.starts_with(kHeader)) {
    const bool other = whole.starts_with(kHeaderWord);
    return fail(other ? ErrorCode::kNotSupported : ErrorCode::kCorrupt,
                index_path(number) + (other ? ": made by a newer inductorfs" : ": no index of a pack"));
  }
  for (size_t at = kPackRecordSize; at + kPackRecordSize <= whole.size(); at += kPackRecordSize) {
    // What is none was being written when the host crashed, or the disk was full.
    const auto record = PackRecord::decode(whole.substr(at, kPackRecordSize));
    if (record) records.emplace_back(static_cast<uint32_t>(at / kPackRecordSize - 1), *record);
  }
  return records;
}

Result<void> Pack::drop_record(int store, uint64_t number, uint32_t record) {
  INDUCTORFS_TRY_ASSIGN(const auto index, open_at(store, index_path(number), O_RDWR | O_NOFOLLOW));
  return mark_dropped(index.get(), record);
}

Result<std::shared_ptr<Pack>> Pack::open(std::shared_ptr<PackFolder> folder, uint64_t number,
                                         std::vector<Item>& items) {
  const int store = folder->store.get();
  INDUCTORFS_TRY_ASSIGN(const auto records, read_records(store, number));
  const auto open_known = [&](const std::string& path) {
    auto file = open_at(store, path, O_RDWR | O_NOFOLLOW);
    const bool is_read_only = !file && file.error().code() == ErrorCode::kReadOnly;
    return is_read_only ? open_at(store, path, O_RDONLY | O_NOFOLLOW) : std::move(file);
  };
  INDUCTORFS_TRY_ASSIGN(auto bytes, open_known(bytes_path(number)));
  INDUCTORFS_TRY_ASSIGN(auto reader, open_at(store, bytes_path(number), O_RDONLY | O_NOFOLLOW));
  INDUCTORFS_TRY_ASSIGN(auto index, open_known(index_path(number)));
  const bool takes_writes = (::fcntl(index.get(), F_GETFL) & O_ACCMODE) == O_RDWR;
  struct stat bytes_status {};
  struct stat index_status {};
  if (::fstat(bytes.get(), &bytes_status) != 0 || ::fstat(index.get(), &index_status) != 0) return fail_errno("stat");
  auto pack =
      std::make_shared<Pack>(std::move(folder), number, Files{std::move(bytes), std::move(reader), std::move(index)});
  std::vector<Item> live;
  State state;
  state.ended = !takes_writes;
  uint64_t taken = 0;
  const auto index_size = static_cast<uint64_t>(index_status.st_size);
  if (index_size > 0) state.records = static_cast<uint32_t>((index_size - 1) / kPackRecordSize);
  for (const auto& [place, record] : records) {
    // Behind the dropped ones too: a place is never used twice.
    state.end = std::max(state.end, record.offset + in_blocks(record.size));
    if (!record.live || !is_whole(record, bytes_status)) continue;
    ++state.held;
    taken += in_blocks(record.size);
    live.push_back({record, std::make_shared<PackedBlob>(pack, Place{record.offset, place}, record.size, true)});
  }
  pack->state_.with([&](State& now) { now = state; });
  if (live.empty()) {
    pack->end();
    return pack;
  }
  if (takes_writes && static_cast<uint64_t>(bytes_status.st_blocks) * kBytesPerDiskBlock > taken + kSlack)
    pack->free_gaps(live);
  std::move(live.begin(), live.end(), std::back_inserter(items));
  return pack;
}

std::shared_ptr<PackedBlob> Pack::take_place(uint64_t size) {
  const auto place = state_.with([&](State& state) -> std::optional<Place> {
    if (state.ended || state.records >= kPackRecords || state.end + in_blocks(size) > kPackBytes) return std::nullopt;
    ++state.held;
    const Place taken{state.end, state.records++};
    state.end += in_blocks(size);
    return taken;
  });
  return place ? std::make_shared<PackedBlob>(shared_from_this(), *place, size, false) : nullptr;
}

void Pack::end() {
  const bool is_empty = state_.with([](State& state) {
    state.ended = true;
    return state.held == 0;
  });
  if (is_empty) remove_files();
}

void Pack::give_back(uint64_t offset, uint64_t size) {
  folder_->closed.with([&](bool closed) {
    if (!closed) free_range(offset, size);
  });
  fail_point("pack.freed");
  const bool is_last = state_.with([](State& state) {
    if (--state.held == 0) state.ended = true;
    return state.held == 0;
  });
  if (is_last) remove_files();
}

void Pack::free_range(uint64_t offset, uint64_t size) const {
  // What cannot be freed now goes with the pack, or is looked for by a later open.
  (void)::fallocate(files_.bytes.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(in_blocks(size)));
}

/// Gives back what a killed worker had dropped, or written and not recorded.
void Pack::free_gaps(const std::vector<Item>& live) const {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const Item& item : live) {
    ranges.emplace_back(item.record.offset, item.record.offset + in_blocks(item.record.size));
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t end = 0;
  for (const auto& [from, to] : ranges) {
    if (from > end) free_range(end, from - end);
    end = std::max(end, to);
  }
  (void)::ftruncate(files_.bytes.get(), static_cast<off_t>(end));
}

void Pack::remove_files() const {
  folder_->closed.with([&](bool closed) {
    if (closed) return;
    (void)::unlinkat(folder_->store.get(), index_path(number_).c_str(), 0);
    fail_point("pack.index_removed");
    (void)::unlinkat(folder_->store.get(), bytes_path(number_).c_str(), 0);
  });
}

// --- one blob ------------------------------------------------------------------------------------------------------

PackedBlob::~PackedBlob() {
  if (!recorded_) pack_->give_back(place_.offset, size_);
}

Result<void> PackedBlob::write(std::string_view bytes) const {
  return pwrite_full(pack_->files_.bytes.get(), bytes, place_.offset);
}

Result<void> PackedBlob::record(const codec::Digest& digest, WallNanoseconds used) {
  const PackRecord record{digest, place_.offset, size_, used, true};
  INDUCTORFS_TRY(pwrite_full(pack_->files_.index.get(), record.encode(), position_of(place_.record)));
  recorded_ = true;
  return {};
}

void PackedBlob::save_use(WallNanoseconds used) const {
  std::string bytes;
  append_integer(bytes, static_cast<uint64_t>(used));
  // Lost: after a restart the blob looks older than it is.
  (void)pwrite_full(pack_->files_.index.get(), bytes, position_of(place_.record) + PackRecord::kUsedAt);
}

void PackedBlob::drop() {
  if (!recorded_.exchange(false)) return;
  // If it cannot be marked, the next open looks for its bytes, and they stay.
  if (!mark_dropped(pack_->files_.index.get(), place_.record)) recorded_ = true;
  fail_point("pack.dropped");
}

Result<BlobFile> PackedBlob::open() const {
  struct stat status {};
  if (::fstat(pack_->files_.bytes.get(), &status) != 0) return fail_errno("stat", Pack::bytes_path(pack_->number_));
  if (!is_whole(PackRecord{{}, place_.offset, size_, 0, true}, status)) return fail(ErrorCode::kNotFound);
  Fd file(::fcntl(pack_->files_.reader.get(), F_DUPFD_CLOEXEC, 0));
  if (!file) return fail_errno("open", Pack::bytes_path(pack_->number_));
  return BlobFile(std::move(file), place_.offset, size_, shared_from_this());
}

// --- all packs -----------------------------------------------------------------------------------------------------

std::optional<uint64_t> pack_number(std::string_view name) {
  if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
  uint64_t number = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
  if (parsed.ec != std::errc() || std::to_string(number) != name) return std::nullopt;
  return number;
}

Packs::Packs(int store) : folder_(std::make_shared<PackFolder>()) {
  folder_->store = Fd(::fcntl(store, F_DUPFD_CLOEXEC, 0));
}

Result<void> Packs::open(std::vector<Pack::Item>& items) {
  std::set<uint64_t> indexes;
  std::set<uint64_t> bytes;
  const int store = folder_->store.get();
  const auto listed = for_each_name(store, kPackFolder, [&](const char* name) {
    const auto number = pack_number(name);
    if (number) (std::string_view(name).ends_with(kSuffix) ? indexes : bytes).insert(*number);
  });
  if (!listed) return listed.error().code() == ErrorCode::kNotFound ? Result<void>() : listed;
  for (const uint64_t number : bytes) {
    // The last step of a removal, or the first of a pack.
    if (!indexes.contains(number)) (void)::unlinkat(store, Pack::bytes_path(number).c_str(), 0);
  }
  std::shared_ptr<Pack> last;
  for (const uint64_t number : indexes) {
    auto pack = Pack::open(folder_, number, items);
    if (!pack) {
      log::write(log::Level::kWarning, "store.pack_unread", {{"pack", number}, {"error", pack.error().to_string()}});
      continue;
    }
    if (last) last->end();
    last = std::move(*pack);
  }
  state_.with([&](State& state) {
    if (!indexes.empty()) state.next_number = *indexes.rbegin() + 1;
    state.current = std::move(last);
  });
  return {};
}

Result<std::shared_ptr<PackedBlob>> Packs::take_place(uint64_t size) {
  return state_.with([&](State& state) -> Result<std::shared_ptr<PackedBlob>> {
    auto place = state.current ? state.current->take_place(size) : nullptr;
    if (place) return place;
    if (::mkdirat(folder_->store.get(), kPackFolder, kFolderMode) != 0 && errno != EEXIST) {
      return fail_errno("make directory", kPackFolder);
    }
    INDUCTORFS_TRY_ASSIGN(auto made, Pack::make(folder_, state.next_number));
    ++state.next_number;
    if (state.current) state.current->end();
    state.current = std::move(made);
    return state.current->take_place(size);
  });
}

Result<std::shared_ptr<PackedBlob>> Packs::write(std::string_view bytes) {
  if (!usable_) return fail(ErrorCode::kNotSupported);
  auto place = take_place(bytes.size());
  if (!place && place.error().code() == ErrorCode::kNotSupported) usable_ = false;
  INDUCTORFS_TRY(place);
  INDUCTORFS_TRY((*place)->write(bytes));
  fail_point("pack.written");
  return place;
}

void Packs::close() {
  folder_->closed.with([](bool& closed) { closed = true; });
}

}  // namespace inductorfs::store
