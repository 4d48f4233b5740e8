// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <thread>

#include "cli_fixture.h"
#include "inductorfs/base/text.h"
#include "inductorfs/config/json.h"
#include "inductorfs/control/socket.h"

/// The built program, run as a user runs it: exit codes, the one line of an error, mounts that come and go.
namespace inductorfs::cli {

using config::Json;

namespace {

TEST_F(Cli, PrintsItsVersion) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out.find("inductorfs "), 0U);
}

TEST_F(Cli, AnswersAWrongCommandLineWithCodeTwo) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {}, {"mount"}, {"paint"}, {"mount", mount_, "--threads", "none"}, {"status", mount_, "--what"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_TRUE(is_one_line(outcome.err)) << outcome.err;
  }
}

TEST_F(Cli, RefusesABadMountInOneLine) {
  expect_refusal(run({"mount", directory_ / "absent", "--store", store_, "--fingerprint", facts_}),
                 {directory_ / "absent", "mkdir -p"}, 2);
  expect_refusal(run({"mount", facts_, "--store", store_, "--fingerprint", facts_}), {facts_, "directory"}, 2);
  expect_refusal(run(mount_arguments({"--remote", "http://x"})), {"http"}, 2);
  expect_refusal(run(mount_arguments({"--remote", "redis://h", "--password-file", "/no/such/file"})), {"/no/such/file"},
                 2);
  expect_refusal(run(mount_arguments({"--config", "/no/such.toml"})), {"/no/such.toml"}, 2);
  expect_refusal(run({"mount", mount_, "--store", store_, "--fingerprint", store_ + "/none"}), {"fingerprint"}, 2);
  expect_refusal(run({"mount", mount_, "--store", mount_ + "/in"}), {"store"}, 2);
  EXPECT_FALSE(is_mounted());
}

TEST_F(Cli, NamesAnUnknownKeyOfItsConfiguration) {
  const std::string file = directory_ / "c.toml";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "stoer = \"x\"\n").has_value());
  expect_refusal(run(mount_arguments({"--config", file})), {"stoer", file + ":1"}, 2);
}

TEST_F(Cli, SaysThatNothingIsMounted) {
  for (const char* command : {"status", "unmount", "sync", "explain"}) {
    expect_refusal(run({command, mount_}), {mount_});
  }
}

TEST_F(Cli, GivesUpADaemonThatDoesNotGetReady) {
  // An environment whose Triton takes longer than a second to read.
  const std::string python = directory_ / "bin/python3.11";
  const std::string library = directory_ / "lib/python3.11";
  const std::string triton = library + "/site-packages/triton";
  std::map<std::string, std::string> files = {
      {python,
       "\x7f"
       "ELF"},
      {library + "/os.py", ""},
      {library + "/_sysconfigdata_.py", "'SOABI': 'cpython-311-x86_64-linux-gnu'"},
      {triton + "/__init__.py", "__version__ = '3.5.0'\n"}};
  for (const char* name : {"runtime/cache.py", "compiler/__init__.py", "backends/__init__.py", "language/__init__.py",
                           "_C/libtriton.so"}) {
    files[triton + "/" + name];
  }
  for (const auto& [file, text] : files) {
    ASSERT_TRUE(make_directories(parent_of(file)).has_value());
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, text, 0755).has_value());
  }
  ASSERT_EQ(::truncate((triton + "/_C/libtriton.so").c_str(), off_t{4} << 30), 0);
  expect_refusal(run({"mount", mount_, "--store", store_, "--python", python, "--start-timeout", "1"}),
                 {"within 1 s", store_ + "/log"});
  EXPECT_FALSE(is_mounted());
}

TEST_F(CliMount, RefusesADirectoryThatIsNotEmpty) {
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, mount_ + "/x", "x").has_value());
  expect_refusal(run(mount_arguments()), {mount_});
  EXPECT_FALSE(is_mounted());
}

