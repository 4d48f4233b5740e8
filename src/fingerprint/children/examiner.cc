// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/examiner.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fingerprint/children/examiner_child.h"
#include "fingerprint/processes/look_messages.h"
#include "inductorfs/base/message.h"
#include "inductorfs/base/sanitized.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::fingerprint {
namespace {

/// A look takes 0.3 ms, a package two seconds; each user may have two of both at once, and as many of each task.
constexpr size_t kChildrenOfOne = 4;
constexpr size_t kChildren = 32;
/// Those that the kernel does not let go of after a kill do not count, up to so many of one user, and of all; nor, for
/// users who have none, up to that many.
constexpr size_t kStuckOfOne = 8;
constexpr size_t kStuck = 128;
constexpr size_t kStuckAtMost = 1024;
/// Questions that wait for a child; whoever is hung up on asks again.
constexpr size_t kWaitingOfOne = 64;
constexpr size_t kTakenAtOnce = 256;
/// Containers whose files are held for a reading that has not begun. In many of them the user is root.
constexpr size_t kHeldOfOne = 128;
constexpr size_t kKnownOfOne = 1024;
constexpr size_t kKnown = 16384;
/// For whom a task counts that is about no process.
constexpr uid_t kNobody = static_cast<uid_t>(-1);
/// Where the kernel has no pidfd (before Linux 5.3).
constexpr Milliseconds kReapStep{10};
/// The child that has a package read is there to say that it was not read in time.
constexpr Milliseconds kToSaySo{3000};
/// After a fork for which there was no room.
constexpr Milliseconds kForkAgain{50};

/// A process that was looked at: its packages are read with its rights when it has ended, too.
struct Known {
  ProcessIdentity identity;
  uid_t user = 0;
  FileUser reader;
};

/// For whom a question counts: the user, and the task; of looks and packages that is empty.
using Whose = std::pair<uid_t, std::string>;

struct Asked {
  Question question;
  Fd connection;
  Fd further;
  Whose whose;
  FileUser reader;  ///< of kPackage: with whose rights, and by which directory where it is not this one's root
  std::string root{};
};

struct Child {
  pid_t pid = -1;
  Fd ended;  ///< a pidfd
  Fd connection;
  Whose whose;
  SteadyTime until;
  bool is_killed = false;
};

/// The files of a process, for as long as its line is open.
struct Holding {
  uint64_t number = 0;
  pid_t pid = 0;
  ProcessIdentity identity;
  Fd line;
  uid_t user = 0;
  FileUser reader;
  std::shared_ptr<const Held> held;
};

/// Nobody waits for the answer any more.
bool is_hung_up(const Fd& connection) {
  pollfd item{connection.get(), POLLRDHUP, 0};
  return ::poll(&item, 1, 0) > 0;
}

/// What has just failed says nothing of the process.
bool is_short_of_something() { return errno == EMFILE || errno == ENFILE || errno == ENOMEM; }

void answer(int connection, std::string_view line) {
  // The other end has room for one line of a look, and nobody waits for it if it has none.
  const std::string text = std::string(line) + "\n";
  (void)::send(connection, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// One thread that never blocks; what may block is a child's.
class Examiner {
 public:
  Examiner(int socket, const ExaminerOptions& options)
      : socket_(socket),
        options_(options),
        secret_(options.seal_secret ? options.seal_secret : std::make_shared<std::string>(new_seal_secret())),
        reader_(options.proc) {
    // What OpenSSL loads at its first use it may not load in a child under a filter.
    (void)codec::digest_of("");
    (void)seal_key(*secret_, 0, 0, 0);
  }
  void run();

 private:
  void wait();
  [[nodiscard]] bool take();
  void take(Question question, Fd connection, Fd further);
  void take_task(Question question, Fd connection, Fd further);
  [[nodiscard]] std::optional<ProcessSigns> signs_of(pid_t thread) const;
  [[nodiscard]] bool find_way(Asked& asked) const;
  [[nodiscard]] Taken taken(pid_t pid, const ProcessStat& stat) const;
  void note(pid_t pid, const ProcessStat& stat);
  void hold(const Question& question, Fd connection, const ProcessStat& stat);
  void start_waiting();
  [[nodiscard]] bool start(Asked& asked);
  [[noreturn]] void be_child(const Asked& asked);
  void close_others(const Asked& asked);
  void reap();
  void let_go();
  [[nodiscard]] size_t running(const Whose& whose) const;
  [[nodiscard]] bool has_too_many_stuck(const Whose& whose) const;
  [[nodiscard]] const Holding* holding(const Question& question) const;

  const int socket_;
  const ExaminerOptions& options_;
  const SealSecret secret_;
  const ProcReader reader_;
  std::map<Whose, std::deque<Asked>> waiting_;
  std::list<Child> children_;
  std::list<Holding> holdings_;
  uint64_t last_held_ = 0;
  std::map<pid_t, Known> known_;  ///< those with our root
  bool is_short_ = false;         ///< of processes
  const pid_t pid_ = ::getpid();
};

void Examiner::run() {
  while (take()) {
    reap();
    let_go();
    start_waiting();
    wait();
  }
  for (const Child& child : children_) (void)::kill(child.pid, SIGKILL);
}

void Examiner::wait() {
  std::vector<pollfd> items{{socket_, POLLIN, 0}};
  Deadline next = Deadline::after(std::chrono::hours(1));
  for (const Child& child : children_) {
    if (child.ended) items.push_back({child.ended.get(), POLLIN, 0});
    if (!child.is_killed) items.push_back({child.connection.get(), POLLRDHUP, 0});
    if (!child.ended) next = next.earlier(kReapStep);
    if (!child.is_killed) next = Deadline(std::min(next.at(), child.until));
  }
  if (is_short_) next = next.earlier(kForkAgain);
  for (const Holding& one : holdings_) items.push_back({one.line.get(), POLLRDHUP, 0});
  (void)::poll(items.data(), items.size(), static_cast<int>(next.left().count()));  // an interruption is a turn, too
}

/// Takes the questions that have come; false when nobody will ask any more.
bool Examiner::take() {
  for (size_t count = 0; count < kTakenAtOnce; ++count) {
    Question question;
    Fd connection;
    Fd further;
    const Received received = receive_question(socket_, question, connection, further);
    if (received == Received::kEnded) return false;
    if (received == Received::kQuestion) {
      take(std::move(question), std::move(connection), std::move(further));
    } else if (!connection) {
      return true;
    }
  }
  return true;  // the others with the next turn: children have their deadlines meanwhile
}

void Examiner::take(Question question, Fd connection, Fd further) {
  const pid_t pid = question.process.pid;
  if (options_.only_tasks && (question.ask != Ask::kTask || pid != 0)) return answer(connection.get(), kNothing);
  if (question.ask == Ask::kSigns) {
    const auto signs = signs_of(pid);
    return answer(connection.get(), signs ? to_text(*signs) : std::string(kNothing));
  }
  if (question.ask == Ask::kTask) return take_task(std::move(question), std::move(connection), std::move(further));
  const Holding* const held = holding(question);
  errno = 0;
  const auto stat = reader_.stat_of(pid);
  if (!stat && is_short_of_something()) return;  // whoever is hung up on asks again
  const bool lives = stat && question.process.identity.may_be(stat->identity);
  answer(connection.get(), lives ? to_text(taken(pid, *stat)) : std::string(kNothing));
  if (lives && question.ask == Ask::kHold) return hold(question, std::move(connection), *stat);
  if (lives && question.ask == Ask::kLook) note(pid, *stat);
  const auto found = known_.find(pid);
  const bool is_known = found != known_.end() && found->second.identity == question.process.identity;
  const bool reads = question.ask == Ask::kPackage && (held != nullptr || is_known);
  if (!lives && !reads) return answer(connection.get(), kNothing);
  Asked asked{std::move(question), std::move(connection), {}, {}, {}};
  asked.whose.first = held != nullptr ? held->user : (lives ? stat->owner : found->second.user);
  if (held != nullptr) {
    asked.reader = held->reader;
  } else if (is_known) {
    asked.reader = found->second.reader;
  } else if (!find_way(asked)) {
    return answer(asked.connection.get(), kNothing);
  }
  auto& waiting = waiting_[asked.whose];
  if (waiting.size() < kWaitingOfOne) waiting.push_back(std::move(asked));
}

void Examiner::take_task(Question question, Fd connection, Fd further) {
  const pid_t thread = question.process.pid;
  const auto about = thread > 0 ? signs_of(thread) : std::nullopt;
  const bool is_known = options_.tasks.contains(question.task) && (thread == 0 || about);
  answer(connection.get(), kNothing);
  if (!is_known) return answer(connection.get(), kNothing);
  Asked asked{std::move(question), std::move(connection), std::move(further), {}, {}};
  asked.whose = {about ? about->user : kNobody, asked.question.task};
  auto& waiting = waiting_[asked.whose];
  if (waiting.size() < kWaitingOfOne) waiting.push_back(std::move(asked));
}

std::optional<ProcessSigns> Examiner::signs_of(pid_t thread) const {
  const auto pid = reader_.process_of(thread);
  const auto stat = pid ? reader_.stat_of(*pid) : std::nullopt;
  if (!stat) return std::nullopt;
  const bool is_own = std::ranges::any_of(children_, [&](const Child& child) { return child.pid == *pid; });
  return ProcessSigns{*pid,   stat->identity.start, stat->parent,       stat->owner, stat->is_ended,
                      is_own, stat->identity.stack, stat->identity.code};
}

/// What the kernel tells at once.
Taken Examiner::taken(pid_t pid, const ProcessStat& stat) const {
  return {stat.owner, reader_.user_of(pid).value_or(FileUser{}), reader_.space_of(pid), reader_.root_of(pid)};
}

/// No child may say where the files of a process are: it looks at what that process has mapped.
bool Examiner::find_way(Asked& asked) const {
  const pid_t pid = asked.question.process.pid;
  const auto reader = reader_.user_of(pid);
  if (!reader_.maps_our_paths(pid)) asked.root = reader_.root_of(pid);
  const auto after = reader_.stat_of(pid);  // another process may have had the number by then
  if (!reader || !after || !asked.question.process.identity.may_be(after->identity)) return false;
  asked.reader = *reader;
  return true;
}

/// A process that has our root is read when it has ended, too.
void Examiner::note(pid_t pid, const ProcessStat& stat) {
  const auto reader = reader_.user_of(pid);
  const bool has_our_root = reader && reader_.has_our_root(pid);
  const auto after = reader_.stat_of(pid);  // another process may have had the number by then
  known_.erase(pid);
  if (!has_our_root || !after || !(after->identity == stat.identity)) return;
  const auto of_user = std::ranges::count_if(known_, [&](const auto& one) { return one.second.user == stat.owner; });
  // Those that have ended by then count as not read.
  if (static_cast<size_t>(of_user) >= kKnownOfOne) {
    std::erase_if(known_, [&](const auto& one) { return one.second.user == stat.owner; });
  }
  if (known_.size() >= kKnown) known_.clear();
  known_.emplace(pid, Known{stat.identity, stat.owner, *reader});
}

void Examiner::hold(const Question& question, Fd connection, const ProcessStat& stat) {
  const auto of_user = std::ranges::count_if(holdings_, [&](const Holding& one) { return one.user == stat.owner; });
  if (static_cast<size_t>(of_user) >= kHeldOfOne) return;  // whoever is hung up on asks again
  const auto reader = reader_.user_of(question.process.pid);
  Process process;
  process.pid = question.process.pid;
  process.identity = question.process.identity;
  process.root = reader_.root_of(process.pid);
  errno = 0;
  auto held = reader ? reader_.hold(process) : nullptr;
  if (!held && is_short_of_something()) return;
  if (!held) return answer(connection.get(), kNothing);
  answer(connection.get(), held_text(++last_held_));
  holdings_.push_back(
      {last_held_, process.pid, process.identity, std::move(connection), stat.owner, *reader, std::move(held)});
}

/// Of that process alone: another examiner may have given the number before, to hold another one's files.
const Holding* Examiner::holding(const Question& question) const {
  const auto found = std::ranges::find_if(holdings_, [&](const Holding& one) {
    return one.number == question.held && one.pid == question.process.pid && one.identity == question.process.identity;
  });
  return question.held == 0 || found == holdings_.end() ? nullptr : &*found;
}

void Examiner::let_go() {
  std::erase_if(holdings_, [](const Holding& one) { return is_hung_up(one.line); });
}

size_t Examiner::running(const Whose& whose) const {
  return static_cast<size_t>(
      std::ranges::count_if(children_, [&](const Child& one) { return one.whose == whose && !one.is_killed; }));
}

/// The users in turn, the one with the fewest children first.
void Examiner::start_waiting() {
  const auto has_room = [this] {
    const auto stuck = static_cast<size_t>(std::ranges::count_if(children_, &Child::is_killed));
    return children_.size() - stuck < kChildren && stuck < kStuckAtMost;
  };
  is_short_ = false;
  while (has_room()) {
    auto next = waiting_.end();
    size_t fewest = kChildrenOfOne;
    for (auto one = waiting_.begin(); one != waiting_.end(); ++one) {
      const size_t some = running(one->first);
      if (some >= fewest || has_too_many_stuck(one->first)) continue;
      fewest = some;
      next = one;
    }
    if (next == waiting_.end()) return;
    Asked asked = std::move(next->second.front());
    next->second.pop_front();
    if (next->second.empty()) waiting_.erase(next);
    if (is_hung_up(asked.connection)) continue;
    is_short_ = !start(asked);
    if (is_short_) return;  // whoever asked is hung up on, and asks again
  }
}

/// A task that is about no process counts for itself: no file that does not answer is in the way of an unmount.
bool Examiner::has_too_many_stuck(const Whose& whose) const {
  const auto stuck = static_cast<size_t>(std::ranges::count_if(children_, &Child::is_killed));
  const auto of_one = static_cast<size_t>(std::ranges::count_if(children_, [&](const Child& one) {
    return one.is_killed && (whose.first == kNobody ? one.whose == whose : one.whose.first == whose.first);
  }));
  return of_one > 0 && (of_one >= kStuckOfOne || stuck >= kStuck);
}

bool Examiner::start(Asked& asked) {
  const pid_t pid = ::fork();
  if (pid == 0) be_child(asked);
  if (pid < 0) return false;
  Milliseconds time = options_.deadline;
  if (asked.question.ask == Ask::kPackage) time += kToSaySo;
  if (asked.question.ask == Ask::kTask) time = options_.tasks.find(asked.question.task)->second.deadline;
  children_.push_back({pid, Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))), std::move(asked.connection),
                       asked.whose, system_clock().now() + time, false});
  return true;
}

