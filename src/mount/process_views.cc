// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/process_views.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/base/process_start.h"

namespace inductorfs::mount {
namespace {

constexpr uint64_t kStatLimit = 4096;

}  // namespace

ProcessViews::ProcessViews(std::string mountpoint, pid_t own_process, std::string proc, const Clock& clock)
    : mountpoint_(std::move(mountpoint)), own_process_(own_process), proc_(std::move(proc)), clock_(clock) {}

std::string ProcessViews::path_for(pid_t thread, std::string_view path) {
  std::string usual = mountpoint_;
  if (!path.empty()) usual.append("/").append(path);
  const auto paths = thread > 0 ? paths_of(thread) : nullptr;
  if (paths == own_children_) return {};
  return paths ? paths->path_of(path, usual).value_or(usual) : usual;
}

uint64_t ProcessViews::lists_read() const {
  return state_.with([](const State& state) { return state.lists_read; });
}

/// The device is known when the mount stands, and stays with it.
std::string ProcessViews::device() {
  std::string known = state_.with([](const State& state) { return state.device; });
  if (!known.empty()) return known;
  const auto table = read_mounts_of(proc_, "self", kMostBytes);
  const MountEntry* const own = table ? find_mount_at(*table, mountpoint_) : nullptr;
  if (own == nullptr || !own->is_ours() || own->root != "/") return {};
  state_.with([&](State& state) { state.device = own->device; });
  return own->device;
}

std::shared_ptr<const MountPaths> ProcessViews::recall(pid_t thread, std::optional<uint64_t> start, SteadyTime now) {
  return state_.with([&](State& state) -> std::shared_ptr<const MountPaths> {
    const auto found = state.threads.find(thread);
    if (found == state.threads.end() || now - found->second.read_at >= kAge) return nullptr;
    Known& known = found->second;
    if (!start) return now - known.checked_at < kTrust ? known.paths : nullptr;
    if (known.start != *start) return nullptr;
    known.checked_at = now;
    return known.paths;
  });
}

std::shared_ptr<const MountPaths> ProcessViews::read_paths(const std::string& thread) {
  const std::string device = this->device();
  const auto table = read_mounts_of(proc_, thread, kMostBytes);
  if (device.empty() || !table) return nullptr;
  return std::make_shared<const MountPaths>(*table, device);
}

std::shared_ptr<const MountPaths> ProcessViews::paths_of(pid_t thread) {
  const SteadyTime now = clock_.now();
  if (auto known = recall(thread, std::nullopt, now)) return known;
  const std::string name = std::to_string(thread);
  const auto stat = read_file(AT_FDCWD, proc_ + "/" + name + "/stat", kStatLimit);
  const auto start = stat ? start_in_stat(*stat) : std::nullopt;
  if (!start) return nullptr;
  if (auto known = recall(thread, start, now)) return known;
  auto paths = parent_in_stat(*stat) == own_process_ ? own_children_ : read_paths(name);
  if (!paths) return nullptr;
  state_.with([&](State& state) {
    ++state.lists_read;
    if (state.threads.size() >= kMostProcesses && !state.threads.contains(thread)) {
      state.threads.erase(std::min_element(
          state.threads.begin(), state.threads.end(),
          [](const auto& one, const auto& other) { return one.second.checked_at < other.second.checked_at; }));
    }
    state.threads[thread] = {*start, paths, now, now};
  });
  return paths;
}

}  // namespace inductorfs::mount
