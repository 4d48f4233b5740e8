// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/takeover/node_log.h"

namespace inductorfs::takeover {

using Texts = std::vector<std::string>;

/// An empty log of nodes. Needs external synchronisation.
class NodeLogTest : public ::testing::Test {
 protected:
  [[nodiscard]] static Texts records(const NodeLog& log) {
    Texts found;
    log.read([&](std::string_view record) { found.emplace_back(record); });
    return found;
  }
  static void add(NodeLog& log, const std::string& record) {
    const std::string_view one[] = {record};
    log.append(one);
  }

  Region region = std::move(*Region::create(1));
  NodeLog log{region};
};

}  // namespace inductorfs::takeover
