// SPDX-License-Identifier: Apache-2.0
#include "sharing.h"

#include <gtest/gtest.h>

#include "facts.h"

namespace inductorfs::daemon {
namespace {

using fingerprint::Facet;
using fingerprint::Fact;
using fingerprint::Fingerprint;

Settings with_remote() {
  Settings settings;
  settings.remote = "redis://cache.example";
  return settings;
}

Scopes all_known() { return Scopes(testing_facts::all_known({})); }

Fingerprint facts_with(const Fact& torch) {
  Fingerprint facts = testing_facts::all_known({});
  facts.set(Facet::kTorch, torch);
  return facts;
}

TEST(SharingWarning, IsSilentWhereTorchIsKnown) {
  EXPECT_EQ(sharing_warning(with_remote(), testing_facts::all_known({})), "");
}

TEST(SharingWarning, NamesTheInterpreterWithoutTorch) {
  const Fingerprint none = facts_with({true, "none", "/usr/bin/python3", {}, {}});
  EXPECT_EQ(sharing_warning(with_remote(), none),
            "nothing that torch makes will be shared: /usr/bin/python3 has no torch; name the job's interpreter with "
            "--python");
  Settings from_file = with_remote();
  from_file.fingerprint = "/etc/facts.json";
  EXPECT_NE(sharing_warning(from_file, none).find("/etc/facts.json says that there is no torch"), std::string::npos);
  EXPECT_EQ(sharing_warning(Settings{}, none), "") << "a local cache of which nothing was named";
  Settings local;
  local.python = "/usr/bin/python3";
  EXPECT_NE(sharing_warning(local, none), "");
}

TEST(SharingWarning, GivesTheReasonWhereTorchIsNotKnown) {
  Fingerprint unknown = facts_with({false, {}, {}, "no RECORD", {}});
  EXPECT_NE(sharing_warning(with_remote(), unknown).find("torch is not known: no RECORD"), std::string::npos);
  unknown.set(Facet::kPython, {false, {}, {}, "/no/python: no such program; name the interpreter with --python", {}});
  EXPECT_EQ(sharing_warning(with_remote(), unknown),
            "nothing that torch makes will be shared: /no/python: no such program; name the interpreter with --python");
}

TEST(SyncReport, CountsWhatWentAndWhatStayed) {
  Counters counters;
  vfs::FileSystemStatus files;
  EXPECT_EQ(sync_text(sync_report(with_remote(), counters, files, all_known())), "published 0 groups\n");
  EXPECT_EQ(sync_report(with_remote(), counters, files, all_known())["nothing_shared"], false) << "nothing was written";
  files.foreign = 2;
  files.foreign_reasons = {"the writer has no torch loaded"};
  EXPECT_EQ(sync_report(with_remote(), counters, files, all_known())["nothing_shared"], false) << "found at the start";
  counters.get("seal.foreign").add(2);
  const Json kept = sync_report(with_remote(), counters, files, all_known());
  EXPECT_EQ(kept["nothing_shared"], true);
  EXPECT_EQ(sync_text(kept), "published 0 groups; kept 2 artefacts on this host: the writer has no torch loaded\n");
  counters.get("publish.published").add();
  files.refused = {"a/b: needs GLIBC_2.41", "a/c: too large", "a/d: no form"};
  counters.get("seal.refused").add(3);
  const Json some = sync_report(with_remote(), counters, files, all_known());
  EXPECT_EQ(some["nothing_shared"], false);
  EXPECT_EQ(sync_text(some),
            "published 1 group; kept 5 artefacts on this host: the writer has no torch loaded; a/b: "
            "needs GLIBC_2.41; a/c: too large; and more: see inductorfs status\n");
}

TEST(SyncReport, NamesTheFactThatIsNotKnown) {
  Counters counters;
  counters.get("seal.unknown").add(2);
  const Scopes scopes(facts_with({false, {}, {}, "no such program", {}}));
  const Json report = sync_report(with_remote(), counters, {}, scopes);
  EXPECT_EQ(report["nothing_shared"], true);
  EXPECT_TRUE(sync_text(report).starts_with("published 0 groups; kept 2 artefacts on this host: facet torch: "))
      << sync_text(report);
}

TEST(SyncReport, TakesAContestThatWasLostForShared) {
  Counters counters;
  vfs::FileSystemStatus files;
  counters.get("seal.foreign").add();
  counters.get("publish.kept_local").add();
  EXPECT_EQ(sync_report(with_remote(), counters, files, all_known())["nothing_shared"], false);
}

TEST(SyncReport, IsEmptyForALocalCacheAndForAnotherVersion) {
  Counters counters;
  counters.get("seal.foreign").add();
  EXPECT_EQ(sync_report(Settings{}, counters, {}, all_known()), Json::object());
  EXPECT_EQ(sync_text(Json::object()), "");
}

}  // namespace
}  // namespace inductorfs::daemon
