// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "cli/commands/metrics_http.h"
#include "cli/common/answer_text.h"
#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/mount/process.h"

namespace inductorfs::cli {

using config::Json;
using config::part_of;
using config::text_at;

namespace {

/// Each mount has this long: who scrapes waits ten seconds by default.
constexpr Milliseconds kPatience{2'000};
constexpr unsigned kMode = 0644;  ///< the collector is another user

enum class Kind { kCounter, kGauge, kNanoseconds, kMilliseconds };

/// One figure, and where it stands in the answer of `status`.
struct Figure {
  const char* name;  ///< behind inductorfs_, without _total
  Kind kind;
  const char* part;
  const char* key;
  const char* help;
};

constexpr std::array kFigures{
    Figure{"keys_asked", Kind::kCounter, "counters", "keys.asked",
           "Keys that jobs asked for: those of _local, _cluster and _missed together."},
    Figure{"keys_local", Kind::kCounter, "counters", "keys.local",
           "Keys that jobs asked for and that this host had made itself; each once for a job, as all keys_ figures."},
    Figure{"keys_cluster", Kind::kCounter, "counters", "keys.cluster",
           "Keys that jobs asked for and that the cluster had."},
    Figure{"keys_missed", Kind::kCounter, "counters", "keys.missed",
           "Keys that jobs asked for in vain, so that they compiled."},
    Figure{"keys_made", Kind::kCounter, "counters", "keys.made", "Keys that jobs made."},
    Figure{"keys_published", Kind::kCounter, "counters", "keys.published",
           "Keys that jobs made and that the cluster has taken."},
    Figure{"saved_seconds", Kind::kMilliseconds, "counters", "keys.saved_ms",
           "What the compiles took whose results jobs found, at least."},
    Figure{"lookups_first_touched", Kind::kCounter, "counters", "lookup.first_touch",
           "Files of the cluster that a process opened for the first time on this host."},
    Figure{"lookups_unanswered", Kind::kCounter, "counters", "lookup.not_now",
           "Lookups that were misses because the cluster did not answer in time."},
    Figure{"lookups_lost", Kind::kCounter, "counters", "lookup.lost",
           "Files that the cluster had named and did not have any more."},
    Figure{"fetched_blobs", Kind::kCounter, "counters", "fetch.blobs", "Blobs fetched from the cluster."},
    Figure{"fetched_bytes", Kind::kCounter, "counters", "fetch.bytes", "Bytes of blobs fetched, before compression."},
    Figure{"fetch_failures", Kind::kCounter, "counters", "fetch.failed", "Blobs that could not be fetched."},
    Figure{"fetches_late", Kind::kCounter, "counters", "fetch.late", "Lookups that did not wait for their blob."},
    Figure{"fetches_corrupt", Kind::kCounter, "counters", "fetch.corrupt",
           "Blobs whose bytes were not those of their name."},
    Figure{"fetches_repeated", Kind::kCounter, "counters", "fetch.read_again",
           "Blobs that were read once more: damaged, or of a newer release, or a bit flipped on the way."},
    Figure{"fetches_refused", Kind::kCounter, "counters", "fetch.refused",
           "Blobs that were not asked for because the server was given up for a while."},
    Figure{"fetches_unfit", Kind::kCounter, "counters", "fetch.not_for_this_host",
           "Artefacts of the cluster that do not fit this host."},
    Figure{"foreseen_artefacts", Kind::kCounter, "counters", "starts.foreseen",
           "Artefacts fetched because an earlier start of the same job had asked for them."},
    Figure{"foreseen_artefacts_used", Kind::kCounter, "counters", "starts.used",
           "Artefacts of these that a program has opened."},
    Figure{"foreseen_bytes", Kind::kCounter, "counters", "starts.foreseen_bytes", "Bytes of the artefacts foreseen."},
    Figure{"foreseen_bytes_used", Kind::kCounter, "counters", "starts.used_bytes",
           "Bytes of the artefacts foreseen that a program has opened."},
    Figure{"leases_taken", Kind::kCounter, "counters", "leases.taken",
           "Graphs that a process of this mount compiled for all others."},
    Figure{"lease_waits", Kind::kCounter, "counters", "leases.waits",
           "Processes that waited for another one to compile a graph."},
    Figure{"lease_waits_served", Kind::kCounter, "counters", "leases.served",
           "Processes of these that got the artefact."},
    Figure{"lease_waits_too_long", Kind::kCounter, "counters", "leases.too_long",
           "Processes of these that waited for as long as they may, in vain."},
    Figure{"lease_waits_for_idle", Kind::kCounter, "counters", "leases.idle",
           "Processes of these that were let go because the one that compiles waited itself."},
    Figure{"published_groups", Kind::kCounter, "counters", "publish.published", "Groups of artefacts published."},
    Figure{"published_bytes", Kind::kCounter, "counters", "remote.publish_bytes", "Bytes sent to the cluster."},
    Figure{"publish_superseded", Kind::kCounter, "counters", "publish.superseded",
           "Groups that another node had published first."},
    Figure{"publish_kept_local", Kind::kCounter, "counters", "publish.kept_local", "Groups that stayed on this host."},
    Figure{"publish_refused", Kind::kCounter, "counters", "publish.refused", "Groups that the cluster refused."},
    Figure{"publish_dropped", Kind::kCounter, "counters", "publish.dropped",
           "Groups dropped because the queue was full."},
    Figure{"sealed_refused", Kind::kCounter, "counters", "seal.refused",
           "Files of jobs that failed a check and stay on this host."},
    Figure{"sealed_files", Kind::kCounter, "counters", "seal.sealed", "Files of jobs found complete."},
    Figure{"foreign_files", Kind::kGauge, "file_system", "foreign",
           "Artefacts that stay on this host because of who wrote them, or how."},
    Figure{"evicted_blobs", Kind::kCounter, "counters", "store.evicted", "Blobs evicted from the local store."},
    Figure{"remote_circuit_openings", Kind::kCounter, "counters", "remote.breaker_opened",
           "How often the server was given up for a while."},
    Figure{"remote_connections", Kind::kCounter, "counters", "remote.connections_opened", "Connections opened."},
    Figure{"remote_configured", Kind::kGauge, "remote", "configured", "1 if the mount has a server."},
    Figure{"remote_reachable", Kind::kGauge, "remote", "reachable", "1 while the server answers."},
    Figure{"remote_publishes", Kind::kGauge, "remote", "publishes",
           "1 if the mount publishes what its jobs write; 0 with --no-publish, --read-only or no --remote."},
    Figure{"missing_nodes", Kind::kGauge, "remote", "missing_nodes",
           "Mounts of the cluster that ended in the last 7 days without an unmount, and have not come back."},
    Figure{"remote_memory_bytes", Kind::kGauge, "remote", "memory_used", "Memory that the server uses."},
    Figure{"remote_memory_limit_bytes", Kind::kGauge, "remote", "memory_limit",
           "The most that the server may use (maxmemory); 0: there is none."},
    Figure{"remote_evicted_keys", Kind::kCounter, "remote", "evicted_keys", "Keys that the server has evicted."},
    Figure{"frozen", Kind::kGauge, "cluster", "frozen", "1 while the cluster is frozen."},
    Figure{"fuse_requests", Kind::kCounter, "counters", "fuse.requests", "Requests of the kernel answered."},
    Figure{"fuse_seconds", Kind::kNanoseconds, "counters", "fuse.nanoseconds", "Time spent on requests of the kernel."},
    Figure{"fuse_slow_requests", Kind::kCounter, "counters", "fuse.slow", "Requests of the kernel that took long."},
    Figure{"catalog_entries", Kind::kGauge, "catalog", "entries", "Entries of the cluster that this mount knows."},
    Figure{"queued_groups", Kind::kGauge, "catalog", "queued", "Groups that wait to be published."},
    Figure{"unsealed_files", Kind::kGauge, "file_system", "unsealed", "Files of jobs not known to be complete yet."},
    Figure{"store_bytes", Kind::kGauge, "store", "bytes", "Bytes of blobs in the local store."},
    Figure{"store_limit_bytes", Kind::kGauge, "store", "size_limit", "The most bytes of blobs in the local store."},
    Figure{"roots", Kind::kGauge, "file_system", "roots", "Cache roots in use."},
    Figure{"restarts", Kind::kCounter, "takeover", "restarts", "Workers started after a crash."},
    Figure{"safe_mode", Kind::kGauge, "takeover", "safe_mode", "1 while the remote is off after crashes."},
    Figure{"facts_age_seconds", Kind::kGauge, "facts", "age_s", "How long ago the facts of this host were learned."},
};

/// One histogram, and its name in the answer of `status`.
struct Durations {
  const char* name;  ///< behind inductorfs_
  const char* key;
  const char* help;
};

constexpr std::array kDurations{
    Durations{"lookup_wait_seconds", "lookup.wait", "How long a lookup waited for bytes of the cluster."},
    Durations{"lease_wait_seconds", "lease.wait", "How long a process waited for another one to compile a graph."},
    Durations{"fuse_request_seconds", "fuse.request",
              "How long a thread worked on a request of the kernel, without what a lookup waited for the cluster."},
    Durations{"publish_seconds", "publish", "How long a complete group of files waited until the cluster had it."},
};

constexpr double kSecond = 1e9;

std::string label(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string formatted(double value, std::chars_format form, int digits) {
  std::array<char, 64> text{};
  return {text.data(), std::to_chars(text.begin(), text.end(), value, form, digits).ptr};
}

/// With a point or an exponent, so that a series has one name however it is read: OpenMetrics asks for it.
std::string bound_text(uint64_t nanoseconds) {
  std::string text = formatted(static_cast<double>(nanoseconds) / kSecond, std::chars_format::general, 6);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

/// The samples of one mount; empty when this daemon does not tell them, or tells what is no histogram.
std::string histogram_samples(const Json& mount, const Durations& durations) {
  const Json& part = part_of(part_of(mount, "histograms"), durations.key);
  const Json& bounds = part_of(part, "bounds");
  const Json& cumulative = part_of(part, "cumulative");
  if (!bounds.is_array() || !cumulative.is_array() || cumulative.size() != bounds.size() + 1) return {};
  const std::string name = std::string("inductorfs_") + durations.name;
  const std::string mountpoint = "{mountpoint=\"" + label(text_at(mount, "mountpoint")) + "\"";
  std::string samples;
  for (size_t i = 0; i < cumulative.size(); ++i) {
    const bool last = i == bounds.size();
    if (!cumulative[i].is_number_unsigned() || (!last && !bounds[i].is_number_unsigned())) return {};
    samples += name + "_bucket" + mountpoint + ",le=\"" + (last ? "+Inf" : bound_text(bounds[i].get<uint64_t>())) +
               "\"} " + std::to_string(cumulative[i].get<uint64_t>()) + "\n";
  }
  samples += name + "_count" + mountpoint + "} " + std::to_string(cumulative.back().get<uint64_t>()) + "\n";
  const double sum = static_cast<double>(config::number_at(part, "sum")) / kSecond;
  return samples + name + "_sum" + mountpoint + "} " + formatted(sum, std::chars_format::fixed, 9) + "\n";
}

std::string histogram_family(const Json& mounts, const Durations& durations) {
  std::string samples;
  for (const Json& mount : mounts) samples += histogram_samples(mount, durations);
  if (samples.empty()) return {};
  const std::string name = std::string("inductorfs_") + durations.name;
  return "# HELP " + name + " " + durations.help + "\n# TYPE " + name + " histogram\n" + samples;
}

/// The value of a figure that is not in the answer. The daemon makes some counters at their first event only; without
/// the 0 before it, rate() would not see that event. What a daemon of another version has is not known.
std::string absent_value(const Json& mount, const Figure& figure) {
  const bool counted = figure.kind != Kind::kGauge && figure.part == std::string_view("counters") &&
                       part_of(mount, figure.part).is_object() && text_at(mount, "version") == INDUCTORFS_VERSION;
  return counted ? "0" : "";
}

/// The value as text; empty when this daemon does not tell it.
std::string value_of(const Json& mount, const Figure& figure) {
  const Json& part = part_of(mount, figure.part);
  const auto found = part.is_object() ? part.find(figure.key) : part.end();
  if (!part.is_object() || found == part.end()) return absent_value(mount, figure);
  if (found->is_boolean()) return found->get<bool>() ? "1" : "0";
  if (!found->is_number_unsigned()) return {};
  const auto number = found->get<uint64_t>();
  if (figure.kind == Kind::kCounter || figure.kind == Kind::kGauge) return std::to_string(number);
  const bool is_fine = figure.kind == Kind::kNanoseconds;
  return formatted(static_cast<double>(number) / (is_fine ? kSecond : 1e3), std::chars_format::fixed, is_fine ? 6 : 3);
}

/// A family of one sample for each mount that has a value.
std::string family(const std::string& name, bool is_counter, const std::string& help, const Json& mounts,
                   const std::function<std::string(const Json&)>& value) {
  const std::string sample = is_counter ? name + "_total" : name;
  std::string samples;
  for (const Json& mount : mounts) {
    const std::string number = value(mount);
    if (number.empty()) continue;
    samples += sample + "{mountpoint=\"" + label(text_at(mount, "mountpoint")) + "\"} " + number + "\n";
  }
  if (samples.empty()) return {};
  return "# HELP " + sample + " " + help + "\n# TYPE " + sample + (is_counter ? " counter\n" : " gauge\n") + samples;
}

/// The misses of each reason, as the daemon names it.
std::string missed_family(const Json& mounts) {
  constexpr std::string_view kPrefix = "keys.missed.";
  const std::string name = "inductorfs_keys_missed_by_reason_total";
  std::string samples;
  for (const Json& mount : mounts) {
    for (const auto& [counter, value] : part_of(mount, "counters").items()) {
      if (!counter.starts_with(kPrefix) || !value.is_number_unsigned()) continue;
      samples += name + "{mountpoint=\"" + label(text_at(mount, "mountpoint")) + "\",reason=\"" +
                 label(config::printable(counter.substr(kPrefix.size()))) + "\"} " +
                 std::to_string(value.get<uint64_t>()) + "\n";
    }
  }
  if (samples.empty()) return {};
  return "# HELP " + name + " Keys of inductorfs_keys_missed_total, by the reason that `inductorfs why-miss` tells.\n" +
         "# TYPE " + name + " counter\n" + samples;
}

class MetricsCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_path("MOUNTPOINT", path_, "directory of the mount; without it all mounts of this user and of root");
    words.add("--output", &output_, "write to FILE, for node_exporter's textfile collector, not to standard output",
              "FILE");
    words.add("--http", &http_, "read one HTTP request from standard input and answer it on standard output")
        .excludes = {"--output"};
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    std::vector<Located> mounts;
    if (path_.empty()) {
      mounts = all_mounts(environment);
      std::ranges::move(missing_mounts(mounts, environment), std::back_inserter(mounts));
    } else {
      auto mount = locate_mount(absolute(path_), environment);
      if (!mount) return fail_with(mount.error());
      mounts.push_back(std::move(*mount));
    }
    if (http_) {
      serve_scrape(STDIN_FILENO, STDOUT_FILENO, [&] { return metrics_text(statuses(mounts, kPatience, environment)); });
      return kExitDone;
    }
    const Json all = statuses(mounts, kPatience, environment);
    if (output_.empty()) return print(metrics_text(all));
    (void)::umask(S_IWGRP | S_IWOTH);  // the caller's may forbid the collector to read it
    const auto written = write_file_atomically(AT_FDCWD, absolute(output_), metrics_text(all), kMode);
    if (written) return kExitDone;
    if (written.error().code() != ErrorCode::kNotFound) {
      return fail_query(mount::wrong_path(written.error()).value(), false);
    }
    return fail_options(
        Error(ErrorCode::kNotFound, "write " + absolute(output_) + ": its directory is not there; make it first"));
  }

 private:
  std::string path_;
  std::string output_;
  bool http_ = false;
};

}  // namespace

std::string metrics_text(const Json& mounts) {
  std::string text =
      family("inductorfs_up", false,
             "1 if the daemon of the mount answers; 0 also where nothing is mounted and a unit is enabled or has a "
             "configuration.",
             mounts, [](const Json& mount) { return mount.contains("error") ? "0" : "1"; });
  for (const Figure& figure : kFigures) {
    text += family(std::string("inductorfs_") + figure.name, figure.kind != Kind::kGauge, figure.help, mounts,
                   [&figure](const Json& mount) { return value_of(mount, figure); });
  }
  text += missed_family(mounts);
  for (const Durations& durations : kDurations) text += histogram_family(mounts, durations);
  text +=
      family("inductorfs_warnings", false, "Warnings that `inductorfs status` shows.", mounts, [](const Json& mount) {
        const auto warnings = mount.find("warnings");
        return warnings == mount.end() || !warnings->is_array() ? "" : std::to_string(warnings->size());
      });
  text += family("inductorfs_unknown_programs", false,
                 "Programs that share nothing because their environment is not known.", mounts, [](const Json& mount) {
                   const auto programs = mount.find("unknown_programs");
                   if (programs == mount.end() || !programs->is_array()) return std::string();
                   uint64_t sum = 0;
                   for (const Json& one : *programs) sum += config::number_at(one, "processes");
                   return std::to_string(sum);
                 });
  return text;
}

std::unique_ptr<Subcommand> metrics_command() { return std::make_unique<MetricsCommand>(); }

}  // namespace inductorfs::cli
