// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/statvfs.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include "channel.h"

struct fuse_req;  // libfuse's

namespace inductorfs::fuse {

/// The duty to answer one request, exactly once. Each answer ends the duty. If it is destroyed before that, it answers
/// EIO, and stops a debug build. A caller must hold no lock while it answers: the kernel may go on, and ask for more,
/// at once. Needs external synchronisation.
class KernelReply {
 public:
  KernelReply(Channel& channel, fuse_req* request, Operation operation) noexcept
      : channel_(&channel), request_(request), operation_(operation) {}
  KernelReply(KernelReply&& other) noexcept
      : channel_(other.channel_), request_(std::exchange(other.request_, nullptr)), operation_(other.operation_) {}
  KernelReply& operator=(KernelReply&&) = delete;
  KernelReply(const KernelReply&) = delete;
  KernelReply& operator=(const KernelReply&) = delete;
  ~KernelReply();

  [[nodiscard]] bool due() const noexcept { return request_ != nullptr; }
  [[nodiscard]] fuse_req* request() const noexcept { return request_; }
  /// Gives the duty to the caller, who then owes the answer.
  [[nodiscard]] fuse_req* release() noexcept { return std::exchange(request_, nullptr); }

  /// Answers with an errno that does not mean a failure of the file system (ENOSYS, ENOTTY), or 0 for success; not
  /// logged.
  void errno_value(int value) noexcept;
  void fail(const Error& error) noexcept;
  /// Ends a FORGET, which has no answer.
  void nothing() noexcept;

  void done(const Result<void>& result) noexcept;
  void entry(const Result<vfs::Found>& result) noexcept;
  /// Answers a lookup: as entry() does, or with an absent name and whether the kernel may remember that.
  void answer(const vfs::LookupAnswer& answer) noexcept;
  /// Answers that a directory is open, and whether the kernel may keep its listing.
  void opened_directory(bool keep) noexcept;
  void created(const Result<vfs::Found>& result) noexcept;
  void attributes(const Result<vfs::Attributes>& result) noexcept;
  void bytes(std::string_view bytes) noexcept;
  void written(size_t size) noexcept;
  void link(const Result<std::string>& target) noexcept;
  void statistics(const Result<struct statvfs>& result) noexcept;
  /// Answers the two forms of a question for an extended attribute: `size` 0 asks how long it is.
  void sized(const Result<std::string>& value, size_t size) noexcept;

 private:
  [[nodiscard]] fuse_req* take() noexcept;
  /// Gives back the kernel's reference to the node when the kernel did not take the answer.
  void give_back(int status, const vfs::Found& found) noexcept;

  Channel* channel_;
  fuse_req* request_;
  Operation operation_;
};

}  // namespace inductorfs::fuse
