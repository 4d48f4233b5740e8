// SPDX-License-Identifier: Apache-2.0
#include "sharing.h"

#include <set>

#include "text.h"

namespace inductorfs::daemon {
namespace {

using fingerprint::Facet;
using fingerprint::Fact;

constexpr size_t kShownReasons = 3;

std::string counted(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

std::string sharing_warning(const Settings& settings, const fingerprint::Fingerprint& facts) {
  const bool expected = !settings.remote.empty() || !settings.python.empty() || !settings.fingerprint.empty();
  const Fact& torch = facts.get(Facet::kTorch);
  if (!expected || (torch.known && torch.value != "none")) return {};
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

Json sync_report(const Settings& settings, Counters& counters, const vfs::FileSystemStatus& files,
                 const Scopes& scopes) {
  if (settings.remote.empty()) return Json::object();
  const auto count = [&counters](const char* name) { return counters.get(name).get(); };
  const uint64_t published = count("publish.published");
  // What was found on the disk at the start counts as kept, but is no outcome of this sync.
  const uint64_t refused = count("seal.refused") + count("publish.refused") + count("publish.dropped");
  const uint64_t unknown = count("seal.unknown");
  const uint64_t kept_now = count("seal.foreign") + refused + unknown;
  Json why = Json::array();
  std::set<std::string> missing;  // many families miss the same facts
  for (const PrivateFamily& family : private_families(scopes)) missing.insert(family.why);
  for (const std::string& reason : missing) {
    if (unknown > 0) why.push_back(reason);
  }
  for (const std::string& reason : files.foreign_reasons) why.push_back(reason);
  for (const std::string& reason : files.refused) why.push_back(reason);
  if (count("publish.refused") > 0) why.push_back("the cluster refused some: see inductorfs explain of a file");
  if (count("publish.dropped") > 0) why.push_back("the queue was full (--queue-limit)");
  return {{"published", published},
          {"kept", files.foreign + refused + unknown},
          {"why", why},
          {"nothing_shared", kept_now > 0 && published == 0 && count("publish.kept_local") == 0}};
}

std::string sync_text(const Json& report) {
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

}  // namespace inductorfs::daemon
