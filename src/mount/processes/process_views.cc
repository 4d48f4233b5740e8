// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/process_views.h"

#include <algorithm>
#include <utility>

namespace inductorfs::mount {
namespace {

/// Leaves room for one more: the one that was looked at first goes.
template <typename Map, typename Time>
void make_room(Map& map, pid_t key, Time time) {
  if (map.size() < ProcessViews::kMostProcesses || map.contains(key)) return;
  map.erase(std::ranges::min_element(map, {}, [&](const auto& one) { return one.second.*time; }));
}

}  // namespace

ProcessViews::ProcessViews(std::string mountpoint, ViewSources sources, const Clock& clock)
    : mountpoint_(std::move(mountpoint)), sources_(std::move(sources)), clock_(clock) {}

std::string ProcessViews::path_for(pid_t thread, std::string_view path) {
  std::string usual = mountpoint_;
  if (!path.empty()) usual.append("/").append(path);
  const SteadyTime now = clock_.now();
  const auto process = thread > 0 ? process_of(thread, now) : std::nullopt;
  if (process && process->is_ours) return {};
  const auto paths = process ? paths_of(*process, now) : nullptr;
  return paths ? paths->path_of(path, usual).value_or(usual) : usual;
}

uint64_t ProcessViews::lists_read() const {
  return state_.with([](const State& state) { return state.lists_read; });
}

/// The device is known when the mount stands, and stays with it.
std::string ProcessViews::device() {
  std::string known = state_.with([](const State& state) { return state.device; });
  if (!known.empty()) return known;
  const std::vector<MountEntry> table = sources_.own_mounts();
  const MountEntry* const own = find_mount_at(table, mountpoint_);
  if (own == nullptr || !own->is_ours() || own->root != "/") return {};
  state_.with([&](State& state) { state.device = own->device; });
  return own->device;
}

std::optional<ViewedProcess> ProcessViews::process_of(pid_t thread, SteadyTime now) {
  auto known = state_.with([&](const State& state) -> std::optional<ViewedProcess> {
    const auto found = state.threads.find(thread);
    const bool is_fresh = found != state.threads.end() && now - found->second.checked_at < kTrust;
    return is_fresh ? std::optional(found->second.process) : std::nullopt;
  });
  if (known) return known;
  auto process = sources_.process_of(thread);
  if (!process) return std::nullopt;
  state_.with([&](State& state) {
    make_room(state.threads, thread, &Thread::checked_at);
    state.threads[thread] = {*process, now};
  });
  return process;
}

ProcessViews::Paths ProcessViews::paths_of(const ViewedProcess& process, SteadyTime now) {
  const auto known = state_.with([&](const State& state) -> std::optional<Paths> {
    const auto found = state.processes.find(process.pid);
    const bool is_same = found != state.processes.end() && found->second.start == process.start;
    return is_same && now - found->second.read_at < kAge ? std::optional(found->second.paths) : std::nullopt;
  });
  if (known) return *known;
  const std::string device = this->device();
  if (device.empty()) return nullptr;
  const auto text = sources_.mounts_of(process.pid);
  // That nobody has told is remembered, too: who asks next must not wait for the same.
  Paths paths;
  if (text && text->size() <= kMostBytes) {
    paths = std::make_shared<const MountPaths>(parse_mount_table(*text), device);
  }
  state_.with([&](State& state) {
    ++state.lists_read;
    make_room(state.processes, process.pid, &Known::read_at);
    state.processes[process.pid] = {process.start, paths, now};
  });
  return paths;
}

}  // namespace inductorfs::mount
