// SPDX-License-Identifier: Apache-2.0
#include "stuck_proc.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "writers_fixture.h"

namespace inductorfs::fingerprint::testing {

namespace fs = std::filesystem;

StuckProc::StuckProc(std::string proc) : proc_(std::move(proc)), maps_(proc_ + "/" + std::to_string(kStuck) + "/maps") {
  add(kStuck);
  EXPECT_EQ(mkfifo(maps_.c_str(), 0600), 0);
}

void StuckProc::set_size(pid_t pid, pid_t parent, uint64_t bytes) const {
  std::string stat = std::to_string(pid) + " (job) S " + std::to_string(parent);
  for (int field = 5; field <= 52; ++field) {
    stat += " " + std::to_string(field == 22 ? 100 : (field == 23 ? bytes : 0));
  }
  write_text(proc_ + "/" + std::to_string(pid) + "/stat", stat + "\n");
}

void StuckProc::add(pid_t pid, pid_t parent) const {
  const std::string folder = proc_ + "/" + std::to_string(pid);
  set_size(pid, parent, 0);
  write_text(folder + "/status", "Name:\tx\nTgid:\t" + std::to_string(pid) + "\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n");
  write_text(folder + "/environ", "");
  fs::create_symlink("/", folder + "/root");
  fs::create_directories(folder + "/ns");
  fs::create_symlink(fs::read_symlink("/proc/self/ns/mnt"), folder + "/ns/mnt");
}

Fd StuckProc::who_waits() const { return Fd(::open(maps_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)); }

bool StuckProc::let_go(const std::string& maps) const {
  const Fd fd = who_waits();
  if (!fd) return false;
  (void)!::write(fd.get(), maps.data(), maps.size());
  return true;
}

bool StuckProc::unlock(const std::string& maps) const {
  const Fd fd = who_waits();
  if (!fd) return false;
  write_text(proc_ + "/maps", maps);
  fs::rename(proc_ + "/maps", maps_);
  (void)!::write(fd.get(), maps.data(), maps.size());
  return true;
}

}  // namespace inductorfs::fingerprint::testing
