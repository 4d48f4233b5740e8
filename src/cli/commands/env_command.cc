// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "cli/common/answer_text.h"
#include "cli/common/answers.h"
#include "cli/common/child_answer.h"
#include "cli/common/command.h"
#include "cli/common/shell_word.h"
#include "cli/doctor/doctor_findings.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/layout/user_caches.h"
#include "inductorfs/places/links.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/places/own_mounts.h"

namespace inductorfs::cli {
namespace {

using config::Json;

constexpr std::array<std::string_view, 5> kFormats{"sh", "docker", "systemd", "k8s", "json"};
/// For a look at directories of the mount.
constexpr Milliseconds kPatience{5'000};

/// For a user without an entry in the user database (OpenShift's, and many containers').
constexpr layout::UserCache kUser{
    "Python", "USER", nullptr,
    "",       false,  "",
    false,    false,  "this user has no name here, and torch before 2.13 ends at its import when it finds none"};

/// As systemd.exec(5) reads Environment=: quotes, and no % or backslash of its own.
std::string systemd_quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '%') result += '%';
    result += c;
  }
  return result + "\"";
}

/// A word of a command line in a unit: systemd.service(5) also replaces variables there.
std::string systemd_word(const std::string& text) {
  std::string result;
  for (const char c : systemd_quoted(text)) result += c == '$' ? std::string("$$") : std::string(1, c);
  return result;
}

std::string value_of(const std::string& root, const layout::UserCache& cache) {
  return *cache.below == '\0' ? root : root + "/" + cache.below;
}

/// The cache root, and each directory below it on the way to where a variable leads.
std::vector<std::string> directories_of(const std::string& root) {
  std::vector<std::string> all{root};
  for (const layout::UserCache& cache : layout::user_caches()) {
    const std::string path = cache.below == nullptr ? root : value_of(root, cache);
    for (size_t end = root.size(); end < path.size();) {
      end = std::min(path.find('/', end + 1), path.size());
      all.push_back(path.substr(0, end));
    }
  }
  return all;
}

/// Says what keeps this user's engines from trusting what lies below this root; empty if nothing does. Blocks on that
/// file system.
std::string wrong_with(const std::string& root, uid_t user) {
  constexpr const char* kRemedy = ": ask root to remove it, or name another directory with --root";
  for (const std::string& path : directories_of(root)) {
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0) {
      if (errno == ENOENT) continue;
      return error_from_errno(errno, "look at", path).what() + ": inductorfs doctor says what is wrong";
    }
    if (!S_ISDIR(found.st_mode)) return path + " is no directory" + kRemedy;
    if (found.st_uid != user) return path + " belongs to uid " + std::to_string(found.st_uid) + kRemedy;
  }
  return {};
}

/// Where everybody may make directories, another user may have made the one that is named after this user before:
/// engines unpickle what they find there.
Result<void> check_is_users(const std::string& root, uid_t user) {
  const auto wrong = answer_of_child(user, Deadline::after(kPatience), [&] { return wrong_with(root, user); });
  if (!wrong) return fail(ErrorCode::kTimedOut, root + " did not answer in time: inductorfs doctor says what is wrong");
  return wrong->empty() ? Result<void>() : fail(ErrorCode::kNotPermitted, *wrong);
}

/// Torch and others end at their import where they cannot make their directory: then it is better to have no variables.
Result<void> check_may_write(const std::string& root, const std::string& mountpoint, uid_t user) {
  const auto wrong = answer_of_child(user, Deadline::after(kPatience), [&] { return wrong_with_writing(root); });
  if (!wrong) return fail(ErrorCode::kTimedOut, root + " did not answer in time: inductorfs doctor says what is wrong");
  if (wrong->empty()) return {};
  const std::string remedy = wrong->find("read-only") != std::string::npos
                                 ? ": give this job the mount without ro"
                                 : ": as root, run chmod 1777 " + shell_word(mountpoint) + " or install -d -o " +
                                       std::to_string(user) + " " + shell_word(root);
  return fail(ErrorCode::kNotPermitted, root + " " + *wrong + remedy);
}

