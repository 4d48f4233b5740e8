// SPDX-License-Identifier: Apache-2.0
#include "mount/processes/secrets.h"

#include <linux/capability.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/message.h"
#include "inductorfs/base/trusted_file.h"
#include "inductorfs/config/error_json.h"
#include "inductorfs/config/frozen.h"
#include "inductorfs/config/json.h"

namespace inductorfs::mount {

using config::Json;

namespace {

/// The certificates of all authorities of a system have some 200 KB.
constexpr uint64_t kLimit = uint64_t{16} << 20;
/// A disk that does not answer holds up nobody but the child.
constexpr Milliseconds kDeadline{10'000};
/// A mounter that has taken no question then stands still.
constexpr Milliseconds kSilence{2000};
/// How soon the end of the mount is noticed.
constexpr Milliseconds kStep{100};
constexpr size_t kMessageLimit = size_t{16} << 10;
constexpr std::string_view kTask = "secret.";

/// What is missing has no words of its own.
std::string to_text(const Error& error) { return error.what().empty() ? "it does not exist" : error.what(); }

Result<Fd> read_to_memory(const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(const auto text, read_trusted_file(path, kLimit));
  return config::to_sealed_memory("inductorfs-secret", text);
}

std::map<std::string, std::string> turned(const std::map<std::string, std::string>& files) {
  std::map<std::string, std::string> names;
  for (const auto& [name, path] : files) names.emplace(path, name);  // one file may have all three of TLS
  return names;
}

}  // namespace

std::map<std::string, std::string> Secrets::files_of(const config::Settings& settings) {
  std::map<std::string, std::string> files;
  for (const auto& [name, path] : {std::pair{"password", &settings.password_file},
                                   {"ca", &settings.ca_file},
                                   {"certificate", &settings.cert_file},
                                   {"key", &settings.key_file}}) {
    if (!path->empty()) files.emplace(name, *path);
  }
  return files;
}

std::map<std::string, fingerprint::ExaminerTask, std::less<>> Secrets::tasks(const Files& files) {
  std::map<std::string, fingerprint::ExaminerTask, std::less<>> tasks;
  for (const auto& [name, file] : files) {
    fingerprint::ExaminerTask task;
    task.capabilities = {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH};
    task.deadline = kDeadline;
    task.answer = [path = file](const fingerprint::ExaminerCall& call) {
      const Result<Fd> memory = read_to_memory(path);
      const std::string line = memory ? "{}" : config::to_line(config::error_to_json(memory.error()));
      // Who has gone by now is told nothing.
      (void)send_message(call.descriptor, line, std::array{memory ? memory->get() : -1});
      return std::string();
    };
    tasks.emplace(std::string(kTask) + name, std::move(task));
  }
  return tasks;
}

Secrets::Secrets(const config::Settings& settings, int mounter, std::function<void()> stands_still)
    : names_(turned(files_of(settings))), link_(mounter, std::move(stands_still)) {}

/// A question on its way. Confined to one call.
struct Secrets::Asked {
  Fd session;     ///< the child's answer comes here
  Fd connection;  ///< empty when the question could not be asked

