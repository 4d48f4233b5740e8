// SPDX-License-Identifier: Apache-2.0
#include "secrets.h"

#include <linux/capability.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/message.h"
#include "inductorfs/base/trusted_file.h"
#include "inductorfs/config/error_json.h"
#include "inductorfs/config/frozen.h"

namespace inductorfs::mount {

using config::Json;

namespace {

/// The certificates of all authorities of a system have some 200 KB.
constexpr uint64_t kLimit = uint64_t{16} << 20;
/// A disk that does not answer holds up nobody but the child.
constexpr Milliseconds kDeadline{10'000};
constexpr std::string_view kHere = "here";

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

fingerprint::ExaminerTask Secrets::task(std::map<std::string, std::string> files) {
  fingerprint::ExaminerTask task;
  task.capabilities = {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH};
  task.deadline = kDeadline;
  task.answer = [files = std::move(files)](const fingerprint::ExaminerCall& call) {
    const auto named = files.find(call.request);
    const Result<Fd> memory =
        named == files.end() ? fail(ErrorCode::kInvalid, "no such file of the mount") : read_to_memory(named->second);
    if (!memory) return config::to_line(config::error_to_json(memory.error()));
    const bool is_sent = send_message(call.descriptor, kHere, std::array{memory->get()});
    return config::to_line(is_sent ? Json::object() : config::error_to_json({ErrorCode::kUnavailable, "not sent"}));
  };
  return task;
}

Secrets::Secrets(const config::Settings& settings, int mounter, std::function<void()> stands_still)
    : names_(turned(files_of(settings))), link_(mounter, std::move(stands_still)) {}

Result<std::string> Secrets::ask(const std::string& name, Deadline deadline,
                                 const std::function<bool()>& cancelled) const {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return fail_errno("socketpair");
  const Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  const auto answer = link_.ask(kTask, name, deadline, theirs.get(), 0, cancelled);
  if (!answer) {
    const bool is_late = answer.error().code() == ErrorCode::kTimedOut;
    return fail(is_late ? ErrorCode::kTimedOut : ErrorCode::kUnavailable,
                "the process of this mount that reads it has not done so: see whether its disk answers");
  }
  const Json json = Json::parse(*answer, nullptr, false);
  if (auto error = config::error_from_json(json)) return fail(std::move(*error));
  std::array<char, 16> room{};
  Fd memory;
  const ReceivedMessage received = receive_message(ours.get(), room, {&memory, 1}, MSG_DONTWAIT);
  if (received.size <= 0 || !memory) return fail(ErrorCode::kInternal, "the mounter's answer is none");
  return config::from_memory(memory.get());
}

bool Secrets::renew(Deadline deadline, const std::function<bool()>& cancelled) {
  std::map<std::string, Result<std::string>> found;
  size_t left = names_.size();
  for (const auto& [path, name] : names_) {
    // One on a disk that hangs leaves the others their time.
    found.emplace(path, ask(name, Deadline::after(deadline.left() / left--), cancelled));
    if (cancelled && cancelled()) return false;
  }
  std::map<std::string, Error> news;
  // All at once: a certificate and its key fit each other.
  const bool are_known = known_.with([&](auto& known) {
    for (auto& [path, text] : found) {
      Known& one = known[path];
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

Result<std::string> Secrets::read(const std::string& path) const {
  return known_.with([&](const auto& known) -> Result<std::string> {
    const auto found = known.find(path);
    if (found == known.end()) return fail(Known{}.why);
    if (!found->second.text) return fail(found->second.why);
    return *found->second.text;
  });
}

}  // namespace inductorfs::mount
