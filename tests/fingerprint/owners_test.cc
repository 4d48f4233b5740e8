// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/owners.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "fake_packages.h"
#include "fingerprint/facts.h"
#include "fingerprint/python_files.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"
#include "without_memory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::read_text;
using testing::write_script;
using testing::write_text;

namespace fs = std::filesystem;

constexpr uid_t kUser = 65534;
constexpr uid_t kOther = 65533;
constexpr Milliseconds kAmple{20000};

/// A directory that other users can reach, and files of theirs in it.
class AsRoot : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) INDUCTORFS_LACKS("root, who alone gives files away");
    ASSERT_EQ(::chmod(temporary_.path().c_str(), 0755), 0);
  }
  static void give(const std::string& path, uid_t user) {
    ASSERT_EQ(::lchown(path.c_str(), user, user), 0) << path;
    if (!fs::is_directory(fs::symlink_status(path))) return;
    for (const auto& entry : fs::directory_iterator(path)) give(entry.path().string(), user);
  }
  static Result<uid_t> owner_of(const std::string& path) {
    Owners owners;
    if (const auto done = owners.add(path); !done) return fail(done.error());
    return owners.only();
  }
  TemporaryDirectory temporary_;
};

using OwnersAsRoot = AsRoot;

TEST_F(OwnersAsRoot, AreRootAloneOnlyIfRootOwnsEveryComponent) {
  write_text(temporary_ / "a/b/program", "");
  EXPECT_EQ(owner_of(temporary_ / "a/b/program").value_or(1), 0U);
  give(temporary_ / "a/b", kUser);
  EXPECT_EQ(owner_of(temporary_ / "a/b/program").value_or(0), kUser);
  ASSERT_EQ(::chown((temporary_ / "a/b").c_str(), 0, 0), 0);
  EXPECT_EQ(owner_of(temporary_ / "a/b/program").value_or(0), kUser) << "the file itself";
  ASSERT_EQ(::chown((temporary_ / "a/b/program").c_str(), 0, 0), 0);
  ASSERT_EQ(::chown((temporary_ / "a").c_str(), kUser, 0), 0);
  EXPECT_EQ(owner_of(temporary_ / "a/b/program").value_or(0), kUser) << "a directory far above it";
  EXPECT_FALSE(owner_of(temporary_ / "a/absent"));
}

TEST_F(OwnersAsRoot, CountTheOwnersOfLinksAndOfWhereTheyLead) {
  write_text(temporary_ / "roots/program", "");
  fs::create_directory(temporary_ / "users");
  fs::create_symlink("../roots/program", temporary_ / "users/link");
  EXPECT_EQ(owner_of(temporary_ / "users/link").value_or(1), 0U);
  give(temporary_ / "users/link", kUser);
  EXPECT_EQ(owner_of(temporary_ / "users/link").value_or(0), kUser);
  give(temporary_ / "roots/program", kOther);
  const auto both = owner_of(temporary_ / "users/link");
  ASSERT_FALSE(both);
  EXPECT_NE(both.error().what().find("uid 65533"), std::string::npos) << both.error().what();
  EXPECT_NE(both.error().what().find("uid 65534"), std::string::npos) << both.error().what();
  fs::create_symlink("loop", temporary_ / "loop");
  EXPECT_FALSE(owner_of(temporary_ / "loop"));
}

TEST_F(OwnersAsRoot, AreNobodyWhereOthersMayWrite) {
  write_text(temporary_ / "site/program", "");
  ASSERT_EQ(::chmod((temporary_ / "site").c_str(), 0777), 0);
  EXPECT_FALSE(owner_of(temporary_ / "site/program"));
  ASSERT_EQ(::chmod((temporary_ / "site").c_str(), 01777), 0);
  EXPECT_TRUE(owner_of(temporary_ / "site/program")) << "as /tmp: others cannot replace the program";
  Owners owners;
  ASSERT_TRUE(owners.add_folder(temporary_ / "site"));
  EXPECT_FALSE(owners.only()) << "but they can add a .pth file";
  ASSERT_EQ(::chown((temporary_ / "site").c_str(), 0, kUser), 0);
  ASSERT_EQ(::chmod((temporary_ / "site").c_str(), 0775), 0);
  EXPECT_FALSE(owner_of(temporary_ / "site/program")) << "members of the group";
  ASSERT_EQ(::chown((temporary_ / "site").c_str(), kUser, kUser), 0);
  EXPECT_EQ(owner_of(temporary_ / "site/program").value_or(0), kUser) << "whom a user lets in is the user's affair";
}

TEST_F(OwnersAsRoot, CountTheEntriesOfAFolderOfPackages) {
  write_text(temporary_ / "site/package/__init__.py", "");
  Owners before;
  ASSERT_TRUE(before.add_entries(temporary_ / "site"));
  EXPECT_EQ(before.only().value_or(1), 0U);
  give(temporary_ / "site/package", kUser);
  Owners after;
  ASSERT_TRUE(after.add_entries(temporary_ / "site"));
  EXPECT_EQ(after.only().value_or(0), kUser);
}