/// Formats whose readers take UTF-8 alone would get another path (docker, json) or none (systemd, k8s).
Result<void> check_can_be_written(const std::string& root, std::string_view format) {
  const bool is_utf8 = config::from_text(config::to_line(root)) == root;
  if (is_utf8 || format == "sh") return {};
  return fail(ErrorCode::kInvalid, "a path that is not UTF-8 cannot be written as " + std::string(format) + ": " +
                                       root + ": --format sh can write it");
}

/// Then engines of the mount's own user must not read its top either: others may have written what lies there.
bool all_may_write(const std::string& mountpoint, uid_t user) {
  const auto answer = answer_of_child(user, Deadline::after(kPatience), [&] {
    struct stat found {};
    return std::string(::lstat(mountpoint.c_str(), &found) == 0 && (found.st_mode & S_IWOTH) != 0 ? "yes" : "");
  });
  return answer == "yes";
}

constexpr std::string_view kDirectoriesFirst =
    "Make the directories before an engine starts: what the cluster has is shown in a directory that exists, and vLLM "
    "reads before it makes one";

/// One of the variables, in this format, with what it does.
std::string variable_text(const layout::UserCache& cache, const std::string& value, std::string_view format) {
  const std::string name = cache.variable;
  const std::string about = "# " + std::string(cache.why) + "\n";
  if (format == "docker") return "--env " + shell_word(name + "=" + value) + "\n";
  if (format == "sh") return about + "export " + name + "=" + shell_word(value) + "\n";
  if (format == "systemd") return about + "Environment=" + systemd_quoted(name + "=" + value) + "\n";
  return about + "- name: " + name + "\n  value: " + config::to_line(value) + "\n";
}

/// The command that makes the directories, as this format can have it.
std::string directories_text(const Json& directories, std::string_view format) {
  if (format == "docker") return {};  // its lines are words of a command line
  std::string text = "# " + std::string(kDirectoriesFirst) + "\n";
  std::string words;
  for (const Json& directory : directories) {
    const auto path = directory.get<std::string>();
    words +=
        format == "k8s" ? ", " + config::to_line(path) : " " + (format == "sh" ? shell_word(path) : systemd_word(path));
  }
  if (format == "sh") return text + "mkdir -p" + words + "\n";
  if (format == "systemd") return text + "ExecStartPre=mkdir -p" + words + "\n";
  return text + "# (an init container with the pod's user):\n# command: [mkdir, -p" + words + "]\n";
}

/// A link that cannot be had is no reason to have no variables.
void make_links(const std::string& root, const config::User& user, const config::Environment& environment) {
  const auto told = answer_of_child(user.uid, Deadline::after(kPatience), [&] {
    const auto links = places::link_default_places(root, config::torch_default_directory(user, environment));
    if (!links) return "inductorfs: no links are made: " + config::printable(links.error().what()) + "\n";
    std::string lines;
    for (const std::string& link : *links) lines += "inductorfs: " + config::printable(link) + "\n";
    return lines;
  });
  const std::string late = "inductorfs: no links are made: " + config::printable(root) + " did not answer in time\n";
  (void)std::fputs(told.value_or(late).c_str(), stderr);
}

/// Where root's mount does not show torch's headers to this user, each host compiles them: this user is told.
void ask_for_places(const std::string& mountpoint, const std::string& root, const config::User& user,
                    const config::Environment& environment) {
  const std::string torch = config::torch_default_directory(user, environment);
  const auto wrong = answer_of_child(user.uid, Deadline::after(kPatience), [&] {
    const auto made = places::make_default_places(root, torch);
    return made ? std::string() : made.error().what();
  });
  std::string why = wrong.value_or(root + " did not answer in time");
  if (why.empty()) {
    const auto answer = ask_daemon_at(mountpoint, control::places_request(), kPatience, environment);
    if (!answer) why = answer.error().what();
    if (answer) why = config::lines_at(config::from_text(*answer), "failed");
  }
  const auto finding = finding_of_headers(mount_around, torch);
  if (!finding) return;
  if (why.empty()) why = "the mount shows them in the default directory of this user's name, where it was mounted";
  (void)std::fputs(("inductorfs: " + finding->what + ": " + config::printable(why) + "\n").c_str(), stderr);
}

class EnvCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_mountpoint(path_);
    words.add("--root", &root_,
              "use this directory of the mount [the user's name where others use it too, else the mount]", "NAME");
    words
        .add("--format", &format_,
             "print them for a shell (sh), docker, a unit of systemd, a pod (k8s) or as json [sh]", "FORMAT")
        .among = {kFormats.begin(), kFormats.end()};
    words.add("--links", &links_, "link what torch keeps in its default directory into the mount");
    words.add("--unset", &unset_, "print the command that takes them out of a shell again; the mount may be gone")
        .excludes = {"--root", "--format", "--links"};
  }
  [[nodiscard]] Result<void> check() const override {
    const bool leads_out = !root_.empty() && config::absolute_path(root_, "/") != "/" + root_;
    if (leads_out) return fail(ErrorCode::kInvalid, "--root: give a directory below the mount, without \"..\"");
    return {};
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    if (unset_) return print(unset_text());
    const std::string mountpoint = absolute(path_);
    const std::vector<MountEntry> table = read_mount_table();
    // By the table: in a container nobody sees the daemon's socket.
    const MountEntry* const mount = places::find_mount_of(table, mountpoint);
    if (mount == nullptr || !mount->is_ours()) {
      return fail_query(
          {ErrorCode::kNotFound, "no inductorfs mount: " + mountpoint + ": \"inductorfs status\" lists all mounts"},
          format_ == "json");
    }
    std::string root = mountpoint;
    if (!root_.empty()) root += "/" + root_;
    const config::User user = config::current_user(environment);
    const auto owner = fuse_user_of(*mount);
    const bool is_shared = owner && *owner != user.uid;
    // LOGNAME may say anything.
    const bool is_plain = !user.name.empty() && user.name.find('/') == std::string::npos && user.name.front() != '.';
    Result<void> fits;
    // The other formats are for jobs whose user is not known here.
    const bool is_of_user = format_ == "sh" || format_ == "json";
    if (root_.empty() && (is_shared || (is_of_user && all_may_write(mountpoint, user.uid)))) {
      root += "/" + (is_plain ? user.name : std::to_string(user.uid));
      fits = check_is_users(root, user.uid);
    }
    if (fits) fits = check_may_write(root, mountpoint, user.uid);
    if (fits) fits = check_can_be_written(root, format_);
    if (!fits) return fail_query(fits.error(), format_ == "json");
    if (links_) make_links(root, user, environment);
    if (!links_ && root_.empty() && is_shared && format_ == "sh") ask_for_places(mountpoint, root, user, environment);
    return print(variables_text(root, format_, user.name.empty() ? std::to_string(user.uid) : std::string()));
  }

 private:
  std::string path_;
  std::string root_;
  std::string format_ = "sh";
  bool unset_ = false;
  bool links_ = false;
};

}  // namespace

std::string variables_text(const std::string& root, std::string_view format, const std::string& name_for_user) {
  Json variables = Json::object();
  Json why = Json::object();
  Json not_set = Json::object();
  Json directories = Json::array();
  std::string text = format == "k8s" ? "env:\n" : "";
  std::string left_alone;
  const auto add = [&](const layout::UserCache& cache, const std::string& value) {
    variables[cache.variable] = value;
    why[cache.variable] = cache.why;
    text += variable_text(cache, value, format);
  };
  if (!name_for_user.empty()) add(kUser, name_for_user);
  for (const layout::UserCache& cache : layout::user_caches()) {
    if (cache.below == nullptr) {
      not_set[cache.variable] = cache.why;
      left_alone += "# " + std::string(cache.variable) + " is not set: " + std::string(cache.why) + "\n";
      continue;
    }
    const std::string value = value_of(root, cache);
    add(cache, value);
    directories.push_back(value);
  }
  if (format == "docker") return text;
  if (format != "json") return text + left_alone + directories_text(directories, format);
  return config::to_pretty(
             Json{{"variables", variables}, {"why", why}, {"not_set", not_set}, {"directories", directories}}) +
         "\n";
}

std::string unset_text() {
  std::string text = "unset";
  for (const layout::UserCache& cache : layout::user_caches()) {
    if (cache.below != nullptr) text += " " + std::string(cache.variable);
  }
  return text + "\n";
}

std::unique_ptr<Subcommand> env_command() { return std::make_unique<EnvCommand>(); }

}  // namespace inductorfs::cli
