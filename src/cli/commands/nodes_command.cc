// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ctime>

#include "cli/common/answer_text.h"
#include "cli/common/cluster_arguments.h"
#include "cli/common/command.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"

namespace inductorfs::cli {

using config::Json;
using config::number_at;
using config::text_at;

namespace {

using Row = std::vector<std::string>;

class NodesCommand final : public Subcommand {
 public:
  void add_to(Words& words) override { cluster_.add_to(words); }
  [[nodiscard]] Result<void> check() const override { return cluster_.check(); }
  [[nodiscard]] int run(const config::Environment& environment) override {
    const auto answer = cluster_.ask({.kind = mount::ClusterRequest::Kind::kNodes}, environment);
    if (!answer) return fail_query(answer.error(), cluster_.json());
    return print(cluster_.json() ? config::to_pretty(*answer) + "\n" : nodes_text(*answer, std::time(nullptr)));
  }

 private:
  ClusterArguments cluster_;
};

Row row_of(const Json& node, std::time_t now) {
  const auto started = static_cast<std::time_t>(std::min<uint64_t>(number_at(node, "started"), INT64_MAX));
  const bool readable = !config::flag_at(node, "unreadable");
  std::string state = config::flag_at(node, "frozen") ? "frozen" : "serving";
  if (!readable) state = "unreadable record";
  const auto number = [&](const char* name) { return readable ? std::to_string(number_at(node, name)) : "?"; };
  const Json& counters = config::part_of(node, "counters");
  return {
      readable ? text_at(node, "host") : "?", readable ? text_at(node, "mountpoint") : "mount " + text_at(node, "id"),
      readable ? text_at(node, "version") : "?",
      // By the clocks of two hosts.
      readable && started > 0 ? config::human_seconds(static_cast<uint64_t>(std::max<std::time_t>(now - started, 0)))
                              : "?",
      number("scope_count"), number("queued"), number("foreign"),
      readable ? std::to_string(number_at(counters, "fetch.blobs")) : "?",
      config::human_seconds(number_at(node, "age_s")), state};
}

}  // namespace

std::string nodes_text(const Json& answer, std::time_t now) {
  std::vector<Row> rows = {
      {"HOST", "MOUNTPOINT", "VERSION", "UP", "SCOPES", "QUEUED", "FOREIGN", "FETCHED", "SEEN", "STATE"}};
  for (const Json& node : config::part_of(answer, "nodes")) rows.push_back(row_of(node, now));
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const Json& told = config::part_of(answer, "server");
  const std::string server = server_text(told);
  const std::string unknown = text_at(told, "error");
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text += std::string(widths[i] - row[i].size() + 2, ' ');
    }
    text += "\n";
  }
  return text + std::to_string(rows.size() - 1) +
         " mounts; mounts that may only read the server, and what a full server has "
         "forgotten, are not listed\n" +
         (server.empty() ? "" : "server: " + server.substr(2) + "\n") +
         (unknown.empty() ? "" : "server: how full it is is not known: " + unknown + "\n");
}

std::unique_ptr<Subcommand> nodes_command() { return std::make_unique<NodesCommand>(); }

}  // namespace inductorfs::cli