  /// Nothing: it has not come yet.
  [[nodiscard]] std::optional<Result<std::string>> answer() const {
    std::string room(kMessageLimit, '\0');
    Fd memory;
    const ReceivedMessage received = receive_message(session.get(), room, {&memory, 1}, MSG_DONTWAIT);
    if (received.size < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (received.is_end || received.size <= 0) {
      return fail(ErrorCode::kUnavailable, "the process of this mount that reads it has ended; see the log");
    }
    room.resize(static_cast<size_t>(received.size));
    const Json json = config::from_text(room);
    if (auto error = config::error_from_json(json)) return fail(std::move(*error));
    if (!memory) return fail(ErrorCode::kUnavailable, "the mounter's answer is none");
    return config::from_memory(memory.get());
  }
  [[nodiscard]] bool is_taken() const {
    char byte = 0;
    return ::recv(connection.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
  }
};

Secrets::Asked Secrets::begin(const std::string& name) const {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return {};
  Asked asked{Fd(ends[0]), {}};
  const Fd theirs(ends[1]);
  if (auto connection = link_.begin(std::string(kTask) + name, {}, theirs.get())) {
    asked.connection = std::move(*connection);
  }
  return asked;
}

/// All at once: one on a disk that hangs is in nobody's way.
Secrets::Found Secrets::ask(const Files& names, Deadline deadline, const std::function<bool()>& cancelled) const {
  std::map<std::string, Asked> open;
  for (const auto& [path, name] : names) open.emplace(path, begin(name));
  Found found;
  Deadline silence = Deadline::after(kSilence);
  while (!open.empty()) {
    std::vector<pollfd> items;
    for (const auto& [path, one] : open) items.push_back({one.session.get(), POLLIN, 0});
    (void)::poll(items.data(), items.size(), static_cast<int>(std::min(kStep, deadline.left()).count()));
    for (auto one = open.begin(); one != open.end();) {
      auto answer = one->second.answer();
      if (answer) found.emplace(one->first, std::move(*answer));
      one = answer ? open.erase(one) : std::next(one);
    }
    if (deadline.passed() || (cancelled && cancelled())) break;
    const bool is_silent = std::ranges::any_of(open, [](const auto& one) { return !one.second.is_taken(); });
    if (!is_silent || !silence.passed()) continue;
    link_.stands_still();
    silence = Deadline::after(kSilence);
  }
  for (const auto& [path, one] : open) {
    found.emplace(path, fail(ErrorCode::kUnavailable, "it could not be read in time: see whether its disk answers"));
  }
  return found;
}

bool Secrets::is_news(const Found& found) const {
  return known_.with([&](const auto& known) {
    return std::ranges::any_of(found, [&](const auto& one) {
      const auto before = known.find(one.first);
      return one.second && before != known.end() && before->second.text && *before->second.text != *one.second;
    });
  });
}

bool Secrets::take(Found found) {
  std::map<std::string, Error> news;
  const bool are_known = known_.with([&](auto& known) {
    for (auto& [path, text] : found) {
      Known& one = known[path];
      if (text && text->empty() && one.text) text = fail(ErrorCode::kInvalid, "it is empty");
      const Error why = text ? Error(ErrorCode::kUnavailable, kNotYet) : text.error();
      if (text) one.text = std::move(*text);
      if (std::exchange(one.why, why).what() != why.what() && why.what() != kNotYet) news.emplace(path, why);
    }
    return std::ranges::all_of(known, [](const auto& one) { return one.second.text.has_value(); });
  });
  for (const auto& [path, why] : news) {
    const std::string action = read(path) ? "what it had before is used" : "tried again";
    log::warning("mount.secret_not_read", {{"file", path}, {"why", to_text(why)}, {"action", action}});
  }
  return are_known;
}

bool Secrets::renew(Deadline deadline, const std::function<bool()>& cancelled) {
  Found found = ask(names_, deadline, cancelled);
  const auto not_answered = [&] {
    Files names;
    for (const auto& [path, text] : found) {
      if (!text && is_passing(text.error())) names.emplace(path, names_.at(path));
    }
    return names;
  };
  // Another mounter may be being started.
  for (Files names = not_answered(); !names.empty() && !deadline.passed(); names = not_answered()) {
    if (cancelled && cancelled()) return false;
    (void)::poll(nullptr, 0, static_cast<int>(std::min(kStep, deadline.left()).count()));
    for (auto& [path, text] : ask(names, deadline, cancelled)) found.insert_or_assign(path, text);
  }
  if (cancelled && cancelled()) return false;
  if (is_news(found)) {
    // A certificate fits its own key alone: what is just being exchanged is taken with the next reading.
    Files names;
    for (const auto& [path, text] : found) {
      if (text) names.emplace(path, names_.at(path));
    }
    const Found again = ask(names, Deadline::after(kSilence), cancelled);
    const auto is_same = [&found](const auto& one) { return one.second && *one.second == *found.at(one.first); };
    if (!std::ranges::all_of(again, is_same)) return true;
  }
  return take(std::move(found));
}

Result<std::string> Secrets::read(const std::string& path) const {
  return known_.with([&](const auto& known) -> Result<std::string> {
    const auto found = known.find(path);
    if (found == known.end()) return fail(Known{}.why);
    if (!found->second.text) return fail(found->second.why);
    return *found->second.text;
  });
}

}  // namespace inductorfs::mount
