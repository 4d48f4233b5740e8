// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/sharing.h"

#include <gtest/gtest.h>

#include "inductorfs/config/json.h"
#include "support/learned_facts.h"

namespace inductorfs::mount {

using config::Json;

namespace {

using fingerprint::Facet;
using fingerprint::Fingerprint;

config::Settings with_remote() {
  config::Settings settings;
  settings.remote = "redis://cache.example";
  return settings;
}

host::Scopes all_known() { return host::Scopes(testing::facts::all_known({})); }

TEST(SharingWarning, IsSilentWhereTorchIsKnown) {
  EXPECT_EQ(sharing_warning(with_remote(), testing::facts::all_known({})), "");
}

TEST(SharingWarning, NamesTheInterpreterWithoutTorch) {
  const Fingerprint none = testing::facts::all_known_but(Facet::kTorch, {true, "none", "/usr/bin/python3", {}, {}});
  EXPECT_EQ(sharing_warning(with_remote(), none),
            "nothing that torch makes will be shared: /usr/bin/python3 has no torch; name the job's interpreter with "
            "--python");
  config::Settings from_file = with_remote();
  from_file.fingerprint = "/etc/facts.json";
  EXPECT_NE(sharing_warning(from_file, none).find("/etc/facts.json says that there is no torch"), std::string::npos);
  EXPECT_EQ(sharing_warning(config::Settings{}, none), "") << "a local cache of which nothing was named";
  config::Settings local;
  local.python = "/usr/bin/python3";
  EXPECT_NE(sharing_warning(local, none), "");
}

TEST(SharingWarning, GivesTheReasonWhereTorchIsNotKnown) {
  Fingerprint unknown = testing::facts::all_known_but(Facet::kTorch, {false, {}, {}, "no RECORD", {}});
  EXPECT_NE(sharing_warning(with_remote(), unknown).find("torch is not known: no RECORD"), std::string::npos);
  unknown.set(Facet::kPython, {false, {}, {}, "/no/python: no such program; name the interpreter with --python", {}});
  EXPECT_EQ(sharing_warning(with_remote(), unknown),
            "nothing that torch makes will be shared: /no/python: no such program; name the interpreter with --python");
}

TEST(SharingWarning, IsNoneWhereTheJobsBringTheirEnvironmentsAlong) {
  config::Settings settings = with_remote();
  settings.writers = config::WritersPolicy::kLearned;
  EXPECT_EQ(sharing_warning(settings, testing::facts::all_known_but(Facet::kTorch, {false, {}, {}, "no RECORD", {}})),
            "");
  EXPECT_NE(namespace_warning(settings, 1), "") << "they are looked at";
}

TEST(SyncReport, SaysWhoseEnvironmentIsNotKnown) {
  Counters counters;
  counters.get("seal.unknown").add(3);
  config::Settings settings = with_remote();
  settings.writers = config::WritersPolicy::kLearned;
  const Json report = sync_report(settings, counters, {}, all_known(), {{1000, "it cannot be looked at", 2}});
  EXPECT_EQ(report["nothing_shared"], true);
  EXPECT_NE(report["why"].dump().find("2 programs of uid 1000: it cannot be looked at"), std::string::npos) << report;
}

TEST(NamespaceWarning, NamesTheRemedyOnceSuchAProcessHasWritten) {
  EXPECT_EQ(namespace_warning(with_remote(), 0), "");
  const std::string warning = namespace_warning(with_remote(), 1);
  EXPECT_NE(warning.find("nothing that jobs in another PID namespace write is shared"), std::string::npos) << warning;
  EXPECT_NE(warning.find("--writers pod"), std::string::npos) << warning;
  EXPECT_NE(warning.find("hostPID"), std::string::npos) << warning;
  config::Settings pod = with_remote();
  for (const config::WritersPolicy policy : {config::WritersPolicy::kPod, config::WritersPolicy::kAll}) {
    pod.writers = policy;
    EXPECT_EQ(namespace_warning(pod, 1), "") << "their writers are not looked at";
  }
}

TEST(SyncReport, TakesAContestThatWasLostForShared) {
  Counters counters;
  vfs::FileSystemStatus files;
  counters.get("seal.foreign").add();
  counters.get("publish.kept_local").add();
  counters.get("publish.superseded").add();
  const Json report = sync_report(with_remote(), counters, files, all_known());
  EXPECT_EQ(report["nothing_shared"], false);
  EXPECT_EQ(report["kept"], 0) << "the cluster has another's in its place";
}

TEST(Unreached, NamesTheRemoteWithoutItsPassword) {
  config::Settings settings;
  settings.remote = "redis://ann:secret@cache.example";
  const Error away = unreached(settings, Error(ErrorCode::kUnavailable, "refused; it is asked again in a moment"));
  EXPECT_EQ(away.code(), ErrorCode::kUnavailable);
  EXPECT_NE(away.what().find("cache.example does not answer: refused; it is asked again in a moment: check "),
            std::string::npos);
  EXPECT_EQ(away.what().find("secret"), std::string::npos);
  settings.remote = "unix:///run/cache.sock";
  const Error closed = unreached(settings, Error(ErrorCode::kUnavailable, "connect: Permission denied"));
  EXPECT_NE(closed.what().find("that this user may write to its socket"), std::string::npos) << closed.what();
  EXPECT_EQ(closed.what().find("port"), std::string::npos) << closed.what();
  EXPECT_EQ(unreached(settings, Error(ErrorCode::kInvalid, "--scope")).what(), "--scope");
}

}  // namespace
}  // namespace inductorfs::mount
