// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>

#include "inductorfs/base/fd.h"
#include "mounted_fixture.h"
#include "support/lacks.h"

namespace inductorfs::fuse {
namespace {

using testing::Child;
using testing::TemporaryDirectory;
constexpr uid_t kNobody = 65534;

MountOptions at(const std::string& path) {
  MountOptions options;
  options.mountpoint = path;
  return options;
}

std::string text_of(const Result<Mounted>& result) { return result ? "mounted" : result.error().to_string(); }
std::string text_of(const Result<void>& result) { return result ? "done" : result.error().to_string(); }

/// What `entry` says in a process of its own (which may change its user, its mounts or its environment).
std::string told_by_child(const std::function<std::string()>& entry) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return "no pipe";
  Fd out(ends[0]);
  Fd in(ends[1]);
  Child child([&] {
    const std::string text = entry();
    return ::write(in.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
  });
  in.reset();
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t got = 0; (got = ::read(out.get(), part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(got));
  }
  const int status = child.wait();
  return status == 0 ? text : "exit " + std::to_string(status) + " " + text;
}

bool become_nobody() { return setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 && setuid(kNobody) == 0; }

bool unshare_mounts() { return unshare(CLONE_NEWNS) == 0 && ::mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) == 0; }

/// For this process only: a /dev/fuse with these permissions, and fusermount3 unconfigured, whatever this host has.
bool set_up_host(const TemporaryDirectory& device_directory, mode_t device_mode) {
  const std::string node = device_directory / "fuse";
  if (!unshare_mounts() || mknod(node.c_str(), S_IFCHR | 0600, makedev(10, 229)) != 0) return false;
  if (chmod(node.c_str(), device_mode) != 0) return false;
  (void)::mount("/dev/null", "/etc/fuse.conf", "", MS_BIND, nullptr);  // where there is no such file, all is well
  return ::mount(node.c_str(), "/dev/fuse", "", MS_BIND, nullptr) == 0;
}

class MountErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = testing::no_mounts_because(); !why.empty()) INDUCTORFS_LACKS(why);
  }
  void TearDown() override {
    while (!mounted_type(directory_.path()).empty() && umount2(directory_.path().c_str(), MNT_DETACH) == 0) {
    }
  }
  TemporaryDirectory directory_;
  TemporaryDirectory device_;
};

TEST_F(MountErrors, NamesAMissingDirectory) {
  const auto result = mount(at(directory_ / "none"));
  EXPECT_EQ(text_of(result), "not_found: " + (directory_ / "none") + " does not exist; make it with `mkdir -p " +
                                 (directory_ / "none") + "`");
}

TEST_F(MountErrors, RefusesWhatIsNoDirectory) {
  const std::string file = directory_ / "file";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "x"));
  EXPECT_EQ(text_of(mount(at(file))), "not_directory: " + file + " is not a directory; choose one, or remove it");
}

TEST_F(MountErrors, RefusesToHideContent) {
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory_ / "precious", "x"));
  const auto result = mount(at(directory_.path()));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kNotEmpty);
  EXPECT_NE(text_of(result).find("precious"), std::string::npos) << text_of(result);
}

TEST_F(MountErrors, RefusesASecondMount) {
  ASSERT_EQ(::mount("something", directory_.path().c_str(), "tmpfs", 0, ""), 0);
  const auto result = mount(at(directory_.path() + "/"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kBusy);
  EXPECT_NE(text_of(result).find("is a mount already (tmpfs from something)"), std::string::npos) << text_of(result);
}

TEST_F(MountErrors, MountsOnTheDirectoryThatIsOpenWhateverHasItsPath) {
  const std::string path = directory_ / "mountpoint";
  const std::string away = directory_ / "away";
  const std::string victim = directory_ / "victim";
  ASSERT_EQ(mkdir(path.c_str(), 0755), 0);
  ASSERT_EQ(mkdir(victim.c_str(), 0755), 0);
  const auto open = open_at(AT_FDCWD, path, O_PATH | O_DIRECTORY);
  ASSERT_TRUE(open);
  ASSERT_EQ(rename(path.c_str(), away.c_str()), 0);
  ASSERT_EQ(symlink(victim.c_str(), path.c_str()), 0);

  MountOptions options = at(path);
  options.directory = open->get();
  const auto device = mount(options);

  EXPECT_TRUE(device) << text_of(device);
  EXPECT_EQ(mounted_type(victim), "");
  EXPECT_EQ(mounted_type(away), "fuse.inductorfs");
  EXPECT_EQ(umount2(away.c_str(), MNT_DETACH), 0);
}

TEST_F(MountErrors, TellsADeadMountAndItsRemedy) {
  {
    const auto device = mount(at(directory_.path()));
    ASSERT_TRUE(device) << text_of(device);
  }  // nobody serves it any more
  const auto result = mount(at(directory_.path()));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kBusy);
  EXPECT_NE(text_of(result).find("Transport endpoint is not connected"), std::string::npos) << text_of(result);
  EXPECT_NE(text_of(result).find("inductorfs unmount --lazy"), std::string::npos);

  EXPECT_EQ(mounted_type(directory_.path()), "fuse.inductorfs");
  EXPECT_EQ(text_of(unmount(directory_.path(), true)), "done");
  EXPECT_EQ(mounted_type(directory_.path()), "");
}

