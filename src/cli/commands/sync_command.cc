// SPDX-License-Identifier: Apache-2.0
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
    const auto status = ask_daemon_at(path_, control::status_request(), kQueryPatience, environment);
    if (status) say_what_it_waits_for(config::from_text(*status));
    const auto done = ask_daemon_at(path_, control::sync_request(timeout), timeout + kQueryPatience, environment);
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
  /// At once: who waits for a minute in silence looks for the fault elsewhere.
  void say_what_it_waits_for(const Json& status) const {
    const std::string awaited = awaited_text(status);
    if (awaited.empty() || timeout_ == 0) return;
    (void)std::fprintf(stderr, "inductorfs: waits %lld s at most: %s\n", static_cast<long long>(timeout_),
                       awaited.c_str());
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
