// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/descriptor_cache.h"

namespace inductorfs::vfs {

int DescriptorCache::Descriptor::file() const {
  const auto* blob = std::get_if<store::BlobFile>(&open);
  return blob != nullptr ? blob->file() : std::get<Fd>(open).get();
}

Result<size_t> DescriptorCache::Descriptor::read(char* out, size_t size, uint64_t at) const {
  const auto* blob = std::get_if<store::BlobFile>(&open);
  return blob != nullptr ? blob->read(out, size, at) : pread_full(std::get<Fd>(open).get(), out, size, at);
}

DescriptorCache::Pointer DescriptorCache::find(NodeId node, bool writable) {
  return state_.with([&](State& state) -> Pointer {
    const auto found = state.slots.find(static_cast<uint64_t>(node));
    if (found == state.slots.end() || (writable && !found->second.descriptor->writable)) return nullptr;
    state.order.splice(state.order.begin(), state.order, found->second.place);
    return found->second.descriptor;
  });
}

DescriptorCache::Pointer DescriptorCache::put(NodeId node, std::variant<Fd, store::BlobFile> open, bool writable) {
  auto descriptor = std::make_shared<const Descriptor>(Descriptor{std::move(open), writable});
  Pointer closed_outside_the_lock;
  state_.with([&](State& state) {
    const auto key = static_cast<uint64_t>(node);
    if (const auto found = state.slots.find(key); found != state.slots.end()) {
      closed_outside_the_lock = std::exchange(found->second.descriptor, descriptor);
      state.order.splice(state.order.begin(), state.order, found->second.place);
      return;
    }
    state.order.push_front(node);
    state.slots.emplace(key, Cached{descriptor, state.order.begin()});
    if (state.slots.size() > limit_) {
      const auto last = state.slots.find(static_cast<uint64_t>(state.order.back()));
      closed_outside_the_lock = std::move(last->second.descriptor);
      state.slots.erase(last);
      state.order.pop_back();
    }
  });
  return descriptor;
}

void DescriptorCache::drop(NodeId node) {
  Pointer closed_outside_the_lock;
  state_.with([&](State& state) {
    const auto found = state.slots.find(static_cast<uint64_t>(node));
    if (found == state.slots.end()) return;
    closed_outside_the_lock = std::move(found->second.descriptor);
    state.order.erase(found->second.place);
    state.slots.erase(found);
  });
}

}  // namespace inductorfs::vfs
