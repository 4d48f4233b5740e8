// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/refusals.h"

#include <algorithm>

#include "inductorfs/base/log.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kKept = 20;

}  // namespace

void Refusals::add(const std::string& path, const std::string& why) {
  counters_.get("seal.refused").add();
  lines_.with([&](std::vector<std::string>& lines) {
    if (lines.size() >= kKept) lines.erase(lines.begin());
    lines.push_back(path + ": " + why);
  });
  log::write_limited(log::Level::kWarning, "seal.refused", {{"path", path}, {"why", why}});
}

/// A job makes as many directories as it has kernels, and recovery may set many files aside: the first ones are enough.
void Refusals::note(const std::string& line) {
  lines_.with([&](std::vector<std::string>& lines) {
    if (lines.size() < kKept && std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  });
}

std::vector<std::string> Refusals::lines() const {
  return lines_.with([](const std::vector<std::string>& lines) { return lines; });
}

}  // namespace inductorfs::vfs