TEST_F(CliMount, ComesAnswersAndGoes) {
  mount();
  ASSERT_TRUE(is_mounted());
  const std::string file = mount_ + "/private.txt";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "hello").has_value());
  EXPECT_EQ(contents(file), "hello");

  const Json facts = status();
  EXPECT_EQ(facts["mountpoint"], mount_);
  EXPECT_EQ(facts["store"]["directory"], store_);
  EXPECT_EQ(facts["remote"]["configured"], false);
  EXPECT_TRUE(facts["counters"].is_object());
  EXPECT_TRUE(facts["also"].empty());
  EXPECT_NE(run({"status", mount_}).out.find(mount_), std::string::npos);
  const Outcome synced = run({"sync", mount_});
  EXPECT_EQ(synced.code, 0) << synced.err;
  EXPECT_EQ(synced.out, "all that was written is complete; nothing is shared, because the mount has no --remote\n");

  const Outcome unmounted = run({"unmount", mount_});
  EXPECT_EQ(unmounted.code, 0) << unmounted.err;
  EXPECT_FALSE(is_mounted());
  EXPECT_TRUE(eventually([&] { return is_gone(facts["pid"].get<pid_t>()); }));
  const std::string log = contents(store_ + "/log");
  for (const char* event : {" mount.mounted ", " mount.ready ", " mount.unmounting ", " mount.stopped "}) {
    EXPECT_NE(log.find(event), std::string::npos) << event << log;
  }
}

TEST_F(CliMount, LeavesTheStoreFreeForTheNextMount) {
  for (int round = 0; round < 3; ++round) {
    mount();
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, mount_ + "/kept", std::to_string(round)).has_value());
    ASSERT_EQ(run({"unmount", mount_}).code, 0);
  }
  mount();
  EXPECT_EQ(contents(mount_ + "/kept"), "2");
}

TEST_F(CliMount, ExplainsAPathHoweverItIsSpelled) {
  mount();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, mount_ + "/x.txt", "x").has_value());
  for (const std::string& path : {mount_ + "/x.txt", mount_ + "/./y/../x.txt"}) {
    const Outcome outcome = run({"explain", "--json", path});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json explanation = Json::parse(outcome.out, nullptr, false);
    EXPECT_EQ(explanation["path"], "x.txt");
    EXPECT_FALSE(explanation["family"].get<std::string>().empty());
  }
  EXPECT_EQ(run({"explain", mount_ + "/no/such"}).code, 0);
  expect_refusal(run({"explain", "/etc/passwd"}), {"/etc/passwd"});
}

TEST_F(CliMount, IsFoundThroughASymbolicLink) {
  const std::string link = directory_ / "link";
  ASSERT_EQ(::symlink(mount_.c_str(), link.c_str()), 0);
  std::vector<std::string> arguments = mount_arguments({"--no-also"});
  arguments[1] = link;
  const Outcome mounted = run(arguments);
  ASSERT_EQ(mounted.code, 0) << mounted.err;

  EXPECT_TRUE(is_mounted());
  EXPECT_EQ(run({"status", link}).code, 0);
  EXPECT_EQ(run({"status", mount_}).code, 0);
  EXPECT_EQ(run({"unmount", link}).code, 0);
  EXPECT_FALSE(is_mounted());
}

TEST_F(CliMount, RefusesASecondMountOfTheSamePlaceOrStore) {
  mount();
  expect_refusal(run(mount_arguments({"--no-also"})), {mount_});
  const std::string other = directory_ / "other";
  ASSERT_EQ(::mkdir(other.c_str(), 0755), 0);
  expect_refusal(run({"mount", other, "--no-also", "--store", store_, "--fingerprint", facts_}), {store_, "in use"});
  EXPECT_EQ(run({"status", mount_}).code, 0);
}

TEST_F(CliMount, RefusesToUnmountWhatIsInUse) {
  mount();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, mount_ + "/x", "x").has_value());
  {
    const Result<Fd> user = open_at(AT_FDCWD, mount_ + "/x", O_RDONLY);
    ASSERT_TRUE(user.has_value());
    expect_refusal(run({"unmount", mount_}), {mount_});
    EXPECT_EQ(contents(mount_ + "/x"), "x");
  }
  EXPECT_EQ(run({"unmount", mount_}).code, 0);
}

