// SPDX-License-Identifier: Apache-2.0
#include "../../src/fuse/wire.h"

#include <gtest/gtest.h>
#include <linux/fuse.h>

#include <cstring>

namespace inductorfs::fuse {
namespace {

template <typename Body>
std::string message_of(uint32_t opcode, const Body& body) {
  fuse_in_header header{};
  header.opcode = opcode;
  header.unique = 42;
  header.len = sizeof(header) + sizeof(body);
  std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
  message.append(reinterpret_cast<const char*>(&body), sizeof(body));
  return message;
}

fuse_init_out patched(uint32_t libfuse_flags, uint32_t offered) {
  fuse_out_header header{};
  header.unique = 7;
  fuse_init_out init{};
  init.major = 7;
  init.flags = libfuse_flags;
  init.max_write = 4096;
  init.max_pages = 256;
  iovec parts[] = {{&header, sizeof(header)}, {&init, sizeof(init)}};
  const std::string message = patched_init_reply(parts, 2, offered);
  EXPECT_EQ(message.size(), sizeof(header) + sizeof(init));
  fuse_init_out out{};
  std::memcpy(&out, message.data() + sizeof(header), sizeof(out));
  return out;
}

TEST(Wire, SeesWhatTheKernelOffersInInit) {
  fuse_init_in init{};
  init.flags = FUSE_PARALLEL_DIROPS | FUSE_NO_OPEN_SUPPORT;

  const RequestFacts facts = request_facts(message_of(FUSE_INIT, init));

  EXPECT_TRUE(facts.init);
  EXPECT_EQ(facts.unique, 42U);
  EXPECT_EQ(facts.offered, init.flags);
  EXPECT_TRUE(offers_no_open(facts.offered));
  EXPECT_FALSE(offers_no_opendir(facts.offered));
}

TEST(Wire, SeesWhenPrivilegesAreToBeCleared) {
  fuse_write_in write{};
  EXPECT_FALSE(request_facts(message_of(FUSE_WRITE, write)).kill_privileges);
  write.write_flags = FUSE_WRITE_KILL_SUIDGID;
  EXPECT_TRUE(request_facts(message_of(FUSE_WRITE, write)).kill_privileges);

  fuse_setattr_in change{};
  change.valid = FATTR_SIZE;
  EXPECT_FALSE(request_facts(message_of(FUSE_SETATTR, change)).kill_privileges);
  change.valid |= FATTR_KILL_SUIDGID;
  EXPECT_TRUE(request_facts(message_of(FUSE_SETATTR, change)).kill_privileges);
}

TEST(Wire, FindsNothingInAMessageThatIsTooShort) {
  fuse_init_in init{};
  init.flags = ~0U;
  const std::string whole = message_of(FUSE_INIT, init);
  for (size_t size = 0; size < sizeof(fuse_in_header) + 16; ++size) {
    EXPECT_FALSE(request_facts(std::string_view(whole).substr(0, size)).init) << size;
  }
}

TEST(Wire, AsksForWhatFormANeedsAndLibfuseForgets) {
  const fuse_init_out init = patched(FUSE_ASYNC_READ, ~0U);

  EXPECT_NE(init.flags & FUSE_PARALLEL_DIROPS, 0U);
  EXPECT_NE(init.flags & FUSE_EXPLICIT_INVAL_DATA, 0U);
  EXPECT_EQ(init.flags & FUSE_CACHE_SYMLINKS, 0U) << "not everybody may follow every link";
  EXPECT_NE(init.flags & FUSE_HANDLE_KILLPRIV_V2, 0U);
  EXPECT_NE(init.flags & FUSE_ASYNC_READ, 0U);
  EXPECT_EQ(init.max_write, 4096U);
  EXPECT_EQ(init.max_pages, 256U);
}

TEST(Wire, TakesBackWhatWouldBreakFormA) {
  const fuse_init_out init = patched(~0U, ~0U);

  for (const int flag :
       {FUSE_ATOMIC_O_TRUNC, FUSE_AUTO_INVAL_DATA, FUSE_DO_READDIRPLUS, FUSE_READDIRPLUS_AUTO, FUSE_WRITEBACK_CACHE,
        FUSE_POSIX_LOCKS, FUSE_FLOCK_LOCKS, FUSE_HANDLE_KILLPRIV, FUSE_CACHE_SYMLINKS}) {
    EXPECT_EQ(init.flags & static_cast<uint32_t>(flag), 0U) << flag;
  }
}

TEST(Wire, AsksForNothingThatTheKernelDoesNotHave) {
  EXPECT_EQ(patched(0, FUSE_PARALLEL_DIROPS).flags, static_cast<uint32_t>(FUSE_PARALLEL_DIROPS));
}

TEST(Wire, LeavesAReplyAloneThatHasNoBody) {
  fuse_out_header header{};
  iovec parts[] = {{&header, sizeof(header)}};
  EXPECT_EQ(patched_init_reply(parts, 1, ~0U).size(), sizeof(header));
}

TEST(Wire, TellsRepliesFromNotifications) {
  fuse_out_header header{};
  header.unique = 9;
  header.error = -2;
  iovec parts[] = {{&header, sizeof(header)}};
  EXPECT_EQ(reply_facts(parts, 1).unique, 9U);
  EXPECT_EQ(reply_facts(parts, 1).error, -2);
  EXPECT_EQ(reply_facts(parts, 0).unique, 0U);
}

}  // namespace
}  // namespace inductorfs::fuse
