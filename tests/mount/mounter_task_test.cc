// SPDX-License-Identifier: Apache-2.0
#include "mount/mounter/mounter_task.h"

#include <gtest/gtest.h>

#include "inductorfs/config/json.h"

namespace inductorfs::mount {
namespace {

MounterTask task() {
  MounterTask made;
  made.mountpoint = "/mnt/of any bytes \xff";
  made.ownership = {1000, 1001, 01777, true};
  made.allow_other = true;
  made.also = {{"torch", "/var/a"}, {"triton", "/var/\xfe"}};
  made.users_in = "/tmp/\xfb";
  made.socket = "/run/inductorfs/0123.sock";
  made.socket_alias = "/run/inductorfs/4567.sock";
  made.log = "/var/log/\xfc";
  made.log_user = {2000, 2001, {}};
  made.patience = Milliseconds{61'000};
  made.secrets = {{"password", "/etc/\xfd"}, {"key", "/etc/key"}};
  return made;
}

TEST(MounterTask, IsReadAsItWasWritten) {
  const auto read = mounter_task_from(to_bytes(task()));
  ASSERT_TRUE(read) << read.error().what();
  EXPECT_EQ(read->mountpoint, task().mountpoint);
  EXPECT_EQ(read->ownership.uid, 1000U);
  EXPECT_EQ(read->ownership.gid, 1001U);
  EXPECT_EQ(read->ownership.mode, 01777U);
  EXPECT_TRUE(read->ownership.uncovered);
  EXPECT_TRUE(read->allow_other);
  EXPECT_EQ(read->also, task().also);
  EXPECT_EQ(read->users_in, task().users_in);
  EXPECT_EQ(read->socket, task().socket);
  EXPECT_EQ(read->patience, task().patience);
  EXPECT_EQ(read->socket_alias, task().socket_alias);
  EXPECT_EQ(read->log, task().log);
  EXPECT_EQ(read->log_user.uid, 2000U);
  EXPECT_EQ(read->log_user.gid, 2001U);
  EXPECT_EQ(read->secrets, task().secrets);
}

TEST(MounterTask, OfAnotherReleaseOrCutOffIsAnError) {
  const std::string whole = to_bytes(task());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(mounter_task_from(std::string_view(whole).substr(0, size))) << size;
  }
  EXPECT_FALSE(mounter_task_from("no CBOR at all"));
  const config::Json json = config::Json::from_cbor(whole);
  for (const auto& member : json.items()) {
    config::Json without = json;
    without.erase(member.key());
    const std::vector<uint8_t> bytes = config::Json::to_cbor(without);
    EXPECT_FALSE(mounter_task_from({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) << member.key();
  }
}

TEST(MounterNote, IsReadAsItWasWrittenOrNotAtAll) {
  const MounterNote note{{77, "0:53"}, true};
  const std::string whole = to_bytes(note);
  const auto read = mounter_note_from(whole);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->own, note.own);
  EXPECT_TRUE(read->stays_dead);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(mounter_note_from(std::string_view(whole).substr(0, size))) << size;
  }
}

}  // namespace
}  // namespace inductorfs::mount
