// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/fail_point.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "inductorfs/base/number.h"

namespace inductorfs {
namespace {

constexpr const char* kListVariable = "INDUCTORFS_FAIL_POINT";
constexpr const char* kOnceVariable = "INDUCTORFS_FAIL_POINT_ONCE";
constexpr size_t kMostArmed = 16;
constexpr std::array<std::pair<std::string_view, int>, 10> kErrors = {{{"EIO", EIO},
                                                                       {"ENOSPC", ENOSPC},
                                                                       {"EROFS", EROFS},
                                                                       {"EDQUOT", EDQUOT},
                                                                       {"EMFILE", EMFILE},
                                                                       {"ENFILE", ENFILE},
                                                                       {"ENOMEM", ENOMEM},
                                                                       {"EACCES", EACCES},
                                                                       {"ENOSYS", ENOSYS},
                                                                       {"EOPNOTSUPP", EOPNOTSUPP}}};

/// Written while nothing is armed, then only counted in.
struct Armed {
  std::string name;
  uint64_t nth = 1;
  int error = 0;  ///< 0: kill
  std::atomic<uint64_t> reached{0};
};

std::array<Armed, kMostArmed>& table() {
  static std::array<Armed, kMostArmed> armed;
  return armed;
}

bool parse(std::string_view item, Armed& armed) {
  if (const size_t colon = item.rfind(':'); colon != std::string_view::npos) {
    if (!parse_number(item.substr(colon + 1), armed.nth) || armed.nth == 0) return false;
    item = item.substr(0, colon);
  }
  if (const size_t equal = item.find('='); equal != std::string_view::npos) {
    for (const auto& [name, number] : kErrors) {
      if (name == item.substr(equal + 1)) armed.error = number;
    }
    if (armed.error == 0) return false;
    item = item.substr(0, equal);
  }
  armed.name = item;
  return !item.empty();
}

/// False: another process has been killed here already, and that was to be all.
bool is_first_kill() {
  const char* const once = std::getenv(kOnceVariable);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (once == nullptr) return true;
  const int file = ::open(once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return false;
  (void)::close(file);
  return true;
}

[[maybe_unused]] const bool armed_by_environment = [] {
  const char* const list = std::getenv(kListVariable);  // NOLINT(concurrency-mt-unsafe): before main
  if (list == nullptr) return false;
  if (const auto armed = arm_fail_points(list); !armed) {
    (void)std::fputs((armed.error().what() + "\n").c_str(), stderr);
    ::_exit(2);  // a test that is misspelt must not pass
  }
  return true;
}();

}  // namespace

namespace detail {

std::atomic<bool> fail_points_armed{false};

void reach_fail_point(const char* name) noexcept {
  for (Armed& armed : table()) {
    if (armed.name != name || armed.error != 0) continue;
    if (armed.reached.fetch_add(1) + 1 != armed.nth || !is_first_kill()) continue;
    (void)::kill(::getpid(), SIGKILL);
    for (;;) (void)::pause();  // the signal may go to another thread first; this one must not take a further step
  }
}

int reach_fail_point_error(const char* name) noexcept {
  for (Armed& armed : table()) {
    if (armed.name == name && armed.error != 0 && armed.reached.fetch_add(1) + 1 >= armed.nth) return armed.error;
  }
  return 0;
}

}  // namespace detail

std::string fail_point_directory() {
  const char* const once = std::getenv(kOnceVariable);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  const std::string_view path = once == nullptr ? "" : once;
  return std::string(path.substr(0, std::min(path.rfind('/'), path.size())));
}

Result<void> arm_fail_points(std::string_view list) {
  detail::fail_points_armed = false;
  for (Armed& armed : table()) {
    armed.name.clear();
    armed.nth = 1;
    armed.error = 0;
    armed.reached = 0;
  }
  size_t count = 0;
  for (std::string_view rest = list; !rest.empty();) {
    const size_t end = rest.find(',');
    if (count == kMostArmed || !parse(rest.substr(0, end), table()[count++])) {
      for (Armed& armed : table()) armed.name.clear();
      return fail(ErrorCode::kInvalid,
                  std::string(kListVariable) + ": not a list of fail points: " + std::string(list));
    }
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  }
  detail::fail_points_armed = count > 0;
  return {};
}

}  // namespace inductorfs
