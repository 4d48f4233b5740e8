// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "inductorfs/base/log_lines.h"
#include "inductorfs/base/message.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/own_user.h"
#include "inductorfs/config/error_json.h"
#include "inductorfs/config/frozen.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/runtime_directory.h"
#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/fuse/session.h"
#include "inductorfs/mount/process.h"
#include "inductorfs/mount/process_commands.h"
#include "inductorfs/mount/worker_user.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/places/sweep.h"
#include "inductorfs/redis/url.h"
#include "inductorfs/supervisor/protocol.h"
#include "mount/mounter/mounter.h"
#include "mount/mounter/mounter_task.h"
#include "mount/mounter/notes.h"
#include "mount/processes/secrets.h"
#include "mount/processes/statement_signer.h"

namespace inductorfs::mount {

using config::Json;
using fingerprint::ExaminerCall;

namespace {

/// What it takes to mount, to make directories as the users that they belong to, and to see who uses a mount.
constexpr int kCapabilities[] = {
    CAP_SYS_ADMIN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_CHOWN,      CAP_FOWNER,
    CAP_FSETID,    CAP_SETUID,       CAP_SETGID,          CAP_SYS_PTRACE,
};
constexpr const char* kSource = "inductorfs";
/// Of a child, beside what its worker waits for: whoever waits is told what is wrong.
constexpr Milliseconds kBesides{5000};

constexpr Milliseconds kShowToDeadline{4000};  ///< others wait for such a child
constexpr Milliseconds kConnectDeadline{2000};
constexpr Milliseconds kConnectPatience{1500};     ///< so that its child says what was wrong
constexpr Milliseconds kUnlistenDeadline{1500};    ///< the worker waits no longer: then the path may be the next one's
constexpr size_t kLinesLimit = size_t{256} << 10;  ///< of the log, in one answer

/// What a child does, one after the other: a child waits here for the one before. Needs external synchronisation.
class HostMounts {
 public:
  explicit HostMounts(MounterTask task)
      : task_(std::move(task)),
        also_(task_.mountpoint, task_.also, ::geteuid() == 0, places::also_record_path(task_.socket)),
        notes_(Fd(::fcntl(supervisor::kMounterNotesFd, F_DUPFD_CLOEXEC, supervisor::kFirstFreeFd))) {
    // Of this process, unlike a lock of flock(2): children share the descriptor. It ends with the process.
    struct flock whole {};
    whole.l_type = F_WRLCK;
    while (::fcntl(supervisor::kMounterNotesFd, F_SETLKW, &whole) != 0 && errno == EINTR) {
    }
  }

  void mount(int session);
  [[nodiscard]] Result<void> unmount(bool lazy);
  [[nodiscard]] Result<void> leave();
  [[nodiscard]] Result<Json> show_to(const std::string& user);
  [[nodiscard]] Result<void> drop_removed();

 private:
  struct Made {
    places::Mountpoint place;
    fuse::Mounted mounted;
    places::BindId own;
    Fd kept;             ///< of the places of the mount that it replaces
    bool again = false;  ///< an earlier child had mounted
  };
  [[nodiscard]] Result<Made> make();
  [[nodiscard]] bool leaves_dead(const Made& made) const { return made.place.dead || made.place.uncovered; }
  [[nodiscard]] Result<void> note(const places::BindId& own);
  [[nodiscard]] Result<places::BindId> resume();
  [[nodiscard]] Result<bool> take_back_earlier();
  [[nodiscard]] std::string runtime_directory() const { return task_.socket.substr(0, task_.socket.rfind('/')); }

