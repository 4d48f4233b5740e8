// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <ctime>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/query_command.h"
#include "cli/common/answer_text.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/requests.h"

namespace inductorfs::cli {

using config::indented;
using config::Json;
using config::line;
using config::lines_at;
using config::number_at;
using config::part_of;
using config::text_at;

namespace {

/// Of the reasons in the answer of a daemon; a later one may have others. docs/operations/why-a-job-compiled.md has
/// them, too.
struct Reason {
  const char* word;
  const char* text;
};
constexpr std::array kReasons{
    Reason{"first", "nobody in this cluster had compiled it"},
    Reason{"facts", "other nodes have it under other facts"},
    Reason{"settings", "vLLM's settings differ from those of other pods"},
    Reason{"nothing", "nobody had published it for this environment"},
    Reason{"later", "another node published it a moment later"},
    Reason{"purged", "nobody has made it since an operator purged such artefacts"},
    Reason{"removed", "the cluster had it, and has it no more"},
    Reason{"private", "nothing is shared where it was looked for"},
    Reason{"frozen", "an operator has frozen the cluster"},
    Reason{"deleted", "a program has deleted it here"},
    Reason{"lost", "the server had evicted or lost its bytes"},
    Reason{"late", "the bytes did not come in time, or the server went away meanwhile"},
    Reason{"away", "the server was away"},
    Reason{"unread", "what the cluster has was not read yet"},
    Reason{"local", "this mount has no --remote"},
    Reason{"full", "nobody could publish it: the server takes nothing"},
    Reason{"no_room", "the disk of --store had no room"},
    Reason{"unfit", "a check of this host refused it"},
    Reason{"refused", "it was found, and the program did not take it and made it again"},
    Reason{"unexplained", "no reason fits: this is a defect of inductorfs"},
};

std::string keys_text(uint64_t count) { return std::to_string(count) + (count == 1 ? " key" : " keys"); }

/// The first facet that differs, and how many more do: what one line has room for.
std::string facts_text(const Json& nearest) {
  const Json& differences = part_of(nearest, "differences");
  if (!differences.is_array() || differences.empty()) return {};
  const auto first_line = [](const std::string& lines) {
    return lines.empty() ? "none" : lines.substr(0, lines.find('\n'));
  };
  const Json& first = differences.front();
  const size_t more = differences.size() - 1;
  return " (" + text_at(first, "facet") + ": here " + first_line(lines_at(first, "ours")) + ", there " +
         first_line(lines_at(first, "theirs")) +
         (more == 0 ? std::string() : ", and " + std::to_string(more) + " more facts") + ")";
}

std::string differences_text(const Json& nearest, const std::string& margin) {
  std::string text;
  for (const Json& one : part_of(nearest, "differences")) {
    text += margin + "differs in " + text_at(one, "facet") + "\n";
    text += indented(lines_at(one, "ours"), margin + "    - here:  ");
    text += indented(lines_at(one, "theirs"), margin + "    + there: ");
  }
  return text;
}

std::string verdict_text(const Json& report) {
  const Json& reasons = part_of(report, "reasons");
  const uint64_t asked = number_at(report, "asked");
  if (!reasons.is_array() || reasons.empty()) {
    return asked == 0 ? "it asked for nothing" : "it missed nothing: all of its " + keys_text(asked) + " were found";
  }
  const Json& first = reasons.front();
  uint64_t all = 0;
  for (const Json& reason : reasons) all += number_at(reason, "count");
  const uint64_t most = number_at(first, "count");
  return "it compiled " + std::to_string(all) + " of " + keys_text(asked) + ", " +
         (most == all ? std::string("because ") : std::to_string(most) + " of these because ") +
         reason_text(text_at(first, "reason")) + facts_text(part_of(first, "nearest"));
}

std::string reasons_text(const Json& reasons) {
  std::string text;
  for (const Json& reason : reasons) {
    std::string families;
    for (const Json& family : part_of(reason, "families")) {
      families += (families.empty() ? "" : ", ") + config::plain_item(family);
    }
    const std::string found = text_at(reason, "text");
    const uint64_t count = number_at(reason, "count");
    const uint64_t asked = number_at(reason, "asked");
    if (asked > 0 && asked < count) families += "; " + std::to_string(asked) + " of them were looked into";
    text += line(text.empty() ? "reasons" : "", keys_text(count) + " (" + families + "): " +
                                                    (found.empty() ? reason_text(text_at(reason, "reason")) : found));
    text += differences_text(part_of(reason, "nearest"), std::string(18, ' '));
  }
  return text;
}

/// What differs between a hash of this host and the nearest one of other pods, with a remedy for each line.
std::string other_hash_text(const Json& report) {
  if (!report.is_object() || report.empty()) return {};
  std::string text = "    this host's hash is " + text_at(report, "ours") + ", the nearest of " +
                     std::to_string(number_at(report, "others")) + " others is " + text_at(report, "theirs") + ", of " +
                     text_at(report, "origin") + "\n";
  for (const Json& one : part_of(report, "differences")) {
    text += "    differs in " + text_at(one, "name") + "\n";
    text += "        - here:  " + text_at(one, "ours") + "\n        + there: " + text_at(one, "theirs") + "\n";
    text += "        -> " + text_at(one, "remedy") + "\n";
  }
  if (const uint64_t more = number_at(report, "more"); more > 0) {
    text += "    and in " + std::to_string(more) + " more\n";
  }
  return text;
}

/// Each path with its reason in a few words; the sentences stand above, with the reasons.
std::string paths_text(const Json& misses) {
  std::string text;
  std::set<std::pair<std::string, std::string>> told;  // hashes that have been compared above
  for (const Json& miss : misses) {
    text += text_at(miss, "at") + " " + text_at(miss, "family") + " " + text_at(miss, "path") + ": " +
            reason_text(text_at(miss, "reason")) + "\n";
    // Of vLLM's names each may say another thing.
    if (text_at(miss, "family").starts_with("vllm_")) text += indented(text_at(miss, "text"));
    const Json& other = part_of(miss, "other_hash");
    if (told.emplace(text_at(other, "ours"), text_at(other, "theirs")).second) text += other_hash_text(other);
  }
  return text;
}

class WhyMissCommand final : public QueryCommand {
 public:
  void add_to(Words& words) override {
    QueryCommand::add_to(words);
    words.add("--job", &job_, "number of the job, as `inductorfs jobs` has it; without it the last job that missed",
              "NUMBER");
    words.add("--pid", &pid_, "a process of the job", "PID").excludes = {"--job"};
    KnownWord& script = words.add("--script", &script_, "the last job whose command or script has this text", "TEXT");
    script.excludes = {"--job", "--pid"};
    script.given = &given_;
    KnownWord& at = words.add("--at", &at_, "a job that ran then: 21:05 of today, or 2026-11-30T21:05, in UTC", "TIME");
    at.excludes = {"--job", "--pid"};
    at.given = &given_;
  }
  [[nodiscard]] Result<void> check() const override {
    if (std::ranges::find(given_, std::string()) != given_.end()) {
      return fail(ErrorCode::kInvalid, "an empty text names no job: leave the option out for the last one that missed");
    }
    if (at_.empty() || is_time(at_)) return {};
    return fail(ErrorCode::kInvalid, "--at " + config::printable(at_) +
                                         ": give a time of today, as 21:05, or one as 2026-11-30T21:05, in UTC");
  }

