// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/sharing.h"

#include <algorithm>
#include <map>
#include <set>

#include "inductorfs/base/log.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"

namespace inductorfs::mount {

using config::Json;

namespace {

using fingerprint::Facet;
using fingerprint::Fact;

/// Whose roots share with nobody, and why.
void add_unshared_roots(const vfs::FileSystemStatus& files, std::set<std::string>& reasons) {
  constexpr std::string_view kNobody = "nobody: ";
  constexpr size_t kMost = 5;
  for (const vfs::RootStatus& root : files.first_roots) {
    if (reasons.size() >= kMost || !root.shared_with.starts_with(kNobody)) continue;
    reasons.insert((root.path.empty() ? "the mountpoint" : config::printable(root.path)) +
                   " is shared with nobody: " + root.shared_with.substr(kNobody.size()));
  }
}

std::string remedy_for(const config::Settings& settings) {
  return settings.remote.starts_with("unix://")
             ? "check that the server runs, and that this user may write to its socket"
             : "check host, port and network";
}

}  // namespace

std::string sharing_warning(const config::Settings& settings, const fingerprint::Fingerprint& facts) {
  const bool expected = !settings.remote.empty() || !settings.python.empty() || !settings.fingerprint.empty();
  const Fact& torch = facts.get(Facet::kTorch);
  // Then the jobs bring theirs along.
  if (settings.writers == config::WritersPolicy::kLearned) return {};
  if (!expected || (torch.known && !torch.is_none())) return {};
  const std::string start = "nothing that torch makes will be shared: ";
  if (torch.known && !settings.fingerprint.empty()) {
    return start + settings.fingerprint +
           " says that there is no torch; make it with inductorfs fingerprint --json "
           "--python of the job's interpreter";
  }
  if (torch.known) return start + torch.source + " has no torch; name the job's interpreter with --python";
  const Fact& python = facts.get(Facet::kPython);
  return start + (python.known ? "torch is not known: " + torch.problem : python.problem);
}

Error unreached(const config::Settings& settings, const Error& error) {
  if (error.code() != ErrorCode::kUnavailable && error.code() != ErrorCode::kTimedOut) return error;
  const std::string why = error.what().empty() ? std::string(to_string(error.code())) : error.what();
  return Error(error.code(), "remote " + log::redact_url(settings.remote) + " does not answer: " + why + ": " +
                                 remedy_for(settings) + ", and try again");
}

std::string remote_warning(const config::Settings& settings, const remote::Operators::Health& health,
                           const std::string& refusal) {
  if (!refusal.empty()) {
    return "the remote refuses this mount: " + log::redact_url(settings.remote) + ": " + refusal +
           "; the mount serves what is on this host, tries again, and shares when the remote lets it";
  }
  if (settings.remote.empty() || health.reachable) return {};
  std::string why = health.last_error.empty() ? "no answer yet" : health.last_error;
  // A port that wants TLS says no more than this to a plain command.
  const bool may_want_tls = settings.remote.starts_with("redis://") && why.find("reset by peer") != std::string::npos;
  if (may_want_tls) why += " (if the port wants TLS, use rediss://)";
  return "the remote cannot be reached: " + log::redact_url(settings.remote) + ": " + why +
         "; the mount serves what is on this host, and shares when the remote answers: " + remedy_for(settings);
}

std::string namespace_warning(const config::Settings& settings, uint64_t writes) {
  const auto writers = settings.writers.value_or(config::WritersPolicy::kMatching);
  const bool looks = writers == config::WritersPolicy::kMatching || writers == config::WritersPolicy::kLearned;
  if (!looks || writes == 0) return {};
  return "nothing that jobs in another PID namespace write is shared, because this daemon cannot look at them; mount "
         "with --writers pod if all processes that use this mount have its environment, or run the daemon in the PID "
         "namespace of the host (hostPID)";
}

std::string unknown_text(const fingerprint::UnknownJobs& jobs) {
  return std::to_string(jobs.processes) + (jobs.processes == 1 ? " program" : " programs") + " of uid " +
         std::to_string(jobs.user) + ": " + config::printable(jobs.why);
}

Json sync_report(const config::Settings& settings, Counters& counters, const vfs::FileSystemStatus& files,
                 const host::Scopes& scopes, const std::vector<fingerprint::UnknownJobs>& unknown_jobs) {
  if (settings.remote.empty()) return Json::object({{"remote", false}});
  const auto count = [&counters](const char* name) { return counters.get(name).get(); };
  const uint64_t published = count("publish.published");
  // What was found on the disk at the start counts as kept, but is no outcome of this sync.
  const uint64_t refused = count("seal.refused") + count("publish.refused") + count("publish.dropped");
  const uint64_t damaged = count("seal.damaged");
  const uint64_t unknown = count("seal.unknown");
  // A group that lost its contest is no loss: the cluster has another's in its place. What is too large for the cluster
  // is one.
  const uint64_t superseded = count("publish.superseded");
  const uint64_t too_large = count("publish.kept_local") - std::min(superseded, count("publish.kept_local"));
  const uint64_t kept_now = count("seal.foreign") + refused + damaged + unknown + too_large;
  Json why = Json::array();
  for (const fingerprint::UnknownJobs& jobs : unknown_jobs) {
    if (unknown > 0) why.push_back("the environment is not known of " + unknown_text(jobs));
  }
  std::set<std::string> missing;  // many families miss the same facts
  if (settings.writers == config::WritersPolicy::kLearned) {
    missing.insert(
        "what the environments of their programs lack, or that these are not known: run inductorfs explain FILE, and "
        "see \"not known\" in inductorfs status");
    add_unshared_roots(files, missing);
  } else {
    for (const host::PrivateFamily& family : host::private_families(scopes)) missing.insert(family.why);
  }
  for (const std::string& reason : missing) {
    if (unknown > 0) why.push_back(reason);
  }
  for (const std::string& reason : files.foreign_reasons) why.push_back(reason);
  for (const std::string& reason : files.refused) why.push_back(reason);
  for (const std::string& path : files.still_written) why.push_back(path + ": still being written");
  if (damaged > 0) {
    why.push_back("the disk of --store damaged " + std::to_string(damaged) +
                  " artefacts before they were published, so they have gone; jobs compile them again");
  }
  if (count("publish.refused") > 0) why.push_back("the cluster refused some artefacts: run inductorfs explain FILE");
  const std::string policy = config::why_nothing_is_published(settings);
  if (!policy.empty() && too_large > 0) why.push_back(policy);
  if (policy.empty() && too_large > 0)
    why.push_back("some artefacts are larger than --artefact-limit: run inductorfs explain FILE");
  if (count("publish.dropped") > 0) why.push_back("the queue was full (--queue-limit)");
  return {{"published", published},
          {"kept", files.foreign + refused + damaged + unknown + too_large + files.still_written.size()},
          {"why", why},
          {"nothing_shared", kept_now > 0 && published == 0 && superseded == 0}};
}

}  // namespace inductorfs::mount