TEST_F(CliMount, DetachesWhatIsInUseWhenAsked) {
  mount();
  const Result<Fd> user = open_at(AT_FDCWD, mount_, O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(user.has_value());
  EXPECT_EQ(run({"unmount", "--lazy", mount_}).code, 0);
  EXPECT_FALSE(is_mounted());
}

TEST_F(CliMount, EndsCleanlyAtASignal) {
  for (const int number : {SIGTERM, SIGINT}) {
    mount();
    const pid_t pid = daemon_pid();
    ASSERT_GT(pid, 0);
    ASSERT_EQ(::kill(pid, number), 0);
    EXPECT_TRUE(eventually([&] { return is_gone(pid); }));
    EXPECT_FALSE(is_mounted());
  }
}

TEST_F(CliMount, EndsQuicklyAtASecondSignal) {
  mount();
  const pid_t pid = daemon_pid();
  const Result<Fd> user = open_at(AT_FDCWD, mount_, O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(user.has_value());
  ASSERT_EQ(::kill(pid, SIGTERM), 0);
  // The first is taken when the log says so: two at once would be one.
  ASSERT_TRUE(eventually([&] { return ::kill(pid, SIGTERM) != 0 || is_gone(pid); }));
  EXPECT_FALSE(is_mounted());
}

TEST_F(CliMount, ReopensItsLog) {
  mount();
  const pid_t pid = daemon_pid();
  ASSERT_EQ(::rename((store_ + "/log").c_str(), (store_ + "/log.old").c_str()), 0);
  ASSERT_EQ(::kill(pid, SIGHUP), 0);
  EXPECT_TRUE(eventually([&] { return contents(store_ + "/log").find("mount.log_reopened") != std::string::npos; }));
  EXPECT_EQ(run({"status", mount_}).code, 0);
}

TEST_F(CliMount, EndsWhenItIsUnmountedFromOutside) {
  const std::string place = directory_ / "tmp/headers";
  mount({"--also", "headers=" + place});
  const pid_t pid = daemon_pid();
  ASSERT_TRUE(shows_mount(place));

  ASSERT_EQ(::umount2(mount_.c_str(), 0), 0);

  EXPECT_TRUE(eventually([&] { return is_gone(pid); }));
  EXPECT_FALSE(shows_mount(place));
}

TEST_F(CliMount, ShowsADirectoryAtAFurtherPlace) {
  const std::string place = directory_ / "tmp/torchinductor_x/precompiled_headers";
  mount({"--also", "precompiled_headers=" + place});

  ASSERT_TRUE(shows_mount(place));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, place + "/a.txt", "through the place").has_value());
  EXPECT_EQ(contents(mount_ + "/precompiled_headers/a.txt"), "through the place");
  const Json facts = status();
  ASSERT_EQ(facts["also"].size(), 3U);  // and torch's on-disk caches
  EXPECT_EQ(facts["also"][0]["path"], place);
  EXPECT_EQ(facts["also"][0]["state"], "bound");
  const Outcome explained = run({"explain", "--json", place + "/a.txt"});
  ASSERT_EQ(explained.code, 0) << explained.err;
  EXPECT_EQ(Json::parse(explained.out)["path"], "precompiled_headers/a.txt");

  EXPECT_EQ(run({"unmount", mount_}).code, 0);
  EXPECT_FALSE(shows_mount(place));
}

TEST_F(CliMount, ShowsWhatTorchKeepsInItsDefaultDirectory) {
  const std::string temporary = directory_ / "tmpdir";
  ASSERT_EQ(::mkdir(temporary.c_str(), 01777), 0);
  const Outcome outcome = run(mount_arguments(), {"TMPDIR=" + temporary, "LOGNAME=root"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const std::string name : {"precompiled_headers", "cache/should_pad", "cache/inductor_on_disk_cache"}) {
    const std::string place = temporary + "/torchinductor_root/" + name;
    ASSERT_TRUE(shows_mount(place)) << place;
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, place + "/a.txt", name).has_value());
    EXPECT_EQ(contents(mount_ + "/" + name + "/a.txt"), name);
  }
}

TEST_F(CliMount, MountsAllTheSameWhenAPlaceCannotBeHad) {
  mount({"--also", "headers=/dev/null/x"});
  const Json facts = status();
  EXPECT_EQ(facts["also"][0]["state"].get<std::string>().find("failed: "), 0U);
  EXPECT_FALSE(facts["warnings"].empty());
}

TEST_F(CliMount, ReplacesWhatADeadDaemonLeft) {
  const std::string place = directory_ / "tmp/headers";
  mount({"--also", "headers=" + place});
  kill_daemon();
  ASSERT_TRUE(is_mounted());
  expect_refusal(run({"status", mount_}), {mount_, "unmount --lazy"});

  mount({"--also", "headers=" + place});

  EXPECT_TRUE(shows_mount(place));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, place + "/x", "alive").has_value());
  EXPECT_EQ(run({"unmount", mount_}).code, 0);
  EXPECT_FALSE(is_mounted());
  EXPECT_FALSE(shows_mount(place));
}

