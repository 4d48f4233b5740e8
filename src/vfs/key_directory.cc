// SPDX-License-Identifier: Apache-2.0
#include "vfs/key_directory.h"

#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "inductorfs/base/fd.h"

namespace inductorfs::vfs {

std::set<std::string> KeyState::WriterSet::names() const {
  std::set<std::string> result;
  for (const auto& [name, put] : files) result.insert(name);
  return result;
}

bool KeyState::WriterSet::is_of_one_thread() const {
  if (std::ranges::none_of(files, [](const auto& file) { return file.second.disputed; })) return true;
  const pid_t thread = files.begin()->second.thread;
  return thread != 0 && std::ranges::all_of(files, [&](const auto& file) { return file.second.thread == thread; });
}

pid_t thread_group_of(pid_t thread) {
  constexpr uint64_t kStatusLimit = uint64_t{16} * 1024;
  if (thread <= 0) return 0;
  // A FUSE request carries the thread's id, not the process's (linux fs/fuse/dev.c: fuse_get_req).
  const auto status = read_file(AT_FDCWD, "/proc/" + std::to_string(thread) + "/status", kStatusLimit);
  if (!status) return 0;
  constexpr std::string_view kKey = "\nTgid:\t";
  const size_t at = status->find(kKey);
  if (at == std::string::npos) return 0;
  pid_t group = 0;
  const char* begin = status->data() + at + kKey.size();
  (void)std::from_chars(begin, status->data() + status->size(), group);  // 0 stays when it is no number
  return group;
}

bool process_is_gone(pid_t process) { return process > 0 && ::kill(process, 0) != 0 && errno == ESRCH; }

}  // namespace inductorfs::vfs
