// SPDX-License-Identifier: Apache-2.0
#include "vfs/origin/refusals.h"

#include <algorithm>

#include "inductorfs/base/log.h"
#include "inductorfs/layout/layout.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/paths.h"
#include "vfs/tree/user_lines.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kKept = 20;

}  // namespace

void Refusals::add(const std::string& path, const std::string& why, std::optional<uid_t> owner) {
  const std::string shown = shown_path(path);
  const std::string text = shown + ": " + why;
  const bool is_new = lines_.with([&](std::vector<Line>& lines) {
    // One file that is refused again and again must not push out the others.
    const auto known = std::find_if(lines.begin(), lines.end(), [&](const Line& line) { return line.path == path; });
    const bool same = known != lines.end() && known->text == text;
    if (known != lines.end()) lines.erase(known);
    lines.push_back({path, text, why, owner});
    if (lines.size() > kKept) lines.erase(std::ranges::find(lines, owner_of_most(lines), &Line::owner));
    return !same;
  });
  if (is_new) counters_.get("seal.refused").add();
  log::write_limited(log::Level::kWarning, "seal.refused", {{"path", shown}, {"why", why}});
}

/// A job makes as many directories as it has kernels, and recovery may set many files aside: the first ones are enough.
void Refusals::note(const std::string& text, std::optional<uid_t> owner) {
  lines_.with([&](std::vector<Line>& lines) {
    if (std::any_of(lines.begin(), lines.end(), [&](const Line& line) { return line.text == text; })) return;
    lines.push_back({{}, text, {}, owner});
    if (lines.size() <= kKept) return;
    const auto most = owner_of_most(lines);
    lines.erase(most == owner ? lines.end() - 1 : std::ranges::find(lines, most, &Line::owner));
  });
}

void Refusals::note_if_hidden(const std::string& path, const LocalTree& disk) {
  const std::string hidden = layout::hidden_root(path);
  const auto status = hidden.empty() ? std::nullopt : disk.stat(LocalTree::view(hidden)).value_or(std::nullopt);
  if (!status) return;
  // tempfile.mkdtemp makes directories of mode 0700. Of 400 of its names one begins with "tmp_" and has no digit.
  const std::string name = last_component(hidden);
  const bool is_in_words = name.starts_with("tmp_") && name.find_first_of("0123456789") == std::string::npos;
  if ((status->st_mode & 07777) == 0700 && !is_in_words) return;
  note(shown_path(hidden) + ": its name has the form of Python's temporary directories (tmp and 8 characters), so " +
           "nothing below it is shared; give it another name",
       status->st_uid);
}

std::vector<std::string> Refusals::lines() const {
  return lines_.with([](const std::vector<Line>& lines) {
    std::vector<std::string> texts;
    for (const Line& line : lines) texts.push_back(line.text);
    return texts;
  });
}

std::string Refusals::why_refused(const std::string& path) const {
  return lines_.with([&](const std::vector<Line>& lines) {
    const auto known = std::ranges::find(lines, path, &Line::path);
    return known == lines.end() ? std::string() : known->why;
  });
}

}  // namespace inductorfs::vfs
