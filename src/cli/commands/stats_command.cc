// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>
#include <set>
#include <utility>

#include "cli/commands/query_command.h"
#include "cli/common/answer_text.h"
#include "cli/common/answers.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/requests.h"

namespace inductorfs::cli {

using config::human_bytes;
using config::indented;
using config::Json;
using config::line;
using config::lines_at;
using config::number_at;
using config::part_of;
using config::text_at;

namespace {

std::string seconds_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  const double seconds = found != object.end() && found->is_number() ? found->get<double>() : 0;
  std::array<char, 64> text{};
  (void)std::snprintf(text.data(), text.size(), seconds < 10 ? "%.2f s" : "%.0f s", seconds);
  return text.data();
}

std::string cell(const std::string& text, size_t width) {
  return text.size() >= width ? text + " " : std::string(width - text.size(), ' ') + text;
}

std::string row(const std::string& name, const Json& tally) {
  std::string text = "    " + name + std::string(name.size() < 20 ? 20 - name.size() : 1, ' ');
  for (const char* figure : {"asked", "local", "cluster", "missed", "made", "published"}) {
    text += cell(std::to_string(number_at(tally, figure)), 10);
  }
  return text + cell(human_bytes(number_at(tally, "fetched_bytes")), 14) + "\n";
}

std::string table(const Json& tally) {
  std::string text = "    " + std::string(20, ' ');
  for (const char* head : {"asked", "local", "cluster", "missed", "made", "published"}) text += cell(head, 10);
  text += cell("waited for", 14) + "\n";
  for (const auto& [name, family] : part_of(tally, "families").items()) text += row(config::printable(name), family);
  return text + row("all", tally);
}

std::string hit_rate(const Json& tally) {
  const Json& percent = part_of(tally, "hit_percent");
  std::array<char, 64> text{};
  if (percent.is_number()) (void)std::snprintf(text.data(), text.size(), "%.1f %%", percent.get<double>());
  return percent.is_number() ? text.data() : "-";
}

std::string program_row(const std::string& name, const Json& tally) {
  constexpr size_t kWidth = 48;
  return "    " + name + std::string(name.size() < kWidth ? kWidth - name.size() : 1, ' ') +
         cell(std::to_string(number_at(tally, "asked")), 8) + cell(hit_rate(tally), 9) +
         cell(std::to_string(number_at(tally, "made")), 8) + cell(seconds_at(tally, "saved_s"), 11) + "\n";
}

/// Each user with his programs; empty where there is none.
std::string users_table(const Json& users) {
  constexpr size_t kMostUsers = 20;
  constexpr size_t kMostPrograms = 10;
  std::string text;
  size_t shown = 0;
  for (const Json& user : users) {
    if (shown++ == kMostUsers) break;
    const bool is_known = part_of(user, "user").is_number();
    text += program_row(is_known ? "uid " + std::to_string(number_at(user, "user")) : "others, and who cannot be seen",
                        user);
    size_t programs = 0;
    for (const Json& program : part_of(user, "programs")) {
      if (!is_known || programs++ == kMostPrograms) break;
      const std::string name = text_at(program, "program");
      text += program_row("  " + (name.empty() ? "other programs" : name), program);
    }
  }
  if (text.empty()) return {};
  return "    " + std::string(48, ' ') + cell("asked", 8) + cell("hits", 9) + cell("made", 8) + cell("saved", 11) +
         "\n" + text;
}

std::string why_missed(const Json& tally) {
  std::string text;
  for (const auto& [word, count] : part_of(tally, "why_missed").items()) {
    if (!count.is_number_unsigned()) continue;
    text += line(text.empty() ? "missed" : "", std::to_string(count.get<uint64_t>()) + ": " + reason_text(word));
  }
  if (const uint64_t refused = number_at(tally, "refused"); refused > 0) {
    text +=
        line("refused", std::to_string(refused) + " of those found: the program did not take them and made them again");
  }
  return text;
}

/// What start lists brought; empty where there was none.
std::string foreseen_line(const Json& starts) {
  const uint64_t foreseen = number_at(starts, "foreseen");
  if (foreseen == 0) return {};
  const uint64_t bytes = number_at(starts, "foreseen_bytes");
  const uint64_t unused = bytes - std::min(bytes, number_at(starts, "used_bytes"));
  return line("foreseen", std::to_string(foreseen) + " files (" + human_bytes(bytes) +
                              ") from earlier starts of the same jobs; " + std::to_string(number_at(starts, "used")) +
                              " of them were used, and " + human_bytes(unused) + " were not");
}

/// What processes waited for (--compile-once); empty where none did.
std::string leases_line(const Json& leases) {
  const uint64_t taken = number_at(leases, "taken");
  const uint64_t waits = number_at(leases, "waits");
  if (taken + waits == 0) return {};
  return line("compile once", std::to_string(taken) + " graphs were compiled here for all; " + std::to_string(waits) +
                                  " waited for another process, of which " +
                                  std::to_string(number_at(leases, "served")) + " got its artefact, " +
                                  std::to_string(number_at(leases, "too_long")) + " waited too long and " +
                                  std::to_string(number_at(leases, "idle")) + " were let go because it waited itself");
}

std::string one_line(const Json& tally) {
  return std::to_string(number_at(tally, "asked")) + " asked: " + std::to_string(number_at(tally, "local")) +
         " local, " + std::to_string(number_at(tally, "cluster")) + " of the cluster, " +
         std::to_string(number_at(tally, "missed")) + " missed; " + std::to_string(number_at(tally, "made")) +
         " made, " + std::to_string(number_at(tally, "published")) + " published; waited " +
         seconds_at(tally, "waited_s") + " for " + human_bytes(number_at(tally, "fetched_bytes"));
}

/// Nothing for processes of which the daemon knows nothing (JobFinder).
std::string who_ran(const Json& job) {
  if (number_at(job, "processes") == 0) return {};
  const std::string script = text_at(job, "script");
  return " (" + text_at(job, "command") + (script.empty() ? "" : " " + script) + ", uid " +
         std::to_string(number_at(job, "user")) + ", " + std::to_string(number_at(job, "processes")) + " processes)";
}

std::string job_text(const Json& job) {
  std::string text = job_title(job) + "\n    " + one_line(job) + "\n";
  const Json& slowest = part_of(job, "slowest");
  if (!text_at(slowest, "path").empty()) {
    text += "    slowest: " + seconds_at(slowest, "waited_s") + " for " + text_at(slowest, "path") + "\n";
  }
  const Json& saved = part_of(job, "saved_s");
  if (saved.is_number() && saved.get<double>() > 0)
    text += "    saved at least " + seconds_at(job, "saved_s") + " of compiling\n";
  if (const uint64_t uses = number_at(job, "not_counted"); uses > 0) {
    text += "    the job used more keys than are told apart: " + std::to_string(uses) +
            " uses are not counted, so all figures are lower bounds\n";
  }
  for (const Json& hint : part_of(job, "hints")) text += "    hint: " + config::plain_item(hint) + "\n";
  return text;
}

class StatsCommand final : public QueryCommand {
 protected:
  [[nodiscard]] Result<std::string> ask(const Located& mount, const config::Environment& environment) const override {
    return ask_daemon(mount, control::stats_request(), kQueryPatience, environment);
  }
  [[nodiscard]] std::string text(std::string_view json) const override { return stats_text(json); }
};

class JobsCommand final : public QueryCommand {
 protected:
  [[nodiscard]] Result<std::string> ask(const Located& mount, const config::Environment& environment) const override {
    return ask_daemon(mount, control::jobs_request(), kQueryPatience, environment);
  }
  [[nodiscard]] std::string text(std::string_view json) const override { return jobs_text(json); }
};

}  // namespace