void Examiner::be_child(const Asked& asked) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != pid_) ::_exit(1);  // it ended before that
  close_others(asked);
  ExaminerChild child(options_, reader_, secret_);
  child.limit_to(asked.question);
  std::shared_ptr<const Fd> memory;
  const Holding* const held = holding(asked.question);
  std::string line = child.answer({asked.question, asked.further.get(), asked.whose.first, asked.reader, asked.root,
                                   held == nullptr ? nullptr : held->held},
                                  memory);
  line += '\n';
  if (memory && send_message(asked.connection.get(), line.substr(0, 1), std::array{memory->get()})) line.erase(0, 1);
  (void)write_full(asked.connection.get(), line);
  ::_exit(0);
}

/// In a child. Others' connections are closed, or their ends would not be seen.
void Examiner::close_others(const Asked& asked) {
  (void)::close(socket_);
  children_.clear();
  waiting_.clear();
  const Holding* const needed = holding(asked.question);
  std::erase_if(holdings_, [&](const Holding& one) { return &one != needed; });
  for (Holding& one : holdings_) one.line.reset();
}

void Examiner::reap() {
  const SteadyTime now = system_clock().now();
  for (auto one = children_.begin(); one != children_.end();) {
    int status = 0;
    if (::waitpid(one->pid, &status, WNOHANG) == 0) {
      if (!one->is_killed && (now >= one->until || is_hung_up(one->connection))) {
        (void)::kill(one->pid, SIGKILL);
        one->is_killed = true;
        answer(one->connection.get(), kLate);
        one->connection.reset();
      }
      ++one;
      continue;
    }
    const bool is_done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!is_done && !one->is_killed) answer(one->connection.get(), kFailed);
    one = children_.erase(one);
  }
}

}  // namespace

Result<std::optional<CallFilter>> filter_of_reading() {
#ifdef INDUCTORFS_SANITIZED
  return std::nullopt;
#else
  INDUCTORFS_TRY_ASSIGN(auto filter, CallFilter::for_reading());
  return std::optional(std::move(filter));
#endif
}

void run_examiner(int socket, const ExaminerOptions& options) { Examiner(socket, options).run(); }

}  // namespace inductorfs::fingerprint
