// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/ledger/ledger.h"

#include <algorithm>
#include <utility>

#include "books.h"
#include "history.h"
#include "inductorfs/base/activity.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "job_finder.h"
#include "job_starts.h"
#include "report.h"
#include "verdict.h"

namespace inductorfs::ledger {

using config::Json;

namespace {

/// How often it looks whether jobs have ended.
constexpr Milliseconds kTick{1'000};
/// What comes within it is entered together. A process must not have ended before it is looked at.
constexpr Milliseconds kBatch{20};

bool may_see(const JobAccount& job, std::optional<uid_t> user) {
  return !user || (job.name.user == *user && job.name.kind != "hidden");
}

/// 0: the last one that missed something.
auto chosen(const std::vector<const JobAccount*>& all, uint64_t number, std::optional<uid_t> user) {
  return std::find_if(all.begin(), all.end(), [&](const JobAccount* job) {
    return may_see(*job, user) && (number == 0 ? !job->misses.empty() : job->number == number);
  });
}

void log_ended(const JobAccount& job) {
  const FamilyTally sum = sum_of(job.tally);
  const auto seconds = [](std::chrono::nanoseconds span) { return std::chrono::duration<double>(span).count(); };
  log::info("ledger.job_ended", {{"number", job.number},
                                 {"job", text_of(job.name)},
                                 {"uid", uint64_t{job.name.user}},
                                 {"command", job.command},
                                 {"processes", job.processes},
                                 {"asked", sum.local + sum.cluster + sum.misses()},
                                 {"local", sum.local},
                                 {"cluster", sum.cluster},
                                 {"missed", sum.misses()},
                                 {"made", sum.made},
                                 {"published", sum.published},
                                 {"fetched_bytes", sum.bytes},
                                 {"waited_s", seconds(job.tally.waited)},
                                 {"slowest_s", seconds(job.slowest.waited)},
                                 {"saved_s", seconds(job.saved)}});
}

}  // namespace

Ledger::Ledger(LedgerOptions options)
    : options_(std::move(options)),
      finder_(std::make_unique<JobFinder>(options_.processes, options_.variables, options_.clock, options_.runs_torch)),
      starts_(options_.start_ended ? std::make_unique<JobStarts>(options_.start_ended, options_.clock) : nullptr),
      books_(std::make_unique<Guarded<Books>>(options_.clock)),
      history_(options_.directory.empty() ? nullptr : std::make_unique<History>(options_.directory, options_.clock)) {}

Ledger::~Ledger() { stop(); }

void Ledger::start() {
  if (history_) books_->with([this](Books& books) { history_->load_totals(books); });
  count();
  thread_ = start_thread("ledger", [this](const std::stop_token&) { keep(); });
}

void Ledger::stop() {
  queue_.notify_with([](Queue& queue) { queue.stopping = true; });
  if (thread_.joinable()) thread_.join();
}

void Ledger::note(vfs::UseNotice&& notice) {
  const bool is_first = queue_.with([&notice](Queue& queue) {
    if (queue.waiting.size() >= kMostWaiting) {
      ++queue.dropped;
      return false;
    }
    ++queue.taken;
    queue.waiting.push_back(std::move(notice));
    return queue.waiting.size() == 1;
  });
  if (is_first) wake();
}

void Ledger::note_published(const std::vector<std::string>& paths) {
  queue_.with([&paths](Queue& queue) {
    if (queue.published.size() + paths.size() > kMostWaiting) {
      queue.dropped += paths.size();
      return;
    }
    queue.taken += paths.size();
    queue.published.insert(queue.published.end(), paths.begin(), paths.end());
  });
  wake();
}

/// Only for the first notice of a batch: a request thread is not to pay for a switch of threads each time.
void Ledger::wake() {
  queue_.notify_with([](Queue&) {});
}

bool Ledger::settle(Deadline deadline) {
  const uint64_t taken = queue_.with([](const Queue& queue) { return queue.taken; });
  const auto is_entered = [taken](const Queue& queue) {
    return queue.stopping || (queue.loaded && queue.entered >= taken);
  };
  return queue_.wait_until(deadline.at(), is_entered, is_entered);
}

void Ledger::pass_questions_on() {
  std::vector<MissQuestion> asked = books_->with([](Books& books) { return books.take_questions(); });
  if (!asked.empty()) {
    questions_.notify_with([&asked](Questions& questions) {
      for (MissQuestion& one : asked) {
        if (questions.stopped || questions.open.size() >= kMostQuestions) return;
        questions.open.push_back(std::move(one));
        ++questions.asked;
      }
    });
  }
}

void Ledger::ask_again(uint64_t number, std::optional<uid_t> user) {
  books_->with([&](Books& books) {
    const std::vector<const JobAccount*> all = books.jobs();
    const auto found = chosen(all, number, user);
    if (found != all.end()) books.ask_again((*found)->number);
  });
  pass_questions_on();
}

std::vector<MissQuestion> Ledger::await_questions() {
  const auto has_some = [](const Questions& questions) { return questions.stopped || !questions.open.empty(); };
  return questions_.wait_until(SteadyTime::max(), has_some, [](Questions& questions) {
    return questions.stopped ? std::vector<MissQuestion>{} : std::exchange(questions.open, {});
  });
}

void Ledger::note_explained(const MissQuestion& question, const Json& explained) {
  constexpr size_t kMostBytes = 4'096;
  std::string text = config::to_line(explained);
  if (text.size() > kMostBytes) {
    Json shorter = explained;
    shorter.erase("nearest");
    text = config::to_line(shorter);
  }
  if (text.size() > kMostBytes) text = "{}";
  const std::string reason = config::text_at(explained, "reason");
  books_->with([&](Books& books) { books.note_explained(question, reason, std::move(text)); });
  questions_.notify_with([&](Questions& questions) {
    ++questions.explained;
    if (config::text_at(explained, "reason") == kUnexplained) ++questions.unexplained;
  });
}

uint64_t Ledger::unexplained() const {
  return questions_.with([](const Questions& questions) { return questions.unexplained; });
}

std::string Ledger::history_trouble() const { return history_ ? history_->trouble() : std::string(); }

bool Ledger::settle_questions(Deadline deadline) {
  const uint64_t asked = questions_.with([](const Questions& questions) { return questions.asked; });
  const auto is_done = [asked](const Questions& questions) {
    return questions.stopped || questions.explained >= asked;
  };
  return questions_.wait_until(deadline.at(), is_done, is_done);
}

void Ledger::stop_asking() {
  questions_.notify_with([](Questions& questions) { questions.stopped = true; });
}

void Ledger::keep() {
  if (history_) history_->load_jobs(*books_);
  queue_.notify_with([](Queue& queue) { queue.loaded = true; });
  enter_all();
  if (history_) history_->save_now(*books_);
}

/// Until it is stopped.
void Ledger::enter_all() {
  const auto is_stopping = [](const Queue& queue) { return queue.stopping; };
  const auto has_work = [](const Queue& queue) {
    return queue.stopping || !queue.waiting.empty() || !queue.published.empty();
  };
  SteadyTime looked = options_.clock.now();
  while (true) {
    queue_.wait_until(Deadline::after(kTick).at(), has_work, has_work);
    if (queue_.wait_until(Deadline::after(kBatch).at(), is_stopping, is_stopping)) return;
    const Activity activity("keeps account of what programs use");
    const auto [notices, published] = queue_.with([](Queue& queue) {
      return std::make_pair(std::exchange(queue.waiting, {}), std::exchange(queue.published, {}));
    });
    enter(notices, published);
    if (!notices.empty() || !published.empty()) count();
    if (history_) history_->save(*books_);
    queue_.notify_with([done = notices.size() + published.size()](Queue& queue) { queue.entered += done; });
    if (options_.clock.now() - looked < kTick) continue;
    looked = options_.clock.now();
    close_ended();
  }
}

void Ledger::enter(const std::vector<vfs::UseNotice>& notices, const std::vector<std::string>& published) {
  for (const vfs::UseNotice& notice : notices) {
    if (queue_.with([](const Queue& queue) { return queue.stopping; })) return;
    const FoundJob job = finder_->find(notice.thread);
    // A compiler may have ended when what it made gets its name.
    const bool has_compiled = job.name.kind == "hidden" && notice.use == vfs::UseKind::kMade;
    if (!job.is_job && !has_compiled) continue;
    const bool of_cluster = notice.use == vfs::UseKind::kCluster || notice.use == vfs::UseKind::kFetched;
    std::optional<std::chrono::nanoseconds> compiled_in;
    const layout::Family family = layout::classify(notice.path).family;
    if (of_cluster && notice.digest && options_.compile_time && layout::rule_of(family).holds_graphs) {
      compiled_in = options_.compile_time(family, *notice.digest);
    }
    if (starts_) starts_->enter(notice, job);
    books_->with([&](Books& books) { books.enter(notice, job, compiled_in); });
  }
  pass_questions_on();
  for (const std::string& path : published) {
    books_->with([&path](Books& books) { books.enter_published(path); });
  }
}

void Ledger::count() {
  if (options_.counters == nullptr) return;
  const auto [sum, saved] = books_->with(
      [](const Books& books) { return std::make_pair(sum_of(books.totals().tally), books.totals().saved_ever); });
  const auto set = [this](const std::string& name, uint64_t value) {
    options_.counters->get("keys." + name).set(value);
  };
  set("asked", sum.local + sum.cluster + sum.misses());
  set("local", sum.local);
  set("cluster", sum.cluster);
  set("missed", sum.misses());
  for (const vfs::UseKind why : ledger::misses()) {
    const auto found = sum.missed.find(why);  // a series begins with 0, or rate() does not see its first event
    set("missed." + std::string(word_of(why)), found == sum.missed.end() ? 0 : found->second);
  }
  set("made", sum.made);
  set("published", sum.published);
  set("saved_ms", static_cast<uint64_t>(std::chrono::duration_cast<Milliseconds>(saved).count()));
}

void Ledger::close_ended() {
  books_->with([this](Books& books) {
    for (const JobAccount* job : books.close_ended([this](const ProcessId& one) { return finder_->lives(one); })) {
      log_ended(*job);
      if (starts_) starts_->end(job->name);
    }
  });
  if (starts_) starts_->tell_ended();
}

Json Ledger::stats(std::optional<uid_t> user) const {
  Json report = books_->with([user](const Books& books) {
    Json all = stats_report(books, user);
    all["not_counted"] = books.totals().not_counted;
    return all;
  });
  report["dropped"] = queue_.with([](const Queue& queue) { return queue.dropped; });
  return report;
}

Json Ledger::jobs(std::optional<uid_t> user) const {
  return books_->with([&](const Books& books) {
    const std::vector<const JobAccount*> all = books.jobs();
    std::vector<const JobAccount*> seen;
    std::copy_if(all.begin(), all.end(), std::back_inserter(seen),
                 [user](const JobAccount* job) { return may_see(*job, user); });
    Json list = Json::array();
    for (const JobAccount* job : seen) list.push_back(job_report(*job, seen, options_.environment_text));
    return list;
  });
}

Json Ledger::misses(uint64_t number, std::optional<uid_t> user) const {
  return books_->with([&](const Books& books) {
    const std::vector<const JobAccount*> all = books.jobs();
    const auto found = chosen(all, number, user);
    if (found == all.end()) return Json::object();
    std::vector<const JobAccount*> others;
    std::copy_if(all.begin(), all.end(), std::back_inserter(others),
                 [user](const JobAccount* job) { return may_see(*job, user); });
    Json report = job_report(**found, others, options_.environment_text);
    report["later"] =
        number != 0 ? 0 : std::count_if(all.begin(), found, [&](const JobAccount* job) { return may_see(*job, user); });
    report["reasons"] = reasons_report(**found);
    report["misses"] = misses_report(**found);
    return report;
  });
}

}  // namespace inductorfs::ledger
