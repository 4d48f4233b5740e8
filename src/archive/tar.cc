// SPDX-License-Identifier: Apache-2.0
#include "tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace inductorfs::archive {
namespace {

constexpr size_t kReadPiece = size_t{64} << 10;
constexpr mode_t kMode = 0644;

struct FreeEntry {
  void operator()(archive_entry* entry) const { archive_entry_free(entry); }
};

std::string why(::archive* handle) {
  const char* const text = archive_error_string(handle);
  return text == nullptr ? "no reason was given" : text;
}

Result<void> written(::archive* handle, la_ssize_t outcome) {
  if (outcome >= ARCHIVE_OK) return {};
  const int error = archive_errno(handle);
  if (error == ENOSPC) return fail(ErrorCode::kNoSpace, "write the archive: its disk is full");
  return fail(ErrorCode::kUnavailable, "write the archive: " + why(handle));
}

Error damaged(::archive* handle) {
  return {ErrorCode::kCorrupt, "this is no archive of inductorfs export, or it is damaged: " + why(handle)};
}

}  // namespace

void CloseArchive::operator()(::archive* open) const { archive_free(open); }

Result<TarWriter> TarWriter::open(int fd) {
  ArchiveHandle handle(archive_write_new());
  if (!handle) return fail(ErrorCode::kNoSpace, "write the archive: no memory");
  INDUCTORFS_TRY(written(handle.get(), archive_write_add_filter_zstd(handle.get())));
  INDUCTORFS_TRY(written(handle.get(), archive_write_set_format_pax_restricted(handle.get())));
  // Into a pipe it would write whole blocks: zeros behind the end of the compressed stream, which nobody can read.
  INDUCTORFS_TRY(written(handle.get(), archive_write_set_bytes_in_last_block(handle.get(), 1)));
  INDUCTORFS_TRY(written(handle.get(), archive_write_open_fd(handle.get(), fd)));
  return TarWriter(std::move(handle));
}

Result<void> TarWriter::begin(const std::string& name, uint64_t size) {
  const std::unique_ptr<archive_entry, FreeEntry> entry(archive_entry_new());
  if (!entry) return fail(ErrorCode::kNoSpace, "write the archive: no memory");
  archive_entry_set_pathname(entry.get(), name.c_str());
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(size));
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), kMode);
  return written(handle_.get(), archive_write_header(handle_.get(), entry.get()));
}

Result<void> TarWriter::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const la_ssize_t done = archive_write_data(handle_.get(), bytes.data(), bytes.size());
    INDUCTORFS_TRY(written(handle_.get(), done));
    if (done == 0) return fail(ErrorCode::kInternal, "write the archive: a file has more bytes than it was begun with");
    bytes.remove_prefix(static_cast<size_t>(done));
  }
  return {};
}

Result<void> TarWriter::close() { return written(handle_.get(), archive_write_close(handle_.get())); }

Result<TarReader> TarReader::open(int fd) {
  ArchiveHandle handle(archive_read_new());
  if (!handle) return fail(ErrorCode::kNoSpace, "read the archive: no memory");
  if (archive_read_support_filter_zstd(handle.get()) != ARCHIVE_OK ||
      archive_read_support_format_tar(handle.get()) != ARCHIVE_OK ||
      archive_read_open_fd(handle.get(), fd, kReadPiece) != ARCHIVE_OK) {
    return fail(damaged(handle.get()));
  }
  return TarReader(std::move(handle));
}

Result<std::optional<TarReader::Member>> TarReader::next() {
  archive_entry* entry = nullptr;
  const int outcome = archive_read_next_header(handle_.get(), &entry);
  if (outcome == ARCHIVE_EOF) return std::optional<Member>();
  if (outcome != ARCHIVE_OK) return fail(damaged(handle_.get()));
  const char* const name = archive_entry_pathname(entry);
  const bool regular = archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr &&
                       archive_entry_symlink(entry) == nullptr && archive_entry_size_is_set(entry) != 0;
  if (name == nullptr || !regular || archive_entry_size(entry) < 0) {
    return fail(ErrorCode::kCorrupt, "this is no archive of inductorfs export: it has something that is no plain file");
  }
  return std::optional(Member{name, static_cast<uint64_t>(archive_entry_size(entry))});
}

Result<std::string> TarReader::read(size_t most) {
  std::string bytes(most, '\0');
  const la_ssize_t got = archive_read_data(handle_.get(), bytes.data(), bytes.size());
  if (got < 0) return fail(damaged(handle_.get()));
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

}  // namespace inductorfs::archive