  const MounterTask task_;
  places::AlsoPlaces also_;
  KeptMemory notes_;
  bool stays_dead_ = false;  ///< MounterNote::stays_dead
};

void send(int session, const Json& json, int descriptor = -1) {
  const std::vector<uint8_t> bytes = Json::to_cbor(json);
  if (send_message(session, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {&descriptor, 1})) return;
  // Who waits for what cannot be said sees the end; who has gone is told nothing.
  if (errno != EPIPE && errno != ECONNRESET) ::_exit(EXIT_FAILURE);
}

/// Waits for this word of the worker; its child is killed when that takes too long. False: it has gone.
bool hears(int session, std::string_view word) {
  std::array<char, 64> room{};
  const ReceivedMessage received = receive_message(session, room, {});
  return received.size > 0 && std::string_view(room.data(), static_cast<size_t>(received.size)) == word;
}

Result<HostMounts::Made> HostMounts::make() {
  INDUCTORFS_TRY(control::prepare_runtime_directory(runtime_directory()));
  places::sweep_runtime_directory(runtime_directory(), false);
  Made made;
  INDUCTORFS_TRY_ASSIGN(made.again, take_back_earlier());
  INDUCTORFS_TRY_ASSIGN(made.place, places::open_mountpoint(task_.mountpoint, task_.ownership));
  if (made.place.dead) made.kept = places::keep_binds_of(made.place.device);
  fuse::MountOptions options;
  options.directory = made.place.at.directory.get();
  options.dead = made.place.dead.get();
  options.may_hold_files = made.again || leaves_dead(made) || made.place.was_covered;
  options.mountpoint = task_.mountpoint;
  options.source = kSource;
  options.allow_other = task_.allow_other;
  INDUCTORFS_TRY_ASSIGN(made.mounted, fuse::mount(options));
  INDUCTORFS_TRY_ASSIGN(made.own, places::find_own_mount(task_.mountpoint, made.mounted.id));
  stays_dead_ = leaves_dead(made);
  // Without it nobody could take the mount down.
  if (Result<void> noted = note(made.own); !noted) {
    (void)places::unmount_if_there(task_.mountpoint, made.own, true);  // the first error is the one to tell
    return fail(std::move(noted).error());
  }
  places::close_below(made.place, task_.mountpoint, task_.ownership);
  log::info("mount.mounted", {{"mountpoint", task_.mountpoint}, {"device", made.own.device}});
  return made;
}

/// What a child made that was killed before its worker had the device; returns whether there was any. What lives is
/// kBusy. What is to stay dead is replaced as what it had replaced itself.
Result<bool> HostMounts::take_back_earlier() {
  INDUCTORFS_TRY_ASSIGN(const auto own, resume());
  if (own.mount == 0) return false;
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const there = find_mount_by_id(table, own.mount);
  if (there != nullptr && there->device == own.device && there->mount_point == task_.mountpoint) {
    if (!places::is_dead_mount(task_.mountpoint)) {
      return fail(ErrorCode::kBusy, task_.mountpoint + " is mounted already: unmount it first");
    }
  }
  INDUCTORFS_TRY(leave());
  return !stays_dead_;
}

Result<void> HostMounts::note(const places::BindId& own) {
  return notes_.write(to_bytes(MounterNote{own, stays_dead_}));
}

void HostMounts::mount(int session) {
  Result<Made> made = make();
  if (!made) return send(session, config::error_to_json(made.error()));
  send(session, {{"mount", made->own.mount}, {"device", made->own.device}, {"leaves_dead", leaves_dead(*made)}},
       made->mounted.device.get());
  made->mounted.device.reset();  // the mount is dead when its worker is
  if (!hears(session, Mounter::kShow)) return;
  const std::vector<std::string> states = also_.show(made->own);
  // Its number belongs to no other mount yet: `place` holds it.
  if (made->place.dead) places::detach_binds_of(made->place.device, task_.mountpoint);
  made->kept.reset();
  for (const std::string& state : states) send(session, {{"place", state}});
  send(session, Json::object());
  if (!hears(session, Mounter::kUncover)) return;
  // As late as this: a call that had found the directory before it was covered may have made its file after that.
  const bool may_have_left = ::geteuid() == 0 || made->again || leaves_dead(*made);
  const std::string left = may_have_left ? places::move_left_over(made->place, task_.mountpoint) : std::string();
  stays_dead_ = false;
  if (const Result<void> noted = note(made->own); !noted) return send(session, config::error_to_json(noted.error()));
  send(session, {{"left_over", left}});
}

/// What was mounted and shown, as it was noted; without a note nothing was.
Result<places::BindId> HostMounts::resume() {
  const auto bytes = notes_.read();
  if (!bytes) return places::BindId{};
  const auto noted = mounter_note_from(*bytes);
  if (!noted) {
    return fail(ErrorCode::kNotSupported,
                "another release has noted what it mounted: when no job runs, end the mount's "
                "processes, and run `inductorfs unmount --lazy " +
                    task_.mountpoint + "`");
  }
  if (noted->own.mount == 0) return places::BindId{};
  stays_dead_ = noted->stays_dead;
  return noted->own;
}

Result<void> HostMounts::unmount(bool lazy) {
  INDUCTORFS_TRY_ASSIGN(const auto own, resume());
  if (!lazy) INDUCTORFS_TRY(also_.check_idle(own));
  return places::unmount_if_there(task_.mountpoint, own, lazy);
}

/// The mount before the places, of which there may be many.
Result<void> HostMounts::leave() {
  INDUCTORFS_TRY_ASSIGN(const auto own, resume());
  if (own.mount == 0 || stays_dead_) return {};
  Result<void> done = places::unmount_if_there(task_.mountpoint, own, true);
  also_.hide(own);
  (void)places::detach_dead_mounts(task_.mountpoint);           // mostly none
  places::sweep_runtime_directory(runtime_directory(), false);  // links of other spellings that a killed one left
  return done ? note({}) : done;
}

/// `user` is the worker's word, so no more comes of it than of what that user asks for.
Result<Json> HostMounts::show_to(const std::string& user) {
  INDUCTORFS_TRY_ASSIGN(const auto own, resume());
  const auto number = number_in<uid_t>(user);
  if (task_.users_in.empty() || own.mount == 0 || (!number && !user.empty())) {
    return fail(ErrorCode::kNotSupported,
                "the mount is shown in no default directory: it has --no-also, or its mountpoint is not root's");
  }
  Json failed = Json::array();
  for (const uid_t uid : number ? std::vector<uid_t>{*number} : also_.users(own)) {
    if (uid == 0) continue;
    const config::User known = config::user_by_id(uid);
    // Its group would be this process's.
    if (known.name.empty()) {
      if (number) failed.push_back("the user " + user + " has no name on this host");
      continue;
    }
    const std::string& root = known.name;
    const std::string torch = task_.users_in + "/" + config::torch_directory_name(known);
    for (const std::string& state : also_.show_to(own, known, root, torch)) {
      if (number && state.starts_with(places::kPlaceFailed))
        failed.push_back(state.substr(places::kPlaceFailed.size()));
    }
  }
  return Json{{"failed", failed}};
}

Result<void> HostMounts::drop_removed() {
  INDUCTORFS_TRY_ASSIGN(const auto own, resume());
  if (own.mount != 0) places::detach_removed_binds(own.device);
  return {};
}

Json to_json(log::Level level, std::string_view line) {
  return {{"level", static_cast<unsigned>(level)}, {"line", std::string(line)}};
}

Result<Json> in_json(const Result<void>& done) { return done ? Result<Json>(Json::object()) : fail(done.error()); }

/// In a child that answers once: with what it has to log.
std::string answer_of(const MounterTask& task, const std::function<Result<Json>(HostMounts&)>& act) {
  Json lines = Json::array();
  size_t size = 0;
  log::give_lines_to([&](log::Level level, std::string_view line) {
    size += line.size();
    if (size <= kLinesLimit) lines.push_back(to_json(level, line));
  });
  HostMounts mounts(task);
  const Result<Json> done = act(mounts);
  Json answer = done ? *done : config::error_to_json(done.error());
  if (!lines.empty()) answer["log"] = lines;
  return config::to_line(answer);
}

/// The control sockets; with the other spelling of the mountpoint, links to them.
std::vector<std::string> sockets_of(const std::string& path) {
  if (path.empty()) return {};
  if (::geteuid() != 0) return {path};
  return {path, control::guests_path(path)};
}

Result<Fd> listen_for(const MounterTask& task) {
  INDUCTORFS_TRY_ASSIGN(auto listener, control::listen(task.socket));
  const std::vector<std::string> sockets = sockets_of(task.socket);
  const std::vector<std::string> links = sockets_of(task.socket_alias);
  for (size_t i = 0; i < links.size(); ++i) {
    (void)::unlink(links[i].c_str());                       // a predecessor's
    (void)::symlink(sockets[i].c_str(), links[i].c_str());  // commands that name the other spelling miss it
  }
  return listener;
}

Result<Fd> open_log_of(const MounterTask& task) {
  INDUCTORFS_TRY(give_log(task.log, task.log_user));
  Fd file(::open(task.log.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC));
  return file ? Result<Fd>(std::move(file)) : fail_errno("open log", task.log);
}

using Tasks = std::map<std::string, fingerprint::ExaminerTask, std::less<>>;

const std::vector<int>& rights() {
  static const std::vector<int> all(std::begin(kCapabilities), std::end(kCapabilities));
  return all;
}

void add_mount_tasks(const MounterTask& task, Tasks& tasks) {
  fingerprint::ExaminerTask mount;
  mount.capabilities = rights();
  mount.deadline = task.patience + kBesides;
  mount.answer = [task](const ExaminerCall& call) {
    const int session = call.descriptor;
    log::give_lines_to([session](log::Level level, std::string_view line) { send(session, to_json(level, line)); });
    HostMounts(task).mount(session);
    return std::string();
  };
  fingerprint::ExaminerTask unmount;
  unmount.capabilities = rights();
  unmount.answer = [task](const ExaminerCall& call) {
    const bool lazy = call.request == Mounter::kLazily;
    return answer_of(task, [lazy](HostMounts& mounts) { return in_json(mounts.unmount(lazy)); });
  };
  fingerprint::ExaminerTask leave;
  leave.capabilities = rights();
  leave.answer = [task](const ExaminerCall&) {
    return answer_of(task, [](HostMounts& mounts) { return in_json(mounts.leave()); });
  };
  fingerprint::ExaminerTask show_to;
  show_to.capabilities = rights();
  show_to.deadline = kShowToDeadline;
  show_to.answer = [task](const ExaminerCall& call) {
    return answer_of(task, [&](HostMounts& mounts) { return mounts.show_to(call.request); });
  };
  fingerprint::ExaminerTask drop_removed;
  drop_removed.capabilities = rights();
  drop_removed.deadline = kShowToDeadline;
  drop_removed.answer = [task](const ExaminerCall&) {
    return answer_of(task, [](HostMounts& mounts) { return in_json(mounts.drop_removed()); });
  };
  tasks.emplace(Mounter::kMount, std::move(mount));
  tasks.emplace(Mounter::kUnmount, std::move(unmount));
  tasks.emplace(Mounter::kLeave, std::move(leave));
  tasks.emplace(Mounter::kShowTo, std::move(show_to));
  tasks.emplace(Mounter::kDropRemoved, std::move(drop_removed));
}

/// At the descriptor of its question.
std::string give(const ExaminerCall& call, const Result<Fd>& descriptor) {
  send(call.descriptor, descriptor ? Json::object() : config::error_to_json(descriptor.error()),
       descriptor ? descriptor->get() : -1);
  return {};
}

/// What the worker has no place for in its tree.
void add_place_tasks(const MounterTask& task, Tasks& tasks) {
  fingerprint::ExaminerTask listen;
  listen.answer = [task](const ExaminerCall& call) { return give(call, listen_for(task)); };
  fingerprint::ExaminerTask for_guests;
  for_guests.answer = [task](const ExaminerCall& call) { return give(call, control::listen_for_guests(task.socket)); };
  fingerprint::ExaminerTask listens;
  listens.answer = [task](const ExaminerCall&) {
    const Error nobody(ErrorCode::kNotFound, "nobody listens at " + task.socket);
    return config::to_line(control::is_listening(task.socket) ? Json::object() : config::error_to_json(nobody));
  };
  fingerprint::ExaminerTask unlisten;
  unlisten.deadline = kUnlistenDeadline;
  unlisten.answer = [task](const ExaminerCall&) {
    for (const std::string& link : sockets_of(task.socket_alias)) (void)::unlink(link.c_str());
    for (const std::string& socket : sockets_of(task.socket)) (void)::unlink(socket.c_str());
    return std::string("{}");
  };
  fingerprint::ExaminerTask make_log;
  make_log.capabilities = rights();
  make_log.answer = [task](const ExaminerCall& call) { return give(call, open_log_of(task)); };
  fingerprint::ExaminerTask connect;
  connect.capabilities = rights();
  connect.deadline = kConnectDeadline;
  connect.answer = [task](const ExaminerCall& call) {
    return give(call, redis::connect_unix(task.server, Deadline::after(kConnectPatience)));
  };
  tasks.emplace(Mounter::kListen, std::move(listen));
  tasks.emplace(Mounter::kListenForGuests, std::move(for_guests));
  tasks.emplace(Mounter::kListens, std::move(listens));
  tasks.emplace(Mounter::kUnlisten, std::move(unlisten));
  if (!task.log.empty()) tasks.emplace(Mounter::kMakeLog, std::move(make_log));
  if (!task.server.empty()) tasks.emplace(Mounter::kConnect, std::move(connect));
}

Tasks tasks_of(const MounterTask& task) {
  std::map<std::string, std::string> secrets = task.secrets;
  const auto signing_key = secrets.extract(kSigningKey);
  Tasks tasks = Secrets::tasks(secrets);
  if (!signing_key.empty()) tasks.emplace(StatementSigner::kTask, StatementSigner::task(signing_key.mapped()));
  add_mount_tasks(task, tasks);
  add_place_tasks(task, tasks);
  return tasks;
}

Result<MounterTask> inherit() {
  INDUCTORFS_TRY(keep_rights(kCapabilities));
  const Result<std::string> bytes = config::from_memory(supervisor::kMounterTaskFd);
  if (!bytes) return fail(ErrorCode::kInvalid, "a mounter is started by inductorfs mount, not by hand");
  (void)::close(supervisor::kMounterTaskFd);
  for (const int fd : {supervisor::kMounterFd, supervisor::kMounterNotesFd}) (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return mounter_task_from(*bytes);
}

}  // namespace

int mounter_command(const std::string& once) {
  (void)::prctl(PR_SET_NAME, "inductorfs-mnt");
  (void)::unsetenv("NOTIFY_SOCKET");  // systemd is the others' to talk to
  const Result<MounterTask> task = inherit();
  if (!task) {
    (void)std::fputs(error_line(task.error()).c_str(), stderr);
    return EXIT_FAILURE;
  }
  if (once == Mounter::kLeave) {
    const Result<void> done = HostMounts(*task).leave();
    (void)std::fputs(done ? supervisor::kDone : error_line(done.error()).c_str(), stderr);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  fingerprint::ExaminerOptions options;
  options.tasks = tasks_of(*task);
  options.only_tasks = true;
  fingerprint::run_examiner(supervisor::kMounterFd, options);
  return EXIT_SUCCESS;
}

}  // namespace inductorfs::mount
