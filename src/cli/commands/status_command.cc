// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "cli/common/answer_text.h"
#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "cli/doctor/doctor_findings.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/requests.h"

namespace inductorfs::cli {

using config::flag_at;
using config::human_bytes;
using config::Json;
using config::line;
using config::list_text;
using config::number_at;
using config::part_of;
using config::plain_item;
using config::text_at;

namespace {

/// Each mount of a list has less time than one that was asked for.
constexpr Milliseconds kListPatience{2'000};

/// The comment of a public line, or the line where it has none.
std::string name_of_key(const std::string& line) {
  const size_t key = line.find(' ');
  const size_t comment = key == std::string::npos ? key : line.find(' ', key + 1);
  return comment == std::string::npos ? line : line.substr(comment + 1);
}

std::string remote_text(const Json& remote) {
  const auto configured = remote.find("configured");
  if (configured == remote.end() || !configured->is_boolean() || !configured->get<bool>()) return "none: a local cache";
  const auto reachable = remote.find("reachable");
  const bool up = reachable != remote.end() && reachable->is_boolean() && reachable->get<bool>();
  std::string text = text_at(remote, "address") + (up ? ", reachable" : ", NOT reachable");
  if (up) text += server_text(remote);
  if (const uint64_t missing = number_at(remote, "missing_nodes"); up && missing > 0) {
    text += ", " + std::to_string(missing) + (missing == 1 ? " node" : " nodes") + " MISSING (inductorfs nodes)";
  }
  if (!up && !text_at(remote, "last_error").empty()) text += ": " + text_at(remote, "last_error");
  if (up && !text_at(remote, "refuses_writes").empty()) text += ", REFUSES WRITES";
  if (const auto signer = text_at(remote, "signing_key"); !signer.empty()) text += "; signs as " + name_of_key(signer);
  if (flag_at(remote, "read_only")) return text + "; --read-only: this mount changes nothing there";
  if (remote.contains("publishes") && !flag_at(remote, "publishes"))
    text += "; --no-publish: what jobs write stays here";
  return text;
}

std::string catalog_text(const Json& catalog) {
  std::string text = std::to_string(number_at(catalog, "entries")) + " entries, " +
                     std::to_string(number_at(catalog, "hidden")) + " hidden here, " +
                     std::to_string(number_at(catalog, "queued")) + " queued";
  const std::string why = text_at(catalog, "oldest_queued_error");
  if (!why.empty()) text += " (oldest: " + why + ")";
  return text;
}

std::string counter_text(const Json& counters) {
  const auto count = [&](const char* name) { return std::to_string(number_at(counters, name)); };
  return count("lookup.first_touch") + " files of the cluster opened for the first time, " + count("fetch.blobs") +
         " blobs fetched (" + human_bytes(number_at(counters, "fetch.bytes")) + "), " + count("publish.published") +
         " groups published, " + count("publish.kept_local") + " kept local, " + count("lookup.lost") + " lost" +
         (number_at(counters, "publish.parked") > 0 ? ", " + count("publish.parked") + " parked after errors" : "");
}

/// When the facts were learned, and what has become of them since.
std::string facts_text(const Json& facts) {
  std::string text = flag_at(facts, "from_file") ? "from a file, read " : "learned ";
  text += config::human_seconds(number_at(facts, "age_s")) + " ago, " + std::to_string(number_at(facts, "changes")) +
          " changes in " + std::to_string(number_at(facts, "probes")) + " probes";
  if (!text_at(facts, "problem").empty()) text += "; the last probe failed: " + text_at(facts, "problem");
  return text;
}

/// Whose artefacts are shared with whom; nothing of a daemon that does not tell.
std::string writers_text(const std::string& policy) {
  if (policy == "learned") return line("writers", "learned: each program's own environment says what fits it");
  if (policy == "matching")
    return line("writers", "matching: what programs of this mount's environment write is shared");
  if (policy == "pod") return line("writers", "pod: every program counts as having this mount's environment");
  return policy == "all" ? line("writers", "all: whatever is written is shared, whoever writes it") : std::string();
}

/// Nothing while nothing has happened.
std::string takeover_text(const Json& takeover) {
  const uint64_t restarts = number_at(takeover, "restarts");
  const uint64_t upgrades = number_at(takeover, "upgrades");
  if (restarts == 0 && upgrades == 0 && !flag_at(takeover, "safe_mode")) return {};
  std::string text = std::to_string(restarts) + " restarts after crashes";
  if (restarts > 0)
    text += " (the last: " + text_at(takeover, "last_end") + ", " + text_at(takeover, "last_crash") + ")";
  text += ", " + std::to_string(upgrades) + " upgrades";
  if (const uint64_t failed = number_at(takeover, "upgrades_failed"); failed > 0) {
    text += ", " + std::to_string(failed) + " of them failed";
  }
  if (const uint64_t back = number_at(takeover, "upgrades_taken_back"); back > 0) {
    text += ", " + std::to_string(back) + " taken back because the new program crashed";
  }
  if (flag_at(takeover, "safe_mode")) text += "; SAFE MODE: the remote is off";
  return line("takeover", text);
}

std::string foreign_text(const Json& files) {
  const uint64_t count = number_at(files, "foreign");
  if (count == 0) return {};
  std::string text =
      line("foreign", std::to_string(count) + " artefacts stay here, because of who wrote them, or how:");
  for (const Json& reason : part_of(files, "foreign_reasons")) text += line("", plain_item(reason));
  return text;
}

/// Nothing where only the mountpoint is used.
std::string roots_text(const Json& files, const Json& counters) {
  const uint64_t count = number_at(files, "roots");
  const Json& first = part_of(files, "first_roots");
  std::string text = list_text("roots", first, [](const Json& item) {
    const std::string path = text_at(item, "path");
    return (path.empty() ? "." : path) + " (of uid " + std::to_string(number_at(item, "owner")) + ", shared with " +
           text_at(item, "shared_with") +
           (text_at(item, "environment").empty() ? "" : ", for " + text_at(item, "environment")) + ")";
  });
  if (count > first.size()) text += line("", "and " + std::to_string(count - first.size()) + " more");
  if (const uint64_t refused = number_at(counters, "lookup.too_many_roots"); refused > 0) {
    text += line("", std::to_string(refused) + " lookups in further roots found nothing of the cluster: at most 1024 " +
                         "roots, 512 of one owner, are in use at the same time; remove or merge some");
  }
  return text;
}

/// Nothing where no file of jobs lies here. Who may have all is not told a limit.
std::string users_text(const Json& files) {
  const auto of = [](uint64_t limit, const std::string& text) { return limit == 0 ? "" : " of " + text; };
  const uint64_t bytes = number_at(files, "user_bytes");
  const uint64_t count = number_at(files, "user_files");
  const uint64_t requests = number_at(files, "user_requests");
  std::string text = list_text("users", part_of(files, "users"), [&](const Json& item) {
    const uint64_t user = number_at(item, "user");
    const bool is_limited = flag_at(item, "limited");
    const uint64_t under_way = number_at(item, "requests");
    return "uid " + std::to_string(user) + ": " + human_bytes(number_at(item, "bytes")) +
           of(is_limited ? bytes : 0, human_bytes(bytes)) + ", " + std::to_string(number_at(item, "files")) +
           of(is_limited ? count : 0, std::to_string(count)) + " files" +
           (under_way == 0 ? ""
                           : ", " + std::to_string(under_way) + of(requests, std::to_string(requests)) + " requests");
  });
  if (!text.empty() && !flag_at(files, "users_known")) text += line("", "and what is still being counted");
  return text;
}

/// Of the user who asks, whose jobs keep torch's headers elsewhere.
void add_headers(const Located& mount, const config::Environment& environment, Json& status) {
  const std::string own = mount_around(environment("TORCHINDUCTOR_CACHE_DIR").value_or(""));
  const auto warnings = status.find("warnings");
  if (own != mount.mountpoint || warnings == status.end() || !warnings->is_array()) return;
  if (part_of(status, "also").empty()) return;  // with --no-also somebody has decided
  const config::User user = config::current_user(environment);
  const auto finding = finding_of_headers(mount_around, config::torch_default_directory(user, environment));
  if (finding) warnings->push_back(finding->what + ": " + finding->remedy);
}

class StatusCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_path("PATH", path_, "directory of the mount, or a path in it");
    words.add_json(json_);
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    if (path_.empty()) return list(environment);
    const std::string path = absolute(path_);
    auto mount = locate_mount(path, environment);
    if (!mount && mount.error().code() == ErrorCode::kNotFound) {
      auto around = locate_path(path, environment);
      if (around) mount = std::move(around->mount);
    }
    if (!mount) return fail_query(mount.error(), json_);
    const auto status = ask_daemon(*mount, control::status_request(), kQueryPatience, environment);
    if (!status) return fail_query(status.error(), json_);
    Json told = config::from_text(*status);
    add_headers(*mount, environment, told);
    return print(json_ ? config::to_pretty(told) + "\n" : status_text(config::to_line(told)));
  }

