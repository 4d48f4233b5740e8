// SPDX-License-Identifier: Apache-2.0
#include "mount/mounter/notes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "inductorfs/config/frozen.h"
#include "support/learned_facts.h"

namespace inductorfs::mount {
namespace {

using fingerprint::Facet;

class NotesInMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Fd> memory = config::to_memory("notes", {});
    ASSERT_TRUE(memory.has_value());
    memory_ = std::move(*memory);
  }
  /// As another worker has it.
  NoteMemory notes() const { return NoteMemory(Fd(::dup(memory_.get()))); }
  static Note with(const std::string& torch) {
    Note noted;
    noted.facts = testing::facts::all_known({{Facet::kTorch, torch}});
    noted.learned = 1234;
    noted.traces = "traces";
    noted.also = {"bound", "failed: why \xff"};
    return noted;
  }
  Fd memory_;
};

TEST_F(NotesInMemory, AreReadByTheNextWorker) {
  ASSERT_TRUE(notes().write(with("v=1")).has_value());
  const std::optional<Note> read = notes().read();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->facts.to_json(), with("v=1").facts.to_json());
  EXPECT_EQ(read->learned, 1234);
  EXPECT_EQ(read->traces, "traces");
  EXPECT_EQ(read->also, with("v=1").also);
}

TEST_F(NotesInMemory, AreTheLastOnesWritten) {
  EXPECT_FALSE(notes().read().has_value());
  for (const char* torch : {"v=1", "v=2", "v=3", "v=4"}) {
    ASSERT_TRUE(notes().write(with(torch)).has_value());
    EXPECT_EQ(notes().read()->facts.get(Facet::kTorch).value, torch);
  }
}

TEST_F(NotesInMemory, AreTheOnesBeforeWhenTheWriterWasKilled) {
  ASSERT_TRUE(notes().write(with("v=1")).has_value());
  uint64_t before = 0;
  ASSERT_TRUE(pread_full(memory_.get(), reinterpret_cast<char*>(&before), sizeof before, 0).has_value());
  ASSERT_TRUE(notes().write(with("v=2")).has_value());
  // The last step of the second write is taken back: its writer was killed before it.
  ASSERT_TRUE(pwrite_full(memory_.get(), {reinterpret_cast<const char*>(&before), sizeof before}, 0).has_value());
  std::optional<Note> read = notes().read();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->facts.get(Facet::kTorch).value, "v=1");
  ASSERT_TRUE(notes().write(with("v=3")).has_value()) << "over what the killed writer left";
  read = notes().read();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->facts.get(Facet::kTorch).value, "v=3");
}

TEST_F(NotesInMemory, AreNoneWhenTheyAreNonsense) {
  ASSERT_TRUE(pwrite_full(memory_.get(), std::string(4096, 'x'), 0).has_value());
  EXPECT_FALSE(notes().read().has_value());
  EXPECT_FALSE(NoteMemory(Fd()).read().has_value());
  EXPECT_TRUE(NoteMemory(Fd()).write(with("v=1")).has_value()) << "nobody keeps them";
}

}  // namespace
}  // namespace inductorfs::mount
