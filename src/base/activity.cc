// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/activity.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>

#include "inductorfs/base/guarded.h"

namespace inductorfs {
namespace {

using Activities = std::map<uint64_t, AtWork>;

Guarded<Activities>& activities() {
  static auto* const all = new Guarded<Activities>;  // not destroyed: threads that nobody joins may outlive main()
  return *all;
}

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

std::string name_of_this_thread() {
  constexpr size_t kNameRoom = 16;
  std::array<char, kNameRoom> name{};
  return ::pthread_getname_np(::pthread_self(), name.data(), name.size()) == 0 ? name.data() : "";
}

}  // namespace

Activity::Activity(std::string what, AwaitedBy awaited_by) : number_(next_number()) {
  AtWork work{number_, ::gettid(), name_of_this_thread(), std::move(what), awaited_by};
  activities().with([&](Activities& all) { all.emplace(number_, std::move(work)); });
}

Activity::~Activity() {
  activities().with([&](Activities& all) { all.erase(number_); });
}

std::vector<AtWork> threads_at_work() {
  return activities().with([](const Activities& all) {
    std::vector<AtWork> result;
    result.reserve(all.size());
    for (const auto& [number, work] : all) result.push_back(work);
    return result;
  });
}

}  // namespace inductorfs
