// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <thread>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/handle.h"
#include "mounted_fixture.h"

namespace inductorfs::fuse {
namespace {

using testing::Child;

/// The mount as a job sees it, through the kernel.
class SessionMount : public testing::MountedTest {
 protected:
  void write_file(const std::string& name, std::string_view bytes, int flags = O_CREAT | O_TRUNC) {
    const Fd fd(::open(path(name).c_str(), O_WRONLY | O_CLOEXEC | flags, 0644));
    ASSERT_TRUE(fd) << name << ": " << strerror(errno);
    ASSERT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  std::string read_file(const std::string& name) {
    const auto bytes = inductorfs::read_file(AT_FDCWD, path(name), 64U << 20);
    return bytes ? *bytes : "error: " + bytes.error().to_string();
  }
  int stat_errno(const std::string& name) {
    struct stat ignored {};
    return ::stat(path(name).c_str(), &ignored) == 0 ? 0 : errno;
  }
  std::set<std::string> listing() {
    std::set<std::string> names;
    const Handle<DIR, closedir> directory(opendir(mountpoint().c_str()));
    while (const dirent* item = directory ? readdir(directory.get()) : nullptr) names.insert(item->d_name);
    return names;
  }
};

TEST_F(SessionMount, AnswersWhatWasUsedBeforeWithoutARequest) {
  files_.add_file("a", std::string(16384, 'x'));
  const auto use = [&] {
    EXPECT_EQ(stat_errno("a"), 0);
    EXPECT_EQ(read_file("a").size(), 16384U);
    EXPECT_EQ(stat_errno("missing"), ENOENT);
    EXPECT_EQ(listing(), (std::set<std::string>{".", "..", "a"}));
  };
  use();
  // The kernel holds the access time of a file for stale after a READ, and asks once.
  use();

  EXPECT_EQ(requests_of(use), 0U);
}

TEST_F(SessionMount, CausesOneRequestForPythonsQuestionWhetherAFileIsATerminal) {
  files_.add_file("a", "x");
  EXPECT_EQ(read_file("a"), "x");
  const Fd fd(::open(path("a").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(fd);
  termios settings{};

  const uint64_t caused = requests_of([&] {
    EXPECT_EQ(ioctl(fd.get(), TCGETS, &settings), -1);
    EXPECT_EQ(errno, ENOTTY);
  });

  EXPECT_EQ(caused, 1U);
  EXPECT_EQ(counted("ioctl"), 1U);
}

TEST_F(SessionMount, OpensFilesAndDirectoriesOnceInItsLife) {
  for (const char* name : {"a", "b"}) files_.add_file(name, name);
  for (int i = 0; i < 3; ++i) {
    for (const char* name : {"a", "b"}) EXPECT_EQ(read_file(name), name);
    EXPECT_EQ(listing().size(), 4U);
  }
  EXPECT_EQ(counted("open"), 1U);
  EXPECT_EQ(counted("opendir"), 1U);
  EXPECT_LE(counted("flush"), 1U);
  EXPECT_EQ(counted("release"), 0U);
}

TEST_F(SessionMount, TruncatesWhenAFileIsOpenedSo) {
  const auto node = files_.add_file("a", "long old content");
  EXPECT_EQ(read_file("a"), "long old content");

  write_file("a", "new", O_TRUNC);

  EXPECT_EQ(files_.bytes_of(node), "new");
  EXPECT_EQ(read_file("a"), "new");
}

TEST_F(SessionMount, AsksOneLookupForMkdirOfAnExistingName) {
  ASSERT_EQ(mkdir(path("d").c_str(), 0755), 0);
  EXPECT_EQ(stat_errno("d"), 0);
  const uint64_t made = counted("mkdir");
  const uint64_t looked = counted("lookup");

  const uint64_t caused = requests_of([&] {
    EXPECT_EQ(mkdir(path("d").c_str(), 0755), -1);
    EXPECT_EQ(errno, EEXIST);
  });

  EXPECT_EQ(caused, 1U);
  EXPECT_EQ(counted("lookup"), looked + 1);
  EXPECT_EQ(counted("mkdir"), made);
}

TEST_F(SessionMount, RunsLookupsOfOneDirectoryInParallel) {
  files_.add_file("slow", "");
  files_.add_file("fast", "");
  files_.block_lookup("slow");
  std::thread waiter([&] { EXPECT_EQ(stat_errno("slow"), 0); });
  EXPECT_TRUE(files_.wait_until_waiting("slow", 1));

  EXPECT_EQ(stat_errno("fast"), 0);
  EXPECT_EQ(stat_errno("missing"), ENOENT);
  EXPECT_EQ(listing().size(), 4U);
  EXPECT_EQ(files_.waiting("slow"), 1U) << "the others did not have to wait for it";

  files_.release("slow");
  waiter.join();
}

TEST_F(SessionMount, TakesTheAnswerToALookupFromAnotherThread) {
  // More callers than fuse threads: none of those may be held by a lookup that waits.
  std::vector<std::string> names;
  for (size_t i = 0; i < SessionOptions().threads * 2; ++i) names.push_back("later" + std::to_string(i));
  for (const std::string& name : names) {
    files_.add_file(name, "abc");
    files_.defer_lookup(name);
  }

  std::vector<std::thread> callers;
  for (const std::string& name : names) callers.emplace_back([&] { EXPECT_EQ(stat_errno(name), 0) << name; });
  for (const std::string& name : names) EXPECT_TRUE(files_.wait_until_waiting(name, 1));
  EXPECT_EQ(stat_errno("missing"), ENOENT);
  for (const std::string& name : names) files_.release(name);
  for (std::thread& caller : callers) caller.join();

  EXPECT_EQ(read_file(names.front()), "abc");
}

TEST_F(SessionMount, LetsAKilledCallerGoWhileItsLookupWaits) {
  const auto node = files_.add_file("slow", "");
  files_.defer_lookup("slow");
  const std::string slow = path("slow");
  Child child([&] {
    struct stat ignored {};
    return ::stat(slow.c_str(), &ignored);
  });
  ASSERT_TRUE(files_.wait_until_waiting("slow", 1));

  child.send(SIGKILL);
  EXPECT_EQ(child.wait(), 1000 + SIGKILL);
  EXPECT_EQ(files_.waiting("slow"), 1U);

  files_.release("slow");
  EXPECT_EQ(files_.references(node), 0U) << "the answer that nobody took holds a reference";
}

TEST_F(SessionMount, DoesNotCutACallShortForASignalThatDoesNotKill) {
  files_.add_file("slow", "");
  files_.defer_lookup("slow");
  const std::string slow = path("slow");
  Child child([&] {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGUSR1, &action, nullptr);
    struct stat ignored {};
    return ::stat(slow.c_str(), &ignored) == 0 ? 0 : errno;
  });
  ASSERT_TRUE(files_.wait_until_waiting("slow", 1));

  child.send(SIGUSR1);
  EXPECT_EQ(stat_errno("missing"), ENOENT);
  files_.release("slow");

  EXPECT_EQ(child.wait(), 0);
}

TEST_F(SessionMount, ShowsANameAgainOnlyAfterANotice) {
  EXPECT_EQ(stat_errno("new"), ENOENT);
  EXPECT_EQ(listing().count("new"), 0U);
  files_.add_file("new", "abc");
  EXPECT_EQ(requests_of([&] { EXPECT_EQ(stat_errno("new"), ENOENT); }), 0U);

  session_->forget_name(vfs::kRootNode, "new");

  EXPECT_EQ(stat_errno("new"), 0);
  EXPECT_EQ(read_file("new"), "abc");
  EXPECT_EQ(listing().count("new"), 1U);
  EXPECT_EQ(counted("notify_unknown"), 0U);
}

TEST_F(SessionMount, ListsANameThatTheKernelNeverAskedFor) {
  // Twice: after the first READDIR the kernel holds the directory's access time for stale, and asks once more.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(listing().size(), 2U);
  files_.add_file("unasked", "");
  EXPECT_EQ(listing().size(), 2U) << "the listing is kept";

  session_->forget_name(vfs::kRootNode, "unasked");

  EXPECT_EQ(listing().count("unasked"), 1U);
}

TEST_F(SessionMount, ShowsNewContentAfterANotice) {
  const auto node = files_.add_file("a", "old");
  EXPECT_EQ(read_file("a"), "old");
  files_.set_bytes(node, "newer");

  session_->forget_content(node);

  EXPECT_EQ(read_file("a"), "newer");
}

TEST_F(SessionMount, TakesANoticeOfWhatTheKernelDoesNotKnow) {
  session_->forget_content(vfs::NodeId{4711});
  session_->forget_name(vfs::NodeId{4711}, "nothing");
  EXPECT_EQ(counted("notify_unknown"), 2U);
  EXPECT_EQ(stat_errno("missing"), ENOENT);
}

TEST_F(SessionMount, AsksAgainForAnAbsenceThatMayNotBeKept) {
  files_.forbid_kept_absences();
  EXPECT_EQ(stat_errno("missing"), ENOENT);
  EXPECT_EQ(requests_of([&] { EXPECT_EQ(stat_errno("missing"), ENOENT); }), 1U);
}

TEST_F(SessionMount, DoesNamesAsALocalFileSystem) {
  write_file("a", "aaa");
  EXPECT_EQ(::link(path("a").c_str(), path("hard").c_str()), 0);
  EXPECT_EQ(read_file("hard"), "aaa");
  EXPECT_EQ(::symlink("a", path("soft").c_str()), 0);
  EXPECT_EQ(read_file("soft"), "aaa");
  EXPECT_EQ(::mkdir(path("d").c_str(), 0755), 0);
  EXPECT_EQ(::mkfifo(path("pipe").c_str(), 0644), 0);
  write_file("d/b", "bbb");

  EXPECT_EQ(::rmdir(path("d").c_str()), -1);
  EXPECT_EQ(errno, ENOTEMPTY);
  EXPECT_EQ(::rename(path("d/b").c_str(), path("a").c_str()), 0);
  EXPECT_EQ(read_file("a"), "bbb");
  EXPECT_EQ(read_file("hard"), "aaa");
  EXPECT_EQ(::rmdir(path("d").c_str()), 0);
  EXPECT_EQ(::unlink(path("hard").c_str()), 0);
  EXPECT_EQ(stat_errno("hard"), ENOENT);
  EXPECT_EQ(listing(), (std::set<std::string>{".", "..", "a", "soft", "pipe"}));
}

TEST_F(SessionMount, RenamesWithFlags) {
  write_file("a", "aaa");
  write_file("b", "bbb");
  const auto rename = [&](const char* from, const char* to, unsigned flags) {
    return ::renameat2(AT_FDCWD, path(from).c_str(), AT_FDCWD, path(to).c_str(), flags) == 0 ? 0 : errno;
  };

  EXPECT_EQ(rename("a", "b", RENAME_NOREPLACE), EEXIST);
  EXPECT_EQ(rename("a", "b", RENAME_EXCHANGE), 0);
  EXPECT_EQ(read_file("a"), "bbb");
  EXPECT_EQ(rename("a", "c", RENAME_NOREPLACE), 0);
  EXPECT_EQ(read_file("c"), "bbb");
  EXPECT_EQ(rename("b", "d", RENAME_WHITEOUT), EINVAL);
}

TEST_F(SessionMount, DoesAttributesAsALocalFileSystem) {
  write_file("a", "12345");
  struct stat seen {};
  EXPECT_EQ(::chmod(path("a").c_str(), 0751), 0);
  EXPECT_EQ(::chown(path("a").c_str(), 12, 34), 0);
  EXPECT_EQ(::truncate(path("a").c_str(), 3), 0);
  const timespec times[] = {{100, 1}, {200, 2}};
  EXPECT_EQ(::utimensat(AT_FDCWD, path("a").c_str(), times, 0), 0);

  EXPECT_EQ(::stat(path("a").c_str(), &seen), 0);
  EXPECT_EQ(seen.st_mode, static_cast<mode_t>(S_IFREG | 0751));
  EXPECT_EQ(seen.st_uid, 12U);
  EXPECT_EQ(seen.st_gid, 34U);
  EXPECT_EQ(seen.st_size, 3);
  EXPECT_EQ(seen.st_atim.tv_nsec, 1);
  EXPECT_EQ(seen.st_mtim.tv_sec, 200);
  struct statvfs space {};
  EXPECT_EQ(::statvfs(mountpoint().c_str(), &space), 0);
  EXPECT_EQ(space.f_blocks, 1000U);
}

TEST_F(SessionMount, KeepsExtendedAttributes) {
  write_file("a", "");
  const std::string file = path("a");
  std::array<char, 64> out{};

  EXPECT_EQ(::setxattr(file.c_str(), "user.x", "value", 5, XATTR_CREATE), 0);
  EXPECT_EQ(::setxattr(file.c_str(), "user.x", "value", 5, XATTR_CREATE), -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(::getxattr(file.c_str(), "user.x", nullptr, 0), 5);
  EXPECT_EQ(::getxattr(file.c_str(), "user.x", out.data(), 2), -1);
  EXPECT_EQ(errno, ERANGE);
  EXPECT_EQ(::getxattr(file.c_str(), "user.x", out.data(), out.size()), 5);
  EXPECT_EQ(::getxattr(file.c_str(), "user.y", out.data(), out.size()), -1);
  EXPECT_EQ(errno, ENODATA);
  EXPECT_EQ(::listxattr(file.c_str(), nullptr, 0), 7);
  EXPECT_EQ(::listxattr(file.c_str(), out.data(), out.size()), 7);
  EXPECT_EQ(std::string(out.data(), 7), std::string("user.x\0", 7));
  EXPECT_EQ(::removexattr(file.c_str(), "user.x"), 0);
  EXPECT_EQ(::setxattr(file.c_str(), "security.capability", "", 0, 0), -1);
}

TEST_F(SessionMount, DoesDataAsALocalFileSystem) {
  write_file("a", "0123456789");
  const Fd a(::open(path("a").c_str(), O_RDWR | O_CLOEXEC));
  const Fd b(::open(path("b").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_TRUE(a && b);

  EXPECT_EQ(::copy_file_range(a.get(), nullptr, b.get(), nullptr, 4, 0), 4);
  EXPECT_EQ(read_file("b"), "0123");
  EXPECT_EQ(::posix_fallocate(b.get(), 0, 8), 0);
  EXPECT_EQ(read_file("b"), std::string("0123\0\0\0\0", 8));
  EXPECT_EQ(::lseek(a.get(), 0, SEEK_HOLE), 10);
  EXPECT_EQ(::lseek(a.get(), 10, SEEK_DATA), -1);
  EXPECT_EQ(errno, ENXIO);
  EXPECT_EQ(::fsync(a.get()), 0);
  EXPECT_EQ(::fdatasync(a.get()), 0);
  EXPECT_EQ(::flock(a.get(), LOCK_EX | LOCK_NB), 0);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  EXPECT_EQ(::fcntl(b.get(), F_SETLK, &lock), 0);
}

TEST_F(SessionMount, WritesThroughASharedMapping) {
  const std::string page(4096, 'a');
  write_file("a", page);
  {
    const Fd fd(::open(path("a").c_str(), O_RDWR | O_CLOEXEC));
    void* mapped = ::mmap(nullptr, page.size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    static_cast<char*>(mapped)[1] = 'b';
    EXPECT_EQ(::msync(mapped, page.size(), MS_SYNC), 0);
    EXPECT_EQ(::munmap(mapped, page.size()), 0);
  }
  EXPECT_EQ(files_.bytes_of(files_.node_of("a")).substr(0, 3), "aba");
}

TEST_F(SessionMount, RunsAProgram) {
  const auto program = inductorfs::read_file(AT_FDCWD, "/bin/true", 64U << 20);
  ASSERT_TRUE(program);
  write_file("true", *program);
  ASSERT_EQ(::chmod(path("true").c_str(), 0755), 0);
  const std::string file = path("true");

  Child child([&] { return execl(file.c_str(), "true", nullptr); });

  EXPECT_EQ(child.wait(), 0);
}

TEST_F(SessionMount, AsksForCapabilitiesOnceForManyWrites) {
  const Fd fd(::open(path("a").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_TRUE(fd);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(::write(fd.get(), "0123456789", 10), 10);
  EXPECT_LE(counted("getxattr"), 1U);
  EXPECT_EQ(counted("write"), 50U);
}

TEST_F(SessionMount, ClearsSetUserIdWhenSomebodyElseWrites) {
  write_file("a", "x");
  ASSERT_EQ(::chmod(path("a").c_str(), 06777), 0);
  const std::string file = path("a");

  Child child([&] {
    if (setgid(65534) != 0 || setuid(65534) != 0) return 2;
    const int fd = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
    return ::write(fd, "y", 1) == 1 ? 0 : 1;
  });

  EXPECT_EQ(child.wait(), 0);
  struct stat seen {};
  EXPECT_EQ(::stat(file.c_str(), &seen), 0);
  EXPECT_EQ(seen.st_mode & 07777, 0777U);
}

TEST_F(SessionMount, HoldsPermissionsAgainstOthers) {
  write_file("secret", "x");
  ASSERT_EQ(::chmod(path("secret").c_str(), 0600), 0);
  const std::string file = path("secret");

  Child child([&] {
    if (setgid(65534) != 0 || setuid(65534) != 0) return 2;
    return ::open(file.c_str(), O_RDONLY | O_CLOEXEC) < 0 ? errno : 0;
  });

  EXPECT_EQ(child.wait(), EACCES);
}

TEST_F(SessionMount, ReadsALargeFileInFewRequests) {
  constexpr size_t kSize = 16U << 20;
  files_.add_file("large", std::string(kSize, 'x'));
  EXPECT_EQ(read_file("large").size(), kSize);
  EXPECT_LE(counted("read"), 2 * (kSize >> 20) + 8) << "1 MiB of readahead, not 128 KiB";
}

TEST_F(SessionMount, GivesReferencesBack) {
  write_file("a", "x");
  const auto node = files_.node_of("a");
  EXPECT_EQ(files_.references(node), 1U);

  ASSERT_EQ(::unlink(path("a").c_str()), 0);

  EXPECT_TRUE(eventually([&] { return files_.references(node) == 0; }));
}

TEST_F(SessionMount, CarriesManyOperationsAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  std::atomic<int> good{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < kThreads; ++t) {
    workers.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const std::string temporary = "tmp" + std::to_string(t);
        const std::string name = "f" + std::to_string(t) + "_" + std::to_string(i % 7);
        const std::string bytes = name + std::to_string(i);
        write_file(temporary, bytes);
        if (::rename(path(temporary).c_str(), path(name).c_str()) != 0 || read_file(name) != bytes) continue;
        if (i % 3 == 0 && ::unlink(path(name).c_str()) != 0) continue;
        ++good;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(good, kThreads * kRounds);
}

TEST_F(SessionMount, EndsOnceWhenItIsUnmounted) {
  auto ended = ended_.get_future();
  EXPECT_EQ(stat_errno("missing"), ENOENT);

  const auto unmounted = unmount(mountpoint(), false);

  ASSERT_TRUE(unmounted) << unmounted.error().to_string();
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_EQ(mounted_type(mountpoint()), "");
}

TEST_F(SessionMount, StopsWhileTheMountStays) {
  EXPECT_EQ(stat_errno("missing"), ENOENT);

  session_->stop();

  EXPECT_EQ(mounted_type(mountpoint()), "fuse.inductorfs");
  EXPECT_EQ(requests_of([&] { EXPECT_EQ(stat_errno("missing"), ENOENT); }), 0U) << "kept by the kernel";
}

}  // namespace
}  // namespace inductorfs::fuse