TEST_F(MountErrors, DoesNotHangOnAMountThatDoesNotAnswer) {
  const auto device = mount(at(directory_.path()));  // held, but never served
  ASSERT_TRUE(device) << text_of(device);

  const auto result = mount(at(directory_.path()));

  ASSERT_FALSE(result);
  EXPECT_NE(text_of(result).find("does not answer"), std::string::npos) << text_of(result);
  EXPECT_EQ(mounted_type(directory_.path()), "fuse.inductorfs");
}

TEST_F(MountErrors, NamesAMissingFuseDevice) {
  const std::string text = told_by_child([&]() -> std::string {
    if (!unshare_mounts() || ::mount("tmpfs", "/dev", "tmpfs", 0, "") != 0) return "no namespace";
    return text_of(mount(at(directory_.path())));
  });
  EXPECT_EQ(text,
            "not_supported: /dev/fuse is not there; load the module with `modprobe fuse`, in a container start it "
            "with --device /dev/fuse");
}

TEST_F(MountErrors, NamesAMissingFusermount) {
  ASSERT_EQ(chown(directory_.path().c_str(), kNobody, kNobody), 0);
  const std::string text = told_by_child([&]() -> std::string {
    if (!become_nobody() || setenv("PATH", "/nonexistent", 1) != 0) return "no user";
    return text_of(mount(at(directory_.path())));
  });
  EXPECT_EQ(text, "not_supported: fusermount3 was not found in PATH; install the package fuse3, or mount as root");
}

TEST_F(MountErrors, HandsOnWhatFusermountSays) {
  // The directory is root's: fusermount3 lets a user mount only where that user may write.
  ASSERT_EQ(chmod(directory_.path().c_str(), 0755), 0);
  const std::string text = told_by_child([&]() -> std::string {
    if (!set_up_host(device_, 0666) || !become_nobody()) return "no user";
    return text_of(mount(at(directory_.path())));
  });
  EXPECT_TRUE(text.starts_with("not_permitted: mount " + directory_.path() + ": fusermount3: user has no write access"))
      << text;
  EXPECT_NE(text.find("mount as root, or below a directory of your own"), std::string::npos) << text;
}

TEST_F(MountErrors, SaysThatFusermountWantsAUserWithAName) {
  constexpr uid_t kNameless = 1'002'700'000;  // as OpenShift gives them
  ASSERT_EQ(getpwuid(kNameless), nullptr);
  ASSERT_EQ(chown(directory_.path().c_str(), kNameless, kNameless), 0);
  const std::string text = told_by_child([&]() -> std::string {
    if (!set_up_host(device_, 0666)) return "no host";
    if (setgroups(0, nullptr) != 0 || setgid(kNameless) != 0 || setuid(kNameless) != 0) return "no user";
    return text_of(mount(at(directory_.path())));
  });
  EXPECT_NE(text.find("add an entry for this uid"), std::string::npos) << text;
}

TEST_F(MountErrors, SaysHowAUserMayOpenTheDevice) {
  ASSERT_EQ(chown(directory_.path().c_str(), kNobody, kNobody), 0);
  const std::string text = told_by_child([&]() -> std::string {
    if (!set_up_host(device_, 0600) || !become_nobody()) return "no user";
    return text_of(mount(at(directory_.path())));
  });
  EXPECT_TRUE(text.starts_with("not_permitted:")) << text;
  EXPECT_NE(text.find("chmod 0666 /dev/fuse"), std::string::npos) << text;
}