TEST_F(CliMount, UnmountsAMountWithoutADaemon) {
  const std::string place = directory_ / "tmp/headers";
  mount({"--also", "headers=" + place});
  kill_daemon();

  const Outcome outcome = run({"unmount", "--lazy", mount_});

  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(is_mounted());
  EXPECT_FALSE(shows_mount(place));
}

TEST_F(CliMount, TakesAnAbsentServerAsAWarningAndKeepsItsSecret) {
  const std::string secret = directory_ / "secret";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, secret, "s3cret-of-file\n").has_value());
  ASSERT_EQ(::chmod(secret.c_str(), 0600), 0);
  mount({"--no-also", "--remote", "unix:///no/such/socket", "--password-file", secret, "--log-level", "debug"},
        "inductorfs: warning: the remote cannot be reached: unix:///no/such/socket: ");

  const Outcome json = run({"status", "--json", mount_});
  EXPECT_EQ(Json::parse(json.out)["remote"]["reachable"], false);
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, mount_ + "/x", "x").has_value());
  EXPECT_EQ(json.out.find("s3cret"), std::string::npos);
  EXPECT_EQ(run({"unmount", mount_}).code, 0);
  const std::string log = contents(store_ + "/log");
  EXPECT_NE(log.find("the remote cannot be reached: "), std::string::npos) << log;
  EXPECT_EQ(log.find("s3cret"), std::string::npos);
}

TEST_F(CliMount, HidesThePasswordOfItsUrl) {
  mount({"--no-also", "--remote", "redis://user:pass-word@127.0.0.1:1/0", "--log-level", "debug"},
        "inductorfs: warning: the remote cannot be reached: redis://***@127.0.0.1:1/0: ");
  const pid_t pid = daemon_pid();
  EXPECT_EQ(contents("/proc/" + std::to_string(pid) + "/cmdline").find("pass-word"), std::string::npos);
  EXPECT_EQ(run({"status", "--json", mount_}).out.find("pass-word"), std::string::npos);
  EXPECT_EQ(run({"unmount", mount_}).code, 0);
  EXPECT_EQ(contents(store_ + "/log").find("pass-word"), std::string::npos);
}

TEST_F(CliMount, RefusesAServerThatIsNoRedis) {
  const std::string path = directory_ / "server";
  const Result<Fd> listener = control::listen_at(path, 8);
  ASSERT_TRUE(listener.has_value());
  std::jthread server([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (!control::wait_for(listener->get(), POLLIN, Deadline::after(Milliseconds(50)))) continue;
      const Fd connection(::accept(listener->get(), nullptr, nullptr));
      (void)control::receive_line(connection.get(), 1 << 16, Deadline::after(Milliseconds(500)));
      (void)control::send_line(connection.get(), "HTTP/1.1 400 Bad Request\r\n\r", Deadline::after(Milliseconds(500)));
    }
  });

  expect_refusal(run(mount_arguments({"--no-also", "--remote", "unix://" + path})), {path}, 2);

  EXPECT_FALSE(is_mounted());
}

TEST_F(CliMount, TellsSystemdFromTheForeground) {
  const std::string path = directory_ / "notify";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0777), 0);  // as systemd's own

  const pid_t pid = start(mount_arguments({"--no-also", "--foreground"}), directory_ / "out1", directory_ / "err1",
                          {"NOTIFY_SOCKET=" + path});
  started_.push_back(pid);
  ASSERT_TRUE(control::wait_for(socket.get(), POLLIN, Deadline::after(kPatience)));
  std::array<char, 256> word{};
  ASSERT_GT(::recv(socket.get(), word.data(), word.size() - 1, 0), 0);

  EXPECT_EQ(std::string(word.data()).find("READY=1\n"), 0U) << word.data();
  EXPECT_TRUE(is_mounted());
  EXPECT_EQ(supervisor_pid(), pid) << "what systemd takes for the main process";
  ASSERT_EQ(::kill(pid, SIGTERM), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  started_.clear();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(is_mounted());
  EXPECT_NE(contents(directory_ / "err1").find(" mount.ready "), std::string::npos);
}

}  // namespace
}  // namespace inductorfs::cli