using ChildAsRoot = AsRoot;

TEST_F(ChildAsRoot, RunsAsTheUserWithoutGroupsPrivilegesTerminalOrEnvironment) {
  ASSERT_EQ(::setenv("FINGERPRINT_TEST_SECRET", "secret", 1), 0);
  ChildOptions options;
  options.bare = true;
  options.user = kUser;
  const auto answer =
      run_child({"/bin/sh", "-c",
                 "grep -E '^(Uid|Gid|Groups|NoNewPrivs|CapEff|CapPrm):' /proc/self/status; env; ls /proc/self/fd; pwd; "
                 "(: < /dev/tty) 2>/dev/null && echo terminal; ulimit -c; ulimit -n"},
                kAmple, options);
  ASSERT_EQ(::unsetenv("FINGERPRINT_TEST_SECRET"), 0);
  ASSERT_TRUE(answer) << answer.error().to_string();
  for (const char* line :
       {"Uid:\t65534\t65534\t65534\t65534\n", "Gid:\t65534\t65534\t65534\t65534\n", "Groups:\t \n", "NoNewPrivs:\t1\n",
        "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "\n/\n0\n"}) {
    EXPECT_NE(answer->out.find(line), std::string::npos) << line << "\n" << answer->out;
  }
  EXPECT_EQ(answer->out.find("secret"), std::string::npos) << answer->out;
  EXPECT_EQ(answer->out.find("terminal"), std::string::npos) << answer->out;
}

TEST_F(ChildAsRoot, RefusesToRunWhatSeveralUsersCouldChange) {
  write_script(temporary_ / "program", "echo ran");
  Owners owners;
  ASSERT_TRUE(owners.add(temporary_ / "program"));
  const auto alone = run_as_owner({temporary_ / "program"}, owners, kAmple);
  EXPECT_EQ(alone ? alone->out : alone.error().what(), "ran\n");
  ASSERT_EQ(::chmod((temporary_ / "program").c_str(), 0777), 0);
  ASSERT_TRUE(owners.add(temporary_ / "program"));
  const auto refused = run_as_owner({temporary_ / "program"}, owners, kAmple);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kNotPermitted);
  EXPECT_NE(refused.error().what().find("can be written by everybody"), std::string::npos) << refused.error().what();
}

/// A virtual environment of another user, of the kind that root's process is given with --python.
class UsersEnvironment : public AsRoot {
 protected:
  void SetUp() override {
    AsRoot::SetUp();
    if (IsSkipped()) return;
    if (!fs::exists(kPython)) INDUCTORFS_LACKS("/usr/bin/python3");
    version_ = fs::canonical(kPython).filename().string();
    site_ = venv_ + "/lib/" + version_ + "/site-packages";
    fs::create_directories(venv_ + "/bin");
    fs::create_directories(site_);
    fs::create_symlink(kPython, venv_ + "/bin/python");
    write_text(venv_ + "/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n");
    write_text(site_ + "/x.pth", "import os; open('" + marks_ + "/%d' % os.geteuid(), 'w')\n");
    fs::create_directory(marks_);
    ASSERT_EQ(::chmod(marks_.c_str(), 01777), 0);
    give(venv_, kUser);
  }
  [[nodiscard]] ProbeOptions options() const {
    ProbeOptions result;
    result.python = venv_ + "/bin/python";
    return result;
  }
  /// The effective users that code of the environment has run as.
  [[nodiscard]] std::set<std::string> ran_as() const {
    std::set<std::string> users;
    for (const auto& entry : fs::directory_iterator(marks_)) users.insert(entry.path().filename().string());
    return users;
  }
  using Users = std::set<std::string>;

  static constexpr const char* kPython = "/usr/bin/python3";
  std::string version_;
  std::string venv_ = temporary_ / "venv";
  std::string site_;
  std::string marks_ = temporary_ / "out";
};

TEST_F(UsersEnvironment, RunsNoCodeWhereItsFilesSayAll) {
  write_text(site_ + "/torch/__init__.py", "");
  write_text(site_ + "/triton/__init__.py", "");
  const auto python = learn_python(options());
  ASSERT_TRUE(python) << python.error().to_string();
  EXPECT_EQ(python->torch, fs::canonical(site_ + "/torch"));
  EXPECT_EQ(python->triton, fs::canonical(site_ + "/triton"));
  EXPECT_EQ(ran_as(), Users{});
}

TEST_F(UsersEnvironment, RunsItsCodeAsItsOwnerAndNeverAsRoot) {
  const auto python = learn_python(options());  // a hook could say where torch is
  ASSERT_TRUE(python) << python.error().to_string();
  EXPECT_EQ(python->torch, "");
  EXPECT_EQ(python->executable, options().python);
  EXPECT_EQ(ran_as(), Users{"65534"});
}