TEST_F(MountErrors, SaysHowAUserMayAllowOthers) {
  ASSERT_EQ(chown(directory_.path().c_str(), kNobody, kNobody), 0);
  const std::string text = told_by_child([&]() -> std::string {
    if (!set_up_host(device_, 0666) || !become_nobody()) return "no user";
    MountOptions options = at(directory_.path());
    options.allow_other = true;
    return text_of(mount(options));
  });
  EXPECT_TRUE(text.starts_with("not_permitted:")) << text;
  EXPECT_NE(text.find("put the line user_allow_other into /etc/fuse.conf"), std::string::npos) << text;
}

TEST_F(MountErrors, MountsServesAndUnmountsForAnOrdinaryUser) {
  ASSERT_EQ(chown(directory_.path().c_str(), kNobody, kNobody), 0);
  const std::string text = told_by_child([&]() -> std::string {
    if (!set_up_host(device_, 0666) || !become_nobody()) return "no user";
    auto device = mount(at(directory_.path()));
    if (!device) return text_of(device);
    if ((fcntl(device->device.get(), F_GETFD) & FD_CLOEXEC) == 0) return "the descriptor would be inherited";
    const std::string type = mounted_type(directory_.path());
    testing::FakeFileSystem files;
    Counters counters;
    files.add_file("a", "hello");
    auto session = Session::open(std::move(device->device), {}, files, counters);
    if (!session) return session.error().to_string();
    (*session)->start({});
    const auto bytes = read_file(AT_FDCWD, directory_ / "a", 100);
    const std::string done = text_of(unmount(directory_.path(), false));
    return type + ", " + (bytes ? *bytes : bytes.error().to_string()) + ", " + done;
  });
  EXPECT_EQ(text, "fuse.inductorfs, hello, done");
}

TEST_F(MountErrors, SaysThatAPathIsNoMount) {
  const auto result = unmount(directory_.path(), false);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(unmount(directory_ / "none", true).error().code(), ErrorCode::kNotFound);
}

/// A mount below a directory whose owner has exchanged it for another one, with another mount at the same name.
class UnmountOfAnExchangedPath : public MountErrors {
 protected:
  void SetUp() override {
    MountErrors::SetUp();
    if (IsSkipped()) return;
    for (const std::string& path : {around_, around_ + "/m", other_, other_ + "/m"}) {
      ASSERT_EQ(mkdir(path.c_str(), 0755), 0);
    }
    device_ = mount(at(around_ + "/m"));  // held, but never served: nothing may be asked of it
    ASSERT_TRUE(device_) << text_of(device_);
    const std::vector<MountEntry> table = read_mount_table();
    meant_ = *find_mount_at(table, around_ + "/m");
    ASSERT_EQ(::mount("victim", (other_ + "/m").c_str(), "tmpfs", 0, ""), 0);
    ASSERT_EQ(renameat2(AT_FDCWD, around_.c_str(), AT_FDCWD, other_.c_str(), RENAME_EXCHANGE), 0);
  }
  void TearDown() override {
    for (const std::string& path : {around_ + "/m", other_ + "/m"}) (void)umount2(path.c_str(), MNT_DETACH);
  }
  std::string around_ = directory_ / "around";
  std::string other_ = directory_ / "other";
  Result<Mounted> device_ = Mounted();
  MountEntry meant_;
};

TEST_F(UnmountOfAnExchangedPath, LeavesTheOtherMount) {
  for (const bool lazy : {false, true}) {
    const auto result = unmount(meant_, lazy);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::kBusy) << text_of(result);
    EXPECT_NE(text_of(result).find("/around/m leads to another mount"), std::string::npos) << text_of(result);
    EXPECT_EQ(mounted_type(around_ + "/m"), "tmpfs");
    EXPECT_EQ(mounted_type(other_ + "/m"), "fuse.inductorfs");
  }
}

TEST_F(UnmountOfAnExchangedPath, UnmountsWhatIsMeantWhereItIsNow) {
  meant_.mount_point = other_ + "/m";
  EXPECT_EQ(text_of(unmount(meant_, false)), "done");
  EXPECT_EQ(mounted_type(other_ + "/m"), "");
  EXPECT_EQ(mounted_type(around_ + "/m"), "tmpfs");
}

