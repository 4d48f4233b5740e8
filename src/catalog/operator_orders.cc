// SPDX-License-Identifier: Apache-2.0
#include "catalog/operator_orders.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "catalog/database/publish_codec.h"

namespace inductorfs::catalog {
namespace {

constexpr std::string_view kPurgedWhy = "an operator has purged it (inductorfs purge)";

}  // namespace

void OperatorOrders::freeze(bool frozen) {
  parts_.frozen = frozen;
  wake_publisher();
  // All that any root may show came now, or went.
  auto paths = parts_.tree.write([](EntryTree& tree) {
    tree.all_names_changed();
    std::vector<std::string> all;
    for (const FollowedScope& scope : tree.scopes().all()) {
      std::ranges::move(tree.paths().of_scope(scope.index), std::back_inserter(all));
    }
    return all;
  });
  parts_.tell(paths);
}

void OperatorOrders::permit_publishing(SteadyTime until) {
  const bool could = parts_.may_publish(std::chrono::steady_clock::now());
  parts_.permitted_until = until;
  if (!could) wake_publisher();
}

void OperatorOrders::wake_publisher() {
  parts_.durable.notify_with([](Durable& durable) { ++durable.wakes; });
}

bool OperatorOrders::is_selected(Durable& durable, int64_t id, const QueueIndex::Item& item,
                                 const layout::Selection& selection) {
  if (!selection.fits_scope(item.scope)) return false;
  // The time of an entry is in the database only. What cannot be read there goes with everything only.
  auto payload = durable.database.queued_payload(id);
  if (!payload || !*payload) return selection == layout::Selection{};
  const auto publish = decode_publish(**payload);
  if (!publish) return selection == layout::Selection{};
  return std::ranges::any_of(publish->entries, [&](const codec::Entry& entry) { return selection.fits(entry); });
}

OperatorOrders::Dropped OperatorOrders::drop(Durable& durable, int64_t id, const layout::Selection& selection) {
  const QueueIndex::Item* const item = durable.queue.find(id);
  if (item == nullptr || !is_selected(durable, id, *item, selection)) return Dropped::kNo;
  if (durable.in_flight == id) return Dropped::kNotNow;
  if (const auto removed = durable.database.dequeue(id); !removed) {
    parts_.note_failure(removed.error());
    return Dropped::kNotNow;
  }
  durable.keep_local(id, kPurgedWhy);
  return Dropped::kYes;
}

bool OperatorOrders::drop_queued(const layout::Selection& selection, const std::function<bool()>& cancelled) {
  const auto queued = parts_.durable.with([](const Durable& durable) {
    std::vector<int64_t> ids;
    for (const auto& [id, item] : durable.queue.items()) ids.push_back(id);
    return ids;
  });
  bool all = true;
  // One at a time: jobs that seal wait for the same lock.
  for (const int64_t id : queued) {
    if (cancelled()) return false;
    const Dropped done = parts_.durable.notify_with([&](Durable& durable) { return drop(durable, id, selection); });
    if (done == Dropped::kYes) parts_.metrics.kept_local.add();
    all = all && done != Dropped::kNotNow;
  }
  return all;
}

}  // namespace inductorfs::catalog
