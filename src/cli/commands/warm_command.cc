// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

#include "cli/common/answer_text.h"
#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/mount/warmer.h"

namespace inductorfs::cli {

using config::flag_at;
using config::human_bytes;
using config::Json;
using config::number_at;
using config::part_of;
using config::plain_item;
using config::text_at;

namespace {

constexpr Milliseconds kSlice{1000};
/// Between two lines of progress where no terminal shows them.
constexpr std::chrono::seconds kLineInterval{10};
/// Another warm that was just given up may still be on its way out.
constexpr std::chrono::seconds kBusyPatience{5};
constexpr Milliseconds kBusyPause{200};

double seconds_since(SteadyTime begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Shows how far a warming is: one line that is overwritten on a terminal, a line now and then elsewhere. The text goes
/// to standard error. Needs external synchronisation.
class WarmProgress {
 public:
  explicit WarmProgress(bool quiet) : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1) {}

  void show(const Json& report) {
    if (quiet_) return;
    const SteadyTime now = std::chrono::steady_clock::now();
    if (!terminal_ && now - last_ < kLineInterval) return;
    last_ = now;
    const std::string text = warm_progress_text(report, seconds_since(begin_));
    (void)std::fputs((terminal_ ? "\r\033[K" + text : text + "\n").c_str(), stderr);
    (void)std::fflush(stderr);
    shown_ = true;
  }
  void end() {
    if (terminal_ && shown_) (void)std::fputs("\r\033[K", stderr);
    shown_ = false;
  }

 private:
  const bool quiet_;
  const bool terminal_;
  bool shown_ = false;
  const SteadyTime begin_ = std::chrono::steady_clock::now();
  SteadyTime last_ = begin_;
};

/// Whoever asks whether the server's end would hurt waits for no server.
constexpr int64_t kDryRunTimeout = 3;

class WarmCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_mountpoint(path_);
    words.add_json(json_);
    words.add("--pattern", &selection_.pattern, "fetch only artefacts whose path in the cluster matches GLOB", "GLOB");
    words.add("--family", &selection_.family, "fetch only artefacts of this family", "NAME");
    words.add("--scope", &selection_.scope, "fetch only from this scope: its id, or the first digits of it", "ID");
    words.add("--dry-run", &dry_run_, "fetch nothing, and say what jobs would find here if the server ended now");
    words.add("--limit", &limit_, "fetch at most BYTES, the newest artefacts first [no limit]", "BYTES");
    words.add("--timeout", &timeout_, "give up after S seconds without an answer of the remote [30]", "S");
  }
  [[nodiscard]] Result<void> check() const override {
    if (limit_.empty()) return {};
    const Result<uint64_t> limit = config::parse_size(limit_);
    return limit ? Result<void>{} : fail(ErrorCode::kInvalid, "--limit: " + limit.error().what());
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    if (!limit_.empty()) selection_.limit = config::parse_size(limit_).value_or(UINT64_MAX);
    if (dry_run_) selection_.limit = 0;
    WarmProgress progress(json_ || dry_run_);
    const Result<Json> done = repeat(progress, environment);
    progress.end();
    if (!done && dry_run_ && !json_ && done.error().code() == ErrorCode::kUnavailable) {
      const auto status = ask_daemon_at(path_, control::status_request(), kQueryPatience, environment);
      if (status) return print(server_away_text(config::from_text(*status), done.error().text()));
    }
    if (!done) return fail_query(done.error(), json_);
    const std::string text = dry_run_ ? without_server_text(*done) : warm_text(*done);
    const int printed = print(json_ ? config::to_pretty(*done) + "\n" : text);
    if (dry_run_ || printed != kExitDone || flag_at(*done, "complete")) return printed;
    (void)fail_with({ErrorCode::kNotFound, not_complete_text(*done, path_)});
    return kExitKept;
  }

 private:
  /// Asks until the daemon is done. What has been fetched stays, whatever ends this.
  [[nodiscard]] Result<Json> repeat(WarmProgress& progress, const config::Environment& environment) const {
    const std::string request = control::warm_request(selection_, kSlice);
    SteadyTime moved = std::chrono::steady_clock::now();
    const SteadyTime begin = moved;
    progress.show(Json::object({{"reading", true}}));
    while (true) {
      const auto answer =
          ask_daemon_at(path_, request, kSlice + mount::Warmer::kFetchPatience + kQueryPatience, environment);
      if (!answer) {
        const bool busy = answer.error().code() == ErrorCode::kBusy;
        if (!busy || std::chrono::steady_clock::now() - begin > kBusyPatience) return fail(answer.error());
        std::this_thread::sleep_for(kBusyPause);
        continue;
      }
      Json report = config::from_text(*answer);
      if (!report.is_object()) return fail(ErrorCode::kCorrupt, "the daemon's answer is no JSON object");
      if (flag_at(report, "done")) return report;
      progress.show(report);
      const std::string waiting = text_at(report, "waiting");
      const SteadyTime now = std::chrono::steady_clock::now();
      if (waiting.empty()) moved = now;
      const int64_t most = dry_run_ ? std::min(timeout_, kDryRunTimeout) : timeout_;
      if (now - moved > std::chrono::seconds(most)) {
        return fail(ErrorCode::kUnavailable, "the remote does not answer: " + path_ + ": " + waiting +
                                                 "; what has been fetched stays: run the command again later");
      }
    }
  }