/// A mount whose daemon does not answer one lookup, for which a process waits. Needs external synchronisation.
class HungMount {
 public:
  explicit HungMount(const std::string& path) {
    files_.block_lookup("slow");
    EXPECT_EQ(mkdir(path.c_str(), 0755), 0);
    auto device = mount(at(path));
    EXPECT_TRUE(device) << text_of(device);
    auto session = device ? Session::open(std::move(device->device), {}, files_, counters_) : fail(device.error());
    EXPECT_TRUE(session) << session.error().to_string();
    if (!session) return;
    session_ = std::move(*session);
    session_->start({});
    // Not in the root: the kernel holds the lock of the directory, and to mount on the root takes its lock.
    EXPECT_EQ(mkdir((path + "/d").c_str(), 0755), 0);
    waiter_ = std::async(std::launch::async, [file = path + "/d/slow"] {
      struct stat ignored {};
      return ::stat(file.c_str(), &ignored) == 0 ? 0 : errno;
    });
    EXPECT_TRUE(files_.wait_until_waiting("slow", 1));
  }
  HungMount(const HungMount&) = delete;
  HungMount& operator=(const HungMount&) = delete;
  ~HungMount() { files_.release("slow"); }

  [[nodiscard]] bool waits() const { return waiter_.wait_for(std::chrono::seconds(0)) != std::future_status::ready; }
  /// What the waiting process gets.
  [[nodiscard]] int error() const { return waiter_.get(); }
  void answer() { files_.release("slow"); }

 private:
  testing::FakeFileSystem files_;
  Counters counters_;
  std::unique_ptr<Session> session_;
  std::shared_future<int> waiter_;
};

/// Two mounts that do not answer, and the entry of the one whose requests are to end.
class EndOfWaits : public MountErrors {
 protected:
  void SetUp() override {
    MountErrors::SetUp();
    if (IsSkipped()) return;
    for (const std::string& path : {around_, other_}) ASSERT_EQ(mkdir(path.c_str(), 0755), 0);
    meant_.emplace(around_ + "/m");
    victim_.emplace(other_ + "/m");
    const std::vector<MountEntry> table = read_mount_table();
    const MountEntry* const entry = find_mount_at(table, around_ + "/m");
    ASSERT_NE(entry, nullptr);
    entry_ = *entry;
  }
  void TearDown() override {
    for (const std::string& path : {around_ + "/m", other_ + "/m"}) {
      while (!mounted_type(path).empty() && umount2(path.c_str(), MNT_DETACH) == 0) {
      }
    }
  }
  /// The answer, that there is no such file, comes to the one who waits.
  static void expect_still_waits(HungMount& mount, const char* why) {
    EXPECT_TRUE(mount.waits()) << why;
    mount.answer();
    EXPECT_EQ(mount.error(), ENOENT) << why;
  }
  std::string around_ = directory_ / "around";
  std::string other_ = directory_ / "other";
  std::optional<HungMount> meant_;
  std::optional<HungMount> victim_;
  MountEntry entry_;
};

TEST_F(EndOfWaits, IsOfTheMountThatIsMeant) {
  end_waits(entry_);
  EXPECT_EQ(meant_->error(), ECONNABORTED);
  expect_still_waits(*victim_, "the victim");
}

TEST_F(EndOfWaits, IsOfNoOtherMountThatWasExchangedForIt) {
  ASSERT_EQ(renameat2(AT_FDCWD, around_.c_str(), AT_FDCWD, other_.c_str(), RENAME_EXCHANGE), 0);
  end_waits(entry_);
  expect_still_waits(*victim_, "it is another mount that has the path now");
  expect_still_waits(*meant_, "its path does not lead to it");
}

TEST_F(EndOfWaits, IsOfNoOtherMountThatCoversIt) {
  ASSERT_EQ(::mount((other_ + "/m").c_str(), (around_ + "/m").c_str(), "", MS_BIND, nullptr), 0);
  end_waits(entry_);
  expect_still_waits(*victim_, "it is another mount that has the path now");
  expect_still_waits(*meant_, "its path does not lead to it");
}