 protected:
  [[nodiscard]] Result<std::string> ask(const Located& mount, const config::Environment& environment) const override {
    uint64_t number = job_;
    if (pid_ != 0 || !script_.empty() || !at_.empty()) {
      INDUCTORFS_TRY_ASSIGN(const auto jobs, ask_daemon(mount, control::jobs_request(), kQueryPatience, environment));
      INDUCTORFS_TRY_ASSIGN(number, selected(config::from_text(jobs)));
    }
    INDUCTORFS_TRY_ASSIGN(auto answer, ask_daemon(mount, control::misses_request(number), kQueryPatience, environment));
    if (number == 0 || config::from_text(answer).contains("number")) return answer;
    return fail(ErrorCode::kNotFound,
                "no job " + std::to_string(number) + " of yours is remembered: inductorfs jobs lists them");
  }
  [[nodiscard]] std::string text(std::string_view json) const override { return misses_text(json); }

 private:
  [[nodiscard]] Result<uint64_t> selected(const Json& answer) const {
    for (const Json& job : part_of(answer, "jobs")) {
      if (is_selected(job)) return number_at(job, "number");
    }
    return fail(ErrorCode::kNotFound, "no job of yours that is remembered fits: inductorfs jobs lists them");
  }

  [[nodiscard]] bool is_selected(const Json& job) const {
    if (pid_ != 0 && text_at(job, "job") == "process " + std::to_string(pid_)) return true;
    if (pid_ != 0) {
      const Json& pids = part_of(job, "pids");
      return std::ranges::any_of(pids,
                                 [this](const Json& pid) { return pid.is_number() && pid.get<uint64_t>() == pid_; });
    }
    const std::string program = text_at(job, "command") + " " + text_at(job, "script");
    if (program.find(script_) == std::string::npos) return false;
    if (at_.empty()) return true;
    const std::string at =
        at_.find('T') == std::string::npos ? config::utc(std::time(nullptr)).substr(0, 11) + at_ : at_;
    const std::string ended = text_at(job, "ended");
    const auto begin_of = [&at](const std::string& time) { return time.substr(0, at.size()); };
    return begin_of(text_at(job, "started")) <= at && (ended.empty() || begin_of(ended) >= at);
  }

  /// Says whether it is 21:05, or 2026-11-30T21:05 with seconds and a Z or without.
  [[nodiscard]] static bool is_time(const std::string& text) {
    std::tm parts{};
    for (const char* form : {"%H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"}) {
      const char* const end = ::strptime(text.c_str(), form, &parts);
      const bool is_padded = text.find(':') == (text.find('T') == std::string::npos ? 2 : text.find('T') + 3);
      if (end != nullptr && *end == '\0' && is_padded) return true;
    }
    return false;
  }

  std::vector<std::string> given_;
  uint64_t job_ = 0;
  uint64_t pid_ = 0;
  std::string script_;
  std::string at_;
};

}  // namespace

std::string reason_text(const std::string& word) {
  const auto* const known =
      std::ranges::find_if(kReasons, [&word](const Reason& reason) { return word == reason.word; });
  return known == kReasons.end() ? config::printable(word) : known->text;
}

std::string misses_text(std::string_view json) {
  const Json report = config::from_text(json);
  if (!report.is_object() || !report.contains("number")) return "no job has missed anything\n";
  std::string text = line("verdict", verdict_text(report)) + line("job", job_title(report).substr(4));
  if (const uint64_t later = number_at(report, "later"); later > 0) {
    text += line("", std::to_string(later) + " later " + (later == 1 ? "job has" : "jobs have") +
                         " missed nothing: inductorfs jobs lists them");
  }
  text += reasons_text(part_of(report, "reasons"));
  for (const Json& hint : part_of(report, "hints")) text += line("hint", config::plain_item(hint));
  return text + paths_text(part_of(report, "misses"));
}

std::unique_ptr<Subcommand> why_miss_command() { return std::make_unique<WhyMissCommand>(); }

}  // namespace inductorfs::cli
