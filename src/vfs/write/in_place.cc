// SPDX-License-Identifier: Apache-2.0
#include "vfs/write/in_place.h"

#include <sys/stat.h>

#include <algorithm>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/parcel_files.h"
#include "vfs/tree/view_files.h"

namespace inductorfs::vfs {
namespace {

constexpr size_t kAskedAtOnce = 256;
constexpr Milliseconds kStep{50};  ///< what becomes due within it is asked by one child
constexpr std::chrono::hours kIdle{1};
constexpr Milliseconds kHoldPatience{1000};
/// A kernel that does not tell today will not tell tomorrow.
constexpr int kMostUnknown = 3;
/// A file that nobody could be asked about in time keeps the others waiting for as long, each time.
constexpr int kLateQuietTimes = 5;

/// A set of Triton's is complete when its last file is.
bool is_in_set(const std::string& path) { return layout::classify(path).family == layout::Family::kTritonKernel; }

}  // namespace

void InPlace::start() {
  if (!asks()) return;
  thread_ = start_thread("in_place", [this](const std::stop_token& stop) { run(stop); });
}

void InPlace::stop() {
  state_.notify_with([](State& state) {
    state.stopped = true;
    state.question.request_stop();
  });
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  const auto rest = state_.with([](State& state) { return std::exchange(state.items, {}); });
  for (const auto& [key, item] : rest) tree_.unpin(item.node);
}

bool InPlace::asks() const { return static_cast<bool>(options_.who_writes); }

bool InPlace::is_on() const { return asks() && marks_.everyone_fits() && options_.quiet_is_complete; }

/// Where only a left file is asked about, Content::unfinished tells that this is one.
bool InPlace::watches(const NodePtr& node) const {
  if (!asks()) return false;
  return is_on() || node->content.with([](const Content& content) { return content.unfinished; });
}

bool InPlace::watches(const NodePtr& node, const std::string& path) const {
  return watches(node) || (asks() && form_of(path) == layout::Form::kIndex);
}

bool InPlace::add(const NodePtr& node, const std::string& path) {
  if (!watches(node, path)) return false;
  wait_for(node, path);
  return true;
}

bool InPlace::add_left(const std::string& path) {
  if (!asks()) return false;
  const auto node = lookup_.pin_path(path);
  if (!node) return true;  // it has gone
  wait_for(*node, path);
  tree_.unpin(*node);
  return true;
}

bool InPlace::add_left_set(const std::string& directory, const std::vector<std::string>& names) {
  bool added = false;
  for (const auto& name : names) {
    if (seal_on_disk(disk_, join(directory, name)).empty()) added = add_left(join(directory, name)) || added;
  }
  return added;
}

void InPlace::wait_for(const NodePtr& node, const std::string& path) {
  if (!node->is_regular() || !layout::rule_of(layout::classify(path).family).shared) return;
  node->content.with([](Content& content) { content.unfinished = true; });
  const SteadyTime due = std::chrono::steady_clock::now() + options_.quiet_time;
  const bool first = state_.with([&](State& state) {
    if (state.stopped) return false;
    const auto [known, is_new] = state.items.try_emplace({node->id, path});
    known->second.due = due;
    if (!is_new) return false;
    known->second.node = node;
    known->second.path = path;
    node->pins.fetch_add(1);
    if (is_in_set(path)) ++state.sets[parent_path(path)];
    return state.items.size() == 1;
  });
  if (first) state_.notify_with([](State&) {});  // else the thread looks at the list soon enough
}

void InPlace::add_names(const NodePtr& node) {
  if (!watches(node)) return;
  for (const auto& [parent_id, name] : nodes_.names_of(node)) {
    const NodePtr parent = nodes_.find(parent_id);
    if (const auto path = parent ? nodes_.path_of(*parent, name) : std::nullopt) add(node, *path);
  }
}

void InPlace::is_complete(const NodePtr& node) {
  node->content.with([](Content& content) { content.unfinished = false; });
}

/// The bytes of a sealed file do not change any more.
bool InPlace::is_unfinished(const NodePtr& node) const {
  return node->content.with([&](Content& content) {
    return content.unfinished && content.backing == Backing::kLocal && !tree_.is_sealed(*node, content);
  });
}

bool InPlace::set_is_unfinished(const std::string& directory) const {
  if (!asks()) return false;
  const auto names = local_set(disk_, directory);
  return std::any_of(names.begin(), names.end(), [&](const auto& name) {
    const NodePtr node = nodes_.find(join(directory, name));  // an unfinished file is pinned, and so known
    return node && is_unfinished(node);
  });
}

void InPlace::run(const std::stop_token& stop) {
  const auto stopped = [](const State& state) { return state.stopped; };
  const auto has_work = [](const State& state) { return state.stopped || !state.items.empty(); };
  while (!stop.stop_requested()) {
    (void)state_.wait_until(std::chrono::steady_clock::now() + kIdle, has_work, has_work);
    {
      const Activity activity("asks who writes in place", AwaitedBy::kSync);
      look();
    }
    const SteadyTime now = std::chrono::steady_clock::now();
    const SteadyTime next = state_.with([&](const State& state) {
      // What is added meanwhile is due a quiet time later.
      return std::max(next_due(state, now + options_.quiet_time), now + kStep);
    });
    (void)state_.wait_until(next, stopped, stopped);
  }
}

SteadyTime InPlace::next_due(const State& state, SteadyTime latest) {
  for (const auto& [key, item] : state.items) latest = std::min(latest, item.due);
  return latest;
}

/// What this host knows without asking the kernel.
InPlace::Next InPlace::next_of(Item& item) {
  if (nodes_.find(item.path) != item.node) {
    if (is_unfinished(item.node)) add_names(item.node);  // moved with its directory
    return Next::kDrop;
  }
  const auto state = item.node->content.with([&](Content& content) {
    item.version = content.version;
    if (content.backing != Backing::kLocal) return Next::kDrop;
    return content.active_writes > 0 ? Next::kLater : Next::kAsk;
  });
  if (state != Next::kAsk) return state;
  // Only the seal on the disk says that it was queued. The store has the inode earlier, and a worker may have been
  // killed in between.
  if (!seal_on_disk(disk_, item.path).empty()) return Next::kDrop;
  // A copy of what was sealed or came from the cluster is this host's for good (Data::make_private).
  if (mark_of(disk_, LocalTree::view(item.path), kChangedMark)) return Next::kDrop;
  if (!seals_after_build(item.path)) return Next::kAsk;
  const auto siblings = disk_.list(LocalTree::view(parent_path(item.path)));
  const std::string name = item.path.substr(item.path.rfind('/') + 1);
  // The end of its build directory is the sign, and comes never when its compiler was killed: sync must not wait for
  // it.
  return siblings && !is_being_built(parent_path(item.path), name, *siblings) ? Next::kAsk : Next::kDrop;
}

void InPlace::hold(bool held) {
  state_.notify_with([&](State& state) {
    state.held = held;
    if (held) state.question.request_stop();
  });
  const auto free = [&](const State& state) { return !held || !state.asking; };
  (void)state_.wait_until(std::chrono::steady_clock::now() + kHoldPatience, free, free);  // else unmount(2) tells
}

/// Nothing: it was ended, or they are held.
std::vector<OpenState> InPlace::ask(const std::vector<OpenQuestion>& questions) {
  const auto token = state_.with([](State& state) -> std::optional<std::stop_token> {
    if (state.held || state.stopped) return std::nullopt;
    state.question = {};
    state.asking = true;
    return state.question.get_token();
  });
  if (!token) return {};
  auto states = options_.who_writes(questions, *token);
  state_.notify_with([](State& state) { state.asking = false; });
  if (token->stop_requested()) return {};
  states.resize(questions.size(), OpenState::kLate);
  return states;
}

/// Those that have waited longest: somebody may hold more files open than one question has room for.
std::vector<InPlace::Item> InPlace::due_items(SteadyTime now) const {
  return state_.with([&](const State& state) {
    std::vector<const Item*> due;
    for (const auto& [key, item] : state.items) {
      if (item.due <= now) due.push_back(&item);
    }
    const auto count = static_cast<ptrdiff_t>(std::min(due.size(), kAskedAtOnce));
    std::partial_sort(due.begin(), due.begin() + count, due.end(),
                      [](const Item* one, const Item* other) { return one->due < other->due; });
    std::vector<Item> found;
    for (auto item = due.begin(); item != due.begin() + count; ++item) found.push_back(**item);
    return found;
  });
}

void InPlace::look() {
  const SteadyTime now = std::chrono::steady_clock::now();
  auto due = due_items(now);
  std::vector<Item> asked;
  std::vector<OpenQuestion> questions;
  for (Item& item : due) {
    switch (moves_.read([&](const Moves&) { return next_of(item); })) {
      case Next::kDrop:
        drop(item);
        break;
      case Next::kLater:
        put_off(item, OpenState::kForWriting, options_.quiet_time);
        break;
      case Next::kAsk:
        questions.push_back({shown_path(item.path), item.node->inode_number});
        asked.push_back(std::move(item));
        break;
    }
  }
  if (asked.empty()) return;
  const auto states = ask(questions);
  for (size_t i = 0; i < states.size(); ++i) take_answer(asked[i], states[i]);
}

void InPlace::take_answer(const Item& item, OpenState state) {
  switch (state) {
    case OpenState::kNotForWriting:
      return finish(item, state);
    case OpenState::kForWriting:
      return put_off(item, state, options_.quiet_time);
    case OpenState::kLate:
      counters_.get("seal.in_place_late").add();
      return put_off(item, state, kLateQuietTimes * options_.quiet_time);
    case OpenState::kNotAsked:
      return;
    case OpenState::kUnknown:
      if (item.unknown + 1 < kMostUnknown) return put_off(item, state, options_.quiet_time);
      if (seals_when_quiet(item.path)) return finish(item, state);  // the time alone is its sign
      counters_.get("seal.in_place_unknown").add();
      log::write_limited(log::Level::kWarning, "seal.in_place_unknown",
                         {{"path", shown_path(item.path)},
                          {"why", "the kernel does not tell whether somebody has it open for writing"}});
      return drop(item);
  }
}

void InPlace::put_off(const Item& item, OpenState answer, Milliseconds wait) {
  state_.with([&](State& state) {
    const auto known = state.items.find({item.node->id, item.path});
    if (known == state.items.end()) return;
    known->second.due = std::max(known->second.due, std::chrono::steady_clock::now() + wait);
    known->second.state = answer;
    if (answer == OpenState::kUnknown) ++known->second.unknown;
  });
}

/// Off the list, but it counts as waiting until left(), so that drain() misses nothing in between. False: it is not
/// there, or was written to since.
bool InPlace::take(const Item& item, bool although_added_again, bool& last_of_set) {
  return state_.with([&](State& state) {
    const auto known = state.items.find({item.node->id, item.path});
    if (known == state.items.end() || (!although_added_again && known->second.due > item.due)) return false;
    state.items.erase(known);
    ++state.leaving;
    if (!is_in_set(item.path)) return true;
    const auto set = state.sets.find(parent_path(item.path));
    if (set != state.sets.end() && --set->second == 0) {
      state.sets.erase(set);
      last_of_set = true;
    }
    return true;
  });
}

void InPlace::left(const Item& item) {
  state_.notify_with([](State& state) { --state.leaving; });
  tree_.unpin(item.node);
}

void InPlace::finish(const Item& item, OpenState answer) {
  bool last = false;
  if (!take(item, false, last)) return;
  // A write that came since the question may be the first of several.
  const bool complete = item.node->content.with([&](Content& content) {
    if (content.version != item.version || content.active_writes > 0) return false;
    content.unfinished = false;
    return true;
  });
  const bool is_gone = complete && answer == OpenState::kNotForWriting && remove_if_cut(item);
  if (!complete) {
    add(item.node, item.path);
  } else if (!is_gone) {
    queue_for_seal(item, true, last);
  }
  left(item);
}

/// Removes the name of an index that its writer has left half-written. A process that has the file open reads on.
/// Unlike after unlink(2), the cluster's entry of that name is shown. If a program has opened the file for writing
/// since the kernel was asked, and has neither truncated nor written it yet, what it writes has no name any more: the
/// next program compiles, and none fails.
bool InPlace::remove_if_cut(const Item& item) {
  if (!moves_.read([&](const Moves&) { return is_cut_index(disk_, item.path); })) return false;
  // Nobody may be on the way to the name while it goes.
  const NodePtr parent = moves_.write([&](Moves&) -> NodePtr {
    const auto walked = nodes_.walk(item.path);
    if (!walked.missing.empty() || walked.node != item.node) return nullptr;
    const bool removed = item.node->content.with([&](Content& content) {
      if (content.version != item.version || content.active_writes > 0 || content.backing != Backing::kLocal) {
        return false;
      }
      const Site where{walked.parent, walked.name, item.path, layout::name_of(item.path), {}};
      return removal_.take_name_away(where, item.node, &content).has_value();
    });
    return removed ? walked.parent : nullptr;
  });
  if (!parent) return false;
  tree_.let_go(nodes_.release(item.node));
  notifier_.forget_name(parent->id, last_component(item.path));
  changed_names_in(parent);
  notifier_.forget_content(parent->id);
  counters_.get("view.cut_index").add();
  log::warning("view.cut_index", {{"path", shown_path(item.path)}});
  return true;
}

void InPlace::drop(const Item& item) {
  bool last = false;
  if (!take(item, true, last)) return;
  queue_for_seal(item, false, last);
  left(item);
}

void InPlace::queue_for_seal(const Item& item, bool complete, bool last_of_set) {
  if (is_in_set(item.path)) {
    const NodePtr node = nodes_.walk(parent_path(item.path)).node;
    if (last_of_set && node && node->key) seal_queue_.add({node, parent_path(item.path), true});
    return;
  }
  if (!complete) return;
  const bool known = origin_.provenance_of(item.path).is_known();
  const pid_t writer = item.node->content.with([](const Content& content) { return content.last_writer; });
  if (!known && is_on()) origin_.saw_writer(item.node, item.path, writer);
  seal_queue_.add({item.node, item.path, false});
}

bool InPlace::drain(Deadline deadline) {
  const auto none = [](const State& state) { return (state.held || state.items.empty()) && state.leaving == 0; };
  return state_.wait_until(deadline.at(), none, none);
}

bool InPlace::is_held() const {
  return state_.with([](const State& state) { return state.held; });
}

size_t InPlace::waiting() const {
  return state_.with([](const State& state) { return state.items.size() + state.leaving; });
}

std::string InPlace::why(const Item& item) {
  if (!item.state) return "it was written to just now";
  if (*item.state == OpenState::kForWriting) return "somebody has it open for writing";
  return "the kernel has not told yet whether somebody has it open for writing";
}

std::vector<std::string> InPlace::reasons(size_t limit) const {
  return state_.with([&](const State& state) {
    std::vector<std::string> found;
    for (const bool looked_at : {true, false}) {
      if (!found.empty()) break;
      for (const auto& [key, item] : state.items) {
        if (item.state.has_value() == looked_at && found.size() < limit)
          found.push_back(shown_path(item.path) + ": " + why(item));
      }
    }
    return found;
  });
}

std::string InPlace::why_waits(const std::string& path) const {
  return state_.with([&](const State& state) {
    for (const auto& [key, item] : state.items) {
      if (item.path == path) return why(item);
    }
    return std::string();
  });
}

}  // namespace inductorfs::vfs
