// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string>
#include <string_view>

/// What libfuse 3.14 does not hand to its callbacks, read from the kernel's messages (<linux/fuse.h>) beside it.
namespace inductorfs::fuse {

struct RequestFacts {
  bool init = false;
  uint64_t unique = 0;
  bool resent = false;           ///< asked before: this is the answer to resend_message()
  uint32_t offered = 0;          ///< INIT: the features that this kernel has (the first 32 flags)
  bool offers_resend = false;    ///< INIT: Linux 6.9
  bool kill_privileges = false;  ///< WRITE, SETATTR: clear set-user-id and set-group-id, as write(2) and truncate(2) do
};

/// Facts of one message from the kernel; a message that is too short has none.
[[nodiscard]] RequestFacts request_facts(std::string_view message) noexcept;

/// Whether the kernel remembers ENOSYS to OPEN and to OPENDIR; an older one hands it to the caller.
[[nodiscard]] bool offers_no_open(uint32_t offered) noexcept;
[[nodiscard]] bool offers_no_opendir(uint32_t offered) noexcept;

/// The identifier and the error of a reply or notification (unique 0) that is about to be written.
struct ReplyFacts {
  uint64_t unique = 0;
  int error = 0;
};
[[nodiscard]] ReplyFacts reply_facts(const iovec* parts, int count) noexcept;

/// Whether an answer is due to this message; to FORGET, BATCH_FORGET and INTERRUPT none is.
[[nodiscard]] bool wants_answer(std::string_view message) noexcept;
[[nodiscard]] uint32_t opcode_of(std::string_view message) noexcept;
/// A message that the kernel takes if it waits for the answer to the request with this number, and refuses with ENOENT
/// if it does not. It has no other effect: it is the reply to an interrupt, with no error (Linux 4.20, fs/fuse/dev.c:
/// fuse_dev_do_write).
[[nodiscard]] std::string question_message(uint64_t unique);
/// An answer without a body.
[[nodiscard]] std::string error_message(uint64_t unique, int errno_value);

/// The message that has the kernel send again whatever it waits for (FUSE_NOTIFY_RESEND; libfuse 3.14 has no call).
[[nodiscard]] std::string resend_message();

/// The INIT reply of libfuse with the features of form A in place, whatever the version of libfuse asks for by itself.
[[nodiscard]] std::string patched_init_reply(const iovec* parts, int count, uint32_t offered);

}  // namespace inductorfs::fuse