TEST_F(EndOfWaits, IsOfTheMountThatIsMeantWhereItIsNow) {
  ASSERT_EQ(renameat2(AT_FDCWD, around_.c_str(), AT_FDCWD, other_.c_str(), RENAME_EXCHANGE), 0);
  entry_.mount_point = other_ + "/m";
  end_waits(entry_);
  EXPECT_EQ(meant_->error(), ECONNABORTED);
  expect_still_waits(*victim_, "the victim");
}

/// A served mount and somebody who uses it.
class BusyMount : public testing::MountedTest {
 protected:
  /// Returns when the child has done `entry`, and leaves it there.
  std::unique_ptr<Child> user_of(const std::function<bool()>& entry) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    Fd out(ends[0]);
    Fd in(ends[1]);
    auto child = std::make_unique<Child>([&] {
      if (!entry() || ::write(in.get(), "+", 1) != 1) return 1;
      pause();
      return 0;
    });
    in.reset();
    char byte = 0;
    EXPECT_EQ(::read(out.get(), &byte, 1), 1);
    return child;
  }
  void expect_busy(const Child& child, const std::string& use) {
    const auto result = unmount(mountpoint(), false);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::kBusy);
    // With its whole command line, which the child has from this process.
    const std::string text = text_of(result);
    const size_t named = text.find("pid " + std::to_string(child.pid()) + " (");
    ASSERT_NE(named, std::string::npos) << text;
    EXPECT_NE(text.find("fuse_mount_test", named), std::string::npos) << text;
    EXPECT_NE(text.find(", " + use + ")", named), std::string::npos) << text;
    EXPECT_NE(text_of(result).find("inductorfs unmount --lazy"), std::string::npos);
  }
};

TEST_F(BusyMount, NamesWhoWorksInIt) {
  const auto child = user_of([&] { return chdir(mountpoint().c_str()) == 0; });
  expect_busy(*child, "working directory");
}

TEST_F(BusyMount, NamesWhoHasAFileOpen) {
  files_.add_file("a", "x");
  const std::string file = path("a");
  const auto child = user_of([&] { return ::open(file.c_str(), O_RDONLY | O_CLOEXEC) >= 0; });
  expect_busy(*child, "open file");
}

TEST_F(BusyMount, NamesWhoHasAFileMapped) {
  files_.add_file("a", "x");
  const std::string file = path("a");
  const auto child = user_of([&] {
    const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    return ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd.get(), 0) != MAP_FAILED;
  });
  expect_busy(*child, "mapped file");
}

TEST_F(BusyMount, NamesMountsBelowIt) {
  ASSERT_EQ(mkdir(path("d").c_str(), 0755), 0);
  ASSERT_EQ(::mount("below", path("d").c_str(), "tmpfs", 0, ""), 0);

  const auto result = unmount(mountpoint(), false);

  EXPECT_EQ(umount2(path("d").c_str(), MNT_DETACH), 0);
  EXPECT_NE(text_of(result).find("mount " + path("d") + " (tmpfs)"), std::string::npos) << text_of(result);
}

TEST_F(BusyMount, IsDetachedLazilyAndServesOnForWhoIsInIt) {
  const auto child = user_of([&] { return chdir(mountpoint().c_str()) == 0; });
  auto ended = ended_.get_future();

  EXPECT_EQ(text_of(unmount(mountpoint(), true)), "done");

  EXPECT_EQ(mounted_type(mountpoint()), "");
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  child->send(SIGKILL);
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(BusyMount, HasItsTypeAndFlagsInTheMountTable) {
  const auto table = read_file(AT_FDCWD, "/proc/self/mountinfo", 64U << 20);
  ASSERT_TRUE(table);
  const size_t start = table->find(" " + mountpoint() + " ");
  ASSERT_NE(start, std::string::npos);
  const std::string line = table->substr(start, table->find('\n', start) - start);
  EXPECT_NE(line.find("nosuid,nodev"), std::string::npos) << line;
  EXPECT_EQ(line.find("noexec"), std::string::npos) << line;
  EXPECT_NE(line.find("- fuse.inductorfs inductorfs"), std::string::npos) << line;
  EXPECT_NE(line.find("default_permissions,allow_other,max_read=1048576"), std::string::npos) << line;
}

}  // namespace
}  // namespace inductorfs::fuse