  std::string path_;
  control::WarmSelection selection_;
  std::string limit_;
  bool dry_run_ = false;
  int64_t timeout_ = 30;
  bool json_ = false;
};

std::string artefacts(uint64_t count) { return std::to_string(count) + (count == 1 ? " artefact" : " artefacts"); }

constexpr std::string_view kNothingHere = "the cluster has announced nothing that a job on this host could use";

}  // namespace

std::string warm_progress_text(const Json& report, double seconds) {
  if (flag_at(report, "reading")) {
    return "reading what the cluster has: " + artefacts(number_at(report, "blobs")) + " so far";
  }
  const uint64_t fetched = number_at(report, "fetched_bytes");
  const uint64_t total =
      number_at(report, "bytes") - std::min(number_at(report, "bytes"), number_at(report, "here_bytes"));
  std::string text = std::to_string(number_at(report, "here") + number_at(report, "fetched")) + " of " +
                     artefacts(number_at(report, "blobs")) + ", " + human_bytes(fetched) + " of " + human_bytes(total);
  const std::string waiting = text_at(report, "waiting");
  if (!waiting.empty()) return text + ", waiting: " + waiting;
  const double rate = seconds > 0 ? static_cast<double>(fetched) / seconds : 0;
  if (rate < 1) return text;
  const double left = static_cast<double>(total - std::min(total, fetched)) / rate;
  return text + ", " + human_bytes(static_cast<uint64_t>(rate)) + "/s, about " +
         config::human_seconds(static_cast<uint64_t>(left) + 1) + " left";
}

std::string warm_text(const Json& report) {
  const uint64_t scopes = number_at(report, "scopes");
  const uint64_t others = number_at(report, "other_hosts");
  const std::string elsewhere =
      others == 0 ? "" : "; " + std::to_string(others) + " of the cluster's scopes belong to hosts of another kind";
  if (scopes == 0) return std::string(kNothingHere) + elsewhere + "\n";
  std::string text = "fetched " + artefacts(number_at(report, "fetched")) + " (" +
                     human_bytes(number_at(report, "fetched_bytes")) + "); " +
                     std::to_string(number_at(report, "here")) + " were here\n";
  text += std::to_string(scopes) + (scopes == 1 ? " scope, " : " scopes, ") +
          std::to_string(number_at(report, "followed")) + " of them used by jobs of this host now" + elsewhere + "\n";
  return text;
}

std::string without_server_text(const Json& report) {
  if (number_at(report, "scopes") == 0) return std::string(kNothingHere) + "\n";
  const uint64_t left = number_at(report, "left");
  std::string text = "if the server ended now, jobs would go on, and publish when it is back\n" +
                     std::to_string(number_at(report, "here")) + " of " + artefacts(number_at(report, "blobs")) +
                     " of the cluster are on this host (" + human_bytes(number_at(report, "here_bytes")) + " of " +
                     human_bytes(number_at(report, "bytes")) + ")\n";
  if (left > 0) {
    text += artefacts(left) + " (" + human_bytes(number_at(report, "left_bytes")) +
            ") would be compiled again by jobs that need them: inductorfs warm fetches them now\n";
  }
  if (const uint64_t unused = number_at(report, "scopes") - number_at(report, "followed"); unused > 0) {
    text += "a job in an environment that no job here uses would compile: the names of " + std::to_string(unused) +
            " of " + std::to_string(number_at(report, "scopes")) + " scopes come from the server\n";
  }
  return text;
}

std::string server_away_text(const Json& status, const std::string& why) {
  const Json& catalog = part_of(status, "catalog");
  return "the server does not answer now (" + config::printable(why) +
         ")\njobs go on with what is on this host: " + std::to_string(number_at(catalog, "entries")) +
         " entries of the cluster are known, and " + human_bytes(number_at(part_of(status, "store"), "bytes")) +
         " in the store; what is not there is compiled again\n" + std::to_string(number_at(catalog, "queued")) +
         " groups wait to be published until it is back\n";
}

std::string not_complete_text(const Json& report, const std::string& mountpoint) {
  std::string reasons;
  for (const Json& reason : part_of(report, "why")) reasons += (reasons.empty() ? "" : "; ") + plain_item(reason);
  const uint64_t missing = number_at(report, "failed") + number_at(report, "left");
  return artefacts(missing) + " did not come: " + mountpoint + ": " +
         (reasons.empty() ? "the daemon tells no reason" : reasons);
}

std::unique_ptr<Subcommand> warm_command() { return std::make_unique<WarmCommand>(); }

}  // namespace inductorfs::cli
