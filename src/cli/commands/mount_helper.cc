// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/mount_helper.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "cli/common/answers.h"
#include "cli/common/command_line.h"
#include "cli/common/locate.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/fuse/session.h"

namespace inductorfs::cli {
namespace {

constexpr const char* kUsage = "give SOURCE DIR [-o OPTIONS]; SOURCE is a URL of the remote, or none";

/// Options of mount(8) that ask for what every mount of ours is, or concern mount(8) and systemd alone.
constexpr std::array kAccepted = {"rw",    "defaults", "auto",    "noauto",     "user",   "nouser", "users",
                                  "owner", "group",    "nofail",  "_netdev",    "nosuid", "nodev",  "exec",
                                  "async", "relatime", "noatime", "nodiratime", "silent", "loud",   "diratime"};

constexpr std::array kRefused = {
    std::pair{
        "noexec",
        "jobs load shared objects from the mount; leave it out, and after user, users, owner or group write exec"},
    std::pair{"ro", "jobs write what they compile into the mount; leave it out"},
    std::pair{"remount", "options of a mount cannot be changed; unmount it and mount it again"},
    std::pair{"suid", "a mount ignores set-user-id bits; leave it out"},
    std::pair{"dev", "a mount has no device files; leave it out"},
    std::pair{"foreground", "mount(8) waits until the helper has ended; leave it out"},
    std::pair{"remote", "give the URL as the source"}};

/// Splits at commas outside of double quotes, as mount(8) does; the quotes are left out.
std::vector<std::string> split_options(std::string_view text) {
  std::vector<std::string> options(1);
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      options.emplace_back();
    } else {
      options.back().push_back(c);
    }
  }
  std::erase(options, std::string());
  return options;
}

Error refuse(std::string_view option, std::string_view why) {
  return Error(ErrorCode::kInvalid, "option " + std::string(option) + ": " + std::string(why));
}

bool takes_value(config::Option::Kind kind) {
  return kind == config::Option::Kind::kText || kind == config::Option::Kind::kList;
}

/// Adds the long option that `text` names. With `sloppy` (mount -s) an unknown option is left out.
Result<void> add_option(const std::string& text, bool sloppy, std::vector<std::string>& words) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const bool has_value = equals != std::string::npos;
  if (name.starts_with("x-") || name.starts_with("X-") || name == "comment") return {};
  const bool is_ours = has_value && name == "owner";  // mount(8) has one, too, without a value
  if (!is_ours && std::find(kAccepted.begin(), kAccepted.end(), name) != kAccepted.end()) return {};
  for (const auto& [refused, why] : kRefused) {
    if (name == refused) return fail(refuse(name, why));
  }
  bool known = name == "config";
  bool wants_value = known;
  for (const config::Option& option : config::mount_options()) {
    const bool off = option.kind == config::Option::Kind::kToggle && name == "no-" + std::string(option.name);
    if (name != option.name && !off) continue;
    known = true;
    wants_value = takes_value(option.kind);
  }
  if (!known && sloppy) return {};
  if (!known) return fail(refuse(name, "unknown; inductorfs mount --help lists the options, to be given without --"));
  if (wants_value != has_value) {
    return fail(refuse(name, wants_value ? "give " + name + "=VALUE" : std::string("it takes no value")));
  }
  words.push_back("--" + text);
  return {};
}

}  // namespace

bool is_mount_helper(std::string_view program) {
  const std::string_view name = program.substr(program.rfind('/') + 1);
  return name == "mount.inductorfs" || name == "mount.fuse.inductorfs";
}

Result<HelperLine> translate_helper_line(const std::vector<std::string>& arguments) {
  HelperLine line;
  std::vector<std::string> places;
  std::vector<std::string> options;
  bool sloppy = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "-o" || word == "-t") {
      if (++i == arguments.size()) return fail(ErrorCode::kInvalid, word + " needs a value: " + kUsage);
      if (word == "-o") {
        for (std::string& option : split_options(arguments[i])) options.push_back(std::move(option));
      }
    } else if (word.size() > 1 && word.front() == '-' && word.find_first_not_of("sfnv", 1) == std::string::npos) {
      sloppy = sloppy || word.find('s') != std::string::npos;
      line.fake = line.fake || word.find('f') != std::string::npos;
    } else if (word.starts_with('-')) {
      return fail(ErrorCode::kInvalid, "no option " + word + ": " + kUsage);
    } else {
      places.push_back(word);
    }
  }
  if (places.size() != 2 || places[0].empty() || places[1].empty()) return fail(ErrorCode::kInvalid, kUsage);
  line.mountpoint = places[1];
  line.words = {"mount", line.mountpoint};
  std::vector<std::string> words;
  for (const std::string& option : options) INDUCTORFS_TRY(add_option(option, sloppy, words));
  if (places[0].find("://") != std::string::npos) {
    line.words.push_back("--remote=" + places[0]);
  } else if (places[0] != "none") {
    return fail(ErrorCode::kInvalid, "source " + places[0] + ": give a URL of the remote, or none");
  }
  line.words.insert(line.words.end(), words.begin(), words.end());
  return line;
}

int run_mount_helper(int argc, char** argv) {
  const Result<HelperLine> helper = translate_helper_line({argv + 1, argv + argc});
  hide_secrets(argc, argv);
  if (!helper) {
    const std::string text = "mount.inductorfs: " + config::printable(log::redact_url(helper.error().what())) + "\n";
    (void)std::fputs(text.c_str(), stderr);
    return kHelperUsage;
  }
  std::vector<const char*> words{"inductorfs"};
  for (const std::string& word : helper->words) words.push_back(word.c_str());
  const CommandLine line = parse_command_line(static_cast<int>(words.size()), words.data());
  if (!line.command) {
    (void)std::fputs(line.text.c_str(), stderr);
    return kHelperUsage;
  }
  if (helper->fake) return kExitDone;
  const config::Environment environment = config::process_environment();
  // mount(8) knows a mount by its source, which the kernel's table does not have, so `mount -a` asks for it again.
  const std::string mountpoint = absolute(helper->mountpoint);
  if (fuse::mounted_type(mountpoint) == kFileSystemType && locate_mount(mountpoint, environment)) {
    (void)std::fputs("mount.inductorfs: the cache is mounted there already; nothing was done\n", stderr);
    return kExitDone;
  }
  const int code = line.command->run(environment);
  return code == kExitDone ? kExitDone : code == kExitUsage ? kHelperUsage : kHelperFailed;
}

}  // namespace inductorfs::cli