std::string job_title(const Json& job) {
  const std::string ended = text_at(job, "ended");
  return "job " + std::to_string(number_at(job, "number")) + ": " + text_at(job, "job") + who_ran(job) + ", " +
         (ended.empty() ? "since " + text_at(job, "started") : text_at(job, "started") + " to " + ended);
}

std::string stats_text(std::string_view json) {
  const Json stats = config::from_text(json);
  if (!stats.is_object()) return {};
  const Json& all = part_of(stats, "all");
  std::string text = line("since", text_at(stats, "since")) + table(all) + why_missed(all);
  text += line("hit rate", hit_rate(all) + " of " + std::to_string(number_at(all, "asked")) + " keys");
  text += line("waited", seconds_at(all, "waited_s") + " for bytes of " + std::to_string(number_at(all, "fetched")) +
                             " files, all requests together");
  text += line("last hour", one_line(part_of(stats, "hour")));
  text += line("saved", "at least " + seconds_at(stats, "saved_s") +
                            " of compiling, as the processes measured it that compiled the graphs");
  text += users_table(part_of(stats, "users"));
  text += foreseen_line(part_of(stats, "starts"));
  text += leases_line(part_of(stats, "leases"));
  if (const uint64_t dropped = number_at(stats, "dropped"); dropped > 0) {
    text += line("not counted", std::to_string(dropped) + " uses, because too many came at once");
  }
  if (const uint64_t uses = number_at(stats, "not_counted"); uses > 0) {
    text += line("not counted", std::to_string(uses) +
                                    " uses, of more keys than are told apart in a job, since the daemon "
                                    "started: all figures of keys are lower bounds");
  }
  return text + line("", "counted once for each job; what the kernel answers from its cache is not seen");
}

std::string jobs_text(std::string_view json) {
  const Json answer = config::from_text(json);
  std::string text;
  for (const Json& job : part_of(answer, "jobs")) text += job_text(job);
  return text.empty() ? "no job of the last week has used this mount\n" : text;
}

std::unique_ptr<Subcommand> stats_command() { return std::make_unique<StatsCommand>(); }
std::unique_ptr<Subcommand> jobs_command() { return std::make_unique<JobsCommand>(); }

}  // namespace inductorfs::cli
