// SPDX-License-Identifier: Apache-2.0
#include "cli/common/answers.h"

#include <cerrno>
#include <cstdio>

#include "cli/common/shell_word.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/mount/process.h"

namespace inductorfs::cli {

int fail_with(const Error& error) {
  (void)::fputs(mount::error_line(error).c_str(), stderr);
  return kExitFailed;
}

config::Json error_json(const Error& error) {
  const std::string what = error.what().empty() ? std::string(to_string(error.code())) : error.what();
  return config::Json::object({{"error", what}, {"code", to_string(error.code())}});
}

int fail_options(const Error& error, bool json) { return fail_query(mount::wrong_option(error).value(), json); }

int fail_query(const Error& error, bool json) {
  if (json) (void)print(config::to_pretty(error_json(error)) + "\n");
  (void)fail_with(error);
  return mount::exit_code_of(error);
}

int print(const std::string& text) {
  if (::fputs(text.c_str(), stdout) >= 0 && ::fflush(stdout) == 0) return kExitDone;
  return fail_with(error_from_errno(errno, "write", "standard output"));
}

std::string pretty(const std::string& json) { return config::to_pretty(config::from_text(json)) + "\n"; }

std::string absolute(const std::string& path) { return config::absolute_path(path, config::working_directory()); }

Error on_the_way(const std::string& mountpoint, const Error& error) {
  if (error.code() == ErrorCode::kTimedOut) {
    return Error(ErrorCode::kTimedOut, "the daemon did not answer in time: " + mountpoint + ": see its log");
  }
  return error;
}

Result<std::string> ask_daemon(const Located& mount, const std::string& request, Milliseconds patience,
                               const config::Environment& environment) {
  const Result<std::string> answer = ask_any_worker(mount, request, Deadline::after(patience), environment);
  if (!answer) return fail(on_the_way(mount.mountpoint, answer.error()));
  return control::parse_answer(*answer);
}

config::Json statuses(const std::vector<Located>& mounts, Milliseconds patience,
                      const config::Environment& environment) {
  constexpr int kSome = 4;
  const Deadline deadline = Deadline::after(kSome * patience);
  config::Json all = config::Json::array();
  for (const Located& mount : mounts) {
    const auto ask = [&]() -> Result<std::string> {
      if (!mount.why_missing.empty()) return fail(ErrorCode::kUnavailable, mount.why_missing);
      if (deadline.passed()) {
        return fail(ErrorCode::kUnavailable,
                    "other mounts took too long to answer: run inductorfs status " + shell_word(mount.mountpoint));
      }
      if (!mount.socket.empty()) return ask_daemon(mount, control::status_request(), patience, environment);
      return ask_daemon_at(mount.mountpoint, control::status_request(), patience, environment);  // says why it cannot
    };
    const auto status = ask();
    config::Json one = status ? config::from_text(*status) : config::Json::object();
    if (!one.is_object()) one = config::Json::object();
    one["mountpoint"] = mount.mountpoint;
    if (!status) one.update(error_json(status.error()));
    if (!status && status.error().code() == ErrorCode::kNotSupported) one["elsewhere"] = true;
    all.push_back(std::move(one));
  }
  return all;
}

Result<std::string> ask_daemon_at(const std::string& mountpoint, const std::string& request, Milliseconds patience,
                                  const config::Environment& environment) {
  INDUCTORFS_TRY_ASSIGN(const auto mount, locate_mount(absolute(mountpoint), environment));
  return ask_daemon(mount, request, patience, environment);
}

}  // namespace inductorfs::cli
