// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Facts that libfuse 3.14 does not pass to its callbacks; they are read from the kernel's messages (<linux/fuse.h>).
namespace inductorfs::fuse {

struct RequestFacts {
  bool init = false;
  uint64_t unique = 0;
  bool resent = false;           ///< the kernel sends it again, in answer to resend_message()
  uint32_t offered = 0;          ///< INIT: the features that this kernel has (the first 32 flags)
  bool offers_resend = false;    ///< INIT: the kernel knows FUSE_NOTIFY_RESEND (Linux 6.9)
  bool kill_privileges = false;  ///< WRITE, SETATTR: clear set-user-id and set-group-id, as write(2) and truncate(2) do
};

/// Returns the facts of one message from the kernel; a message that is too short has none.
[[nodiscard]] RequestFacts request_facts(std::string_view message) noexcept;

/// These say whether the kernel remembers ENOSYS to OPEN and to OPENDIR; an older kernel hands it to the caller.
[[nodiscard]] bool offers_no_open(uint32_t offered) noexcept;
[[nodiscard]] bool offers_no_opendir(uint32_t offered) noexcept;

/// The identifier and the error of a reply or notification (unique 0) that is about to be written.
struct ReplyFacts {
  uint64_t unique = 0;
  int error = 0;
};
[[nodiscard]] ReplyFacts reply_facts(const iovec* parts, int count) noexcept;

/// Says whether this message is to be answered; FORGET, BATCH_FORGET and INTERRUPT are not.
[[nodiscard]] bool wants_answer(std::string_view message) noexcept;
[[nodiscard]] uint32_t opcode_of(std::string_view message) noexcept;
/// Says whose request it is if that user may be told that he has too many: not one that gives something back, which the
/// kernel would not ask for again.
[[nodiscard]] std::optional<uint32_t> refusable_user_of(std::string_view message) noexcept;
/// Makes a message that the kernel accepts if it waits for the answer to the request with this number, and refuses with
/// ENOENT otherwise. It has no other effect: it is the reply to an interrupt, with no error (Linux 4.20, fs/fuse/dev.c:
/// fuse_dev_do_write).
[[nodiscard]] std::string question_message(uint64_t unique);
/// Makes an answer without a body.
[[nodiscard]] std::string error_message(uint64_t unique, int errno_value);

/// Makes the message that asks the kernel to send again every request that it waits for (FUSE_NOTIFY_RESEND; libfuse
/// 3.14 has no call for it).
[[nodiscard]] std::string resend_message();

/// Returns libfuse's INIT reply with the features of fuse::Session added, whatever this version of libfuse asks for by
/// itself.
[[nodiscard]] std::string patched_init_reply(const iovec* parts, int count, uint32_t offered);

}  // namespace inductorfs::fuse
