// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 314
#include "kernel_reply.h"

#include <fuse_lowlevel.h>

#include <cassert>
#include <cerrno>

#include "convert.h"

namespace inductorfs::fuse {
namespace {

/// "Until told otherwise": 30 years, which any kernel's clock arithmetic takes.
constexpr double kForever = 1e9;

fuse_entry_param entry_param(const vfs::Found& found) {
  fuse_entry_param entry{};
  entry.ino = static_cast<fuse_ino_t>(found.node);
  // NodeIds are never reused while the mount lives, so one generation serves for all.
  entry.generation = 1;
  entry.attr = to_stat(found.attributes);
  entry.attr_timeout = found.keep || found.keep_attributes ? kForever : 0.0;
  entry.entry_timeout = found.keep ? kForever : 0.0;
  return entry;
}

}  // namespace

KernelReply::~KernelReply() {
  if (request_ == nullptr) return;
  errno_value(EIO);
  assert(false && "a request was not answered");
}

fuse_req* KernelReply::take() noexcept {
  INDUCTORFS_CHECK(request_ != nullptr);
  return release();
}

void KernelReply::errno_value(int value) noexcept {
  // A reply that the kernel no longer waits for is counted by the session's write hook.
  (void)fuse_reply_err(take(), value);
}

void KernelReply::fail(const Error& error) noexcept {
  channel_->log_failure(operation_, error);
  errno_value(to_errno(error.code()));
}

void KernelReply::nothing() noexcept { fuse_reply_none(take()); }

void KernelReply::done(const Result<void>& result) noexcept {
  if (result) {
    errno_value(0);
  } else {
    fail(result.error());
  }
}

void KernelReply::give_back(int status, const vfs::Found& found) noexcept {
  if (status != 0) channel_->operations().names.forget(found.node, 1);
}

void KernelReply::entry(const Result<vfs::Found>& result) noexcept {
  if (!result) return fail(result.error());
  const fuse_entry_param entry = entry_param(*result);
  give_back(fuse_reply_entry(take(), &entry), *result);
}

void KernelReply::answer(const vfs::LookupAnswer& answer) noexcept {
  const bool absent = !answer.found && answer.found.error().code() == ErrorCode::kNotFound;
  if (!absent || !answer.keep_absence) return entry(answer.found);
  fuse_entry_param nobody{};  // node 0: the name is absent, and that is to be kept
  nobody.entry_timeout = kForever;
  (void)fuse_reply_entry(take(), &nobody);  // nothing was given to the kernel that could be taken back
}

void KernelReply::opened_directory(bool keep) noexcept {
  fuse_file_info file{};
  file.keep_cache = keep ? 1 : 0;
  file.cache_readdir = keep ? 1 : 0;
  (void)fuse_reply_open(take(), &file);  // nothing is held for an open directory
}

void KernelReply::created(const Result<vfs::Found>& result) noexcept {
  if (!result) return fail(result.error());
  const fuse_entry_param entry = entry_param(*result);
  fuse_file_info file{};
  file.keep_cache = 1;  // the pages of a writer serve its readers; never NOFLUSH, which would skip writing mmap back
  give_back(fuse_reply_create(take(), &entry, &file), *result);
}

void KernelReply::attributes(const Result<vfs::Attributes>& result) noexcept {
  if (!result) return fail(result.error());
  const struct stat attributes = to_stat(*result);
  (void)fuse_reply_attr(take(), &attributes, kForever);
}

void KernelReply::bytes(std::string_view bytes) noexcept { (void)fuse_reply_buf(take(), bytes.data(), bytes.size()); }
void KernelReply::written(size_t size) noexcept { (void)fuse_reply_write(take(), size); }

void KernelReply::link(const Result<std::string>& target) noexcept {
  if (!target) return fail(target.error());
  (void)fuse_reply_readlink(take(), target->c_str());
}

void KernelReply::statistics(const Result<struct statvfs>& result) noexcept {
  if (!result) return fail(result.error());
  (void)fuse_reply_statfs(take(), &*result);
}

void KernelReply::sized(const Result<std::string>& value, size_t size) noexcept {
  if (!value) return fail(value.error());
  if (size == 0) return (void)fuse_reply_xattr(take(), value->size());
  if (value->size() > size) return errno_value(ERANGE);
  bytes(*value);
}

}  // namespace inductorfs::fuse
