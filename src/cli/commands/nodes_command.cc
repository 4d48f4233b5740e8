// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <optional>
#include <span>

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

constexpr std::array kHead{"HOST",    "MOUNTPOINT", "VERSION", "UP",   "SCOPES", "QUEUED", "KEPT",
                           "FETCHED", "ASKED",      "HITS",    "MADE", "SAVED",  "SEEN",   "STATE"};

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

/// A figure that a mount of an earlier release does not tell is not known; it is not 0.
std::optional<uint64_t> told(const Json& part, const char* name) {
  const auto found = part.is_object() ? part.find(name) : part.end();
  const bool is_there = part.is_object() && found != part.end() && found->is_number_unsigned();
  return is_there ? std::optional(found->get<uint64_t>()) : std::nullopt;
}

std::string shown(const std::optional<uint64_t>& number) { return number ? std::to_string(*number) : "-"; }

std::string in_time(const std::optional<uint64_t>& milliseconds) {
  return milliseconds ? config::human_seconds(*milliseconds / 1000) : "-";
}

/// What the jobs of a mount, or of all mounts, asked for and were spared.
struct Yield {
  std::optional<uint64_t> asked, found, made, saved_ms;

  static Yield of(const Json& counters) {
    const auto local = told(counters, "keys.local");
    const auto cluster = told(counters, "keys.cluster");
    const auto missed = told(counters, "keys.missed");
    Yield yield;
    yield.made = told(counters, "keys.made");
    yield.saved_ms = told(counters, "keys.saved_ms");
    if (!local || !cluster || !missed) return yield;
    yield.found = *local + *cluster;
    yield.asked = *yield.found + *missed;
    return yield;
  }
  void add(const Yield& other) {
    const auto sum = [](auto& one, const auto& more) { one = more ? one.value_or(0) + *more : one; };
    sum(asked, other.asked);
    sum(found, other.found);
    sum(made, other.made);
    sum(saved_ms, other.saved_ms);
  }
  [[nodiscard]] std::string rate() const {
    return asked && *asked > 0 ? std::to_string(*found * 100 / *asked) + "%" : "-";
  }
};

std::string state_of(const Json& node) {
  if (config::flag_at(node, "unreadable")) return "unreadable record";
  if (config::flag_at(node, "is_stale")) return "stale";
  return config::flag_at(node, "frozen") ? "frozen" : "serving";
}

Row row_of(const Json& node, std::time_t now) {
  const auto started = static_cast<std::time_t>(std::min<uint64_t>(number_at(node, "started"), INT64_MAX));
  const bool readable = !config::flag_at(node, "unreadable");
  const Json& counters = config::part_of(node, "counters");
  const Yield yield = Yield::of(counters);
  return {
      readable ? text_at(node, "host") : "?", readable ? text_at(node, "mountpoint") : "mount " + text_at(node, "id"),
      readable ? text_at(node, "version") : "?",
      // By the clocks of two hosts.
      readable && started > 0 ? config::human_seconds(static_cast<uint64_t>(std::max<std::time_t>(now - started, 0)))
                              : "?",
      shown(told(node, "scope_count")), shown(told(node, "queued")), shown(told(node, "foreign")),
      shown(told(counters, "fetch.blobs")), shown(yield.asked), yield.rate(), shown(yield.made),
      in_time(yield.saved_ms), config::human_seconds(number_at(node, "age_s")), state_of(node)};
}

Row row_of_missing(const Json& node, std::time_t now) {
  const uint64_t age = number_at(node, "age_s");
  const auto since = static_cast<std::time_t>(now - std::min<uint64_t>(age, static_cast<uint64_t>(now)));
  Row row(kHead.size(), "-");
  row[0] = text_at(node, "host");
  row[1] = text_at(node, "mountpoint");
  row[kHead.size() - 2] = config::human_seconds(age);
  row[kHead.size() - 1] = config::flag_at(node, "is_gone") ? "gone since " + config::utc(since) : "stale";
  return row;
}

std::string table(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text += std::string(widths[i] - row[i].size() + 2, ' ');
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string nodes_text(const Json& answer, std::time_t now) {
  std::vector<Row> rows = {Row(kHead.begin(), kHead.end())};
  Yield total;
  for (const Json& node : config::part_of(answer, "nodes")) {
    rows.push_back(row_of(node, now));
    total.add(Yield::of(config::part_of(node, "counters")));
  }
  const size_t mounts = rows.size() - 1;
  for (const Json& node : config::part_of(answer, "missing")) rows.push_back(row_of_missing(node, now));
  const Json& about = config::part_of(answer, "server");
  const std::string server = server_text(about);
  const std::string unknown = text_at(about, "error");
  std::map<std::string, size_t> names;
  for (const Row& row : std::span(rows).subspan(1, mounts)) ++names[row[0] + ":" + row[1]];
  std::string twice;
  for (const auto& [name, count] : names) {
    if (count < 2) continue;
    twice += std::to_string(count) + " mounts are called " + name +
             ": give their hosts names of their own, else nobody misses one of them that is gone\n";
  }
  return table(rows) + "total: " + shown(total.asked) + " asked, " + total.rate() + " of them found, " +
         shown(total.made) + " made, " + in_time(total.saved_ms) + " saved\n" + std::to_string(mounts) +
         (mounts == 1 ? " mount" : " mounts") +
         "; mounts that may only read the server, and what a full server has "
         "forgotten, are not listed\n" +
         twice + (server.empty() ? "" : "server: " + server.substr(2) + "\n") +
         (unknown.empty() ? "" : "server: how full it is is not known: " + unknown + "\n");
}

std::unique_ptr<Subcommand> nodes_command() { return std::make_unique<NodesCommand>(); }

}  // namespace inductorfs::cli
