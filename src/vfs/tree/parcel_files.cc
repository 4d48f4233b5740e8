// SPDX-License-Identifier: Apache-2.0
#include "vfs/tree/parcel_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "inductorfs/layout/layout.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kMostLevels = 8;

Result<Fd> open_below(const Fd& directory, const std::string& path, int flags) {
  // A FIFO must not hold the thread.
  INDUCTORFS_TRY_ASSIGN(const auto at, HeldParent::of(directory.get(), path));
  return open_at(at.fd(), at.name(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | flags);
}

/// Adds one name of the directory.
Result<void> add_item(ParcelFiles& files, const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(const auto at, HeldParent::of(files.directory.get(), path));
  INDUCTORFS_TRY_ASSIGN(const auto named, open_at(at.fd(), at.name(), O_PATH | O_NOFOLLOW));
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(named.get()));
  const bool directory = S_ISDIR(status.st_mode);
  if (!directory && !S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kNotSupported, path + " is neither a file nor a directory");
  }
  if (files.items.size() >= codec::kParcelItemLimit) {
    return fail(ErrorCode::kNotSupported, "more than " + std::to_string(codec::kParcelItemLimit) + " files");
  }
  // Who may read it is a matter of each host (vfs/read/parcels.cc): only whether it is a program comes with it.
  const bool runs = directory || (status.st_mode & S_IXUSR) != 0;
  codec::ParcelItem item{path, directory, runs ? 0755U : 0644U, 0, 0};
  if (!directory) item.size = static_cast<uint64_t>(status.st_size);
  files.items.push_back(std::move(item));
  files.times.push_back(modified_ns(status));
  return {};
}

Result<void> add_below(ParcelFiles& files, const std::string& below, size_t level) {
  if (level > kMostLevels) return fail(ErrorCode::kNotSupported, below + " is too deep");
  INDUCTORFS_TRY_ASSIGN(auto opened, open_below(files.directory, below.empty() ? "." : below, O_DIRECTORY));
  INDUCTORFS_TRY_ASSIGN(const auto names, list_open(std::move(opened), below, codec::kParcelItemLimit + 1));
  for (const auto& name : names) {
    const std::string path = below.empty() ? name.name : join(below, name.name);
    INDUCTORFS_TRY(add_item(files, path));
    if (files.items.back().directory) INDUCTORFS_TRY(add_below(files, path, level + 1));
  }
  takeover::note_progress();
  return {};
}

/// Orders the items as the parcel does, and their times with them.
Result<ParcelFiles> finished(ParcelFiles files) {
  std::vector<size_t> order(files.items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t one, size_t other) { return files.items[one].path < files.items[other].path; });
  std::vector<int64_t> times;
  for (const size_t index : order) times.push_back(files.times[index]);
  files.times = std::move(times);
  auto head = codec::encode_parcel_head(files.items);
  if (!head) return fail(ErrorCode::kNotSupported, head.error().what());
  files.head = std::move(*head);
  return files;
}

Result<void> pack_file(const ParcelFiles& files, size_t number, const codec::ByteSink& sink) {
  const codec::ParcelItem& item = files.items[number];
  auto file = open_below(files.directory, item.path, 0);
  if (!file) return fail(ErrorCode::kBusy, item.path + " has changed");
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(file->get()));
  const bool is_index = item.path == files.index_name;
  const bool same = S_ISREG(status.st_mode) && (item.size == 0 || modified_ns(status) == files.times[number]) &&
                    static_cast<uint64_t>(status.st_size) == (is_index ? files.index_size : item.size);
  if (!same) return fail(ErrorCode::kBusy, item.path + " has changed");
  if (is_index) return sink(files.index);
  INDUCTORFS_TRY_ASSIGN(const auto packed, stream_bytes(bytes_of(file->get()), item.size, sink));
  return packed == item.size ? Result<void>{} : fail(ErrorCode::kBusy, item.path + " has changed");
}

}  // namespace