 private:
  [[nodiscard]] int list(const config::Environment& environment) const {
    std::vector<Located> mounts = all_mounts(environment);
    std::ranges::move(missing_mounts(mounts, environment), std::back_inserter(mounts));
    const Json all = statuses(mounts, kListPatience, environment);
    return print(json_ ? config::to_pretty(all) + "\n" : mounts_text(all));
  }

  std::string path_;
  bool json_ = false;
};

}  // namespace

std::string server_text(const Json& server) {
  if (!server.contains("version")) return {};
  const std::string version = ", Redis " + text_at(server, "version");
  if (!server.contains("memory_used")) return version;  // an earlier daemon does not tell it
  const uint64_t limit = number_at(server, "memory_limit");
  const uint64_t evicted = number_at(server, "evicted_keys");
  return version + ", " + human_bytes(number_at(server, "memory_used")) +
         (limit == 0 ? " without a maxmemory"
                     : " of " + human_bytes(limit) + " " + text_at(server, "eviction_policy")) +
         (evicted == 0 ? "" : ", " + std::to_string(evicted) + " keys evicted");
}

std::string status_text(std::string_view json) {
  const Json status = config::from_text(json);
  if (!status.is_object()) return {};
  const Json& store = part_of(status, "store");
  const Json& files = part_of(status, "file_system");
  std::string text;
  text += line("mountpoint", text_at(status, "mountpoint") + " (pid " + part_of(status, "pid").dump() + ", version " +
                                 text_at(status, "version") + ")");
  text += line("remote", remote_text(part_of(status, "remote")));
  text += line("catalog", catalog_text(part_of(status, "catalog")));
  text +=
      line("store", text_at(store, "directory") + ": " + std::to_string(number_at(store, "blobs")) + " blobs, " +
                        human_bytes(number_at(store, "bytes")) + " of " + human_bytes(number_at(store, "size_limit")) +
                        ", " + std::to_string(number_at(store, "evicted")) + " evicted");
  text += line("files", std::to_string(number_at(files, "nodes")) + " known to the kernel, " +
                            std::to_string(number_at(files, "unsealed")) + " not complete yet, " +
                            std::to_string(number_at(files, "contested")) + " Triton kernels being written");
  text += roots_text(files, part_of(status, "counters"));
  text += users_text(files);
  text += list_text("in place", part_of(files, "in_place"), plain_item);
  text += line("traffic", counter_text(part_of(status, "counters")));
  const Json& facts = part_of(status, "facts");
  text += line("facts", facts_text(facts));
  text += writers_text(text_at(facts, "writers"));
  text += takeover_text(part_of(status, "takeover"));
  text += list_text("last change", part_of(facts, "last_change"), plain_item);
  text += list_text("also", part_of(status, "also"), [](const Json& item) {
    return text_at(item, "path") + " shows " + text_at(item, "name") + ": " + text_at(item, "state");
  });
  text += list_text("private", part_of(status, "private_families"),
                    [](const Json& item) { return text_at(item, "family") + ": " + text_at(item, "why"); });
  text += foreign_text(files);
  text += list_text("not known", part_of(status, "unknown_programs"), [](const Json& item) {
    const uint64_t count = number_at(item, "processes");
    return std::to_string(count) + (count == 1 ? " program" : " programs") + " of uid " +
           std::to_string(number_at(item, "user")) + ": " + text_at(item, "why");
  });
  text += list_text("refused", part_of(files, "refused"), plain_item);
  text += list_text("warning", part_of(status, "warnings"), plain_item);
  return text;
}

std::string mounts_text(const Json& mounts) {
  if (!mounts.is_array() || mounts.empty()) {
    return "no inductorfs mount of this user or of root is here: inductorfs mount MOUNTPOINT makes one\n";
  }
  std::string text;
  for (const Json& mount : mounts) {
    const std::string error = text_at(mount, "error");
    const Json& store = part_of(mount, "store");
    text += text_at(mount, "mountpoint") + "\n";
    if (!error.empty()) {
      text += "    " + error + "\n";
      continue;
    }
    text += "    remote " + remote_text(part_of(mount, "remote")) + "\n    " +
            std::to_string(number_at(part_of(mount, "catalog"), "entries")) + " entries, " +
            std::to_string(number_at(part_of(mount, "catalog"), "queued")) + " queued; store " +
            human_bytes(number_at(store, "bytes")) + " of " + human_bytes(number_at(store, "size_limit")) + "; " +
            std::to_string(number_at(part_of(mount, "file_system"), "foreign")) + " artefacts stay here, " +
            std::to_string(part_of(mount, "warnings").size()) + " warnings\n";
  }
  return text;
}

std::unique_ptr<Subcommand> status_command() { return std::make_unique<StatusCommand>(); }

}  // namespace inductorfs::cli
