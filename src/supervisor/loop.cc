// SPDX-License-Identifier: Apache-2.0
#include "loop.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

#include "inductorfs/base/message.h"
#include "inductorfs/base/number.h"
#include "inductorfs/supervisor/program.h"
#include "inductorfs/supervisor/protocol.h"
#include "inductorfs/takeover/request_slots.h"
#include "line.h"

namespace inductorfs::supervisor {
namespace {

constexpr int64_t kNanosecondsOfOne = 1'000'000;
constexpr size_t kRequestsInARow = 256;
/// What companions have of the mount's descriptors, beside their socket.
constexpr int kOfExaminer[] = {kExaminerTaskFd};
constexpr int kOfMounter[] = {kMounterTaskFd, kMounterNotesFd};
constexpr Time kLeavePatience = 10'000;
constexpr int kLeftOverTurns = 2'000;  ///< of a millisecond, in which what is left over is answered
constexpr int kMostWords = 64;         ///< in one turn
constexpr unsigned kFuseMajor = 10;    ///< Linux, Documentation/admin-guide/devices.txt: misc
constexpr unsigned kFuseMinor = 229;   ///< the same: fuse
/// The kernel refuses to hand out a request to a smaller buffer than the largest WRITE needs. Static: it costs nothing
/// until the supervisor has to answer itself.
alignas(64) std::array<char, takeover::RequestSlots::kRequestRoom> request_room;
/// When it does, there may be no memory to be had.
std::array<takeover::Slot*, takeover::RequestSlots::kMost> left_over;

/// "uid:gid:mode", the mode in octal.
bool parse_root(std::string_view text, Root& root) {
  const size_t first = text.find(':');
  const size_t second = text.find(':', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return false;
  return parse_number(text.substr(0, first), root.uid) &&
         parse_number(text.substr(first + 1, second - first - 1), root.gid) &&
         parse_number(text.substr(second + 1), root.mode, 8);
}

bool parse_word(const char* word, Task& task) {
  const std::string_view text(word);
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = text.substr(0, equals);
  const std::string_view value = text.substr(equals + 1);
  if (name == "log") {
    task.log = word + equals + 1;
    return true;
  }
  if (name == "cache") {
    task.examiner[2] = task.mountpoint;
    task.examiner[3] = word + equals + 1;
    task.mounter[2] = task.mountpoint;
    return true;
  }
  if (name == "root") return parse_root(value, task.root);
  if (name == "worker") return parse_user(value, task.worker);
  if (name == "hang") return parse_number(value, task.limits.hang);
  if (name == "start") return parse_number(value, task.limits.start);
  if (name == "upgrade") return parse_number(value, task.limits.upgrade);
  if (name == "crashes") return parse_number(value, task.limits.crashes) && task.limits.crashes <= kCrashLimit;
  return false;
}

/// Whether a worker that has less rights than the supervisor may hand this over with its word: what is written there,
/// or asked of it, is done with the supervisor's.
bool fits(Word word, int fd) {
  struct stat found {};
  if (::fstat(fd, &found) != 0) return false;
  if (word == Word::kDevice) return S_ISCHR(found.st_mode) && found.st_rdev == makedev(kFuseMajor, kFuseMinor);
  if (word == Word::kLock) return S_ISREG(found.st_mode);
  int listens = 0;
  socklen_t size = sizeof listens;
  return S_ISSOCK(found.st_mode) && ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

void set_flags(int fd, int command_get, int command_set, int flag) {
  const int flags = ::fcntl(fd, command_get);
  if (flags >= 0) (void)::fcntl(fd, command_set, flags | flag);
}

}  // namespace

bool parse_task(int argc, char** argv, Task& task) {
  if (argc < 2) return false;
  task.name = argv[0];
  task.mountpoint = argv[1];
  for (int i = 2; i < argc; ++i) {
    if (!parse_word(argv[i], task)) return false;
  }
  return task.examiner[3] != nullptr;
}

Loop::Loop(const Task& task, takeover::Region& region)
    : task_(task),
      region_(region),
      core_(task.limits),
      examiner_({"examiner", task_.examiner, kExaminerFd, kOfExaminer}),
      mounter_({"mounter", task_.mounter, kMounterFd, kOfMounter}),
      program_(out_of_the_way(Fd(kProgramFd))) {}

int Loop::run() {
  log_to(task_.log, task_.worker, task_.examiner[3]);
  if (!signals_.open()) {
    log_line("error", "supervisor.failed why=signalfd");
    return 1;
  }
  region_.page().supervisor.store(::getpid());
  protect();
  messenger_.open();
  if (::geteuid() == 0) proxy_.open();  // to those of other users nobody else comes
  while (!act()) {
    wait();
    take_signals();
    take_words();
    reap();
    examiner_.keep(now());
    mounter_.keep(now());
    if (core_.responding() && signs().serving == 0) respond();
    if (core_.is_held()) answer_control();
  }
  proxy_.leave();
  // They may stand still.
  examiner_.signal(SIGKILL);
  mounter_.signal(SIGKILL);
  close_tree(task_.examiner[3]);
  if (!has_left_) leave_mount();
  return core_.exit_code();
}

Signs Loop::signs() const {
  const takeover::Page& page = region_.page();
  return {page.beat.load() / kNanosecondsOfOne, page.serving.load() / kNanosecondsOfOne};
}

bool Loop::act() {
  while (true) {
    switch (core_.next(now(), signs())) {
      case Action::kNothing:
        return false;
      case Action::kStart:
        start_worker();
        break;
      case Action::kKill:
        log_line("error", "supervisor.worker_hung pid=%d action=killed", worker_.pid());
        worker_.signal(SIGKILL);
        break;
      case Action::kHeld:
        log_line("error",
                 "supervisor.worker_held pid=%d why=\"it waits in the kernel, for the store's disk as a rule\"",
                 worker_.pid());
        break;
      case Action::kAdopt:
        earlier_program_ = std::move(program_);
        program_ = std::move(new_program_);
        log_line("info", "supervisor.upgraded pid=%d", worker_.pid());
        break;
      case Action::kDiscard:
        new_program_.reset();
        log_line("error", "supervisor.upgrade_failed action=\"the old program again\"");
        break;
      case Action::kGoBack:
        // By descriptor: the package that was upgraded has replaced or removed its file, which lives on until now.
        program_ = std::move(earlier_program_);
        log_line("error",
                 "supervisor.upgrade_taken_back why=\"the new program crashes\" action=\"the old program again\"");
        break;
      case Action::kEnd:
        return true;
    }
    publish();
  }
}

void Loop::wait() {
  const bool responds = core_.responding() && device_;
  const int device = responds || core_.is_held() ? device_.get() : -1;
  const int control = answers_control() ? control_.get() : -1;
  const int guests = answers_control() ? proxy_.channel() : -1;
  std::array<pollfd, 5> items{pollfd{signals_.fd(), POLLIN, 0}, pollfd{worker_.link(), POLLIN, 0},
                              pollfd{device, static_cast<short>(responds ? POLLIN : 0), 0}, pollfd{control, POLLIN, 0},
                              pollfd{guests, POLLIN, 0}};
  (void)::poll(items.data(), items.size(), rest());  // an interruption is a turn, too
  if (core_.is_held() && (items[2].revents & POLLERR) != 0) core_.session_ended();
}

int Loop::rest() const {
  const Time time = now();
  Time rest = core_.rest(time);
  for (const Time one : {examiner_.rest(time), mounter_.rest(time), proxy_.rest(time)}) {
    if (one >= 0 && (rest < 0 || one < rest)) rest = one;
  }
  return static_cast<int>(rest);
}

void Loop::start_worker() {
  takeover::Page& page = region_.page();
  page.worker.store(0);
  page.serving.store(0);
  page.beat.store(0);
  page.safe_mode.store(core_.safe_mode() ? 1 : 0);
  const Fd& program = core_.trying_new() ? new_program_ : program_;
  const KeptDescriptors kept{device_.get(),     lock_.get(),      messenger_.notices(), control_.get(),
                             examiner_.renew(), mounter_.renew(), proxy_.channel()};
  const bool is_short = kept.examiner < 0 || kept.mounter < 0;
  if (is_short || !worker_.start(program.get(), kept, task_.mountpoint, task_.worker)) {
    log_line("error", "supervisor.worker_not_started errno=%d", errno);
    core_.start_failed(now());
    return;
  }
  has_guests_ = false;
  core_.started(now());
  examiner_.start(program.get(), now());
  mounter_.start(program.get(), now());
  if (!device_) {
    (void)::close(kReadyFd);  // its end is what tells the one who waits that the first worker is gone
    return;
  }
  for (unsigned i = 0; i < core_.stops(); ++i) worker_.signal(SIGTERM);
  log_line("info", "supervisor.worker_started pid=%d%s", worker_.pid(), core_.safe_mode() ? " safe_mode=true" : "");
}

void Loop::take_signals() {
  for (int number = signals_.next(); number != 0; number = signals_.next()) {
    if (number == SIGCHLD) continue;
    worker_.signal(number);
    if (number != SIGHUP) core_.asked_to_stop(now());
  }
}

void Loop::take_words() {
  static std::array<Fd, kMostDescriptors> given;
  // A worker is not to hold the loop up by what it says.
  for (int i = 0; i < kMostWords && worker_.link() >= 0; ++i) {
    Word word{};
    const Receipt receipt = receive_word(worker_.link(), word, given);
    if (receipt == Receipt::kEnded) worker_.close_link();
    if (receipt == Receipt::kWord) hear(word, given.front());
    if (!closer_.close(given)) {
      log_line("error", "supervisor.worker_lied pid=%d why=\"what it sends cannot be closed\" action=killed",
               worker_.pid());
      worker_.signal(SIGKILL);
    }
    if (receipt != Receipt::kWord) return;
  }
}

/// What is not kept, or was kept before, it leaves in `descriptor`.
void Loop::hear(Word word, Fd& descriptor) {
  const bool hands_over =
      word == Word::kDevice || word == Word::kLock || word == Word::kControl || word == Word::kGuests;
  if (hands_over && task_.worker.uid != 0 && !fits(word, descriptor.get())) return;
  if (word == Word::kDevice && !device_) {
    device_ = out_of_the_way(std::move(descriptor));
    set_flags(device_.get(), F_GETFL, F_SETFL, O_NONBLOCK);  // for the responder; a worker sets it as well
    start_messenger();
  } else if (word == Word::kLock) {
    descriptor = std::exchange(lock_, out_of_the_way(std::move(descriptor)));
  } else if (word == Word::kControl) {
    descriptor = std::exchange(control_, out_of_the_way(std::move(descriptor)));
    set_flags(control_.get(), F_GETFL, F_SETFL, O_NONBLOCK);  // nobody waits at it
  } else if (word == Word::kGuests && !has_guests_) {
    has_guests_ = true;  // of each a process is started
    proxy_.serve(std::move(descriptor), task_.name, task_.worker);
  } else if (word == Word::kExaminerSilent) {
    examiner_.replace(now());
  } else if (word == Word::kMounterSilent) {
    mounter_.replace(now());
  } else if (word == Word::kLeft) {
    has_left_ = true;
  } else if (word == Word::kUpgrade) {
    // Where a worker has less than its supervisor, its word is not enough.
    take_upgrade(task_.worker.uid != 0 ? open_own_program(descriptor.get()) : std::move(descriptor));
  }
}

void Loop::start_messenger() {
  if (!messenger_.start(device_.get(), task_.name, task_.worker))
    log_line("error", "supervisor.messenger_not_started errno=%d", errno);
}

/// No worker has done it, or could.
void Loop::leave_mount() {
  task_.mounter[3] = "leave";
  run_companion(program_.get(), {"mounter", task_.mounter, -1, kOfMounter}, kLeavePatience, lock_.get());
}

void Loop::take_upgrade(Fd program) {
  if (!program) log_line("error", "supervisor.program_refused why=\"others may have made it, or may replace it\"");
  const bool is_own = static_cast<bool>(program);
  const bool taken = is_own && core_.asked_to_upgrade(now(), signs());
  if (taken) {
    (void)act();  // the program of the upgrade before may not be adopted yet, and would lose its place to this one
    new_program_ = out_of_the_way(std::move(program));
  }
  log_line("info", "supervisor.upgrade_asked taken=%s", taken ? "true" : "false");
  // A worker that does not hear this has ended, or will be killed when it does not hand over in time.
  const Word refusal = is_own ? Word::kUpgradeRefused : Word::kProgramRefused;
  (void)send_word(worker_.link(), taken ? Word::kUpgradeTaken : refusal);
}

void Loop::reap() {
  proxy_.keep(task_.name, task_.worker);
  if (messenger_.reap()) {
    log_line("error", "supervisor.messenger_ended action=\"another one\"");
    start_messenger();
  }
  const pid_t pid = worker_.pid();
  int status = 0;
  if (!worker_.reap(status)) return;
  take_words();
  worker_.close_link();
  const bool ours = region_.page().worker.load() == pid;
  const bool was_safe = core_.safe_mode();
  const Outcome outcome = core_.ended(now(), status, ours, signs());
  answered_left_over_ = false;
  tell(outcome, pid, status);
  if (core_.safe_mode() && !was_safe)
    log_line("error", "supervisor.safe_mode why=\"crashes within a minute\" action=\"remote off\"");
  if (core_.responding())
    log_line("error", "supervisor.responding why=\"no worker can start\" action=\"another try in %d s\"",
             static_cast<int>(core_.rest_of_pause(now()) / 1000));
  publish();
}

void Loop::tell(Outcome outcome, pid_t pid, int status) const {
  const char* const how = WIFSIGNALED(status) ? "signal" : "code";
  const int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  switch (outcome) {
    case Outcome::kEnded:
    case Outcome::kFirstFailed:
      return;  // it has said so itself, or whoever waits for it does
    case Outcome::kHandedOver:
      return log_line("info", "supervisor.worker_handed_over pid=%d %s=%d", pid, how, number);
    case Outcome::kNewFailed:
      return log_line("error", "supervisor.new_program_failed pid=%d %s=%d", pid, how, number);
    case Outcome::kCrashed:
      return log_line("error", "supervisor.worker_crashed pid=%d %s=%d restarts=%u", pid, how, number,
                      core_.restarts());
    case Outcome::kRefusedByHost:
      return log_line("error", "supervisor.worker_refused pid=%d why=\"the host: see mount.failed\"", pid);
  }
}

bool Loop::answers_control() const { return device_ && (core_.is_held() || (core_.responding() && !core_.alive())); }

/// Tells whoever asks, without hearing what: nothing here may wait for another process. Who connects here is root or
/// the user who mounted; of others the proxy sends sockets of its own.
void Loop::answer_control() {
  static Guest guest;
  std::array<char, kAnswerLimit> room;
  for (size_t i = 0; i < kRequestsInARow && answers_control(); ++i) {
    Fd peer(control_ ? ::accept4(control_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1);
    const int channel = peer ? -1 : proxy_.channel();
    if (channel >= 0 && receive_guest(channel, guest, peer) != Receipt::kWord) return;
    if (!peer && channel < 0) return;
    if (!peer) continue;
    const int status = core_.last_status();
    const std::span<const char> text =
        core_.is_held() ? held_line(worker_.pid(), room)
                        : no_worker_line(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status),
                                         core_.rest_of_pause(now()) / 1000, room);
    (void)::send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void Loop::respond() {
  if (!device_) return;
  answer_control();
  if (!answered_left_over_ && !core_.alive()) answered_left_over_ = answer_left_over();
  std::array<char, kAnswerLimit> room;
  for (size_t i = 0; i < kRequestsInARow; ++i) {
    const ssize_t got = ::read(device_.get(), request_room.data(), request_room.size());
    if (got < 0 && (errno == ENODEV || errno == ECONNABORTED)) return core_.session_ended();
    if (got < 0 && (errno == EINTR || errno == ENOENT)) continue;  // ENOENT: it was interrupted before it was taken
    if (got <= 0) return;
    const std::span<const char> reply = answer({request_room.data(), static_cast<size_t>(got)}, task_.root, room);
    if (!reply.empty()) (void)!::write(device_.get(), reply.data(), reply.size());  // ENOENT: its process has gone
  }
}

/// As the worker's user: what lies there is what a worker has written, and may be anything. False: once more.
bool Loop::answer_left_over() {
  if (task_.worker.uid == 0) return answer_left_over_here();
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) ::_exit(become_server(task_.worker) && answer_left_over_here() ? 0 : 1);
  // Another process of that user may have stopped it.
  constexpr timespec kTurn{0, 1'000'000};
  for (int i = 0; i < kLeftOverTurns; ++i) {
    if (::waitpid(child, nullptr, WNOHANG) == child) return true;
    (void)::nanosleep(&kTurn, nullptr);
  }
  (void)::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return true;
}

bool Loop::answer_left_over_here() {
  std::array<char, kAnswerLimit> room;
  const size_t count = takeover::RequestSlots(region_).left_over(left_over);
  for (takeover::Slot* slot : std::span(left_over).first(count)) {
    const bool known = slot->phase.load() == takeover::Slot::kAnswered;
    const std::span<const char> reply =
        known ? std::span<const char>(slot->reply, std::min<size_t>(slot->reply_size, takeover::Slot::kReplyLimit))
              : answer({slot->request(), std::min<size_t>(slot->length(), slot->request_size)}, task_.root, room);
    if (!reply.empty()) (void)!::write(device_.get(), reply.data(), reply.size());  // ENOENT: it was answered
    slot->free();
  }
  return true;
}

void Loop::publish() {
  takeover::Page& page = region_.page();
  page.restarts.store(core_.restarts());
  page.upgrades.store(core_.upgrades());
  page.upgrade_failed.store(core_.upgrades_failed());
  page.upgrade_taken_back.store(core_.upgrades_taken_back());
  page.last_status.store(core_.last_status());
  page.last_was_hung.store(core_.last_was_hung() ? 1 : 0);
  page.last_restart.store(core_.last_crash() * kNanosecondsOfOne);
}

}  // namespace inductorfs::supervisor
