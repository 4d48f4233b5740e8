// SPDX-License-Identifier: Apache-2.0
#include "vfs/recover/follow_up.h"

#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/log.h"
#include "inductorfs/layout/layout.h"
#include "vfs/tree/parcel_mark.h"
#include "vfs/tree/view_files.h"

namespace inductorfs::vfs {

void FollowUp::run(const std::stop_token& stop) {
  refresh_kernel("", tree_.root(), stop);
  fail_point("takeover.kernel_told");
  look_below("", stop);
  phase_.notify_with([](Resuming& resuming) { resuming = Resuming::kNo; });
  fail_point("takeover.finished");
  log::info("view.resumed", {{"nodes", static_cast<uint64_t>(nodes_.size())}});
}

/// The catalog may have changed between the last notice to the kernel and now: an absence that the kernel keeps would
/// stay for ever.
void FollowUp::refresh_kernel(const std::string& path, const NodePtr& directory, const std::stop_token& stop) {
  for (const auto& child : catalog_.list(layout::name_of(path))) {
    if (stop.stop_requested()) return;
    if (!nodes_.child(directory, child.name)) notifier_.forget_name(directory->id, child.name);
  }
  notifier_.forget_content(directory->id);
  for (const auto& [name, child] : nodes_.children(directory)) {
    const std::string child_path = path.empty() ? name : join(path, name);
    if (child->is_directory()) {
      refresh_kernel(child_path, child, stop);
      continue;
    }
    const bool replaced = child->content.with([&](const Content& content) {
      if (content.backing != Backing::kShared) return false;
      const auto known = catalog_.find(layout::name_of(child_path));
      return !known || known->entry.digest != content.entry.digest;
    });
    if (replaced) changes_.apply(child_path);
    // The worker before found it damaged, and was killed before it told.
    const auto lost = child->content.with([&](const Content& content) {
      const bool is_gone = content.backing == Backing::kShared && !store_.find(content.entry.digest);
      return is_gone ? std::optional(content.entry.digest) : std::nullopt;
    });
    if (lost) changes_.drop_shown(*lost);
  }
}

void FollowUp::look_below(const std::string& path, const std::stop_token& stop) {
  const auto items = tree_.list_in_view(path);
  if (!items || stop.stop_requested()) return;
  for (const auto& item : *items) {
    const std::string child = path.empty() ? item.name : join(path, item.name);
    if (item.type == S_IFDIR && is_parcel(child, item.type)) {
      look_at_parcel(child);
      continue;
    }
    if (item.type == S_IFDIR) look_below(child, stop);
    if (item.type == S_IFREG) look_at_file(path, item.name, *items);
  }
  if (layout::is_triton_key_directory(path)) look_at_set(path);
}

void FollowUp::look_at_parcel(const std::string& path) {
  if (pins_parcel(path) || is_changed_parcel(disk_, LocalTree::view(path))) return;
  // One that was given its name, and the worker was killed before it was sealed.
  const Provenance found = marks_.read(LocalTree::view(path));
  if (found.is_known() && !found.is_private()) sealing_.seal_later(path);
}

/// Keeps the blob of a parcel that is as it was when it was sealed or unpacked; false when this is none.
bool FollowUp::pins_parcel(const std::string& path) {
  const auto mark = parcel_mark_of(disk_, LocalTree::view(path));
  if (mark) pins_.with([&](Pins& pins) { pins.sealed_paths.try_emplace(mark->digest, path); });
  if (mark && !mark->fetched && sealing_.may_be_unpublished(path)) sealing_.publish_again(path);
  return mark.has_value();
}

void FollowUp::look_at_set(const std::string& path) {
  const auto names = kernel_files(disk_, path);
  const bool is_open = std::any_of(names.begin(), names.end(),
                                   [&](const auto& name) { return seal_on_disk(disk_, join(path, name)).empty(); });
  const auto is_lost = [&](const auto& name) { return sealing_.may_be_unpublished(join(path, name)); };
  if (!is_open && std::ranges::any_of(names, is_lost)) sealing_.publish_again(path);
  // Somebody may be writing to one, also where files of the set are still to come.
  if (is_open && !in_place_.add_left_set(path, names) && local_set_is_whole(disk_, path).value_or(true))
    sealing_.seal_later(path);
}

void FollowUp::look_at_file(const std::string& directory, const std::string& name,
                            const std::vector<LocalTree::Item>& siblings) {
  const std::string path = directory.empty() ? name : join(directory, name);
  const auto& rule = layout::rule_of(layout::classify(path).family);
  if (!rule.shared) return;
  const std::string place = LocalTree::view(path);
  if (rule.form == layout::Form::kIndex && (pins_parcel(path) || is_changed_parcel(disk_, place))) return;
  const auto file = disk_.open_file(place, false);
  if (!file) return;
  const auto read = seal_of(file->get());
  if (!read) return;  // a takeover: it stays as it was, until the next one
  if (const auto& seal = *read) {
    const auto digest = codec::Digest::from_hex(*seal);
    if (digest) pins_.with([&](Pins& pins) { pins.sealed_paths.try_emplace(*digest, path); });
    if (!digest) damage_.note_left();
    const bool in_set = layout::classify(path).family == layout::Family::kTritonKernel;  // look_at_set
    if (digest && !in_set && sealing_.may_be_unpublished(path)) sealing_.publish_again(path);
    return;
  }
  if (is_changed(file->get()) || layout::classify(path).family == layout::Family::kTritonKernel) return;
  // Its compiler is at work: the end of that seals it.
  if (is_being_built(directory, name, siblings)) return;
  const Provenance found = marks_.read(place);
  if (!found.is_known() && marks_.everyone_fits()) {
    Provenance now;
    now.add_scope(scopes_.scope_of(path, layout::classify(path).family).id);
    marks_.write(place, found, now);
  }
  if (in_place_.add_left(path)) return;  // somebody may be writing to it
  auto node = lookup_.pin_path(path);
  if (!node) return;
  if (seals_when_quiet(path)) {
    seal_queue_.add_quiet({*node, path, false});
  } else {
    seal_queue_.add({*node, path, false});
  }
  tree_.unpin(*node);
}

}  // namespace inductorfs::vfs