uint64_t ParcelFiles::size() const {
  uint64_t bytes = head.size();
  for (const auto& item : items) bytes += item.size;
  return bytes;
}

Result<ParcelFiles> files_of_directory(Fd directory) {
  ParcelFiles files;
  files.directory = std::move(directory);
  INDUCTORFS_TRY(add_below(files, "", 0));
  if (files.items.empty()) return fail(ErrorCode::kNotSupported, "the directory is empty");
  return finished(std::move(files));
}

Result<ParcelFiles> files_named(Fd directory, const std::vector<std::string>& names, const std::string& index_name,
                                std::string index) {
  ParcelFiles files;
  files.directory = std::move(directory);
  INDUCTORFS_TRY(add_item(files, index_name));
  if (files.items.back().directory) return fail(ErrorCode::kNotSupported, index_name + " is a directory");
  files.index_size = std::exchange(files.items.back().size, index.size());
  files.index_name = index_name;
  files.index = std::move(index);
  for (const auto& name : names) {
    if (auto added = add_item(files, name); !added) {
      if (added.error().code() != ErrorCode::kNotFound) return fail(added.error());
      return fail(ErrorCode::kNotSupported, "it names " + name + ", which is not there");
    }
    if (files.items.back().directory) {
      return fail(ErrorCode::kNotSupported, "it names " + name + ", which is a directory that is written file by file");
    }
  }
  return finished(std::move(files));
}

Result<codec::Digest> pack(const ParcelFiles& files, const codec::ByteSink& sink) {
  codec::Hasher hasher;
  const codec::ByteSink both = [&](std::string_view bytes) {
    hasher.update(bytes);
    return sink(bytes);
  };
  INDUCTORFS_TRY(both(files.head));
  for (size_t i = 0; i < files.items.size(); ++i) {
    if (!files.items[i].directory) INDUCTORFS_TRY(pack_file(files, i, both));
  }
  return hasher.finish();
}

Result<ParcelFiles> parcel_files(const LocalTree& tree, const std::string& path) {
  if (form_of(path) == layout::Form::kDirectory) {
    INDUCTORFS_TRY_ASSIGN(auto directory, tree.open_directory(LocalTree::view(path)));
    return files_of_directory(std::move(directory));
  }
  INDUCTORFS_TRY_ASSIGN(auto directory, tree.open_directory(LocalTree::view(parent_path(path))));
  INDUCTORFS_TRY_ASSIGN(const auto index, tree.read_file(LocalTree::view(path), kIndexLimit));
  const auto classified = layout::classify(path);
  INDUCTORFS_TRY_ASSIGN(const auto names, layout::index_members(classified.family, index));
  INDUCTORFS_TRY_ASSIGN(auto canonical, layout::index_in_directory(classified.family, index,
                                                                   layout::index_directory_of(classified.canonical)));
  return files_named(std::move(directory), names, last_component(path), std::move(canonical));
}

bool is_cut_index(const LocalTree& tree, const std::string& path) {
  if (form_of(path) != layout::Form::kIndex) return false;
  const auto index = tree.read_file(LocalTree::view(path), kIndexLimit);
  return index && layout::is_cut_index(layout::classify(path).family, *index);
}

Result<std::string> shown_index(const std::string& path, std::string_view canonical, const std::string& directory) {
  return layout::index_in_directory(layout::classify(path).family, canonical, directory);
}

Result<codec::ParcelHead> read_parcel_head(const store::BlobFile& blob) {
  std::string bytes(codec::kParcelPreambleSize, '\0');
  INDUCTORFS_TRY_ASSIGN(auto got, blob.read(bytes.data(), bytes.size(), 0));
  bytes.resize(got);
  INDUCTORFS_TRY_ASSIGN(const auto size, codec::parcel_head_size(bytes));
  bytes.resize(size);
  INDUCTORFS_TRY_ASSIGN(got, blob.read(bytes.data(), bytes.size(), 0));
  bytes.resize(got);
  return codec::decode_parcel_head(bytes);
}

}  // namespace inductorfs::vfs
