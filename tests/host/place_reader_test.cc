// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/place_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "inductorfs/base/fd.h"
#include "inductorfs/host/host.h"
#include "support/emulator.h"
#include "support/learned_facts.h"
#include "support/temporary_directory.h"

namespace inductorfs::host {
namespace {

using fingerprint::Facet;
using fingerprint::Fingerprint;

/// The environment of a user: an interpreter, torch, and a library that is nowhere else.
class PlaceReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write(python_, "#!/bin/sh\n", 0755);
    write(torch_ + "/__init__.py", "");
    write(torch_ + "/version.py", "1");
    write(torch_ + "/lib/libelsewhere.so", "");
  }
  static void write(const std::string& path, const std::string& text, mode_t mode = 0644) {
    ASSERT_TRUE(make_directories(std::filesystem::path(path).parent_path()));
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, path, text, mode));
  }
  [[nodiscard]] Fingerprint facts() const {
    Fingerprint facts;
    facts.set(Facet::kTorch, {true, "v=1", torch_, {}, {}});
    facts.set(Facet::kPython, {true, "v=3", python_, {}, {}});
    return facts;
  }
  [[nodiscard]] static PlaceReader by_child(const std::string& program = INDUCTORFS_PROGRAM) {
    return PlaceReader({program, Milliseconds(20'000), {}});
  }
  /// Notes each question and answers none.
  [[nodiscard]] PlaceReader stuck(Milliseconds deadline = Milliseconds(300)) {
    const std::string fifo = directory_ / "fifo";
    EXPECT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    write(directory_ / "reader", "#!/bin/sh\necho >> " + (directory_ / "questions") + "\nread line < " + fifo + "\n",
          0755);
    return PlaceReader({directory_ / "reader", deadline, {}});
  }
  [[nodiscard]] size_t questions() const {
    return read_file(AT_FDCWD, directory_ / "questions", 1000).value_or("").size();
  }

  testing::TemporaryDirectory directory_;
  std::string python_ = directory_ / "venv/bin/python";
  std::string torch_ = directory_ / "venv/lib/python3.11/site-packages/torch";
};

TEST_F(PlaceReaderTest, SeesThroughAChildWhatItSeesItself) {
  const PlaceReader child = by_child();
  const PlaceReader self;
  const auto places = child.places(facts());
  ASSERT_TRUE(places) << places.error().what();
  EXPECT_EQ(places->packages, std::vector<std::string>{torch_});
  EXPECT_EQ(places->files, self.places(facts())->files);
  EXPECT_EQ(places->sites, self.places(facts())->sites);

  const auto traces = child.traces(*places);
  ASSERT_TRUE(traces);
  EXPECT_EQ(*traces, *self.traces(*places));
  write(torch_ + "/version.py", "23");
  EXPECT_NE(*child.traces(*places), *traces);

  const auto libraries = child.library_places(facts());
  ASSERT_TRUE(libraries);
  EXPECT_EQ(libraries->torch, torch_);
  EXPECT_EQ(libraries->directories, self.library_places(facts())->directories);
  EXPECT_EQ(libraries->glibcxx, self.library_places(facts())->glibcxx);
  EXPECT_EQ(child.find_library(libraries->directories, "libelsewhere.so").value_or(""),
            torch_ + "/lib/libelsewhere.so");
  EXPECT_EQ(child.find_library(libraries->directories, "libabsent.so").value_or("?"), "");
}

TEST_F(PlaceReaderTest, KnowsThePackagesOfEngines) {
  const std::string engine = directory_ / "other/site-packages/vllm";
  write(engine + "/__init__.py", "");
  Fingerprint with_engine = facts();
  with_engine.set(Facet::kEngine, {true, "vllm=1 a", engine, {}, "folder=" + engine});
  const auto places = by_child().places(with_engine);
  ASSERT_TRUE(places) << places.error().what();
  EXPECT_EQ(places->packages, (std::vector<std::string>{torch_, engine}));
  EXPECT_EQ(std::count(places->sites.begin(), places->sites.end(), directory_ / "other/site-packages"), 1);
}

TEST_F(PlaceReaderTest, WatchesThroughAChild) {
  const Fd inotify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  const auto watches = by_child().watch(inotify.get(), {torch_, directory_ / "absent"}, IN_CREATE | IN_ONLYDIR);
  ASSERT_TRUE(watches) << watches.error().what();
  EXPECT_GT(watches->at(0), 0);
  EXPECT_EQ(watches->at(1), -ENOENT);
  write(torch_ + "/new.py", "");
  pollfd item{inotify.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 0), 1);
}

TEST_F(PlaceReaderTest, FindsLibrariesOfAnEnvironmentForItsHost) {
  INDUCTORFS_NEEDS_NO_EMULATOR("a C library of this processor where the host has its own");
  const layout::HostLimits limits = limits_of(facts(), by_child());
  ASSERT_TRUE(limits.resolves);
  EXPECT_TRUE(limits.resolves("libelsewhere.so"));
  EXPECT_TRUE(limits.resolves("libc.so.6"));
  EXPECT_FALSE(limits.resolves("libabsent.so"));
}

TEST_F(PlaceReaderTest, GivesUpPlacesThatAreNotSeenInTime) {
  INDUCTORFS_NEEDS_NO_EMULATOR("a C library of this processor where the host has its own");
  const PlaceReader reader = stuck(Milliseconds(50));
  const auto places = reader.places(facts());
  ASSERT_FALSE(places);
  EXPECT_EQ(places.error().code(), ErrorCode::kTimedOut);
  EXPECT_FALSE(reader.traces({}));

  const layout::HostLimits limits = limits_of(facts(), reader);
  ASSERT_TRUE(limits.resolves) << "what cannot be seen is unfit, not unchecked";
  EXPECT_TRUE(limits.resolves("libc.so.6"));
  EXPECT_FALSE(limits.resolves("libelsewhere.so"));
}

TEST_F(PlaceReaderTest, DoesNotLookForEachLibraryWherePlacesDoNotAnswer) {
  write(directory_ / "answers",
        "{\"torch\":\"" + torch_ + "\",\"directories\":[\"/somewhere\"],\"glibcxx\":\"\",\"cxxabi\":\"\"}\n");
  (void)stuck();
  const std::string reader = directory_ / "reader";
  const std::string text = read_file(AT_FDCWD, reader, 1000).value_or("");
  write(reader,
        "#!/bin/sh\ncase \"$INDUCTORFS_READER_REQUEST\" in *libraries*) exec cat " + (directory_ / "answers") +
            ";; esac\n" + text,
        0755);
  const layout::HostLimits limits = limits_of(facts(), PlaceReader({reader, Milliseconds(2'000), {}}));
  ASSERT_TRUE(limits.resolves);
  for (const char* soname : {"libone.so", "libtwo.so", "libthree.so"}) EXPECT_FALSE(limits.resolves(soname));
  EXPECT_EQ(questions(), 1U);
}

}  // namespace
}  // namespace inductorfs::host
