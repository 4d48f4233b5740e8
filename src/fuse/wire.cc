// SPDX-License-Identifier: Apache-2.0
#include "wire.h"

#include <linux/fuse.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace inductorfs::fuse {
namespace {

/// Wanted wherever the kernel has it. PARALLEL_DIROPS: libfuse before 3.17 keeps it for itself, and one LOOKUP that
/// waits for the cluster would hold up its whole directory. HANDLE_KILLPRIV_V2 (libfuse 3.17): without it the kernel
/// asks for security.capability before each write(2).
constexpr uint32_t kWanted = FUSE_PARALLEL_DIROPS | FUSE_EXPLICIT_INVAL_DATA | FUSE_HANDLE_KILLPRIV_V2;
/// Never: ATOMIC_O_TRUNC loses the truncation once OPEN is answered ENOSYS; AUTO_INVAL_DATA switches EXPLICIT off and
/// drops pages; READDIRPLUS would fetch what is only listed; HANDLE_KILLPRIV (the first) tells us nothing of when;
/// CACHE_SYMLINKS would answer for whoever may not follow a link (FileSystem::read_link).
constexpr uint32_t kUnwanted = FUSE_ATOMIC_O_TRUNC | FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS |
                               FUSE_READDIRPLUS_AUTO | FUSE_WRITEBACK_CACHE | FUSE_SPLICE_READ | FUSE_SPLICE_WRITE |
                               FUSE_SPLICE_MOVE | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS | FUSE_POSIX_ACL |
                               FUSE_DONT_MASK | FUSE_EXPORT_SUPPORT | FUSE_HANDLE_KILLPRIV | FUSE_CACHE_SYMLINKS;
/// One request of the readahead; libfuse echoes what the kernel offers, which is the 128 KiB that a new mount starts
/// with. The kernel takes the smaller of this and of the mount's read_ahead_kb.
constexpr uint32_t kMaxReadahead = 1U << 20;

// Linux 6.9, include/uapi/linux/fuse.h: newer than this system's header.
constexpr uint32_t kHasResend = 1U << 7;  ///< FUSE_HAS_RESEND is bit 39 of all flags
constexpr int32_t kNotifyResend = 7;
constexpr uint64_t kResentBit = uint64_t{1} << 63;  ///< FUSE_UNIQUE_RESEND
constexpr uint64_t kInterruptBit = 1;               ///< FUSE_INT_REQ_BIT (Linux 4.20, fs/fuse/dev.c)

template <typename T>
bool body_of(std::string_view message, T& body) noexcept {
  if (message.size() < sizeof(fuse_in_header) + sizeof(T)) return false;
  std::memcpy(&body, message.data() + sizeof(fuse_in_header), sizeof(T));
  return true;
}

}  // namespace

RequestFacts request_facts(std::string_view message) noexcept {
  RequestFacts facts;
  fuse_in_header header{};
  if (message.size() < sizeof(header)) return facts;
  std::memcpy(&header, message.data(), sizeof(header));
  facts.unique = header.unique;
  facts.resent = (header.unique & kResentBit) != 0;
  if (header.opcode == FUSE_WRITE) {
    fuse_write_in write{};
    facts.kill_privileges = body_of(message, write) && (write.write_flags & FUSE_WRITE_KILL_SUIDGID) != 0;
  } else if (header.opcode == FUSE_SETATTR) {
    fuse_setattr_in change{};
    facts.kill_privileges = body_of(message, change) && (change.valid & FATTR_KILL_SUIDGID) != 0;
  } else if (header.opcode == FUSE_INIT) {
    // Kernels before 5.17 send the first four numbers only.
    uint32_t numbers[5] = {};
    facts.offers_resend =
        body_of(message, numbers) && (numbers[3] & FUSE_INIT_EXT) != 0 && (numbers[4] & kHasResend) != 0;
    uint32_t first[4] = {};
    facts.init = body_of(message, first);
    facts.offered = first[3];
  }
  return facts;
}

bool offers_no_open(uint32_t offered) noexcept { return (offered & FUSE_NO_OPEN_SUPPORT) != 0; }
bool offers_no_opendir(uint32_t offered) noexcept { return (offered & FUSE_NO_OPENDIR_SUPPORT) != 0; }

ReplyFacts reply_facts(const iovec* parts, int count) noexcept {
  fuse_out_header header{};
  if (count < 1 || parts[0].iov_len < sizeof(header)) return {};
  std::memcpy(&header, parts[0].iov_base, sizeof(header));
  return {header.unique, header.error};
}

uint32_t opcode_of(std::string_view message) noexcept {
  fuse_in_header header{};
  if (message.size() < sizeof(header)) return 0;
  std::memcpy(&header, message.data(), sizeof(header));
  return header.opcode;
}

bool wants_answer(std::string_view message) noexcept {
  const uint32_t opcode = opcode_of(message);
  return opcode != 0 && opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET && opcode != FUSE_INTERRUPT;
}

std::optional<uint32_t> refusable_user_of(std::string_view message) noexcept {
  fuse_in_header header{};
  if (!wants_answer(message)) return std::nullopt;
  std::memcpy(&header, message.data(), sizeof(header));
  for (const uint32_t opcode : {FUSE_INIT, FUSE_DESTROY, FUSE_RELEASE, FUSE_RELEASEDIR, FUSE_FLUSH}) {
    if (header.opcode == opcode) return std::nullopt;
  }
  return header.uid;
}

std::string question_message(uint64_t unique) { return error_message(unique | kInterruptBit, 0); }

std::string error_message(uint64_t unique, int errno_value) {
  const fuse_out_header header{sizeof(fuse_out_header), -errno_value, unique};
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

std::string resend_message() {
  const fuse_out_header header{sizeof(fuse_out_header), kNotifyResend, 0};
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

std::string patched_init_reply(const iovec* parts, int count, uint32_t offered) {
  std::string message;
  for (int i = 0; i < count; ++i) message.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  const size_t body_size = message.size() - std::min(message.size(), sizeof(fuse_out_header));
  // The fields that are touched lie in the part that all kernels since 2.6.31 know.
  if (body_size < offsetof(fuse_init_out, max_background)) return message;

  fuse_init_out init{};
  const size_t known = std::min(body_size, sizeof(init));
  std::memcpy(&init, message.data() + sizeof(fuse_out_header), known);
  init.flags = (init.flags | (kWanted & offered)) & ~kUnwanted;
  init.max_readahead = kMaxReadahead;
  std::memcpy(message.data() + sizeof(fuse_out_header), &init, known);
  return message;
}

}  // namespace inductorfs::fuse