TEST_F(UsersEnvironment, OfTheActiveEnvironmentIsTheSame) {
  ASSERT_EQ(::setenv("VIRTUAL_ENV", venv_.c_str(), 1), 0);  // sudo -E
  const auto python = learn_python(ProbeOptions{});
  ASSERT_EQ(::unsetenv("VIRTUAL_ENV"), 0);
  ASSERT_TRUE(python) << python.error().to_string();
  EXPECT_EQ(ran_as(), Users{"65534"});
}

TEST_F(UsersEnvironment, WithAPackageOfAThirdUserIsNotRun) {
  write_text(site_ + "/package/__init__.py", "");
  give(site_ + "/package", kOther);
  const auto python = learn_python(options());
  ASSERT_FALSE(python);
  EXPECT_EQ(python.error().code(), ErrorCode::kNotPermitted);
  EXPECT_EQ(ran_as(), Users{});
}

TEST_F(UsersEnvironment, OfRootRunsAsRoot) {
  give(venv_, 0);
  ASSERT_TRUE(learn_python(options()));
  EXPECT_EQ(ran_as(), Users{"0"}) << "root's own code may run as root";
  give(site_, kUser);
  ASSERT_TRUE(learn_python(options()));
  EXPECT_EQ(ran_as(), (Users{"0", "65534"})) << "but not where its packages are another's";
}

TEST_F(UsersEnvironment, SaysWhatItsInterpreterSays) {
  give(venv_, 0);
  write_text(site_ + "/x.pth", temporary_ / "elsewhere" + "\n# import a comment\n");
  write_text(temporary_ / "elsewhere/torch/__init__.py", "");
  const auto files = look_at_python(options().python, "");
  ASSERT_TRUE(files.facts) << files.doubt;
  const auto json = run_child({options().python, "-I", "-c",
                               "import sys, sysconfig, importlib.machinery as m\n"
                               "print(sys.executable, sys.implementation.name, '%d.%d' % sys.version_info[:2], "
                               "sysconfig.get_config_var('SOABI'), *m.EXTENSION_SUFFIXES)"},
                              kAmple);
  ASSERT_TRUE(json) << json.error().to_string();
  std::string said = files.facts->executable + " " + files.facts->implementation + " " + files.facts->version + " " +
                     files.facts->soabi;
  for (const std::string& suffix : files.facts->extensions) said += " " + suffix;
  EXPECT_EQ(said + "\n", json->out);
  EXPECT_EQ(files.facts->torch, fs::canonical(temporary_ / "elsewhere/torch"));
}

TEST_F(UsersEnvironment, IsInDoubtWhereAHookMaySayMore) {
  const auto doubt = [this] { return look_at_python(options().python, "").doubt; };
  EXPECT_NE(doubt().find("hook"), std::string::npos);
  fs::remove(site_ + "/x.pth");
  EXPECT_EQ(doubt(), "");
  write_text(site_ + "/distutils-precedence.pth", "import os; os\n");
  EXPECT_EQ(doubt(), "") << "setuptools' file adds no package";
  write_text(site_ + "/torch.py", "");
  EXPECT_NE(doubt(), "");
  fs::remove(site_ + "/torch.py");
  write_text(venv_ + "/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = true\n");
  EXPECT_NE(doubt(), "");
  fs::remove(venv_ + "/bin/python");
  write_script(venv_ + "/bin/python", "exec " + std::string(kPython));
  EXPECT_NE(doubt().find("script"), std::string::npos);
}

TEST_F(UsersEnvironment, DoesNotWaitForAFifo) {
  ASSERT_EQ(::mkfifo((site_ + "/y.pth").c_str(), 0666), 0);
  write_text(site_ + "/torch/__init__.py", "");
  write_text(site_ + "/triton/__init__.py", "");
  EXPECT_TRUE(look_at_python(options().python, "").facts);
}

using UsersCompiler = AsRoot;

TEST_F(UsersCompiler, IsAskedAsItsOwnerAndNeverAsRoot) {
  fs::create_directory(temporary_ / "out");
  ASSERT_EQ(::chmod((temporary_ / "out").c_str(), 01777), 0);
  write_script(temporary_ / "bin/cxx", "id -u >> " + temporary_ / "out/marker" + "; echo 'gcc version 1' >&2");
  give(temporary_ / "bin", kUser);
  ProbeOptions options;
  KeyMemory nothing("");
  options.compiler = temporary_ / "bin/cxx";
  EXPECT_TRUE(compiler_fact(options, Fact{}, nothing).known);
  options.compiler = "env " + temporary_ / "bin/cxx";
  EXPECT_TRUE(compiler_fact(options, Fact{}, nothing).known);
  const std::string marker = read_text(temporary_ / "out/marker");
  EXPECT_FALSE(marker.empty());
  EXPECT_EQ(marker.find("0\n"), std::string::npos) << marker;
  give(temporary_ / "bin/cxx", kOther);
  EXPECT_NE(compiler_fact(options, Fact{}, nothing).problem.find("not run by root"), std::string::npos);
}

}  // namespace
}  // namespace inductorfs::fingerprint
