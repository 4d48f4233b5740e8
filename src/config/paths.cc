// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/paths.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/text.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::config {
namespace {

/// A file name may have 255 bytes; what a store keeps beside it ("<name>.damaged") needs some of them.
constexpr size_t kEscapedLimit = 200;
constexpr size_t kShortDigest = 16;

std::string hex_byte(char c) { return "\\x" + to_hex(std::string_view(&c, 1)); }

std::string short_digest(std::string_view text) { return codec::digest_of(text).to_hex().substr(0, kShortDigest); }

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ':' || c == '_' || c == '.';
}

bool is_directory(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
}

std::map<std::string, std::string> process_variables() {
  std::map<std::string, std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::string absolute_path(std::string_view path, const std::string& base) {
  std::string whole(path);
  if (path.empty() || path.front() != '/') whole = base + "/" + whole;
  std::vector<std::string_view> parts;
  std::string_view rest = whole;
  while (!rest.empty()) {
    const std::string_view part = take_part(rest, '/');
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      parts.push_back(part);
    } else if (!parts.empty()) {
      parts.pop_back();
    }
  }
  std::string clean;
  for (const std::string_view part : parts) clean.append("/").append(part);
  return clean.empty() ? "/" : clean;
}

std::string working_directory() {
  std::array<char, PATH_MAX> buffer{};
  return ::getcwd(buffer.data(), buffer.size()) == nullptr ? "/" : std::string(buffer.data());
}

bool is_at_or_below(std::string_view path, std::string_view directory) {
  if (directory == "/") return !path.empty() && path.front() == '/';
  return path.substr(0, directory.size()) == directory &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

std::string relative_to(std::string_view path, std::string_view directory) {
  if (directory == "/") return std::string(path.substr(1));
  return path.size() <= directory.size() ? std::string() : std::string(path.substr(directory.size() + 1));
}

std::string escape_path(std::string_view absolute) {
  std::string_view rest = absolute;
  while (!rest.empty() && rest.front() == '/') rest.remove_prefix(1);
  if (rest.empty()) return "-";
  std::string name;
  for (size_t i = 0; i < rest.size(); ++i) {
    const char c = rest[i];
    if (c == '/') {
      name.push_back('-');
    } else if (is_plain(c) && !(i == 0 && c == '.')) {
      name.push_back(c);
    } else {
      name.append(hex_byte(c));
    }
  }
  return name.size() <= kEscapedLimit ? name : short_digest(absolute);
}

User current_user(const Environment& environment) {
  User user;
  user.uid = ::geteuid();
  const passwd* record = ::getpwuid(user.uid);  // one thread so far: the static buffer is ours
  for (const char* variable : {"LOGNAME", "USER", "LNAME", "USERNAME"}) {
    if (!user.name.empty()) break;
    user.name = environment(variable).value_or("");
  }
  if (user.name.empty() && record != nullptr) user.name = record->pw_name;
  user.home = environment("HOME").value_or(record != nullptr ? record->pw_dir : "");
  return user;
}

User user_by_id(uid_t uid) {
  const passwd* record = ::getpwuid(uid);
  return {uid, record == nullptr ? "" : record->pw_name, record == nullptr ? "" : record->pw_dir};
}

std::string default_store(const std::string& mountpoint, const User& user, const Environment& environment) {
  const std::string name = escape_path(mountpoint);
  if (user.uid == 0) return "/var/lib/inductorfs/" + name;
  const std::optional<std::string> cache = environment("XDG_CACHE_HOME");
  // The XDG specification: a relative value is to be ignored.
  const bool use_cache = cache && cache->front() == '/';
  return (use_cache ? *cache : user.home + "/.cache") + "/inductorfs/store/" + name;
}

std::string temporary_directory(const Environment& environment) {
  for (const char* variable : {"TMPDIR", "TEMP", "TMP"}) {
    const std::optional<std::string> value = environment(variable);
    if (value && is_directory(*value)) return absolute_path(*value, working_directory());
  }
  return "/tmp";
}

std::string torch_directory_name(const User& user) {
  std::string name = user.name.empty() ? "uid_" + std::to_string(user.uid) : user.name;
  for (char& c : name) {
    if (std::string_view("\\/:*?\"<>|").find(c) != std::string_view::npos) c = '_';
  }
  return "torchinductor_" + name;
}

std::string torch_default_directory(const User& user, const Environment& environment) {
  return temporary_directory(environment) + "/" + torch_directory_name(user);
}

std::string runtime_directory(uid_t uid, const Environment& environment) {
  if (uid == 0) return "/run/inductorfs";
  const std::optional<std::string> runtime = environment("XDG_RUNTIME_DIR");
  if (runtime && runtime->front() == '/') return *runtime + "/inductorfs";
  return "/tmp/inductorfs-" + std::to_string(uid);
}

std::string socket_name(const std::string& mountpoint) { return short_digest(mountpoint) + ".sock"; }

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t length = showable_length(text);
    if (length == 0) {
      shown.append(hex_byte(text.front()));
      text.remove_prefix(1);
    } else {
      shown.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return shown;
}

}  // namespace inductorfs::config
