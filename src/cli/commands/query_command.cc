// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/query_command.h"

#include <utility>
#include <vector>

#include "inductorfs/config/text.h"
#include "inductorfs/control/requests.h"

namespace inductorfs::cli {
namespace {

/// The mount that a command is about: that of the path, or the only one of this host.
Result<Located> mount_for(const std::string& path, const config::Environment& environment) {
  if (!path.empty()) return locate_mount(absolute(path), environment);
  std::vector<Located> mounts = all_mounts(environment);
  if (mounts.size() == 1) return std::move(mounts.front());
  if (mounts.empty()) {
    return fail(ErrorCode::kNotFound, "there is no inductorfs mount of this user or of root: see inductorfs mount");
  }
  std::string names;
  for (const Located& mount : mounts) names += (names.empty() ? "" : ", ") + config::printable(mount.mountpoint);
  return fail(ErrorCode::kInvalid, "several mounts are here: name one of " + names);
}

}  // namespace

void QueryCommand::add_to(Words& words) {
  words.add_path("MOUNTPOINT", path_, "directory of the mount; not needed where there is only one");
  words.add_json(json_);
}

int QueryCommand::run(const config::Environment& environment) {
  const auto mount = mount_for(path_, environment);
  if (!mount) return fail_query(mount.error(), json_);
  const Result<std::string> answer = ask(*mount, environment);
  if (!answer) return fail_query(answer.error(), json_);
  return print(json_ ? pretty(*answer) : text(*answer));
}

}  // namespace inductorfs::cli
