// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "catalog/parts.h"
#include "inductorfs/layout/selection.h"

namespace inductorfs::catalog {

/// Does what an operator has ordered for the whole cluster (Catalog::freeze(), permit_publishing(), drop_queued()).
/// Safe for concurrent use.
class OperatorOrders {
 public:
  explicit OperatorOrders(Parts& parts) : parts_(parts) {}

  void freeze(bool frozen);
  void permit_publishing(SteadyTime until);
  [[nodiscard]] bool drop_queued(const layout::Selection& selection, const std::function<bool()>& cancelled);

 private:
  enum class Dropped { kNo, kYes, kNotNow };
  void wake_publisher();
  [[nodiscard]] static bool is_selected(Durable& durable, int64_t id, const QueueIndex::Item& item,
                                        const layout::Selection& selection);
  [[nodiscard]] Dropped drop(Durable& durable, int64_t id, const layout::Selection& selection);

  Parts& parts_;
};

}  // namespace inductorfs::catalog
