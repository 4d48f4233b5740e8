// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "cli/common/answer_text.h"
#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/requests.h"

namespace inductorfs::cli {

using config::flag_at;
using config::Json;
using config::number_at;
using config::part_of;
using config::plain_item;

namespace {

constexpr size_t kShownReasons = 3;

std::string counted(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

class SyncCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_mountpoint(path_);
    words.add_json(json_);
    words.add("--timeout", &timeout_, "wait at most S seconds [60]", "S");
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    const Milliseconds timeout = std::chrono::seconds(timeout_);
    const Milliseconds first = std::min(timeout, kUnsaid);
    const SteadyTime begun = std::chrono::steady_clock::now();
    auto done = ask_daemon_at(path_, control::sync_request(first), first + kQueryPatience, environment);
    // An answer before its time is no matter of waiting: a freeze, a full disk.
    const bool was_long = std::chrono::steady_clock::now() - begun >= first;
    if (was_long && is_waiting(done) && timeout > first) {
      say_what_it_waits_for(done.error(), timeout - first, environment);
      done = ask_daemon_at(path_, control::sync_request(timeout - first), timeout + kQueryPatience, environment);
    }
    if (!done && was_long && done.error().code() == ErrorCode::kTimedOut) {
      done = fail(ErrorCode::kTimedOut,
                  "not done within --timeout " + std::to_string(timeout_) + " s: " + done.error().text());
    }
    if (!done) return fail_query(done.error(), json_);
    Json report = config::from_text(*done);
    if (!report.is_object()) report = Json::object();
    const bool kept = flag_at(report, "nothing_shared");
    const std::string text = sync_text(report);
    report["synced"] = true;
    const int printed = print(json_ ? config::to_pretty(report) + "\n" : text);
    if (printed != kExitDone || !kept) return printed;
    (void)fail_with({ErrorCode::kNotPermitted, nothing_shared_text(report, path_)});
    return kExitKept;
  }

 private:
  /// Who waits for a minute in silence looks for the fault elsewhere.
  static constexpr Milliseconds kUnsaid{2'000};

  static bool is_waiting(const Result<std::string>& done) {
    return !done && (done.error().code() == ErrorCode::kTimedOut || done.error().code() == ErrorCode::kUnavailable);
  }
  void say_what_it_waits_for(const Error& error, Milliseconds left, const config::Environment& environment) const {
    const auto status = ask_daemon_at(path_, control::status_request(), kQueryPatience, environment);
    const std::string awaited = status ? awaited_text(config::from_text(*status)) : std::string();
    (void)std::fprintf(stderr, "inductorfs: waits for up to %lld s more: %s\n",
                       static_cast<long long>(left.count() / 1000), (awaited.empty() ? error.text() : awaited).c_str());
  }

  std::string path_;
  int64_t timeout_ = 60;
  bool json_ = false;
};

}  // namespace

std::string awaited_text(const Json& status) {
  const Json& remote = part_of(status, "remote");
  if (!flag_at(remote, "configured")) return {};
  const std::string server = "the server " + config::text_at(remote, "address");
  if (!flag_at(remote, "reachable")) {
    const std::string why = config::text_at(remote, "last_error");
    return server + " does not answer" + (why.empty() ? "" : ": " + why);
  }
  const std::string why = config::text_at(remote, "refuses_writes");
  return why.empty() ? why : server + " takes nothing since " + config::text_at(remote, "refuses_since") + ": " + why;
}

std::string sync_text(const Json& report) {
  if (report.contains("remote") && !flag_at(report, "remote")) {
    return "all that was written is complete; nothing is shared, because the mount has no --remote\n";
  }
  if (!report.contains("published")) return {};
  const uint64_t kept = number_at(report, "kept");
  std::string text = "published " + counted(number_at(report, "published"), "group");
  if (kept == 0) return text + "\n";
  text += "; kept " + counted(kept, "artefact") + " on this host";
  const Json& why = part_of(report, "why");
  size_t shown = 0;
  for (const Json& reason : why) {
    if (shown == kShownReasons) break;
    text += (shown++ == 0 ? ": " : "; ") + plain_item(reason);
  }
  if (why.is_array() && why.size() > shown) text += "; and more: see inductorfs status";
  return text + "\n";
}

std::string nothing_shared_text(const Json& report, const std::string& mountpoint) {
  const Json& why = part_of(report, "why");
  const std::string reason = why.is_array() && !why.empty() ? plain_item(why.front()) : "the daemon tells no reason";
  const std::string more = why.is_array() && why.size() > 1 ? "; run inductorfs status for all reasons" : "";
  return "nothing that was written is shared: " + mountpoint + ": " + reason + more;
}

std::unique_ptr<Subcommand> sync_command() { return std::make_unique<SyncCommand>(); }

}  // namespace inductorfs::cli
